"""What tcgen05 kernels must not do, and the findings that name it; allocation; pairs of CTAs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from canonical_layout import Layout
from kernel_text import SCHEDULES, clean
from mma_kernels import codes, image, values
from tcgen05_kernels import (
    BARRIER,
    copy_scales,
    execute,
    instruction_descriptor,
    one_thread,
    read_out,
    setup,
    teardown,
    wait,
)

A, B = Layout(128, 16, 16, 32, "k", 1024), Layout(16, 16, 16, 32, "k", 48 * 1024)
FIELDS = instruction_descriptor(128, 16, bit4=1)


def mma(accumulate: int = 0, d: str = "%r10", fields: int = FIELDS, a: int = A.descriptor(True)) -> str:
    return f"""
  mov.b64 %rd16, {a};
  mov.b64 %rd17, {B.descriptor(True)};
  setp.ne.u32 %p1, {accumulate}, 0;
  tcgen05.mma.cta_group::1.kind::f16 [{d}], %rd16, %rd17, {fields}, %p1;
"""


def execute_faulty(body: str, **options: Any) -> set[str]:
    rng = np.random.default_rng(21)
    picture = image((A, values(rng, "f16", (128, 16))[0]), (B, values(rng, "f16", (16, 16))[0]))
    report, _ = execute(body, picture, 16, **options)
    return codes(report)


RIGHT = setup() + one_thread(mma()) + read_out(16) + teardown()
# Lanes of the warp in %r41.
LANES = "  shl.b32 %r41, %warp, 21;\n  add.u32 %r41, %r41, %r10;\n"
LOAD = "  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%c0}, [%r41];\n"
WAIT_LOAD = "  tcgen05.wait::ld.sync.aligned;\n"
BAD_ADDRESS = "  add.u32 %r46, %r10, {};\n"

FAULTS = {
    "no_wait_for_the_product": (RIGHT.replace(wait(0), ""), "missing_wait"),
    "no_wait_for_the_load": (RIGHT.replace(WAIT_LOAD, "", 1), "register_in_flight"),
    "loads_twice_into_a_register": (
        setup() + one_thread(mma()) + LANES + LOAD + LOAD + WAIT_LOAD + teardown(),
        "register_in_flight",
    ),
    "no_proxy_fence": (RIGHT.replace("  fence.proxy.async.shared::cta;", ""), "missing_proxy_fence"),
    "no_fence_after_wait": (
        RIGHT.replace(wait(0), wait(0).replace("  tcgen05.fence::after_thread_sync;\n", "")),
        "missing_tcgen05_fence",
    ),
    "accumulates_on_nothing": (RIGHT.replace(mma(), mma(1)), "uninitialised_read"),
    "reads_cells_that_nobody_wrote": (RIGHT.replace(read_out(16), read_out(16, 8)), "uninitialised_read"),
    "lanes_of_another_warp": (
        setup() + one_thread(mma()) + "  mov.u32 %r41, %r10;\n" + LOAD + WAIT_LOAD + teardown(),
        "tmem_access",
    ),
    "columns_of_nobody": (setup(32) + one_thread(mma()) + read_out(16, 32) + teardown(32), "tmem_access"),
    "product_beyond_the_allocation": (
        setup(32) + one_thread("  add.u32 %r46, %r10, 24;\n" + mma(d="%r46")) + teardown(32),
        "tmem_access",
    ),
    "product_in_the_middle_of_the_lanes": (
        setup() + one_thread(f"  add.u32 %r46, %r10, {16 << 16};\n" + mma(d="%r46")) + teardown(),
        "tmem_access",
    ),
    "instruction_descriptor": (RIGHT.replace(str(FIELDS), str(FIELDS | 1 << 23)), "bad_descriptor"),
    "matrix_descriptor": (RIGHT.replace(str(A.descriptor(True)), str(A.descriptor(True) ^ 1 << 46)), "bad_descriptor"),
    "operand_out_of_bounds": (
        RIGHT.replace(str(A.descriptor(True)), str(A.descriptor(True) | 0x3F00)),
        "out_of_bounds",
    ),
    "operand_overwritten": (
        setup()
        + one_thread(mma()).replace(wait(0), "  st.shared.u32 [smem], %t;\n" + wait(0))
        + read_out(16)
        + teardown(),
        "overwrite_in_flight",
    ),
    "never_freed": (setup() + one_thread(mma()) + read_out(16), "tmem_lifecycle"),
    "freed_in_part": (RIGHT.replace("%r10, 256;\nFREED", "%r10, 128;\nFREED"), "tmem_lifecycle"),
    "freed_while_in_use": (
        setup() + one_thread(mma()).replace(wait(0), "") + teardown() + wait(0),
        "overwrite_in_flight",
    ),
    "48_columns": (setup(48) + teardown(48), "bad_operand"),
    "allocates_after_giving_up": (
        setup(64)
        + f"""
  @%p6 bra MORE;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem+{BARRIER}], 32;
  ld.shared.u32 %r46, [smem+{BARRIER}];
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r46, 32;
MORE:
"""
        + teardown(64),
        "tmem_lifecycle",
    ),
    "both_groups": (
        RIGHT.replace("tcgen05.relinquish_alloc_permit.cta_group::1", "tcgen05.relinquish_alloc_permit.cta_group::2"),
        "bad_operand",
    ),
    "scales_from_a_product": (
        setup()
        + one_thread(
            mma()
            + f"""
  setp.ne.u32 %p1, 0, 0;
  add.u32 %r46, %r10, 64;
  mov.b64 %rd16, {Layout(128, 64, 4, 32, "k", 1024).descriptor(True)};
  mov.b64 %rd17, {Layout(16, 64, 4, 32, "k", 48 * 1024).descriptor(True)};
  tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X
      [%r46], %rd16, %rd17, {instruction_descriptor(128, 16, bit7=1, bit10=1)}, [%r10], [%r10], %p1;
"""
        )
        + teardown(),
        "bad_descriptor",
    ),
    "accumulates_on_scales": (
        setup() + one_thread(copy_scales(0, 1024, 4) + mma(1)) + read_out(16) + teardown(),
        "bad_descriptor",
    ),
}


@pytest.mark.parametrize("schedule", ["early", "late"])
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_reported(name: str, schedule: str) -> None:
    body, code = FAULTS[name]
    assert code in execute_faulty(body, schedule=schedule)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_the_correct_kernel_is_clean(schedule: str, seed: int) -> None:
    assert execute_faulty(RIGHT, schedule=schedule, seed=seed) == set()


def test_scales_must_be_the_same_in_all_partitions() -> None:
    """Each warp stores scales to its own lanes; one of them differs."""
    nvfp4 = f"""
  setp.ne.u32 %p1, 0, 0;
  add.u32 %r46, %r10, 64;
  mov.b64 %rd16, {Layout(128, 64, 4, 32, "k", 1024).descriptor(True)};
  mov.b64 %rd17, {Layout(16, 64, 4, 32, "k", 48 * 1024).descriptor(True)};
  tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X
      [%r10], %rd16, %rd17, {instruction_descriptor(128, 16, bit7=1, bit10=1)}, [%r46], [%r46], %p1;
"""
    store = f"""{LANES}
  mov.u32 %c0, 0x38383838;
  add.u32 %c1, %c0, {{}};
  tcgen05.st.sync.aligned.32x32b.x4.b32 [%r41+64], {{{{%c0, %c1, %c0, %c0}}}};
  tcgen05.wait::st.sync.aligned;
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
"""
    for difference, expected in (("0", set()), ("%warp", {"bad_operand"})):
        body = setup() + store.format(difference) + one_thread(nvfp4) + read_out(16) + teardown()
        assert execute_faulty(body) == expected


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_an_allocation_waits_for_another_cta(schedule: str, seed: int) -> None:
    """Two CTAs of one SM want all columns: the second gets them when the first has freed them."""
    body = setup(512) + one_thread(mma()) + read_out(16) + teardown(512)
    rng = np.random.default_rng(22)
    (a, a_values), (b, b_values) = values(rng, "f16", (128, 16)), values(rng, "f16", (16, 16))
    # 99 KiB of shared memory a CTA, so that two of them fit.
    small = body.replace(str(BARRIER - 1024), str(96 * 1024)).replace(str(BARRIER - 1024 + 8), str(96 * 1024 + 8))
    report, words = execute(
        small, image((A, a), (B, b)), 16, grid=2, sms=1, schedule=schedule, seed=seed, smem=99 * 1024
    )
    clean(report)
    for out in words:
        np.testing.assert_array_equal(out.view(np.float32), a_values @ b_values.T)


def test_all_columns_are_taken() -> None:
    body = f"""{setup(512)}
  @%p6 bra MORE;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem+{BARRIER}], 32;
MORE:
{teardown(512)}"""
    report, _ = execute(body, np.zeros(16, np.uint8), 16)
    assert "deadlock" in codes(report)
    assert "free tensor memory of SM" in report.trace


@pytest.mark.parametrize("m", [128, 256])
@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_a_pair_multiplies(m: int, schedule: str, seed: int) -> None:
    """Each CTA holds half of the rows of A and half of those of B; the even one issues, both are told."""
    rng = np.random.default_rng(23)
    n, rows = 32, m // 2
    (a, a_values), (b, b_values) = values(rng, "f16", (m, 16)), values(rng, "f16", (n, 16))
    a_layout, b_layout = Layout(rows, 16, 16, 32, "k", 1024), Layout(n // 2, 16, 16, 32, "k", 48 * 1024)
    halves = [image((a_layout, a[rows * i :][:rows]), (b_layout, b[n // 2 * i :][: n // 2])) for i in range(2)]
    picture = np.concatenate(halves)
    issue = f"""
  mov.u32 %r50, %cluster_ctarank;
  setp.ne.u32 %p4, %r50, 0;
  @%p7 bra ISSUED;
  @%p4 bra ISSUED;
  mov.b64 %rd16, {a_layout.descriptor(True)};
  mov.b64 %rd17, {b_layout.descriptor(True)};
  setp.ne.u32 %p1, 0, 0;
  tcgen05.mma.cta_group::2.kind::f16 [%r10], %rd16, %rd17, {instruction_descriptor(m, n, bit4=1)}, %p1;
  mov.u16 %h0, 3;
  tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [smem+{BARRIER - 1024}], %h0;
ISSUED:
{wait(0)}"""
    columns = n if m == 256 else n // 2
    body = "  .reg .b16 %h<2>;\n" + setup(group=2) + issue + read_out(columns) + teardown(group=2)
    report, words = execute(
        body, picture, n, grid=2, cluster=2, per_cta=halves[0].size, schedule=schedule, seed=seed
    )
    clean(report)
    expected = a_values @ b_values.T
    for rank in range(2):
        out = words[rank].reshape(-1)[: 128 * columns].reshape(128, columns).view(np.float32)
        part = expected[rows * rank :][:rows]
        if m == 128:  # lanes 0-63 hold the left half of the columns, lanes 64-127 the right one
            out = np.concatenate([out[:64], out[64:]], axis=1)
        np.testing.assert_array_equal(out, part)


def test_a_pair_asks_for_the_same_columns() -> None:
    body = f"""
  mov.u32 %r50, %cluster_ctarank;
  shl.b32 %r51, 32, %r50;
  setp.ne.u32 %p6, %warp, 0;
  @%p6 bra DONE;
  tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [smem+{BARRIER - 1024}], %r51;
DONE:
"""
    report, _ = execute(body, np.zeros(16, np.uint8), 16, grid=2, cluster=2)
    assert "tmem_lifecycle" in codes(report)



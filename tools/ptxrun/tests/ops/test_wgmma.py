"""wgmma: layouts, types, operands in registers, and the findings about its order."""

from __future__ import annotations

from typing import Any

import numpy as np
import ptxrun
import pytest
from canonical_layout import Layout
from kernel_text import SCHEDULES, clean
from mma_kernels import codes, image, run, store_words, values
from numpy.typing import NDArray

TARGET = "sm_90a"
LANE = np.arange(32)
FENCED = "  fence.proxy.async.shared::cta;\n  bar.sync 0;\n"


def accumulators(n: int) -> list[str]:
    return [f"%c{i}" for i in range(n // 2)]


def braces(registers: list[str]) -> str:
    return "{" + ", ".join(registers) + "}"


def matrix(words: NDArray[Any], n: int) -> NDArray[np.float32]:
    """[64, n] from what 128 threads stored: row 16 warp + lane / 4 (+ 8), columns 8 j + 2 (lane % 4) (+ 1)."""
    sums = words.view(np.float32).reshape(4, 32, n // 8, 2, 2)  # warp, lane, j, lower half, pair
    return sums.transpose(0, 3, 1, 2, 4).reshape(4, 2, 8, 4, n // 8, 2).transpose(0, 1, 2, 4, 3, 5).reshape(64, n)


def product(
    n: int, kind: str, a: str, b: str, *, steps: int = 1, tail: str = "1, 1, 0, 0", depth: int = 16, scale_d: str = "0"
) -> str:
    """The instruction; a and b are its operands. scale_d: immediate or predicate."""
    return f"""
  setp.ne.u32 %p1, {scale_d}, 0;
  wgmma.mma_async.sync.aligned.m64n{n}k{depth}.f32.{kind}.{kind}
      {braces(accumulators(n))}, {a}, {b}, %p1, {tail};
"""


def whole(n: int, mma: str) -> str:
    """One group around the instructions, then the sums are stored."""
    return f"""{FENCED}
  wgmma.fence.sync.aligned;
{mma}
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
{store_words(accumulators(n))}"""


def descriptors(a: Layout, b: Layout) -> str:
    return f"  mov.b64 %rd10, {a.descriptor(False)};\n  mov.b64 %rd11, {b.descriptor(False)};\n"


def layouts(kind: str, n: int, span: int, a_major: str, b_major: str) -> tuple[Layout, Layout]:
    bits = 8 if kind in ("e4m3", "e5m2") else 16
    k = 256 // bits
    return Layout(64, k, bits, span, a_major, 1024), Layout(n, k, bits, span, b_major, 16 * 1024)


@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize(
    ("kind", "n", "a_major", "b_major"),
    [
        ("f16", 64, "k", "k"),
        ("bf16", 8, "k", "k"),
        ("f16", 256, "k", "k"),
        ("f16", 128, "k", "mn"),
        ("f16", 64, "mn", "k"),
        ("bf16", 64, "mn", "mn"),
        ("e4m3", 16, "k", "k"),
        ("e5m2", 24, "k", "k"),
    ],
)
def test_products(kind: str, n: int, a_major: str, b_major: str, span: int) -> None:
    rng = np.random.default_rng(7)
    a_layout, b_layout = layouts(kind, n, span, a_major, b_major)
    (a, a_values), (b, b_values) = values(rng, kind, (64, a_layout.k)), values(rng, kind, (n, b_layout.k))
    majors = "" if a_layout.bits == 8 else f", {int(a_major == 'mn')}, {int(b_major == 'mn')}"
    body = descriptors(a_layout, b_layout) + whole(
        n, product(n, kind, "%rd10", "%rd11", tail="1, 1" + majors, depth=a_layout.k)
    )
    picture = image((a_layout, a), (b_layout, b))
    report, words = run(body, picture, 64 * n, target=TARGET)
    clean(report)
    np.testing.assert_array_equal(matrix(words, n), a_values @ b_values.T)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_chains_signs_and_registers(schedule: str, seed: int) -> None:
    """D = -A B, then D += A B with A in registers, twice, in two groups."""
    rng = np.random.default_rng(8)
    a_layout, b_layout = layouts("f16", 16, 128, "k", "k")
    (a, a_values), (b, b_values) = values(rng, "f16", (64, 16)), values(rng, "f16", (16, 16))
    from_registers = product(16, "f16", "{%a0, %a1, %a2, %a3}", "%rd11", tail="1, 1, 0", scale_d="1")
    # A thread's registers: rows 16 warp + lane / 4 (+ 8), columns 2 (lane % 4) (+ 8); the 128-byte lines are swizzled.
    load = """
  shr.u32 %r20, %lane, 2;
  shl.b32 %r21, %warp, 4;
  add.u32 %r20, %r20, %r21;
  and.b32 %r22, %lane, 3;
  shl.b32 %r22, %r22, 2;
"""
    for index in range(4):
        lower, half = index % 2, index // 2
        load += f"""
  add.u32 %r23, %r20, {8 * lower};
  and.b32 %r24, %r23, 7;
  xor.b32 %r25, %r24, {half};
  shl.b32 %r25, %r25, 4;
  shl.b32 %r26, %r23, 7;
  add.u32 %r26, %r26, %r25;
  add.u32 %r26, %r26, %r22;
  add.u32 %r26, %r26, {a_layout.start};
  ld.shared.u32 %a{index}, [%r26];
"""
    body = f"""{descriptors(a_layout, b_layout)}{FENCED}{load}
  wgmma.fence.sync.aligned;
{product(16, "f16", "%rd10", "%rd11", tail="-1, 1, 0, 0")}
  wgmma.commit_group.sync.aligned;
{from_registers}{from_registers}
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 1;
  wgmma.wait_group.sync.aligned 0;
{store_words(accumulators(16))}"""
    report, words = run(body, image((a_layout, a), (b_layout, b)), 64 * 16, target=TARGET, schedule=schedule, seed=seed)
    clean(report)
    np.testing.assert_array_equal(matrix(words, 16), a_values @ b_values.T)
    assert report.launches[0].mma_steps == {"wgmma.m64n16k16": 3}


def test_f16_accumulators() -> None:
    rng = np.random.default_rng(9)
    a_layout, b_layout = layouts("f16", 8, 64, "k", "k")
    (a, a_values), (b, b_values) = values(rng, "f16", (64, 16)), values(rng, "f16", (8, 16))
    mma = """
  setp.ne.u32 %p1, 0, 0;
  wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%c0, %c1}, %rd10, %rd11, %p1, 1, 1, 0, 0;
"""
    body = descriptors(a_layout, b_layout) + whole(4, mma)
    report, words = run(body, image((a_layout, a), (b_layout, b)), 64 * 4, target=TARGET)
    clean(report)
    halves = words.view(np.float16).reshape(4, 8, 4, 2, 2)  # warp, lane / 4, lane % 4, lower half, pair
    np.testing.assert_array_equal(halves.transpose(0, 3, 1, 2, 4).reshape(64, 8), a_values @ b_values.T)


def faulty(body: str, *, nbytes: int = 0, **options: Any) -> set[str]:
    rng = np.random.default_rng(10)
    a_layout, b_layout = layouts("f16", 16, 128, "k", "k")
    parts = [(layout, values(rng, "f16", (layout.rows, 16))[0]) for layout in (a_layout, b_layout)]
    report, _ = run(descriptors(a_layout, b_layout) + body, image(*parts), 64 * 16, target=TARGET, **options)
    return codes(report)


MMA = product(16, "f16", "%rd10", "%rd11")
MORE = product(16, "f16", "%rd10", "%rd11", scale_d="1")
FENCE = "  wgmma.fence.sync.aligned;\n"
COMMIT = "  wgmma.commit_group.sync.aligned;\n"
WAIT = "  wgmma.wait_group.sync.aligned 0;\n"
STORE = store_words(accumulators(16))
FROM_REGISTERS = product(16, "f16", "{%a0, %a1, %a2, %a3}", "%rd11", tail="1, 1, 0")
NARROW = product(8, "f16", "%rd10", "%rd11", scale_d="1")
VERSION = f"  or.b64 %rd10, %rd10, {1 << 46};\n"
NO_STRIDE = f"  and.b64 %rd10, %rd10, {~(0x3FFF << 32)};\n"
ZERO_A = "".join(f"  mov.u32 %a{i}, 0;\n" for i in range(4))

FAULTS = {
    "no_fence": (FENCED + MMA + COMMIT + WAIT + STORE, "missing_wgmma_fence"),
    "written_after_fence": (FENCED + FENCE + "  mov.u32 %c3, 7;\n" + MORE + COMMIT + WAIT, "missing_wgmma_fence"),
    "a_written_after_fence": (FENCED + FENCE + ZERO_A + FROM_REGISTERS + COMMIT + WAIT, "missing_wgmma_fence"),
    "accumulates_on_nothing": (FENCED + FENCE + MORE + COMMIT + WAIT + STORE, "uninitialised_register"),
    "no_wait": (FENCED + FENCE + MMA + COMMIT + STORE, "register_in_flight"),
    "waits_for_too_little": (FENCED + FENCE + MMA + COMMIT + WAIT.replace(" 0;", " 1;") + STORE, "register_in_flight"),
    "not_committed": (FENCED + FENCE + MMA + WAIT + STORE, "register_in_flight"),
    "accumulator_overwritten": (FENCED + FENCE + MMA + "  mov.u32 %c3, 7;\n" + COMMIT + WAIT, "register_in_flight"),
    "a_overwritten": (
        FENCED + ZERO_A + FENCE + FROM_REGISTERS + "  mov.u32 %a2, 7;\n" + COMMIT + WAIT,
        "register_in_flight",
    ),
    "other_shape_in_flight": (FENCED + FENCE + MMA + NARROW + COMMIT + WAIT, "register_in_flight"),
    "no_proxy_fence": ("  bar.sync 0;\n" + FENCE + MMA + COMMIT + WAIT + STORE, "missing_proxy_fence"),
    "operand_overwritten": (
        FENCED + FENCE + MMA + COMMIT + "  st.shared.u32 [%r1], %t;\n" + WAIT + STORE,
        "overwrite_in_flight",
    ),
    "one_warp_does_not_take_part": (
        FENCED + FENCE + "  setp.eq.u32 %p3, %warp, 2;\n  @%p3 bra SKIP;\n" + MMA + "SKIP:\n" + COMMIT + WAIT,
        "not_converged",
    ),
    "descriptor_differs": (
        FENCED + FENCE + "  cvt.u64.u32 %rd12, %lane;\n  add.u64 %rd10, %rd10, %rd12;\n" + MMA + COMMIT + WAIT,
        "bad_operand",
    ),
    "descriptor_version": (FENCED + FENCE + VERSION + MMA + COMMIT + WAIT, "bad_descriptor"),
    "stride_zero": (FENCED + FENCE + NO_STRIDE + MMA + COMMIT + WAIT, "bad_descriptor"),
}


@pytest.mark.parametrize("schedule", ["early", "late"])
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_reported(name: str, schedule: str) -> None:
    body, code = FAULTS[name]
    assert code in faulty(body, schedule=schedule)


def test_the_correct_order_is_clean() -> None:
    assert faulty(FENCED + FENCE + MMA + MORE + COMMIT + WAIT + STORE) == set()
    assert faulty(FENCED + ZERO_A + FENCE + FROM_REGISTERS + COMMIT + WAIT + STORE, schedule="late") == set()


@pytest.mark.parametrize(
    "spelling",
    [
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%c0}, %rd10, %rd11, %p1, 1, 1, 0, 0",
        "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%c0, %c1, %c2, %c3}, %rd10, %rd11, %p1, 1, 1",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%c0, %c1, %c2, %c3}, %rd10, %rd11, %p1, 2, 1, 0, 0",
    ],
)
def test_unknown_spellings_are_refused(spelling: str) -> None:
    with pytest.raises(ValueError, match=r"PTX line \d+"):
        faulty(f"  {spelling};\n")


WARPGROUP = """
.version 8.8
.target sm_90a
.address_size 64
.visible .entry kernel() {
  .reg .b64 %rd<2>;
  .reg .f32 %f<4>;
  .shared .align 128 .b8 tile[4096];
  mov.b64 %rd0, 0x0001000100000040;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd0, %rd0, 0, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  ret;
}
"""


@pytest.mark.parametrize(("threads", "complete"), [(32, False), (96, False), (120, False), (128, True), (160, False)])
def test_a_warpgroup_has_four_warps(threads: int, complete: bool) -> None:
    launch = ptxrun.Launch(ptxrun.Module(WARPGROUP), "kernel", 1, threads)
    report = ptxrun.run([launch], ptxrun.Memory())
    assert ("not_converged" in codes(report)) == (not complete), str(report)

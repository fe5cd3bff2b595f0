"""The frame of a tcgen05 kernel: shared memory by plain stores, tensor memory, a commit, the accumulators out."""

from __future__ import annotations

from typing import Any

import numpy as np
import ptxrun
from canonical_layout import Layout
from mma_kernels import Words, run
from numpy.typing import NDArray

TARGET = "sm_100a"
BARRIER = 190 * 1024  # byte of shared memory: an mbarrier, then the address of tensor memory
E4M3_ONE, UE8M0_ONE = 0x38, 127


def setup(columns: int = 256, *, proxy_fence: bool = True, group: int = 1) -> str:
    """Barrier, allocation by warp 0, and %r10 = address of tensor memory for everybody."""
    fence = "  fence.proxy.async.shared::cta;" if proxy_fence else ""
    sync = "bar.sync 0;" if group == 1 else "barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;"
    return f"""
  setp.ne.u32 %p7, %t, 0;
  @!%p7 mbarrier.init.shared::cta.b64 [smem+{BARRIER - 1024}], 1;
  @!%p7 fence.mbarrier_init.release.cluster;
{fence}
  bar.warp.sync 0xffffffff;
  setp.ne.u32 %p6, %warp, 0;
  @%p6 bra ALLOCATED;
  tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [smem+{BARRIER - 1024 + 8}], {columns};
  tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned;
ALLOCATED:
  tcgen05.fence::before_thread_sync;
  {sync}
  tcgen05.fence::after_thread_sync;
  ld.shared.u32 %r10, [smem+{BARRIER - 1024 + 8}];
"""


def one_thread(instructions: str, group: int = 1) -> str:
    """Thread 0 issues them and commits; everybody waits."""
    return f"""
  @%p7 bra ISSUED;
{instructions}
  tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster.b64 [smem+{BARRIER - 1024}];
ISSUED:
{wait(0)}"""


def wait(parity: int) -> str:
    return f"""
WAIT{parity}:
  mbarrier.try_wait.parity.shared::cta.b64 %p5, [smem+{BARRIER - 1024}], {parity};
  @!%p5 bra WAIT{parity};
  tcgen05.fence::after_thread_sync;
"""


def read_out(columns: int, first: int = 0) -> str:
    """out[128][columns] from the lanes of the four warps."""
    text = f"""
  shl.b32 %r11, %warp, 21;
  add.u32 %r11, %r11, %r10;
  add.u32 %r11, %r11, {first};
  mul.wide.u32 %rd20, %t, {4 * columns};
  add.u64 %rd20, %out, %rd20;
"""
    for column in range(0, columns, 8):
        registers = ", ".join(f"%c{i}" for i in range(8))
        text += f"  tcgen05.ld.sync.aligned.32x32b.x8.b32 {{{registers}}}, [%r11];\n  tcgen05.wait::ld.sync.aligned;\n"
        text += "".join(f"  st.global.u32 [%rd20+{4 * (column + i)}], %c{i};\n" for i in range(8))
        text += "  add.u32 %r11, %r11, 8;\n"
    return text


def teardown(columns: int = 256, group: int = 1) -> str:
    sync = "bar.sync 0;" if group == 1 else "barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;"
    return f"""
  tcgen05.fence::before_thread_sync;
  {sync}
  tcgen05.fence::after_thread_sync;
  @%p6 bra FREED;
  tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %r10, {columns};
FREED:
"""


def frame(instructions: str, columns: int) -> str:
    return setup() + one_thread(instructions) + read_out(columns) + teardown()


def execute(body: str, picture: NDArray[np.uint8], columns: int, **options: Any) -> tuple[ptxrun.Report, Words]:
    """The report and out[ctas, 128, columns]."""
    report, words = run(body, picture, 128 * columns, target=TARGET, **options)
    return report, words.reshape(-1, 128, columns)


def instruction_descriptor(m: int, n: int, **bits: int) -> int:
    """Fields common to all kinds; further ones as bitN=value."""
    value = (n >> 3) << 17 | (m >> 4) << 24
    for name, x in bits.items():
        value |= x << int(name.removeprefix("bit"))
    return value


def scale_atoms(scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[rows, groups] -> 512-byte atoms of 128 rows and 4 groups; missing rows are NaN."""
    rows, groups = scales.shape
    padded = np.full((-(-rows // 128) * 128, groups), 0x7F, np.uint8)
    padded[:rows] = scales
    atoms = padded.reshape(-1, 4, 32, groups // 4, 4).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(atoms).reshape(-1)


def copy_scales(column: int, start: int, atoms: int) -> str:
    """tcgen05.cp of the atoms from byte `start` of shared memory to four columns each."""
    descriptor = Layout(32, 16, 8, 0, "k", start)
    text = ""
    for i in range(atoms):
        fields = descriptor.descriptor(True) + (512 * i >> 4)
        text += f"  mov.b64 %rd15, {fields};\n  add.u32 %r15, %r10, {column + 4 * i};\n"
        text += "  tcgen05.cp.cta_group::1.32x128b.warpx4 [%r15], %rd15;\n"
    return text

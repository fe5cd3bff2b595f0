"""Kernels around one matrix instruction, and the elements to feed them with."""

from __future__ import annotations

from typing import Any

import numpy as np
import ptxrun
from canonical_layout import Layout
from numpy.typing import NDArray

Words = NDArray[np.uint32]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
SMEM_BYTES = 200 * 1024
FIRST_BYTE = 1024  # of shared memory that a kernel may use

HEADER = """
.version 8.8
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 smem[];
"""

# 128 threads copy the picture of shared memory from global memory; then the body.
ENTRY = """
.visible .entry kernel(
  .param .u64 image, .param .u32 image_bytes, .param .u32 image_stride, .param .u64 out, .param .u32 out_stride)
.maxntid 128, 1, 1
{{
  .reg .pred %p<8>;
  .reg .b32 %r<64>, %t, %warp, %lane;
  .reg .b32 %c<128>, %a<8>;
  .reg .b64 %rd<32>, %out;
  mov.u32 %t, %tid.x;
  shr.u32 %warp, %t, 5;
  and.b32 %lane, %t, 31;
  ld.param.u64 %rd0, [image];
  ld.param.u32 %r0, [image_bytes];
  ld.param.u64 %out, [out];
  mov.u32 %r2, %ctaid.x;
  ld.param.u32 %r1, [image_stride];
  mul.wide.u32 %rd1, %r1, %r2;
  add.u64 %rd0, %rd0, %rd1;
  ld.param.u32 %r1, [out_stride];
  mul.wide.u32 %rd1, %r1, %r2;
  add.u64 %out, %out, %rd1;
  mov.u32 %r1, smem;
  shl.b32 %r2, %t, 2;
COPY:
  setp.ge.u32 %p0, %r2, %r0;
  @%p0 bra COPIED;
  cvt.u64.u32 %rd1, %r2;
  add.u64 %rd1, %rd0, %rd1;
  ld.global.u32 %r3, [%rd1];
  add.u32 %r4, %r1, %r2;
  st.shared.u32 [%r4], %r3;
  add.u32 %r2, %r2, 512;
  bra COPY;
COPIED:
{body}
  ret;
}}
"""


def values(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """(bit patterns, values): small numbers, so that every sum is exact."""
    if kind == "e2m1":
        codes = rng.integers(0, 16, shape, dtype=np.uint8)
        return codes, E2M1[codes]
    whole = rng.integers(-6, 7, shape).astype(np.float32)
    if kind == "f16":
        return whole.astype(np.float16).view(np.uint16), whole
    if kind == "bf16":
        return (whole.view(np.uint32) >> 16).astype(np.uint16), whole
    # e4m3 and e5m2 hold these numbers exactly: sign, exponent, fraction by hand.
    bias, fraction_bits = {"e4m3": (7, 3), "e5m2": (15, 2)}[kind]
    whole = np.where(np.abs(whole) == 5, 4, whole).astype(np.float32)
    mantissa, exponent = np.frexp(np.abs(whole))
    field = np.where(whole == 0, 0, exponent - 1 + bias)
    fraction = np.where(whole == 0, 0, (2 * mantissa - 1) * (1 << fraction_bits)).astype(np.int64)
    sign = np.signbit(whole).astype(np.int64) << 7
    return (sign | field << fraction_bits | fraction).astype(np.uint8), whole


def image(*parts: tuple[Layout, NDArray[Any]], nbytes: int = 0) -> NDArray[np.uint8]:
    """Shared memory from FIRST_BYTE on with the operands in their layouts."""
    picture = np.zeros(SMEM_BYTES, np.uint8)
    last = FIRST_BYTE + max(nbytes, 4)
    for layout, elements in parts:
        layout.store(picture, elements)
        last = max(last, int(layout.addresses().max()) + 16)
    return picture[FIRST_BYTE : -(-last // 16) * 16]


def run(
    body: str,
    picture: NDArray[np.uint8],
    out_words: int,
    *,
    target: str,
    schedule: str = "early",
    seed: int = 0,
    cluster: int = 1,
    grid: int = 1,
    smem: int = SMEM_BYTES - FIRST_BYTE,
    per_cta: int = 0,
    **options: Any,
) -> tuple[ptxrun.Report, Words]:
    """The body's kernel. `smem` starts at byte FIRST_BYTE; each CTA has `out_words` words from `out` on.

    per_cta: bytes of the picture that each CTA takes, the first one those at its start; 0: all take the whole.
    """
    memory = ptxrun.Memory()
    source = memory.add(picture, "image", readonly=True)
    out = memory.add_empty(4 * out_words * grid, "out")
    module = ptxrun.Module(HEADER.format(target=target) + ENTRY.format(body=body))
    args: list[ptxrun.Buffer | int] = [source, per_cta or picture.nbytes, per_cta, out, 4 * out_words]
    launch = ptxrun.Launch(module, "kernel", grid, 128, args, cluster=cluster, smem=smem)
    report = ptxrun.run([launch], memory, schedule=schedule, seed=seed, **options)  # type: ignore[arg-type]
    return report, out.numpy(np.uint32, (grid, out_words))


def store_words(registers: list[str], base: str = "%out") -> str:
    """Thread t writes its registers to word len(registers) * t + i."""
    n = len(registers)
    lines = [f"  mul.wide.u32 %rd30, %t, {4 * n};", f"  add.u64 %rd30, {base}, %rd30;"]
    lines += [f"  st.global.u32 [%rd30+{4 * i}], {register};" for i, register in enumerate(registers)]
    return "\n".join(lines) + "\n"


def codes(report: ptxrun.Report) -> set[str]:
    return {finding.code for finding in report.findings}

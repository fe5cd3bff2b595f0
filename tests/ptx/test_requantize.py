"""The way to e2m1 codes of sm_90a's kernels against the one formula of src/numerics."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from ptx_program import SOURCES, device_flags
from ptxrun import Launch, Memory, Module, run
from ptxrun.toolkit import compile_ptx

from cake_moe import layout

KERNEL = """
#include "kernels/common/e2m1.cuh"

extern "C" __global__ void encode(const float4* x, unsigned short* codes) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 four = x[i];
  codes[i] = cake_moe::encode_e2m1x4({four.x, four.y, four.z, four.w});
}
"""
THREADS = 256
CANONICAL_NAN = 0x7FFFFFFF
"""The only NaN that a product gives."""


def magnitudes() -> torch.Tensor:
    """Bits of floats: every upper half but of a NaN, and four ulp around each grid value, tie and power of two."""
    grid = layout.decode_e2m1(torch.arange(8, dtype=torch.uint8)).tolist()
    places = torch.tensor([*grid[1:], *((a + b) / 2 for a, b in pairwise(grid)), *(2.0**e for e in range(-126, 128))])
    near = places.view(torch.int32)[:, None] + torch.arange(-4, 5, dtype=torch.int32)
    return torch.cat([torch.arange(0x7F81, dtype=torch.int32) << 16, near.reshape(-1)])


@pytest.mark.parametrize("first", range(4))
def test_every_code(tmp_path: Path, first: int) -> None:
    """In each of the four places of a word; zeros fill the last block."""
    source = tmp_path / "encode.cu"
    source.write_text(KERNEL)
    text = compile_ptx(source, tmp_path / "encode.ptx", "sm_90a", [*device_flags(), f"-I{SOURCES}"])
    bits = magnitudes()
    x = torch.cat([bits, bits | -(2**31), torch.tensor([CANONICAL_NAN], dtype=torch.int32)]).roll(first)
    x = torch.nn.functional.pad(x, (0, -len(x) % (4 * THREADS))).view(torch.float32)

    memory = Memory()
    values = memory.add(x.view(torch.uint8).numpy(), "x", readonly=True)
    codes = memory.add_empty(len(x) // 2, "codes")
    launch = Launch(Module(text), "encode", grid=len(x) // 4 // THREADS, block=THREADS, args=[values, codes])
    run([launch], memory).raise_on_findings()

    words = torch.from_numpy(codes.numpy(np.uint16).astype(np.int32))
    got = (words[:, None] >> torch.tensor([0, 4, 8, 12]) & 15).reshape(-1).to(torch.uint8)
    assert torch.equal(got, layout.encode_e2m1(x))

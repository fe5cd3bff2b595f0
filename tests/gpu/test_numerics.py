"""src/numerics on the GPU where it takes another way than on the CPU."""

from __future__ import annotations

import torch
from gpu_support.header_kernel import compile_kernel
from gpu_support.plans import DEVICE

_KERNEL = """
#include "numerics/situ.h"

extern "C" __global__ void reciprocals(const float* d, float* result, int size) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < size) result[i] = cake_moe::detail::reciprocal(d[i]);
}
"""


def test_reciprocals() -> None:
    """The special function unit's approximation and one Newton step, against IEEE division by the CPU: everything from
    1 to 2, every 127th float from there to 2^126, and the last 64 below each power of two, the hardest among them."""
    ends = torch.arange(0x40000000, 0x7E800001, 1 << 23)[:, None] - torch.arange(1, 65)
    bits = [torch.arange(0x3F800000, 0x40000001), torch.arange(0x40000000, 0x7E800000, 127), ends.view(-1)]
    divisors = torch.cat(bits).to(torch.int32).view(torch.float32)
    result = torch.full_like(divisors, float("nan"), device=DEVICE)
    blocks = -(-divisors.numel() // 256)
    kernel = compile_kernel(_KERNEL, "reciprocals")
    kernel(grid=(blocks, 1, 1), block=(256, 1, 1), args=[divisors.to(DEVICE), result, divisors.numel()])
    assert torch.equal(result.cpu(), 1.0 / divisors)

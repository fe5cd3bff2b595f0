"""src/numerics on the GPU where it takes another way than on the CPU."""

from __future__ import annotations

import torch
from gpu_support.header_kernel import compile_kernel
from gpu_support.plans import DEVICE

_KERNEL = """
#include "numerics/situ.h"

extern "C" __global__ void reciprocals(const float* d, float* result, int size) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < size) result[i] = cake_moe::detail::reciprocal_1_2(d[i]);
}
"""


def test_every_reciprocal_of_1_to_2() -> None:
    """The special function unit's approximation and one Newton step, against IEEE division by the CPU."""
    divisors = torch.arange(0x3F800000, 0x40000001, dtype=torch.int32).view(torch.float32)
    result = torch.full_like(divisors, float("nan"), device=DEVICE)
    blocks = -(-divisors.numel() // 256)
    kernel = compile_kernel(_KERNEL, "reciprocals")
    kernel(grid=(blocks, 1, 1), block=(256, 1, 1), args=[divisors.to(DEVICE), result, divisors.numel()])
    assert torch.equal(result.cpu(), 1.0 / divisors)

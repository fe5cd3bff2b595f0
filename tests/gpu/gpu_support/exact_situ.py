"""src/numerics/situ.h on the GPU as the header has it, for the comparator: a billion values take a moment."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from cake_moe.testing.compare import SituFloat32

from .header_kernel import compile_kernel

_KERNEL = """
#include "numerics/situ.h"

extern "C" __global__ void exact_situ(const float* gate, const float* up, const float* alpha, const float* beta,
                                      const float* linear_beta, float* result, int rows, int columns) {
  const long long size = (long long)rows * columns;
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < size; i += step) {
    const int row = i / columns;
    result[i] = cake_moe::situ(gate[i], up[i], alpha[row], beta[row], linear_beta[row]);
  }
}
"""


@cache
def exact_situ() -> SituFloat32:
    """Compiled on first use. test_judge.py compares it with the header as the CPU's compiler reads it."""
    kernel = compile_kernel(_KERNEL, "exact_situ")

    def situ(gate: Tensor, up: Tensor, alpha: Tensor, beta: Tensor, linear_beta: Tensor) -> Tensor:
        result = torch.empty_like(gate, memory_format=torch.contiguous_format)
        operands = [t.contiguous() for t in (gate, up, alpha, beta, linear_beta)]
        kernel(grid=(1024, 1, 1), block=(256, 1, 1), args=[*operands, result, *gate.shape])
        return result

    return situ

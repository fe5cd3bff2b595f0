"""src/numerics/situ.h on the GPU as the header has it, for the comparator: a billion values take a moment."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from cake_moe.testing.compare import SituFloat32

_SOURCES = Path(__file__).resolve().parents[3] / "src"
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
# NVRTC has no standard headers.
_CSTDINT = """
#pragma once
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
"""


@cache
def exact_situ() -> SituFloat32:
    """Compiled on first use. test_judge.py compares it with the header as the CPU's compiler reads it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "cstdint").write_text(_CSTDINT)
        kernel = torch.cuda._compile_kernel(
            _KERNEL, "exact_situ", cuda_include_dirs=[folder, str(_SOURCES)], nvcc_options=["--std=c++20"]
        )

    def situ(gate: Tensor, up: Tensor, alpha: Tensor, beta: Tensor, linear_beta: Tensor) -> Tensor:
        result = torch.empty_like(gate, memory_format=torch.contiguous_format)
        operands = [t.contiguous() for t in (gate, up, alpha, beta, linear_beta)]
        kernel(grid=(1024, 1, 1), block=(256, 1, 1), args=[*operands, result, *gate.shape])
        return result

    return situ

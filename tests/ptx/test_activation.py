"""The activation of kernels/common/activation.cuh: where it calls its result regular, the bits of numerics/situ.h."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ptx_program import SOURCES, device_flags
from ptxrun import Launch, Memory, Module, run
from ptxrun.toolkit import compile_ptx

from cake_moe._native import _C

KERNEL = """
#include "kernels/common/activation.cuh"

extern "C" __global__ void activate(const float* g, const float* u, const float* constants, unsigned* regular,
                                    float* v) {
  using namespace cake_moe;
  const Activation act(Constants(constants[0], 1.0f, constants[1], constants[2]), constants[3]);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float gs = act.scaled(g[i]), us = act.scaled(u[i]), result = act(gs, us);
  regular[i] = act.regular(result);
  v[i] = act.regular(result) ? result : act.exact(gs, us);
}
"""
THREADS = 256
LEAST = 2.0**-58
"""Times the larger beta: results from here on are regular."""


def values() -> np.ndarray:
    """Both signs of every power of two, infinity, NaN, zeros, where the formulas change, and ordinary values."""
    rng = np.random.default_rng(5)
    powers = np.ldexp(np.float32(1), np.arange(-149, 128))
    seams = np.float32([0, 2**-60, 2**-30, 9.01, 10, 40, 79.99999, 80, 80.00001, 87.4, 88.1, 104, 110, 1e9, np.inf])
    near = (seams.view(np.int32)[:, None] + np.arange(-2, 3)).ravel().clip(0, 0x7F800000).astype(np.int32)
    some = np.concatenate([rng.standard_normal(300), rng.standard_normal(300) * 40, rng.uniform(0, 12, 300)])
    magnitudes = np.concatenate([powers, near.view(np.float32), some]).astype(np.float32)
    return np.concatenate([magnitudes, -magnitudes, np.float32([np.nan])])


@pytest.mark.parametrize(
    ("alpha", "beta", "linear_beta"),
    [
        (1.0, 4.0, 25.0),
        (0.37, 1.5, -6.3),
        (2.0**-12 * 1.3, -7.7, 48.1),
        (3.0, 2.0**-29, 1.9 * 2.0**28),
        (1.0, 1.1 * 2.0**29, 1.1 * 2.0**-29),
        (1.0, 2.0**-31, 1.0),
        (1.0, 1.0, 0.0),
        (1.0, np.nan, 3.0),
        (1.0, 1e-39, 3.0),
        (1.0, np.inf, 1.0),
        (2.0**120, 4.0, 25.0),
        (np.inf, 4.0, 25.0),
        (np.nan, 4.0, 25.0),
        (1e-40, 4.0, 25.0),
    ],
)
def test_bits_of_regular_values(tmp_path: Path, alpha: float, beta: float, linear_beta: float) -> None:
    source = tmp_path / "activate.cu"
    source.write_text(KERNEL)
    text = compile_ptx(source, tmp_path / "activate.ptx", "sm_90a", [*device_flags(), f"-I{SOURCES}"])
    z = values()
    rng = np.random.default_rng(6)
    count = 96 * THREADS
    gs, us = (np.concatenate([z, rng.choice(z, count - len(z))]) for _ in range(2))
    us = rng.permutation(us)
    unshift = np.float32(2.0**14)
    constants = np.float32([alpha, beta, linear_beta, unshift])
    with np.errstate(all="ignore"):
        g, u = ((x / np.float32(alpha) / unshift).astype(np.float32) for x in (gs, us))

    memory = Memory()
    inputs = [memory.add(x.view(np.uint8), n, readonly=True) for n, x in (("g", g), ("u", u), ("constants", constants))]
    regular, v = memory.add_empty(4 * count, "regular"), memory.add_empty(4 * count, "v")
    launch = Launch(Module(text), "activate", grid=count // THREADS, block=THREADS, args=[*inputs, regular, v])
    run([launch], memory).raise_on_findings()

    good, got = regular.numpy(np.uint32) != 0, v.numpy(np.float32)
    with np.errstate(all="ignore"):
        scaled_gate = g * (constants[0] * unshift)
        want = _C.numerics.situ(g * unshift, u * unshift, *(float(c) for c in constants[:3]))
    same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
    assert same.all()
    if not alpha < 2**114 or not all(2.0**-30 < abs(b) < 2.0**30 for b in constants[1:3]):
        assert not good.any()
        return
    # Ordinary values take the fast path.
    ordinary = (np.abs(want) >= LEAST * max(abs(beta), abs(linear_beta))) & (scaled_gate < 2.0**24)
    assert good[ordinary].all()
    assert ordinary.sum() > count // 64

"""The kernels of this folder with inputs whose products are exact, and what they must give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ptxrun import Launch, Memory, Module, Report, TensorMap, run
from ptxrun.api import Schedule

FOLDER = Path(__file__).resolve().parent
TILES, CTAS, K_BLOCKS = 4, 2, 3  # an odd number of ring slots a tile: phases differ from tile to tile
COLUMNS = 64
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
E4M3 = {0.5: 0x30, 1.0: 0x38, 2.0: 0x40}
E4M3_NAN = 0x7F


@dataclass(frozen=True)
class Outcome:
    """A run: what was found, and the product beside the right one."""

    report: Report
    got: NDArray[np.float32]
    expected: NDArray[np.float32]

    @property
    def right(self) -> bool:
        return np.array_equal(self.got, self.expected)


def interleave_scales(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[rows, groups] -> the order of the tensor core: 512-byte atoms of 128 rows and 4 groups, groups fastest."""
    rows, groups = codes.shape
    atoms = codes.reshape(rows // 128, 4, 32, groups // 4, 4).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(atoms).reshape(-1)


def _nvfp4(rng: np.random.Generator, rows: int, k: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(packed codes, scale codes [rows, k / 16], values)."""
    codes = rng.integers(0, 16, (rows, k), dtype=np.uint8)
    scales = rng.choice(list(E4M3), (rows, k // 16))
    values = E2M1[codes] * np.repeat(scales, 16, axis=1).astype(np.float32)
    scale_codes = np.vectorize(E4M3.__getitem__, otypes=[np.uint8])(scales)
    return codes[:, 0::2] | codes[:, 1::2] << 4, scale_codes, values


def run_nvfp4(text: str, schedule: Schedule = "early", seed: int = 0) -> Outcome:
    """tcgen05_gemm.ptx or a mutant of it."""
    return _run_nvfp4(text, 1, schedule, seed)


def run_nvfp4_pair(text: str, schedule: Schedule = "early", seed: int = 0) -> Outcome:
    """tcgen05_pair_gemm.ptx or a mutant of it."""
    return _run_nvfp4(text, 2, schedule, seed)


def _run_nvfp4(text: str, cluster: int, schedule: Schedule, seed: int) -> Outcome:
    rng = np.random.default_rng(1)
    rows, k = 128 * cluster * TILES, 256 * K_BLOCKS
    a_codes, a_scales, a_values = _nvfp4(rng, rows, k)
    b_codes, b_scales, b_values = _nvfp4(rng, COLUMNS, k)
    padded = np.full((128, k // 16), E4M3_NAN, np.uint8)
    padded[:COLUMNS] = b_scales
    memory = Memory()
    a = memory.add(a_codes, "a", readonly=True)
    b = memory.add(b_codes, "b", readonly=True)
    a_atoms = memory.add(interleave_scales(a_scales), "a_scales", readonly=True)
    b_atoms = memory.add(interleave_scales(padded), "b_scales", readonly=True)
    d = memory.add_empty(rows * COLUMNS * 4, "d")
    maps = [
        TensorMap(a, "u4_align8", (k, rows), (256, 128), swizzle=128),
        TensorMap(b, "u4_align8", (k, COLUMNS), (256, COLUMNS // cluster), swizzle=128),
        TensorMap(d, "f32", (COLUMNS, rows), (COLUMNS, 128)),
    ]
    if cluster == 1:
        kernel, smem, scales = "nvfp4_gemm", 90176, [a_atoms, b_atoms]
    else:
        boxes = [TensorMap(atoms, "u8", (256, atoms.nbytes // 256), (256, 8)) for atoms in (a_atoms, b_atoms)]
        kernel, smem, scales = "nvfp4_pair_gemm", 81984, boxes
    launch = Launch(
        module=Module(text),
        kernel=kernel,
        grid=CTAS * cluster,
        block=192,
        args=[*maps, *scales, K_BLOCKS, TILES],
        cluster=cluster,
        smem=smem,
    )
    report = run([launch], memory, schedule=schedule, seed=seed, max_instructions=2_000_000)
    return Outcome(report, d.numpy(np.float32, (rows, COLUMNS)), a_values @ b_values.T)


def run_fp16(text: str, schedule: Schedule = "early", seed: int = 0) -> Outcome:
    """wgmma_gemm.ptx or a mutant of it."""
    rng = np.random.default_rng(2)
    rows, k = 64 * TILES, 64 * K_BLOCKS
    a_values = rng.integers(-8, 9, (rows, k)).astype(np.float16)
    b_values = rng.integers(-8, 9, (COLUMNS, k)).astype(np.float16)
    memory = Memory()
    a = memory.add(a_values, "a", readonly=True)
    b = memory.add(b_values, "b", readonly=True)
    d = memory.add_empty(rows * COLUMNS * 4, "d")
    maps = [
        TensorMap(a, "f16", (k, rows), (64, 64), swizzle=128),
        TensorMap(b, "f16", (k, COLUMNS), (64, COLUMNS), swizzle=128),
        TensorMap(d, "f32", (COLUMNS, rows), (COLUMNS, 64)),
    ]
    launch = Launch(Module(text), "fp16_gemm", CTAS, 256, [*maps, K_BLOCKS, TILES], smem=49184)
    registers = {"fp16_gemm": 168}
    report = run([launch], memory, schedule=schedule, seed=seed, registers=registers, max_instructions=2_000_000)
    expected = a_values.astype(np.float32) @ b_values.astype(np.float32).T
    return Outcome(report, d.numpy(np.float32, (rows, COLUMNS)), expected)


RUNNERS: dict[str, Callable[[str, Schedule, int], Outcome]] = {
    "tcgen05_gemm": run_nvfp4,
    "tcgen05_pair_gemm": run_nvfp4_pair,
    "wgmma_gemm": run_fp16,
}


@cache
def source(kernel: str) -> str:
    """The correct PTX."""
    return (FOLDER / f"{kernel}.ptx").read_text()

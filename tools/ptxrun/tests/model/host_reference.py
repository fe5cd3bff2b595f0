"""The toolkit's host conversions, compiled once, and inputs that reach every branch of a conversion."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from ptxrun.toolkit import find_nvcc

SOURCE = Path(__file__).with_name("host_conversions.cpp")
Words = NDArray[np.uint64]


def toolkit_include() -> str:
    """The folder of the CUDA headers, as nvcc passes it on (nvcc itself may be a wrapper elsewhere)."""
    command = [str(find_nvcc()), "--dryrun", "-E", "-x", "cu", "/dev/null"]
    steps = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    found = re.search(r'#\$ INCLUDES="-I([^"]+)"', steps)
    assert found is not None, steps
    return found[1]


@cache
def program() -> Path:
    """The comparison program. Raises ToolkitMissing without the CUDA headers."""
    include = toolkit_include()
    name = hashlib.sha256(SOURCE.read_bytes() + include.encode()).hexdigest()[:16]
    output = Path(tempfile.gettempdir()) / f"ptxrun-host-conversions-{name}"
    if not output.exists():
        compiler = shutil.which("c++") or shutil.which("g++") or "g++"
        building = output.with_suffix(".building")
        command = [compiler, "-std=c++20", "-O1", "-frounding-math", f"-I{include}", str(SOURCE), "-o", str(building)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        building.replace(output)
    return output


def host(name: str, bits: Words) -> Words:
    """What the host's conversion `name` makes of each word."""
    data = np.ascontiguousarray(bits, np.uint64).tobytes()
    result = subprocess.run([program(), name], input=data, capture_output=True, check=True)
    return np.frombuffer(result.stdout, np.uint64)


def all_words(width: int) -> Words:
    """Every pattern of up to 16 bits."""
    return np.arange(1 << width, dtype=np.uint64)


@cache
def float_words(width: int, count: int = 200_000, seed: int = 0) -> Words:
    """f32 (32) or f64 (64) patterns: random ones, every exponent, and the neighbours of all f16, bf16 and fp8 values,
    their midpoints and their powers of two."""
    rng = np.random.default_rng(seed)
    fraction_bits = {32: 23, 64: 52}[width]
    unsigned, floating = (np.uint32, np.float32) if width == 32 else (np.uint64, np.float64)
    random = rng.integers(0, 1 << width, count, dtype=unsigned, endpoint=False)
    fractions = np.array([0, 1, 2, 3, (1 << fraction_bits) - 1, 1 << (fraction_bits - 1)], unsigned)
    exponents = np.arange(1 << (width - fraction_bits), dtype=unsigned) << unsigned(fraction_bits)
    every_exponent = (exponents[:, None] | fractions).ravel()
    f16 = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        values = f16[np.isfinite(f16)].astype(floating)
        midpoints = (values[:-1] + values[1:]) / 2
        small = (np.arange(-4096, 4097, dtype=np.int64) / 256).astype(floating)
    bf16_step = unsigned(1) << unsigned(fraction_bits - 8)
    bf16 = np.arange(1 << (width - fraction_bits + 8), dtype=unsigned)[:: 1 if width == 32 else 8] * bf16_step
    boundaries = np.concatenate([values.view(unsigned), midpoints.view(unsigned), small.view(unsigned), bf16])
    with np.errstate(over="ignore"):
        neighbours = np.concatenate([boundaries, boundaries + unsigned(1), boundaries - unsigned(1)])
    return np.concatenate([random, every_exponent, neighbours]).astype(np.uint64)


@cache
def integer_words(width: int, count: int = 100_000, seed: int = 0) -> Words:
    """Patterns of 32 or 64 bits of every magnitude, with their neighbours."""
    rng = np.random.default_rng(seed)
    random = rng.integers(0, 1 << 64, count, dtype=np.uint64, endpoint=False)
    random >>= rng.integers(0, 64, count).astype(np.uint64)
    powers = np.uint64(1) << np.arange(64, dtype=np.uint64)
    ties = (powers[:, None] | (powers[None, :] >> np.uint64(1))).ravel()
    with np.errstate(over="ignore"):
        values = np.concatenate([random, powers, ties, ties + np.uint64(1), ties - np.uint64(1), [np.uint64(0)]])
        values = np.concatenate([values, np.uint64(0) - values])
    return values & np.uint64((1 << width) - 1)

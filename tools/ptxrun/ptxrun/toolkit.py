"""nvcc: where it is, and PTX from CUDA C++ through it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

MIN_NVCC = (12, 8)  # the first that knows sm_100a


class ToolkitMissing(RuntimeError):
    """No CUDA toolkit that is new enough; the text says where it was looked for."""


@cache
def nvcc_version(nvcc: Path) -> tuple[int, int] | None:
    """Version that ``nvcc --version`` prints, or None if it cannot be run."""
    try:
        text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"release (\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


@cache
def find_nvcc() -> Path:
    """nvcc of CUDACXX, CUDA_HOME, CUDA_PATH, PATH or /usr/local/cuda. Raises ToolkitMissing."""
    candidates = [os.environ.get("CUDACXX")]
    candidates += [f"{os.environ[name]}/bin/nvcc" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    candidates += [shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]
    for candidate in filter(None, candidates):
        version = nvcc_version(Path(candidate))
        if version is not None and version >= MIN_NVCC:
            return Path(candidate)
    raise ToolkitMissing(
        f"no CUDA toolkit: nvcc >= {MIN_NVCC[0]}.{MIN_NVCC[1]} is neither in CUDACXX, CUDA_HOME, CUDA_PATH, PATH "
        "nor in /usr/local/cuda"
    )


def run_nvcc(arguments: Sequence[str | Path]) -> None:
    """Runs nvcc; raises RuntimeError with its output if it fails."""
    command = [str(find_nvcc()), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{result.stdout}{result.stderr}")


def compile_ptx(source: Path, output: Path, arch: str, flags: Sequence[str] = ()) -> str:
    """PTX of one CUDA C++ file for an architecture such as "sm_100a"; also left in `output`."""
    output.parent.mkdir(parents=True, exist_ok=True)
    run_nvcc(["-ptx", "-std=c++20", "-O3", f"-arch={arch}", *flags, source, "-o", output])
    return output.read_text()

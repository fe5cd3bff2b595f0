"""Where the build finds nvcc: the system's if it is new enough, else the pinned pip packages."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

MIN_NVCC = (13, 0)

# The oldest that the operators run on. Asked for together with nvcc: pip then finds versions of the CUDA packages that
# suit both, while a torch of pyproject.toml's list would already lie there and leave nvcc the newest headers.
TORCH = "torch>=2.10"

# Their own requirements on each other are loose, so all five are pinned.
NVCC_PACKAGES = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
]


@dataclass(frozen=True)
class Nvcc:
    """A CUDA compiler; ``library_dir`` is set where nvcc does not find its own cudart (pip packages)."""

    path: Path
    version: tuple[int, int]
    library_dir: Path | None = None


def nvcc_version(path: Path) -> tuple[int, int] | None:
    """Version that ``path --version`` prints, or None if it cannot be run."""
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"release (\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def system_nvcc() -> Nvcc | None:
    """The first nvcc >= 13.0 of CUDACXX, CUDA_HOME, CUDA_PATH and PATH."""
    candidates = [os.environ.get("CUDACXX")]
    candidates += [f"{os.environ[name]}/bin/nvcc" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    candidates.append(shutil.which("nvcc"))
    for candidate in filter(None, candidates):
        version = nvcc_version(Path(candidate))
        if version is not None and version >= MIN_NVCC:
            return Nvcc(Path(candidate), version)
    return None


def pip_nvcc() -> Nvcc | None:
    """The nvcc of the pip packages, if they are importable in this environment."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        root = Path(folder) / f"cu{MIN_NVCC[0]}"
        path = root / "bin" / "nvcc"
        version = nvcc_version(path)
        if version is not None and version >= MIN_NVCC:
            return Nvcc(path, version, root / "lib")
    return None


def cuda_wanted() -> bool:
    """False where CAKE_CUDA_ARCHS=none asks for a library without CUDA code."""
    return os.environ.get("CAKE_CUDA_ARCHS", "").strip() != "none"


def extra_build_requirements() -> list[str]:
    """What this machine's build needs beyond pyproject.toml's list."""
    if "CAKE_OPS_DIR" in os.environ:
        return []
    return [TORCH] if not cuda_wanted() or system_nvcc() is not None else [TORCH, *NVCC_PACKAGES]

"""Loads the two native libraries: ``libcake_ops.so`` (operators) and ``cake_moe._C`` (plan, layout, build facts).

Any reason why they cannot be loaded is one ImportError. Loading creates no CUDA context, starts no process and writes
nothing.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ._version import __version__

MIN_TORCH = (2, 10)
OPS_LIBRARY = "libcake_ops.so"


def _check_torch() -> ModuleType:
    needs = f"cake_moe {__version__} needs torch >= {'.'.join(map(str, MIN_TORCH))}"
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"{needs}, which cannot be imported: {error}") from error
    match = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if match is None or (int(match[1]), int(match[2])) < MIN_TORCH:
        raise ImportError(f"{needs}, found torch {torch.__version__}")
    return torch


def _library_folder() -> Path:
    """Folder of the native libraries: this package's, or that of the installed package if this is a source tree.

    Python puts the current folder on the path, so ``python -m cake_moe.demo`` in a checkout finds the sources first,
    where there are no native libraries unless the package was built in place.
    """
    here = Path(__file__).resolve().parent
    if (here / OPS_LIBRARY).exists():
        return here
    for distribution in importlib.metadata.distributions(name="cake-moe"):
        folder = Path(str(distribution.locate_file("cake_moe"))).resolve()
        if (folder / OPS_LIBRARY).exists():
            return folder
    raise ImportError(
        f"cake_moe {__version__}: {OPS_LIBRARY} is neither in {here} nor in an installed package: pip install . "
        "or python setup.py build_ext --inplace"
    )


def _check_version(what: str, found: str) -> None:
    if found != __version__:
        raise ImportError(f"cake_moe {__version__}: {what} is of version {found}; reinstall the package")


def _load_operators(torch: Any, path: Path) -> dict[str, Any]:
    try:
        torch.ops.load_library(str(path))
        describe = ctypes.CDLL(str(path)).cake_moe_build_config
    except (OSError, RuntimeError, AttributeError) as error:
        problem = f"{path} cannot be loaded with torch {torch.__version__}: {error}"
        raise ImportError(f"cake_moe {__version__}: {problem}") from error
    describe.restype = ctypes.c_char_p
    config: dict[str, Any] = json.loads(describe().decode())
    _check_version(str(path), config["cake_moe"])
    return config


def _load_module(folder: Path) -> ModuleType:
    package = sys.modules[__package__]
    if str(folder) not in package.__path__:
        package.__path__.append(str(folder))
    found = ", ".join(sorted(path.name for path in folder.glob("_C*.so"))) or "none"
    missing = f"cake_moe {__version__}: no _C for {sys.implementation.cache_tag} in {folder} (found: {found})"
    try:
        module = importlib.import_module(f"{__package__}._C")
    except ImportError as error:
        raise ImportError(f"{missing}: {error}") from error
    if Path(str(module.__file__)).resolve().parent != folder:  # an import hook, an editable install's for one
        raise ImportError(f"{missing}: {module.__file__} belongs to another installation")
    _check_version(str(module.__file__), module.__version__)
    return module


FOLDER = _library_folder()
BUILD_CONFIG = _load_operators(_check_torch(), FOLDER / OPS_LIBRARY)
"""What libcake_ops.so says of itself: cake_moe, compiler, cpu_isas, cuda_version, cuda_archs, kernels."""
_C = _load_module(FOLDER)

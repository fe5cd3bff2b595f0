"""Drives CMake: one build tree for libcake_ops.so, one for the _C module of each Python.

    python tools/build/native.py [FOLDER]    builds libcake_ops.so alone, for CAKE_OPS_DIR

Environment: CAKE_CUDA_ARCHS (``90a``, ``90a,103a`` or ``none``; default: all of ci/matrix.json), CAKE_OPS_DIR (a tree
built before: libcake_ops.so is taken from there and neither torch nor nvcc is needed), CMAKE_BUILD_PARALLEL_LEVEL.
"""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from toolchain import MIN_NVCC, Nvcc, cuda_wanted, pip_nvcc, system_nvcc

ROOT = Path(__file__).resolve().parents[2]


class BuildError(RuntimeError):
    """The build cannot start or has failed; the text says what to do."""


def package_dir(name: str, hint: str) -> Path:
    """Folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise BuildError(f"{name} is not installed in the build environment: {hint}")
    return Path(spec.submodule_search_locations[0])


def _tool(module: str, folder: str, name: str) -> str:
    """A build tool of the pip package ``module``, else of PATH."""
    if importlib.util.find_spec(module) is not None:
        path = Path(getattr(importlib.import_module(module), folder)) / name
        if path.exists():
            return str(path)
    found = shutil.which(name)
    if found is None:
        raise BuildError(f"{name} was not found: pip install {module}")
    return found


def _run_cmake(tree: Path, target: str, definitions: dict[str, str]) -> None:
    cmake = _tool("cmake", "CMAKE_BIN_DIR", "cmake")
    # Isolated build environments move from build to build; a tree of another CMake or compiler cannot be continued.
    stamp = tree / "configured_with.txt"
    identity = "\n".join([cmake, definitions.get("CMAKE_CUDA_COMPILER", "")])
    if tree.exists() and (not stamp.exists() or stamp.read_text() != identity):
        shutil.rmtree(tree)
    tree.mkdir(parents=True, exist_ok=True)
    stamp.write_text(identity)
    definitions = {
        "CMAKE_MAKE_PROGRAM": _tool("ninja", "BIN_DIR", "ninja"),
        "CMAKE_BUILD_TYPE": os.environ.get("CMAKE_BUILD_TYPE", "Release"),
        **definitions,
    }
    arguments = [f"-D{name}={value}" for name, value in definitions.items()]
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
    environment = dict(os.environ)
    for name in ("CUDAARCHS", "CUDAFLAGS", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"):
        environment.pop(name, None)  # they would change which architectures are compiled
    for command in (
        [cmake, "-S", str(ROOT), "-B", str(tree), "-G", "Ninja", *arguments],
        [cmake, "--build", str(tree), "--target", target, "--parallel", jobs],
    ):
        status = subprocess.run(command, env=environment, check=False).returncode
        if status != 0:
            raise BuildError(f"CMake failed with status {status}: {' '.join(command[:4])} ...")


def _nvcc() -> Nvcc:
    nvcc = system_nvcc() or pip_nvcc()
    if nvcc is None:
        minimum = ".".join(map(str, MIN_NVCC))
        raise BuildError(
            f"no nvcc >= {minimum} (CUDACXX, CUDA_HOME, CUDA_PATH, PATH, pip packages): build with pip's build "
            "isolation, which installs one, or set CAKE_CUDA_ARCHS=none for a library without CUDA code"
        )
    return nvcc


def build_ops(tree: Path) -> Path:
    """Build libcake_ops.so in ``tree`` and return that folder."""
    definitions = {
        "CAKE_BUILD_OPS": "ON",
        "CAKE_BUILD_PYTHON": "OFF",
        "CAKE_TORCH_DIR": str(package_dir("torch", "pip install 'torch>=2.10'")),
        "CAKE_CUDA_ARCHS": os.environ.get("CAKE_CUDA_ARCHS", "").replace(",", ";") or "all",
    }
    if cuda_wanted():
        nvcc = _nvcc()
        cutlass = package_dir("cutlass_library", "pip install --no-deps nvidia-cutlass==4.2.0.0")
        definitions["CMAKE_CUDA_COMPILER"] = str(nvcc.path)
        definitions["CAKE_CUDA_LIBRARY_DIR"] = str(nvcc.library_dir or "")
        definitions["CAKE_CUTLASS_DIR"] = str(cutlass / "source" / "include")
    _run_cmake(tree, "cake_ops", definitions)
    return tree


def build_python_module(tree: Path, ops_tree: Path) -> Path:
    """Build _C for the running Python in ``tree``; it reports what ``ops_tree`` holds. Returns the file."""
    import pybind11

    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    definitions = {
        "CAKE_BUILD_OPS": "OFF",
        "CAKE_BUILD_PYTHON": "ON",
        "CAKE_PYTHON": sys.executable,
        "CAKE_GENERATED_DIR": str(ops_tree / "generated"),
        "pybind11_DIR": pybind11.get_cmake_dir(),
    }
    _run_cmake(tree, "_C", definitions)
    product = tree / "product" / f"_C{suffix}"
    if not product.exists():
        built = [path.name for path in product.parent.iterdir()]
        raise BuildError(f"expected {product.name} for this Python, CMake built {built}")
    return product


def build_all(root: Path) -> tuple[Path, Path]:
    """Build both products under ``root`` and return the paths of libcake_ops.so and _C."""
    prebuilt = os.environ.get("CAKE_OPS_DIR")
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # ninja does not keep two builds out of one tree
        ops_tree = Path(prebuilt).resolve() if prebuilt else build_ops(root / "ops")
        library = ops_tree / "product" / "libcake_ops.so"
        if not library.exists():
            raise BuildError(f"no {library}: build it with tools/build/native.py {ops_tree}")
        return library, build_python_module(root / f"python-{sysconfig.get_config_var('SOABI')}", ops_tree)


if __name__ == "__main__":
    try:
        print(build_ops(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "ops")))
    except BuildError as error:
        sys.exit(f"error: {error}")

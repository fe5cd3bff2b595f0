"""The compiled core: configured and built when it is first needed, and again after its sources have changed."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

from ptxrun.cache import PROJECT, SOURCES, cache_folder, digest, source_files


class BuildError(RuntimeError):
    """The core could not be built; the text ends with the build's output."""


def _tool(name: str) -> str:
    """An executable beside this Python, else one of PATH: virtual environments need not be active."""
    beside = Path(sysconfig.get_path("scripts")) / name
    return str(beside) if beside.exists() else name


def _run(command: list[str]) -> None:
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise BuildError(f"ptxrun: {command[0]} is needed to build the core") from None
    if result.returncode != 0:
        output = (result.stdout + result.stderr)[-8000:]
        raise BuildError(f"ptxrun: building the core failed: {' '.join(command)}\n{output}")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build_core() -> Path:
    """The extension module's file. Needs a C++20 compiler, cmake and pybind11."""
    try:
        import pybind11
    except ImportError:
        raise BuildError("ptxrun: pybind11 is needed to build the core") from None

    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    # cmake keeps a build folder for one source folder: checkouts that share a cache build apart.
    folder = cache_folder() / f"core-{sys.implementation.cache_tag}-{digest([], str(PROJECT))[:8]}"
    library, stamp = folder / f"_core{suffix}", folder / "sources.txt"
    sources = [PROJECT / "CMakeLists.txt", *source_files([SOURCES])]
    state = digest(sources, sys.version)
    with _locked(folder):
        if library.exists() and stamp.exists() and stamp.read_text() == state:
            return library
        stamp.unlink(missing_ok=True)
        configure = [
            *(_tool("cmake"), "-S", str(PROJECT), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release"),
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            f"-DPTXRUN_OUTPUT_DIR={folder}",
        ]
        _run(configure)
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 1)
        _run([_tool("cmake"), "--build", str(folder), "--parallel", jobs])
        if not library.exists():
            raise BuildError(f"ptxrun: the build left no {library}")
        stamp.write_text(state)
    return library


@cache
def core() -> ModuleType:
    """The module ptxrun._core: the file that PTXRUN_CORE names, taken as it is, or one that is built if need be."""
    given = os.environ.get("PTXRUN_CORE")
    spec = importlib.util.spec_from_file_location("ptxrun._core", Path(given) if given else build_core())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ptxrun._core"] = module
    spec.loader.exec_module(module)
    return module

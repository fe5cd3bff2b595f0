"""This project's kernels as a program for the interpreter: built from cmake/Sources.cmake, launched by the plan."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ptxrun.host_shim import Program, architecture_flags, compile_objects, link_program

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"
SM_COUNT = 132
HOST_FLAGS = ("-std=c++20", "-Xcompiler=-fPIC,-fvisibility=hidden", f"-I{SOURCES}")


@cache
def device_flags() -> tuple[str, ...]:
    """What decides the PTX among the options of cmake/OpsLibrary.cmake, and the host's."""
    text = (ROOT / "cmake" / "OpsLibrary.cmake").read_text()
    release = re.search(r'set\(CMAKE_CUDA_FLAGS_RELEASE "([^"]*)"\)', text)
    options = re.search(r"target_compile_options\(cake_cuda_flags INTERFACE\s+([^)]*)\)", text)
    if release is None or options is None:
        raise RuntimeError("tests/ptx: cmake/OpsLibrary.cmake does not set the CUDA flags where they were")
    flags = [*release[1].split(), *options[1].split()]
    return tuple(flag for flag in flags if not flag.startswith(("--compress-mode", "-Xptxas")))


@dataclass(frozen=True)
class KernelFolder:
    """One cake_cuda_kernels() of cmake/Sources.cmake."""

    name: str
    kernels: tuple[str, ...]
    archs: tuple[str, ...]
    sources: tuple[Path, ...]


@cache
def kernel_folders() -> tuple[KernelFolder, ...]:
    """What cmake/Sources.cmake declares."""
    text = (ROOT / "cmake" / "Sources.cmake").read_text()
    folders = []
    for body in re.findall(r"^\s+cake_cuda_kernels\(([^)]*)\)", text, re.MULTILINE):
        name, *words = body.split()
        fields: dict[str, list[str]] = {"KERNELS": [], "ARCHS": [], "SOURCES": []}
        field = ""
        for word in words:
            if word in fields:
                field = word
            else:
                fields[field].append(word)
        sources = tuple(ROOT / path for path in fields["SOURCES"])
        folders.append(KernelFolder(name, tuple(fields["KERNELS"]), tuple(fields["ARCHS"]), sources))
    return tuple(folders)


def host_sources() -> list[Path]:
    """Plan and host code of the GPU backends."""
    text = (ROOT / "cmake" / "Sources.cmake").read_text()
    lists = dict(re.findall(r"^set\((CAKE_\w+_SOURCES)\s+([^)]*)\)", text, re.MULTILINE))
    names = ("CAKE_PLAN_SOURCES", "CAKE_GPU_SOURCES", "CAKE_SM90_SOURCES", "CAKE_SM100_SOURCES")
    sources = [ROOT / source for name in names for source in lists[name].split()]
    return [*sources, Path(__file__).with_name("harness.cpp")]


@cache
def program(arch: str) -> Program:
    """The launch code with PTX for `arch` ("90a", "100a", "103a") of the kernels that the package builds for it; the
    others keep their own architecture's."""
    flags = [*device_flags(), *HOST_FLAGS]
    jobs = [(source, flags) for source in host_sources()]
    for folder in kernel_folders():
        archs = [arch] if arch in folder.archs else folder.archs[:1]
        jobs += [(source, [*flags, *architecture_flags(archs)]) for source in folder.sources]
    loaded = Program(link_program(compile_objects(jobs, [SOURCES]), f"cake_moe_{arch}"))
    for name in ("cake_launch", "cake_load", "cake_quantize"):
        getattr(loaded.library, name).restype = ctypes.c_char_p
    if loaded.library.cake_params_bytes() != ctypes.sizeof(MoeParams):
        raise RuntimeError("tests/ptx: MoeParams is not that of kernels/common/params.h")
    number = int(arch.rstrip("a"))
    loaded.set_device(number // 10, number % 10, SM_COUNT)
    return loaded


class MoeParams(ctypes.Structure):
    """kernels/common/params.h; pointers are addresses of the interpreter."""

    _fields_ = [
        ("num_tokens", ctypes.c_int),
        ("input", ctypes.c_uint64),
        ("expert_ids", ctypes.c_uint64),
        ("route_weights", ctypes.c_uint64),
        ("route_weights_are_float", ctypes.c_bool),
        ("fc1_weights", ctypes.c_uint64),
        ("fc1_scales", ctypes.c_uint64),
        ("fc2_weights", ctypes.c_uint64),
        ("fc2_scales", ctypes.c_uint64),
        ("input_encode", ctypes.c_uint64),
        ("fc1_alpha", ctypes.c_uint64),
        ("hidden_encode", ctypes.c_uint64),
        ("fc2_alpha", ctypes.c_uint64),
        ("beta", ctypes.c_uint64),
        ("linear_beta", ctypes.c_uint64),
        ("workspace", ctypes.c_uint64),
        ("output", ctypes.c_uint64),
    ]

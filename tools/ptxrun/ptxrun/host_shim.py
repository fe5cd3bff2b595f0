"""Real launch code without a GPU: programs linked with a stand-in for the CUDA runtime that records launches.

The program's CUDA files are compiled as usual, except that PTX is embedded instead of machine code; the very text that
a launch names is then what the interpreter runs. Device pointers of the program are whatever numbers the caller passes:
addresses of :class:`ptxrun.Memory`.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ptxrun.cache import SOURCES, cache_folder, digest, source_files
from ptxrun.toolkit import find_nvcc, nvcc_version, run_nvcc

SHIM_FLAGS = ("-std=c++20", "-O1", "-Xcompiler=-fPIC,-fvisibility=hidden")


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch as the runtime would have got it; `args` are the bytes of the kernel's parameters in order."""

    kernel: str
    fat_binary: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    smem: int
    pdl: bool
    cooperative: bool
    args: tuple[bytes, ...]


def architecture_flags(archs: Sequence[str]) -> list[str]:
    """PTX for each of ("90a", "100a", ...), uncompressed, and no machine code."""
    return ["--compress-mode=none"] + [f"-gencode=arch=compute_{arch},code=compute_{arch}" for arch in archs]


def compile_object(source: Path, flags: Sequence[str], depends: Sequence[Path] = ()) -> Path:
    """The object of one C++ or CUDA file, compiled unless it, `depends` (folders) and the flags are as before."""
    version = str(nvcc_version(find_nvcc()))
    key = digest([source, *source_files(depends)], version, *flags)
    output = cache_folder() / "objects" / f"{source.stem}-{key}.o"
    if not output.exists():
        output.parent.mkdir(parents=True, exist_ok=True)
        partial = output.with_suffix(f".{os.getpid()}.o")  # another process may be at the same file
        run_nvcc([*flags, "-c", source, "-o", partial])
        partial.replace(output)
    return output


def compile_objects(jobs: Sequence[tuple[Path, Sequence[str]]], depends: Sequence[Path] = ()) -> list[Path]:
    """`compile_object` of several files with their flags, side by side."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda job: compile_object(job[0], job[1], depends), jobs))


def link_program(objects: Sequence[Path], name: str) -> Path:
    """A shared library of the objects and the shim, without any CUDA library. Raises RuntimeError naming the calls that
    the shim does not have."""
    flags = [*SHIM_FLAGS, f"-I{SOURCES}"]
    sources = sorted((SOURCES / "shim").glob("*.cpp"))
    shim = compile_objects([(source, flags) for source in sources], [SOURCES / "shim"])
    parts = [*objects, *shim]
    output = cache_folder() / "programs" / f"{name}-{digest([], *(part.name for part in parts))}.so"
    if not output.exists():
        output.parent.mkdir(parents=True, exist_ok=True)
        partial = output.with_suffix(f".{os.getpid()}.so")
        try:
            run_nvcc(["-shared", "-cudart=none", "-Xlinker=-Bsymbolic,--no-undefined", *parts, "-o", partial])
        except RuntimeError as error:
            if missing := sorted(set(re.findall(r"undefined reference to `([^']+)'", str(error)))):
                raise RuntimeError(f"{name} calls what the shim does not have: {', '.join(missing)}") from error
            raise
        partial.replace(output)
    return output


class Program:
    """A loaded program of `link_program`. Its own functions are called through `library` (ctypes)."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path.resolve()))  # a bare name would be looked for among the system's
        self.library.ptxrun_module.restype = ctypes.POINTER(ctypes.c_char)
        self.library.ptxrun_take_launches.restype = ctypes.c_char_p

    def set_device(self, major: int, minor: int, sm_count: int) -> None:
        """Compute capability and SM count that the program sees; the first also chooses among the PTX texts."""
        self.library.ptxrun_set_device(major, minor, sm_count)

    @cached_property
    def modules(self) -> dict[tuple[int, int], str]:
        """PTX by (fat binary, architecture such as 90)."""
        texts = {}
        for fat_binary in range(self.library.ptxrun_fat_binaries()):
            for index in range(self.library.ptxrun_modules(fat_binary)):
                arch, size = ctypes.c_int(), ctypes.c_size_t()
                text = self.library.ptxrun_module(fat_binary, index, ctypes.byref(arch), ctypes.byref(size))
                texts[fat_binary, arch.value] = ctypes.string_at(text, size.value).decode()
        return texts

    def take_launches(self) -> list[RecordedLaunch]:
        """The launches since the last call."""
        return [
            RecordedLaunch(
                kernel=entry["kernel"],
                fat_binary=entry["fat_binary"],
                grid=tuple(entry["grid"]),
                block=tuple(entry["block"]),
                cluster=tuple(entry["cluster"]),
                smem=entry["smem"],
                pdl=entry["pdl"],
                cooperative=entry["cooperative"],
                args=tuple(bytes.fromhex(value) for value in entry["args"]),
            )
            for entry in json.loads(self.library.ptxrun_take_launches())
        ]

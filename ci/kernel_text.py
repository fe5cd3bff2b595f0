#!/usr/bin/env python3
"""What the finished library was assembled from: ci/kernel_text.py [LIBRARY] [TREE].

TREE (default build/ops) holds the PTX and the machine code of each compile (cmake/nvcc_launcher.sh). Every machine code
in LIBRARY (default TREE/product/libcake_ops.so) must be one of those, byte for byte, and every PTX that tests/ptx
executes must be the text that one of them was assembled from. Prints the SHA-256 of both. Exit status 1 where one is
not.

Needs cuobjdump, nvcc and what tools/ptxrun needs.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / path) for path in ("ci", "tools/ptxrun", "tests/ptx")]
os.environ.setdefault("PTXRUN_CACHE", str(ROOT / "build" / "ptxrun"))

from ptx_program import kernel_folders, program  # noqa: E402
from wheel_checks import find_cuobjdump  # noqa: E402

_TARGET = re.compile(r"^\.target (sm_\w+)", re.MULTILINE)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def instructions(ptx: str) -> str:
    """PTX without comments and layout, which the text that a program embeds lacks."""
    return " ".join(word for line in ptx.splitlines() for word in line.split("//")[0].split())


@dataclass(frozen=True)
class Kept:
    """One compile for one architecture. source: path of the object without the build's folders."""

    source: str
    arch: str
    ptx: str
    machine_code: str

    @classmethod
    def read(cls, ptx: Path) -> Kept:
        text = ptx.read_text()
        target = _TARGET.search(text)
        if target is None:
            raise ValueError(f"{ptx}: no .target")
        source = ptx.parent.as_posix().partition(".dir/")[2].removesuffix(".o.kept")
        digest = sha256(instructions(text).encode())
        return cls(source, target[1], digest, sha256(ptx.with_suffix(".cubin").read_bytes()))


def library_machine_code(library: Path) -> dict[str, str]:
    """SHA-256 -> name of every machine code in the fat binary."""
    cuobjdump = find_cuobjdump()
    if cuobjdump is None:
        raise SystemExit("no cuobjdump on PATH or in the environment")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([cuobjdump, "-xelf", "all", library.resolve()], cwd=folder, check=True, capture_output=True)
        return {sha256(path.read_bytes()): path.name for path in sorted(Path(folder).iterdir())}


def executed(arch: str) -> set[str]:
    """SHA-256 of every PTX that the interpreter's tests execute for an architecture of the package ("sm_90a")."""
    number = int(re.sub(r"\D", "", arch))
    modules = program(arch.removeprefix("sm_")).modules
    return {sha256(instructions(text).encode()) for (_, capability), text in modules.items() if capability == number}


def problems(library: dict[str, str], kept: list[Kept]) -> list[str]:
    """kept: the compiles whose machine code is in the library."""
    codes, texts = {k.machine_code for k in kept}, {k.ptx for k in kept}
    found = [f"{name} of the library is not of this build" for code, name in library.items() if code not in codes]
    folders = [folder for folder in kernel_folders() if folder.kernels]
    declared = {(str(s.relative_to(ROOT)), f"sm_{arch}") for f in folders for s in f.sources for arch in f.archs}
    absent = declared - {(k.source, k.arch) for k in kept}
    found += [f"{arch}: {source} is not in the library" for source, arch in sorted(absent)]
    for arch in sorted({k.arch for k in kept}):
        strange = executed(arch) - texts
        found += [f"{arch}: PTX {digest[:16]} is executed and not in the library" for digest in sorted(strange)]
    return found


def main(library: Path, tree: Path) -> int:
    machine_codes = library_machine_code(library)
    kept = [Kept.read(ptx) for ptx in sorted(tree.rglob("*.kept/*.ptx"))]
    linked = [k for k in kept if k.machine_code in machine_codes]
    for k in linked:
        print(f"{k.arch:8} PTX {k.ptx[:16]}  machine code {k.machine_code[:16]}  {k.source}")
    found = problems(machine_codes, linked)
    for problem in found:
        print("FAIL", problem)
    print(f"{len(machine_codes)} machine codes in {library.name}, {len(found)} problems")
    return 1 if found or not linked else 0


if __name__ == "__main__":
    tree = Path(sys.argv[2] if len(sys.argv) > 2 else "build/ops")
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else tree / "product" / "libcake_ops.so", tree))

"""The PTX that the interpreter runs is the one that the package's machine code is assembled from."""

from __future__ import annotations

from pathlib import Path

import pytest
from ptx_program import HOST_FLAGS, device_flags, kernel_folders, program
from ptxrun.toolkit import run_nvcc

CASES = [
    pytest.param(
        source,
        arch,
        id=f"{folder.name}-{source.parent.name}-{arch}",
        marks=[pytest.mark.full] if folder.name.startswith("sm") else [],
    )
    for folder in kernel_folders()
    if folder.kernels
    for source in folder.sources
    for arch in folder.archs
]


@pytest.mark.parametrize(("source", "arch"), CASES)
def test_both_ways_give_the_same_machine_code(source: Path, arch: str, tmp_path: Path) -> None:
    """nvcc from the source to machine code as in the package, and ptxas from the embedded PTX."""
    target = f"-gencode=arch=compute_{arch},code=sm_{arch}"
    run_nvcc([*device_flags(), *HOST_FLAGS, target, "-cubin", source, "-o", tmp_path / "source.cubin"])
    compiled = (tmp_path / "source.cubin").read_bytes()
    matches = 0
    for (fat_binary, number), text in program(arch).modules.items():
        if f"{number}a" != arch or ".entry" not in text:
            continue
        (tmp_path / f"{fat_binary}.ptx").write_text(text)
        names = [line.split("(")[0].split()[-1] for line in text.splitlines() if ".entry" in line]
        if not all(name.encode() in compiled for name in names):
            continue
        run_nvcc([target, "-cubin", tmp_path / f"{fat_binary}.ptx", "-o", tmp_path / "ptx.cubin"])
        assert (tmp_path / "ptx.cubin").read_bytes() == compiled
        matches += 1
    assert matches == 1

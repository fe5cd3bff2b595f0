"""Every spelling that the compiler emits for this project is one that the interpreter executes."""

from __future__ import annotations

from collections import Counter

import pytest
from ptx_operator import modules
from ptx_program import kernel_folders, program


@pytest.mark.parametrize("arch", ["90a", "100a", "103a"])
def test_every_spelling_is_modelled(arch: str) -> None:
    counts: Counter[str] = Counter()
    problems = {}
    for module in modules(arch):
        for line in module.census():
            counts[line.spelling] += line.count
            if line.problem:
                problems[line.spelling] = line.problem
    print(f"sm_{arch}: {len(counts)} spellings, {counts.total()} instructions")
    assert not problems
    assert len(counts) > 50


@pytest.mark.parametrize("arch", ["90a", "100a", "103a"])
def test_the_census_sees_every_kernel(arch: str) -> None:
    """What cmake/Sources.cmake declares for the architecture."""
    found = [kernel for module in modules(arch) for kernel in module.kernels]
    declared = [name for folder in kernel_folders() if arch in folder.archs for name in folder.kernels]
    assert declared
    for name in declared:
        assert any(f"{len(name)}{name}" in kernel for kernel in found), name
    assert {number for _, number in program(arch).modules} >= {int(arch.rstrip("a"))}

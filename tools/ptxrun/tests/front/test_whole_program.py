"""Programs from main() to their verdict."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from ptxrun.cache import PROJECT
from ptxrun.host_shim import architecture_flags, compile_object, link_program

SOURCE = Path(__file__).with_name("whole.cu")

pytestmark = pytest.mark.toolkit


@cache
def program() -> Path:
    flags = ["-std=c++20", "-O3", "-Xcompiler=-fPIC", *architecture_flags(["90a"])]
    return link_program([compile_object(SOURCE, flags)], "whole")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ptxrun", "program", str(program()), *words]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("schedule", ["early", "late", "random"])
def test_it_passes(schedule: str) -> None:
    result = run("--schedule", schedule)
    assert result.returncode == 0
    assert "whole: passed, 0 wrong" in result.stdout
    assert "launch 1:" in result.stdout
    assert "0 findings" in result.stdout


def test_its_fault_is_found() -> None:
    result = run("x")
    assert result.returncode == 1
    assert "whole: failed, 1000 wrong" in result.stdout
    assert "uninitialised_read" in result.stdout


def test_a_missing_architecture_is_the_programs_error() -> None:
    result = run("--capability", "10.0")
    assert result.returncode == 4
    assert "failed" in result.stdout

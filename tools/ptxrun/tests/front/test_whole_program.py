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


def run(*words: str, file: str = "", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ptxrun", "program", file or str(program()), *words]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)


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


def test_a_fault_before_an_exit_is_found() -> None:
    result = run("x", "0")
    assert result.returncode == 1
    assert result.stdout.count("uninitialised_read") == 2


def test_a_launch_that_is_pending_at_an_exit_is_executed() -> None:
    result = run("ok", "0")
    assert result.returncode == 1
    assert result.stdout.count("uninitialised_read") == 1


def test_the_status_of_an_exit_stands() -> None:
    assert run("ok", "5").returncode == 5
    assert run("x", "5").returncode == 1


def test_words_behind_options_and_dashes_are_the_programs() -> None:
    name, folder = program().name, program().parent
    for words in (["--seed", "1", "--", "x"], ["x", "--seed", "1"], ["--seed", "1", "x"]):
        assert run(*words, file=f"./{name}", folder=folder).returncode == 1
    assert run("--seed", "1", "--", "--m=256", file=name, folder=folder).returncode == 0
    assert run("--frobnicate").returncode == 2


def test_a_missing_architecture_is_the_programs_error() -> None:
    result = run("--capability", "10.0")
    assert result.returncode == 4
    assert "failed" in result.stdout

"""Helpers of the packaging tests: the checks of ci/, child interpreters, copies of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cake_moe import _native

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "ci"), str(ROOT / "tools" / "build")]


@pytest.fixture
def root() -> Path:
    return ROOT


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs code in a child interpreter away from the checkout, with the package under test on its path.

    Environment variables are keywords; None removes one.
    """

    def run(code: str, cwd: Path = tmp_path, **variables: str | None) -> subprocess.CompletedProcess[str]:
        changes = {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(_native.FOLDER.parent), **variables}
        environment = {name: value for name, value in {**os.environ, **changes}.items() if value is not None}
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300
        )

    return run


@pytest.fixture
def copied_package(tmp_path: Path) -> Path:
    """A copy of the package with its native libraries, in a folder of its own; returns that folder."""
    folder = tmp_path / "copy"
    source = Path(_native.__file__).parent
    shutil.copytree(source, folder / "cake_moe", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for library in _native.FOLDER.glob("*.so"):
        shutil.copy(library, folder / "cake_moe")
    return folder

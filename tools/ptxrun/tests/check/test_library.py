"""The unit checks of src/check: a C++ program of its own."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ["clock", "view", "cell", "cell_pool", "shadow", "words"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("check") / "test_library"
    sources = [str(ROOT / "src" / "check" / f"{name}.cpp") for name in SOURCES]
    command = ["c++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'src'}", "-o", str(path)]
    subprocess.run([*command, str(Path(__file__).with_suffix(".cpp")), *sources], check=True)
    return path


def test_library(program: Path) -> None:
    result = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout

"""One list of Pythons, platforms and architectures: ci/matrix.json; one minimum of torch; one version of nvcc."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cake_moe
from cake_moe import _C, _native


@pytest.fixture
def matrix(root: Path) -> dict:
    return json.loads((root / "ci" / "matrix.json").read_text())


def test_matrix_holds_the_promised_rows(matrix: dict) -> None:
    assert matrix["python"] == ["cp310", "cp311", "cp312", "cp313", "cp314"]
    assert [row["arch"] for row in matrix["platform"]] == ["x86_64", "aarch64"]
    assert all(row["image"].startswith("manylinux_2_") and row["runner"] for row in matrix["platform"])


def test_architectures_are_those_of_the_plan(matrix: dict) -> None:
    for arch in matrix["cuda_archs"]:
        assert _C.make_plan(1, f"sm_{arch}", 132)["launches"]


def test_this_build_holds_only_listed_architectures(matrix: dict) -> None:
    assert set(_native.BUILD_CONFIG["cuda_archs"]) <= {f"sm_{arch}" for arch in matrix["cuda_archs"]}


def test_oldest_python_is_the_required_one(matrix: dict, root: Path) -> None:
    text = (root / "pyproject.toml").read_text()
    oldest = matrix["python"][0].removeprefix("cp3")
    assert f'requires-python = ">=3.{oldest}"' in text
    assert f'target-version = "py3{oldest}"' in text
    assert f'python_version = "3.{oldest}"' in text


def test_the_list_is_written_nowhere_else(matrix: dict, root: Path) -> None:
    """setup.py, CMake and the workflow read the file; a literal of it in one of them would be a second list."""
    names = ["setup.py", "CMakeLists.txt", "cmake/CudaArchs.cmake", "cmake/OpsLibrary.cmake"]
    files = [root / name for name in names]
    files += [*(root / "tools" / "build").glob("*.py"), *(root / ".github" / "workflows").glob("*.yml")]
    newest = matrix["python"][-1]
    for file in files:
        text = re.sub(r"#.*|``.*?``", "", file.read_text())
        assert newest not in text, file
        assert "103a" not in text, file
    assert "matrix.json" in (root / "setup.py").read_text()
    assert "matrix.json" in (root / "cmake" / "CudaArchs.cmake").read_text()
    workflow = (root / ".github" / "workflows" / "wheels.yml").read_text()
    assert "fromJSON(needs.matrix.outputs.matrix).python" in workflow
    assert "fromJSON(needs.matrix.outputs.matrix).platform" in workflow


def test_metadata_lists_the_pythons(matrix: dict, root: Path) -> None:
    script = (
        "import setuptools, sys\n"
        "setuptools.setup = lambda **options: print(*options['classifiers'], sep=chr(10))\n"
        "sys.path.insert(0, '.')\nimport setup"
    )
    child = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    listed = re.findall(r"Python :: 3\.(\d+)", child.stdout)
    assert [f"cp3{minor}" for minor in listed] == matrix["python"]


def test_minimum_of_torch_is_one_number(root: Path) -> None:
    major, minor = _native.MIN_TORCH
    for name in ("pyproject.toml", "tools/build/toolchain.py"):
        assert re.findall(r'"torch([^"]*)"', (root / name).read_text()) == [f">={major}.{minor}"], name
    target = re.search(r"TORCH_TARGET_VERSION=0x([0-9a-f]{16})", (root / "cmake" / "OpsLibrary.cmake").read_text())
    assert target is not None
    assert int(target[1], 16) == (major << 56) | (minor << 48)


def test_constraint_pins_torch_alone(root: Path) -> None:
    lines = [line for line in (root / "ci" / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert lines == ["torch==2.13.0"]


def test_version_is_plain(root: Path) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", cake_moe.__version__)


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("cake_moe-0.1.0-cp311-cp311-manylinux_2_34_x86_64.whl", True),
        ("cake_moe-0.1.0-cp314-cp314-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl", True),
        ("cake_moe-0.1.0+torch2.13-cp311-cp311-manylinux_2_34_x86_64.whl", False),
        ("cake_moe-0.1.0-cp39-cp39-manylinux_2_34_x86_64.whl", False),
        ("cake_moe-0.1.0-cp311-cp312-manylinux_2_34_x86_64.whl", False),
        ("cake_moe-0.1.0-cp311-cp311-linux_x86_64.whl", False),
        ("cake_moe-0.1.0-cp311-cp311-manylinux_2_34_ppc64le.whl", False),
    ],
)
def test_wheel_names(name: str, accepted: bool) -> None:
    from wheel_checks import check_file_name

    assert (check_file_name(name) == []) is accepted


@pytest.mark.parametrize(
    ("symbols", "libraries", "complaint"),
    [
        ("manylinux_2_34_x86_64", ["libtorch_cpu.so"], None),
        ("manylinux_2_39_x86_64", ["libtorch_cpu.so"], "auditwheel finds manylinux_2_39_x86_64"),
        ("manylinux_2_34_x86_64", ["libtorch_cpu.so", "libgomp.so.1"], "other libraries"),
    ],
)
def test_platform_tag_is_the_true_one(symbols: str, libraries: list[str], complaint: str | None) -> None:
    from wheel_checks import check_platform_tag

    report = {"sym_tag": symbols, "external_libs": dict.fromkeys(libraries)}
    problems = check_platform_tag(report, "cake_moe-0.1.0-cp311-cp311-manylinux_2_34_x86_64.whl")
    assert problems == [] if complaint is None else complaint in problems[0]


def wheel_contents(**replaced: str | None) -> list[str]:
    info = "cake_moe-0.1.0.dist-info"
    names = {
        "module": "cake_moe/_C.cpython-312-x86_64-linux-gnu.so",
        "library": "cake_moe/libcake_ops.so",
        "init": "cake_moe/__init__.py",
        "typed": "cake_moe/py.typed",
        "licence": f"{info}/licenses/LICENSE",
        "notice": f"{info}/licenses/NOTICE",
        "extra": None,
    }
    return [name for name in {**names, **replaced}.values() if name is not None]


@pytest.mark.parametrize(
    ("replaced", "complaint"),
    [
        ({"module": "cake_moe/_C.cpython-311-x86_64-linux-gnu.so"}, "expected one cake_moe/_C.cpython-312-*.so"),
        ({"extra": "cake_moe/_C.cpython-311-x86_64-linux-gnu.so"}, "expected one cake_moe/_C.cpython-312-*.so"),
        ({"library": None}, "expected one libcake_ops.so"),
        ({"extra": "cake_moe.libs/libgomp-abc.so.1"}, "expected one libcake_ops.so"),
        ({"notice": None}, "licenses/NOTICE is missing"),
        ({"extra": "tests/test_x.py"}, "files outside the package"),
    ],
)
def test_faults_of_a_wheels_contents_are_reported(replaced: dict[str, str | None], complaint: str) -> None:
    from wheel_checks import check_contents

    assert check_contents(wheel_contents(), "cp312") == []
    assert complaint in " ".join(check_contents(wheel_contents(**replaced), "cp312"))

"""Which nvcc the build takes, and what the CMake configuration refuses."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No CUDA anywhere: an empty folder is all of PATH."""
    for name in ("CUDACXX", "CUDA_HOME", "CUDA_PATH", "CAKE_CUDA_ARCHS", "CAKE_OPS_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def fake_nvcc(folder: Path, release: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "nvcc"
    path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
    path.chmod(0o755)
    return path


def test_without_nvcc_five_pinned_packages_are_asked_for(bare: Path) -> None:
    from toolchain import NVCC_PACKAGES, TORCH, extra_build_requirements

    assert extra_build_requirements() == [TORCH, *NVCC_PACKAGES]
    assert len(NVCC_PACKAGES) == 5
    assert all("==13.0." in package for package in NVCC_PACKAGES)


def test_an_old_nvcc_is_passed_over(bare: Path) -> None:
    from toolchain import NVCC_PACKAGES, TORCH, extra_build_requirements, system_nvcc

    fake_nvcc(bare, "12.9")
    assert system_nvcc() is None
    assert extra_build_requirements() == [TORCH, *NVCC_PACKAGES]


@pytest.mark.parametrize("release", ["13.0", "13.2", "14.0"])
def test_a_new_enough_nvcc_is_taken(bare: Path, release: str) -> None:
    from toolchain import TORCH, extra_build_requirements, system_nvcc

    path = fake_nvcc(bare, release)
    found = system_nvcc()
    assert found is not None
    assert found.path == path
    assert found.library_dir is None
    assert extra_build_requirements() == [TORCH]


def test_cuda_home_comes_before_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolchain import system_nvcc

    fake_nvcc(bare, "13.0")
    home = fake_nvcc(bare / "toolkit" / "bin", "13.1")
    monkeypatch.setenv("CUDA_HOME", str(bare / "toolkit"))
    found = system_nvcc()
    assert found is not None
    assert found.path == home


@pytest.mark.parametrize(("name", "value", "torch"), [("CAKE_CUDA_ARCHS", "none", True), ("CAKE_OPS_DIR", "x", False)])
def test_no_compiler_is_asked_for_where_none_runs(
    bare: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, torch: bool
) -> None:
    from toolchain import TORCH, extra_build_requirements

    monkeypatch.setenv(name, value)
    assert extra_build_requirements() == ([TORCH] if torch else [])


def configure(tmp_path: Path, root: Path, requested: str, kernel_archs: str) -> subprocess.CompletedProcess[str]:
    """cmake/CudaArchs.cmake in a project without languages, with one kernel library."""
    (tmp_path / "kernel.cu").touch()
    (tmp_path / "CMakeLists.txt").write_text(
        f"""cmake_minimum_required(VERSION 3.26)
project(configuration LANGUAGES NONE)
include("{root}/cmake/CudaArchs.cmake")
cake_cuda_kernels(stage KERNELS cake_moe_stage ARCHS {kernel_archs} SOURCES kernel.cu)
cake_check_cuda_archs()
message(STATUS "kernels: ${{CAKE_KERNELS_JSON}}")
message(FATAL_ERROR "accepted")
"""
    )
    cmake = Path(sysconfig.get_path("scripts")) / "cmake"
    command = [str(cmake), f"-DCAKE_CUDA_ARCHS={requested}", "-S", str(tmp_path), "-B", str(tmp_path / "tree")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("requested", ["all", "90a", "90a;103a"])
def test_configuration_accepts_what_the_kernels_cover(tmp_path: Path, root: Path, requested: str) -> None:
    run = configure(tmp_path, root, requested, "90a 100a 103a")
    assert "accepted" in run.stderr, run.stderr
    assert '"cake_moe_stage"' in run.stdout


@pytest.mark.parametrize(
    ("requested", "kernel_archs", "complaint"),
    [
        ("all", "90a 100a", "requested: 100a-real;103a-real;90a-real; produced by the kernel"),
        ("90a;103a", "90a", "requested: 103a-real;90a-real; produced by the kernel"),
        ("90", "90a", "'90' is not one of 90a;100a;103a"),
        ("89;90a", "90a", "'89' is not one of 90a;100a;103a"),
    ],
)
def test_configuration_refuses_a_different_architecture_list(
    tmp_path: Path, root: Path, requested: str, kernel_archs: str, complaint: str
) -> None:
    run = configure(tmp_path, root, requested, kernel_archs)
    assert run.returncode != 0
    assert complaint in " ".join(run.stderr.split())
    assert "accepted" not in run.stderr


def test_ptxas_gate(tmp_path: Path, root: Path) -> None:
    entry = (
        "ptxas info    : Compiling entry function '_ZN8cake_moe8quantize17cake_moe_quantizeEv' for 'sm_90a'\n"
        "ptxas info    : Function properties for _ZN8cake_moe8quantize17cake_moe_quantizeEv\n"
        "    {stack} bytes stack frame, {spill} bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 32 registers, used 0 barriers\n"
    )

    def gate() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(root / "ci" / "check_ptxas"), str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert gate().returncode == 1
    report = tmp_path / "launch.cu.o.ptxas.txt"
    report.write_text(entry.format(stack=0, spill=0))
    assert gate().returncode == 0
    assert "ok   sm_90a    32 registers  cake_moe_quantize" in gate().stdout
    report.write_text(entry.format(stack=0, spill=0) + entry.format(stack=8, spill=8))
    assert gate().returncode == 1
    assert "FAIL sm_90a    32 registers  cake_moe_quantize  stack 8 B, spill stores 8 B, loads 0 B" in gate().stdout
    for code, where in (("C7513", "in"), ("C7512", "for")):
        note = (
            f"ptxas info    : ({code}) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
            f"a reason {where} the function '_ZN8cake_moe8quantize17cake_moe_quantizeEv'\n"
        )
        report.write_text(note + entry.format(stack=0, spill=0))
        assert gate().returncode == 1
        assert f"FAIL cake_moe_quantize  {code}: wgmma.mma_async instructions are serialized" in gate().stdout

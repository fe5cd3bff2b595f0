"""The two native libraries as files: what they link against, export and say of themselves."""

from __future__ import annotations

import importlib.machinery
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

import cake_moe
from cake_moe import _C, _native


def library(name: str):
    from wheel_checks import Library

    return Library.read(_native.FOLDER / name)


def module_name() -> str:
    return f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"


def test_operator_library_uses_only_the_stable_abi() -> None:
    from wheel_checks import check_links

    ops = library("libcake_ops.so")
    assert check_links(ops, torch=True) == []
    assert "libtorch_cpu.so" in ops.needed
    assert any(name.startswith("aoti_torch") for name in ops.undefined)


def test_python_module_needs_no_torch() -> None:
    from wheel_checks import check_links

    assert check_links(library(module_name()), torch=False) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"undefined": frozenset({"_ZN3c105ErrorC1ENS_14SourceLocationE"})}, "C++ symbols of torch"),
        ({"undefined": frozenset({"_ZNK2at6Tensor4sizeEl"})}, "C++ symbols of torch"),
        ({"undefined": frozenset({"_ZNSt6vectorIN2at6TensorESaIS1_EED1Ev"})}, "C++ symbols of torch"),
        ({"undefined": frozenset({"cudaLaunchKernel"})}, "undefined CUDA symbols"),
        ({"undefined": frozenset({"cuTensorMapEncodeTiled"})}, "undefined CUDA symbols"),
        ({"needed": ("libc.so.6", "libtorch_cuda.so")}, "links against libtorch_cuda.so"),
        ({"needed": ("libcuda.so.1",)}, "links against libcuda.so.1"),
        ({"needed": ("libc10.so",)}, "links against libc10.so"),
        ({"search_paths": ("/somewhere/torch/lib",)}, "library search path"),
        ({"exported": frozenset({"cake_moe_build_config", "_ZTSFllE"})}, "exports"),
    ],
)
def test_link_faults_are_reported(change: dict[str, object], complaint: str) -> None:
    from wheel_checks import check_links

    problems = check_links(replace(library("libcake_ops.so"), **change), torch=True)
    assert len(problems) == 1
    assert complaint in problems[0]


def test_version_is_stated_once_and_carried_by_both_libraries() -> None:
    assert _native.BUILD_CONFIG["cake_moe"] == cake_moe.__version__ == _C.__version__
    assert library("libcake_ops.so").build_config == _native.BUILD_CONFIG


def test_python_module_describes_the_operator_library_beside_it() -> None:
    info = _C.build_info()
    assert info["cuda_archs"] == ", ".join(_native.BUILD_CONFIG["cuda_archs"])
    assert info["cuda_version"] == _native.BUILD_CONFIG["cuda_version"]


def test_python_module_is_the_one_of_this_python() -> None:
    assert Path(_C.__file__).name == module_name()
    assert module_name().endswith(importlib.machinery.EXTENSION_SUFFIXES[0])


LISTING = """
Fatbin elf code:
================
arch = sm_90a

symbols:
STT_FUNC         STB_GLOBAL STO_ENTRY      _ZN8cake_moe8quantize17cake_moe_quantizeEPK5uint4lPKfP5uint2Ph
STT_FUNC         STB_GLOBAL STO_ENTRY      _ZN8cake_moe4sm9012cake_moe_fc1ILi64EEEvNS_9MoeParamsE

Fatbin elf code:
================
arch = sm_100a

symbols:
STT_FUNC         STB_GLOBAL STO_ENTRY      _ZN8cake_moe8quantize17cake_moe_quantizeEPK5uint4lPKfP5uint2Ph
"""


def test_fat_binary_listing_is_read() -> None:
    from wheel_checks import entry_points

    archs, kernels = entry_points(LISTING)
    assert archs == {"sm_90a", "sm_100a"}
    assert kernels == {"cake_moe_quantize": {"sm_90a", "sm_100a"}, "cake_moe_fc1": {"sm_90a"}}


def test_fat_binary_faults_are_reported() -> None:
    from wheel_checks import check_fat_binary

    declared = {"cake_moe_quantize": ["sm_90a", "sm_100a", "sm_103a"], "cake_moe_fc1": ["sm_90a"]}
    problems = check_fat_binary(LISTING, {"kernels": declared})
    assert len(problems) == 2
    assert "fat binary holds ['sm_100a', 'sm_90a']" in problems[0]
    assert problems[1].startswith("kernel cake_moe_quantize")
    complete = LISTING + "arch = sm_103a\nSTO_ENTRY _ZN8cake_moe8quantize17cake_moe_quantizeEv\n"
    assert check_fat_binary(complete, {"kernels": declared}) == []
    assert len(check_fat_binary(complete, {"kernels": {**declared, "cake_moe_fc2": ["sm_90a"]}})) == 1
    del declared["cake_moe_fc1"]
    assert len(check_fat_binary(complete, {"kernels": declared})) == 1


def test_kernels_are_declared_under_their_names_for_known_architectures() -> None:
    known = set(_native.BUILD_CONFIG["cuda_archs"])
    for name, archs in _native.BUILD_CONFIG["kernels"].items():
        assert name.startswith("cake_moe_")
        assert archs
        assert set(archs) <= known

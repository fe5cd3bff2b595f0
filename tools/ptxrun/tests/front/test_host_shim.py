"""Launch code linked with the shim: what is recorded, what is refused, and that the records run."""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from ptxrun import Launch, Memory, Module, TensorMap, run
from ptxrun.host_shim import Program, architecture_flags, compile_object, link_program

SOURCE = Path(__file__).with_name("launches.cu")
INVALID_VALUE, INVALID_CONFIGURATION, NO_KERNEL_IMAGE = 1, 9, 209  # cudaError_t

pytestmark = pytest.mark.toolkit


@cache
def program() -> Program:
    flags = ["-std=c++20", "-O3", "-Xcompiler=-fPIC,-fvisibility=hidden", *architecture_flags(["90a", "100a"])]
    loaded = Program(link_program([compile_object(SOURCE, flags)], "launches"))
    loaded.set_device(9, 0, 132)
    return loaded


def words(*values: int) -> list[ctypes.c_uint64]:
    return [ctypes.c_uint64(value) for value in values]


def test_a_plain_launch() -> None:
    program().library.launch_scale(*words(0x1000, 0x2000), 100)
    (launch,) = program().take_launches()
    assert "scale" in launch.kernel
    assert (launch.grid, launch.block, launch.cluster) == ((4, 1, 1), (32, 1, 1), (1, 1, 1))
    assert (launch.smem, launch.pdl, launch.cooperative) == (0, False, False)
    assert launch.args == (struct.pack("<Q", 0x1000), struct.pack("<Q", 0x2000), struct.pack("<i", 100), bytes(8))
    assert program().take_launches() == []


def test_attributes_and_struct_arguments() -> None:
    assert program().library.launch_fill(*words(0x3000), 1024, 0, 2) == 0
    (launch,) = program().take_launches()
    assert (launch.grid, launch.block, launch.cluster) == ((4, 2, 1), (64, 1, 1), (2, 1, 1))
    assert (launch.smem, launch.pdl, launch.cooperative) == (1024, True, False)
    assert [len(value) for value in launch.args] == [16, 2]
    assert launch.args[0][:10] == struct.pack("<Qh", 0x3000, 3)
    assert launch.args[1] == struct.pack("<h", 7)


def test_a_cooperative_launch() -> None:
    assert program().library.launch_cooperative(*words(0x3000)) == 0
    (launch,) = program().take_launches()
    assert launch.cooperative


def test_a_launch_by_the_driver() -> None:
    assert program().library.launch_by_driver(*words(0x3000), 1024) == 0
    (launch,) = program().take_launches()
    assert "fill" in launch.kernel
    assert (launch.grid, launch.block, launch.cluster) == ((4, 2, 1), (64, 1, 1), (2, 1, 1))
    assert (launch.smem, launch.pdl, launch.cooperative) == (1024, True, True)
    assert [value[:2] for value in launch.args] == [struct.pack("<H", 0x3000), struct.pack("<h", 7)]
    assert program().library.launch_by_driver(*words(0x3000), 300 << 10) == INVALID_VALUE


def test_what_the_runtime_would_refuse() -> None:
    fill = program().library.launch_fill
    assert fill(*words(0), 100 << 10, 0, 1) == INVALID_VALUE  # above 48 KiB without the attribute
    assert fill(*words(0), 100 << 10, 100 << 10, 1) == 0
    assert fill(*words(0), 0, 228 << 10, 1) == INVALID_VALUE
    assert fill(*words(0), 0, 0, 3) == INVALID_CONFIGURATION  # a grid of 4 in clusters of 3
    assert len(program().take_launches()) == 1
    shape = program().library.launch_shape
    assert shape(65535, 64) == 0
    assert shape(70000, 1) == INVALID_CONFIGURATION
    assert shape(1, 65) == INVALID_CONFIGURATION
    assert len(program().take_launches()) == 1


def test_a_call_that_the_shim_does_not_have_is_named(tmp_path: Path) -> None:
    source = tmp_path / "managed.cu"
    source.write_text("int make(void** at) { return cudaMallocManaged(at, 16); }\n")
    unit = compile_object(source, ["-std=c++20", "-Xcompiler=-fPIC", *architecture_flags(["90a"])])
    with pytest.raises(RuntimeError, match="does not have: cudaMallocManaged"):
        link_program([unit], "managed")


def test_the_device_chooses_the_module() -> None:
    modules = program().modules
    assert {arch for _, arch in modules} == {90, 100}
    assert ".target sm_90a" in modules[0, 90]
    assert ".target sm_100a" in modules[0, 100]
    try:
        program().set_device(10, 3, 148)
        assert program().library.launch_fill(*words(0), 0, 0, 1) == NO_KERNEL_IMAGE
        assert program().library.device_number(16) == 148
        assert program().library.device_number(75) == 10
    finally:
        program().set_device(9, 0, 132)


def test_a_tensor_map_is_that_of_python() -> None:
    assert program().library.launch_map(*words(0x7000_0000_0200, 0x9000, 256)) == 0
    (launch,) = program().take_launches()
    same = TensorMap(0x7000_0000_0200, "f32", (64, 16), (32, 8), swizzle=128)
    assert launch.args[0] == bytes(same)
    assert program().library.launch_map(*words(0x7000_0000_0200, 0x9000, 260)) == INVALID_VALUE


@pytest.mark.parametrize("arch", [90, 100])
def test_recorded_launches_run(arch: int) -> None:
    values = np.arange(100, dtype=np.int32)
    memory = Memory()
    source = memory.add(values, "in", readonly=True)
    target = memory.add_empty(400, "out")
    module = Module(program().modules[0, arch])
    program().library.launch_scale(*words(source.address, target.address), 100)
    launches = [Launch.recorded(launch, module) for launch in program().take_launches()]
    report = run(launches, memory)
    report.raise_on_findings()
    assert np.array_equal(target.numpy(np.int32), values * np.array([2, 3, 5])[values % 3])

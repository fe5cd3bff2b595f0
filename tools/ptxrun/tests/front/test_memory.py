"""Addresses of buffers, and tensor maps in the driver's rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptxrun import Memory, TensorMap


def test_buffers_share_the_array_and_never_touch() -> None:
    memory = Memory()
    array = np.zeros((4, 5), np.float32)
    first = memory.add(array, "first")
    second = memory.add_empty(7, "second", alignment=16)
    array[1, 0] = 2
    assert first.numpy(np.float32, (4, 5))[1, 0] == 2
    assert second.address - (first.address + first.nbytes) >= 1 << 20
    assert second + 3 == second.address + 3


@pytest.mark.parametrize("alignment", [1, 16, 128, 512, 1024])
def test_an_address_is_aligned_to_what_was_asked_and_no_more(alignment: int) -> None:
    memory = Memory()
    for _ in range(3):
        address = memory.add_empty(100, "x", alignment=alignment).address
        assert address % alignment == 0
        assert address % (2 * alignment) != 0


def test_parts_of_a_reserved_range() -> None:
    memory = Memory()
    base = memory.reserve(64)
    memory.add_empty(16, "low", address=base)
    memory.add_empty(16, "high", address=base + 32)
    with pytest.raises(ValueError, match="low"):
        memory.add_empty(16, "overlap", address=base + 8)
    assert [buffer.name for buffer in memory.buffers] == ["low", "high"]
    assert memory.add_empty(1, "next").address > base + 64


@pytest.mark.parametrize("array", [np.zeros((4, 4))[:, :2], np.zeros(0)])
def test_arrays_that_are_no_memory(array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(ValueError, match="contiguous"):
        Memory().add(array, "x")


GOOD: dict[str, Any] = {"base": 0x1000, "dtype": "f16", "dims": (64, 32), "box": (64, 16), "swizzle": 128}


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"base": 0x1008}, "address"),
        ({"strides": (136,)}, "stride"),
        ({"strides": (1 << 40,)}, "stride"),
        ({"box": (128, 16)}, "swizzle"),
        ({"box": (64, 257)}, "box"),
        ({"box": (12, 16)}, "inner"),
        ({"dims": (0, 32)}, "size"),
        ({"element_strides": (1, 9)}, "element stride"),
        ({"interleave": 16}, "rank"),
        ({"dtype": "u16", "nan_fill": True}, "float"),
        ({"dtype": "u4_align16", "base": 0x1010, "dims": (128, 2), "box": (128, 2)}, "address"),
        ({"dtype": "u4_align16", "dims": (192, 2), "box": (128, 2)}, "128"),
        ({"dtype": "u4_align16", "dims": (256, 2), "box": (64, 2)}, "128"),
    ],
)
def test_what_the_driver_refuses(change: dict[str, Any], rule: str) -> None:
    assert len(bytes(TensorMap(**GOOD))) == 128
    with pytest.raises(ValueError, match=rule):
        bytes(TensorMap(**{**GOOD, **change}))


def test_dense_strides() -> None:
    assert TensorMap(0, "u4_align8", (256, 4, 3), (256, 1, 1)).dense_strides() == [128, 512]
    assert TensorMap(0, "tf32", (8, 4), (8, 1)).dense_strides() == [32]
    assert TensorMap(0, "bf16", (8, 4), (8, 1)).dense_strides() == [16]


def test_a_read_only_array_is_no_memory_to_write(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(4, np.int32))
    for array in (np.load(tmp_path / "x.npy", mmap_mode="r"), np.frombuffer(bytes(16), np.int32)):
        with pytest.raises(ValueError, match="readonly=True"):
            Memory().add(array, "x")
        assert Memory().add(array, "x", readonly=True).readonly


@pytest.mark.parametrize(
    "change", [{"dtype": "float"}, {"swizzle": 100}, {"interleave": 3}, {"dims": (), "box": ()}, {"dims": (64, -1)}]
)
def test_values_that_a_tensor_map_does_not_know(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="TensorMap: "):
        bytes(TensorMap(**{**GOOD, **change}))

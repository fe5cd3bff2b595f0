"""Boxes of tensor maps against element-wise copies."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from ptxrun.build import core

model = core().model

U8, U16, F16, F32, BF16, U4 = 0, 1, 6, 7, 9, 13
MAGIC = 0x4D546E7572787470


def tensor_map(
    dtype: int,
    dims: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    *,
    swizzle: int = 0,
    steps: tuple[int, ...] = (1, 1, 1, 1, 1),
    fill: int = 0,
    base: int = 0x7000,
    magic: int = MAGIC,
    interleave: int = 0,
) -> bytes:
    rank = len(dims)

    def padded(values: tuple[int, ...], count: int) -> tuple[int, ...]:
        return values + (0,) * (count - len(values))

    return struct.pack(
        "<QQ5Q4Q5H5B6B19x",
        *(magic, base, *padded(dims, 5), *padded(strides, 4), *padded(box, 5), *padded(steps[:rank], 5)),
        *(rank, dtype, interleave, swizzle, 0, fill),
    )


def load(
    handle: bytes, coordinates: tuple[int, ...], shared: int, memory: np.ndarray, base: int = 0x7000
) -> dict[int, int]:
    """Shared byte -> byte loaded; -1 where the fill goes."""
    result: dict[int, int] = {}
    for address, to, count, inside in model.box_runs(handle, coordinates, shared):
        for i in range(count):
            assert to + i not in result, "a byte is written twice"
            result[to + i] = int(memory[address - base + i]) if inside else -1
    return result


def element_wise(
    dims: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    steps: tuple[int, ...],
    coordinates: tuple[int, ...],
    element: int,
    shared: int,
    swizzle_bits: int,
    memory: np.ndarray,
) -> dict[int, int]:
    counts = [-(-b // s) for b, s in zip(box, steps, strict=False)]
    result = {}
    for flat in range(int(np.prod(counts)) * element):
        rest, byte = divmod(flat, element)
        index = []
        for count in counts:
            rest, i = divmod(rest, count)
            index.append(i)
        at = [c + i * s for c, i, s in zip(coordinates, index, steps, strict=False)]
        to = shared + flat
        to ^= (to >> 7 & ((1 << swizzle_bits) - 1)) << 4
        inside = all(0 <= x < d for x, d in zip(at, dims, strict=True))
        offset = at[0] * element + sum(x * s for x, s in zip(at[1:], strides, strict=True)) + byte
        result[to] = int(memory[offset]) if inside else -1
    return result


CASES = [
    (U8, (128, 40), (128,), (128, 16), (1, 1), (0, 8), 3),
    (U8, (100, 40), (112,), (128, 16), (1, 1), (0, 32), 3),
    (F16, (64, 20), (128,), (32, 8), (1, 1), (40, -3), 2),
    (F16, (64, 20), (128,), (16, 8), (1, 1), (-5, 15), 1),
    (F32, (30, 9, 5), (128, 1152), (8, 4, 3), (1, 1, 1), (26, 7, 3), 0),
    (F32, (30, 9, 5), (128, 1152), (8, 4, 3), (1, 2, 1), (-3, -1, -1), 0),
    (U16, (64, 6, 3, 2), (128, 768, 2304), (8, 2, 2, 2), (1, 1, 1, 1), (60, 5, 2, 1), 0),
    (U16, (64, 6), (128,), (16, 4), (2, 3), (49, 1), 0),
    (U8, (128, 40), (128,), (128, 16), (1, 1), (200, 8), 3),
]


@pytest.mark.parametrize(("dtype", "dims", "strides", "box", "steps", "coordinates", "bits"), CASES)
def test_boxes(dtype, dims, strides, box, steps, coordinates, bits) -> None:  # type: ignore[no-untyped-def]
    memory = np.random.default_rng(1).integers(0, 256, 1 << 14, dtype=np.uint8)
    handle = tensor_map(dtype, dims, strides, box, swizzle=bits, steps=steps)
    element = {U8: 1, U16: 2, F16: 2, F32: 4}[dtype]
    expected = element_wise(dims, strides, box, steps, coordinates, element, 4096, bits, memory)
    assert load(handle, coordinates, 4096, memory) == expected
    assert model.box_bytes(handle) == len(expected)
    assert model.check_box_copy(handle, 4096) == []


def test_four_bit_elements() -> None:
    handle = tensor_map(U4, (256, 10), (128,), (256, 4), swizzle=3)
    bytes_handle = tensor_map(U8, (128, 10), (128,), (128, 4), swizzle=3)
    assert model.box_bytes(handle) == 512
    assert model.box_runs(handle, (0, 8), 1024) == model.box_runs(bytes_handle, (0, 8), 1024)


def test_runs_are_long_without_a_swizzle() -> None:
    handle = tensor_map(U8, (256, 10), (256,), (128, 2))
    assert model.box_runs(handle, (64, 3), 256) == [(0x7000 + 832, 256, 128, True), (0x7000 + 1088, 384, 128, True)]


def test_gather_of_four_rows() -> None:
    memory = np.random.default_rng(2).integers(0, 256, 1 << 14, dtype=np.uint8)
    handle = tensor_map(U8, (128, 40), (128,), (128, 1), swizzle=3)
    result: dict[int, int] = {}
    for address, to, count, inside in model.gather4_runs(handle, (0, 7, 3, -1, 39), 2048):
        for i in range(count):
            result[to + i] = int(memory[address - 0x7000 + i]) if inside else -1
    for row, source in enumerate((7, 3, None, 39)):
        for i in range(128):
            to = 2048 + 128 * row + i
            expected = -1 if source is None else int(memory[128 * source + i])
            assert result[to ^ (to >> 7 & 7) << 4] == expected


@pytest.mark.parametrize(
    ("dtype", "pattern"),
    [(F16, "ff7f" * 8), (BF16, "ff7f" * 8), (F32, "ffffff7f" * 4), (U8, "00" * 16)],
)
def test_fill(dtype: int, pattern: str) -> None:
    assert model.fill_pattern(tensor_map(dtype, (64, 4), (256,), (16, 2), fill=1)) == bytes.fromhex(pattern)
    assert model.fill_pattern(tensor_map(dtype, (64, 4), (256,), (16, 2))) == bytes(16)


@pytest.mark.parametrize(
    ("handle", "shared", "name"),
    [
        (tensor_map(U8, (64, 4), (64,), (16, 2), magic=1), 128, "tensor_map.invalid"),
        (tensor_map(U8, (64, 4), (64,), (16, 2)), 64, "tensor_map.shared_alignment"),
        (tensor_map(U8, (64, 4), (64,), (16, 2), swizzle=4), 128, "tensor_map.swizzle"),
        (tensor_map(U8, (64, 4), (64,), (16, 2), interleave=1), 128, "tensor_map.interleave"),
        (tensor_map(14, (128, 4), (64,), (128, 2)), 128, "tensor_map.type"),
    ],
)
def test_box_problems(handle: bytes, shared: int, name: str) -> None:
    assert [p[0] for p in model.check_box_copy(handle, shared)] == [name]

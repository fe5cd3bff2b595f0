"""Shared-memory descriptors and canonical layouts."""

from __future__ import annotations

import numpy as np
import pytest
from canonical_layout import Layout
from ptxrun.build import core

model = core().model

@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize(
    ("major", "bits", "k"), [("k", 16, 16), ("k", 8, 32), ("k", 4, 64), ("mn", 16, 16), ("mn", 8, 32)]
)
@pytest.mark.parametrize("rows", [8, 64, 128, 256])
def test_element_addresses(span: int, major: str, bits: int, k: int, rows: int) -> None:
    layout = Layout(rows, k, bits, span, major, start=4096)
    leading, stride = layout.offsets
    got = model.element_addresses(layout.start, leading, stride, span, major, rows, k, bits).astype(np.int64)
    np.testing.assert_array_equal(got, layout.addresses())
    per_byte = max(8 // bits, 1)
    bytes_touched, counts = np.unique(got, return_counts=True)
    assert (counts == per_byte).all(), "two elements share a byte"
    assert bytes_touched.size == rows * k // per_byte
    assert model.check_smem_matrix(layout.start, leading, stride, span, major, rows, k, bits) == []


def test_steps_along_k_stay_within_the_swizzled_row() -> None:
    whole = model.element_addresses(2048, 0, 1024, 128, "k", 16, 256, 4)
    for step in range(4):
        part = model.element_addresses(2048 + 32 * step, 0, 1024, 128, "k", 16, 64, 4)
        np.testing.assert_array_equal(part, whole[:, 64 * step : 64 * (step + 1)])
        assert model.check_smem_matrix(2048 + 32 * step, 0, 1024, 128, "k", 16, 64, 4) == []


def test_base_offset_moves_the_pattern() -> None:
    assert model.swizzle_address(0x480, 128) == 0x480 ^ 0x10
    assert model.swizzle_address(0x480, 128, 1) == 0x480
    assert model.swizzle_address(0x480, 64, 0) == 0x480 ^ 0x10
    assert model.swizzle_address(0x500, 32, 0) == 0x500


def descriptor(kind: str, start: int, leading: int, stride: int, swizzle_code: int, **bits: int) -> int:
    value = start >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32
    value |= swizzle_code << 62 if kind == "wgmma" else (swizzle_code << 61 | 1 << 46)
    for name, x in bits.items():
        value ^= x << int(name.removeprefix("bit"))
    return value


@pytest.mark.parametrize(
    ("kind", "code", "span"),
    [
        *(("wgmma", 0, 0), ("wgmma", 1, 128), ("wgmma", 2, 64), ("wgmma", 3, 32)),
        *(("tcgen05", 0, 0), ("tcgen05", 2, 128), ("tcgen05", 4, 64), ("tcgen05", 6, 32)),
    ],
)
def test_descriptor_fields(kind: str, code: int, span: int) -> None:
    fields, problems = model.decode_smem_descriptor(kind, descriptor(kind, 0x3FFF0, 0x1230, 0x4560, code, bit49=5))
    assert fields == {"start": 0x3FFF0, "leading": 0x1230, "stride": 0x4560, "base_offset": 5, "swizzle": span}
    assert problems == []


@pytest.mark.parametrize(
    ("kind", "code", "bits", "name"),
    [
        ("tcgen05", 2, {"bit46": 1}, "smem_descriptor.version"),
        ("tcgen05", 2, {"bit47": 1}, "smem_descriptor.version"),
        ("tcgen05", 2, {"bit52": 1}, "smem_descriptor.absolute_leading"),
        ("tcgen05", 2, {"bit53": 1}, "smem_descriptor.reserved_bits"),
        ("tcgen05", 2, {"bit14": 1}, "smem_descriptor.reserved_bits"),
        ("tcgen05", 1, {}, "smem_descriptor.swizzle"),
        ("tcgen05", 3, {}, "smem_descriptor.swizzle"),
        ("wgmma", 1, {"bit46": 1}, "smem_descriptor.reserved_bits"),
        ("wgmma", 1, {"bit61": 1}, "smem_descriptor.reserved_bits"),
        ("wgmma", 1, {"bit30": 1}, "smem_descriptor.reserved_bits"),
    ],
)
def test_descriptor_problems(kind: str, code: int, bits: dict[str, int], name: str) -> None:
    _, problems = model.decode_smem_descriptor(kind, descriptor(kind, 1024, 16, 1024, code, **bits))
    assert [p[0] for p in problems] == [name]


@pytest.mark.parametrize(
    ("matrix", "major", "rows", "k", "name"),
    [
        ((1024 + 128, 0, 1024, 128), "k", 64, 16, "smem_descriptor.base_offset"),
        ((1024 + 112, 0, 1024, 128), "k", 64, 16, "smem_descriptor.row_end"),
        ((1024, 0, 512, 128), "k", 64, 16, "smem_descriptor.stride"),
        ((1024, 0, 128, 0), "k", 64, 16, "smem_descriptor.leading"),
        ((1024, 512, 1024, 128), "mn", 128, 16, "smem_descriptor.leading"),
        ((1024, 2048, 0, 128), "mn", 64, 16, "smem_descriptor.stride"),
        ((1024, 0, 128, 0), "mn", 64, 16, "smem_descriptor.leading"),
    ],
)
def test_layout_problems(matrix: tuple[int, int, int, int], major: str, rows: int, k: int, name: str) -> None:
    assert [p[0] for p in model.check_smem_matrix(*matrix, major, rows, k, 16)] == [name]

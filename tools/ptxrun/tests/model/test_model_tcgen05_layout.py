"""Instruction descriptors and the places of matrices, scales and registers in tensor memory."""

from __future__ import annotations

import itertools

import pytest
from ptxrun.build import core

model = core().model


def scaled(m: int = 128, n: int = 64, **fields: int) -> int:
    value = (n >> 3) << 17 | (m >> 7) << 27 | 1 << 7 | 1 << 10
    for name, x in fields.items():
        value |= x << int(name.removeprefix("bit"))
    return value


def plain(m: int = 128, n: int = 64, a: int = 0, b: int = 0, **fields: int) -> int:
    value = 1 << 4 | a << 7 | b << 10 | (n >> 3) << 17 | (m >> 4) << 24
    for name, x in fields.items():
        value ^= x << int(name.removeprefix("bit"))
    return value


def test_nvfp4_descriptor() -> None:
    value = scaled(128, 200, bit13=1)
    fields, problems = model.decode_instruction_descriptor(value, "mxf4nvf4", 4, 1)
    assert problems == []
    assert (fields["m"], fields["n"], fields["k"]) == (128, 200, 64)
    assert (fields["a_width"], fields["b_width"]) == (4, 4)
    assert (fields["negate_a"], fields["negate_b"]) == (True, False)
    assert not fields["ue8m0"]


def test_scale_ids() -> None:
    value = scaled(128, 64, bit4=2, bit29=2, bit23=1)
    fields, problems = model.decode_instruction_descriptor(value, "mxf4", 2, 1)
    assert problems == []
    assert (fields["scale_a_id"], fields["scale_b_id"], fields["ue8m0"]) == (2, 2, True)


def test_f16_descriptor() -> None:
    value = plain(64, 8, 1, 1, bit15=1, bit14=1)
    fields, problems = model.decode_instruction_descriptor(value, "f16", 0, 1)
    assert problems == []
    assert (fields["m"], fields["n"], fields["k"], fields["a_width"]) == (64, 8, 16, 16)
    assert (fields["transpose_a"], fields["transpose_b"], fields["negate_b"]) == (True, False, True)
    assert not fields["f16_accumulators"]


@pytest.mark.parametrize(
    ("value", "kind", "vector", "group", "name"),
    [
        (scaled(bit2=1), "mxf4nvf4", 4, 1, "instruction_descriptor.reserved_bits"),
        (scaled(bit6=1), "mxf4nvf4", 4, 1, "instruction_descriptor.reserved_bits"),
        (scaled(bit24=1), "mxf4nvf4", 4, 1, "instruction_descriptor.reserved_bits"),
        (scaled(bit8=1), "mxf4nvf4", 4, 1, "instruction_descriptor.type"),
        (scaled() ^ 1 << 10, "mxf4nvf4", 4, 1, "instruction_descriptor.type"),
        (scaled(bit15=1), "mxf4nvf4", 4, 1, "instruction_descriptor.transpose"),
        (scaled(bit4=1), "mxf4nvf4", 4, 1, "instruction_descriptor.scale_id"),
        (scaled(bit29=2), "mxf4nvf4", 4, 1, "instruction_descriptor.scale_id"),
        (scaled(bit31=1), "mxf4nvf4", 4, 1, "instruction_descriptor.k"),
        (scaled(), "mxf4", 2, 1, "instruction_descriptor.scale_type"),
        (scaled(256), "mxf4nvf4", 4, 1, "instruction_descriptor.m"),
        (scaled(0), "mxf4nvf4", 4, 1, "instruction_descriptor.m"),
        (scaled(128, 0), "mxf4nvf4", 4, 1, "instruction_descriptor.n"),
        (scaled(128, 264), "mxf4nvf4", 4, 1, "instruction_descriptor.n"),
        (scaled(256, 8), "mxf4nvf4", 4, 2, "instruction_descriptor.n"),
        (plain(128, 8), "f16", 0, 1, "instruction_descriptor.n"),
        (plain(32, 16), "f16", 0, 1, "instruction_descriptor.m"),
        (plain(64, 16), "f16", 0, 2, "instruction_descriptor.m"),
        (plain(a=2), "f16", 0, 1, "instruction_descriptor.type"),
        (plain(b=2), "f8f6f4", 0, 1, "instruction_descriptor.type"),
        (plain(bit5=1), "f16", 0, 1, "instruction_descriptor.type"),
        (plain(bit23=1), "f16", 0, 1, "instruction_descriptor.reserved_bits"),
    ],
)
def test_instruction_descriptor_problems(value: int, kind: str, vector: int, group: int, name: str) -> None:
    _, problems = model.decode_instruction_descriptor(value, kind, vector, group)
    assert [p[0] for p in problems] == [name]


# Shape -> lanes, columns of .x1, and the digits of a thread and of a register of .x4 as (extent, lane, column).
REGISTER_SHAPES = {
    "32x32b": (32, 1, [(32, 1, 0)], [(4, 0, 1)]),
    "16x64b": (16, 2, [(2, 8, 0), (2, 0, 1), (8, 1, 0)], [(4, 0, 2)]),
    "16x128b": (16, 4, [(4, 0, 1), (8, 1, 0)], [(2, 8, 0), (4, 0, 4)]),
    "16x256b": (16, 8, [(4, 0, 2), (8, 1, 0)], [(2, 0, 1), (2, 8, 0), (4, 0, 8)]),
}


def place(index: int, digits: list[tuple[int, int, int]]) -> tuple[int, int]:
    lane = column = 0
    for extent, lane_step, column_step in digits:
        index, digit = divmod(index, extent)
        lane, column = lane + digit * lane_step, column + digit * column_step
    return lane, column


@pytest.mark.parametrize("shape", sorted(REGISTER_SHAPES))
def test_register_cells(shape: str) -> None:
    lanes, columns, thread_digits, register_digits = REGISTER_SHAPES[shape]
    registers = model.registers_per_thread(shape, 4)
    seen = {}
    for thread, register in itertools.product(range(32), range(registers)):
        a, b = place(thread, thread_digits), place(register, register_digits)
        cell = model.register_cell(shape, thread, register, 0)
        assert cell == (a[0] + b[0], a[1] + b[1])
        seen[cell] = thread, register
    assert sorted(seen) == sorted(itertools.product(range(lanes), range(4 * columns)))


def test_split_shape() -> None:
    assert model.register_cell("16x32bx2", 5, 3, 64) == (5, 3)
    assert model.register_cell("16x32bx2", 21, 3, 64) == (5, 67)


@pytest.mark.parametrize(("shape", "largest"), [("32x32b", 128), ("16x64b", 128), ("16x128b", 64), ("16x256b", 32)])
def test_repeats(shape: str, largest: int) -> None:
    legal = [n for n in range(1, 300) if model.is_legal_repeat(shape, n)]
    assert legal == [1 << i for i in range(largest.bit_length())]


def test_copies_to_tensor_memory() -> None:
    width, lanes = model.copy_lanes("32x128b.warpx4")
    assert width == 16
    assert lanes == [[r, r + 32, r + 64, r + 96] for r in range(32)]
    assert model.copy_lanes("128x256b") == (32, [[r] for r in range(128)])
    assert model.copy_lanes("128x128b") == (16, [[r] for r in range(128)])
    assert model.copy_lanes("4x256b") == (32, [[0], [32], [64], [96]])
    assert model.copy_lanes("64x128b.warpx2::02_13") == (16, [[r, r + 64] for r in range(64)])
    pairs = [[r, r + 32] for r in range(32)] + [[r + 32, r + 64] for r in range(32, 64)]
    assert model.copy_lanes("64x128b.warpx2::01_23") == (16, pairs)


@pytest.mark.parametrize(
    ("m", "n", "group", "row", "column", "cell"),
    [
        (128, 64, 1, 77, 63, (77, 63)),
        (64, 64, 1, 15, 3, (15, 3)),
        (64, 64, 1, 16, 3, (32, 3)),
        (64, 64, 1, 63, 3, (111, 3)),
        (256, 64, 2, 127, 9, (127, 9)),
        (128, 64, 2, 63, 31, (63, 31)),
        (128, 64, 2, 5, 32, (69, 0)),
    ],
)
def test_accumulator_cells(m: int, n: int, group: int, row: int, column: int, cell: tuple[int, int]) -> None:
    assert model.accumulator_cell(m, n, group, row, column) == cell


def test_scales_are_in_every_partition() -> None:
    assert [model.scale_cell(row, 0) for row in (0, 31, 32, 127, 255)] == [(0, 0), (31, 0), (0, 1), (31, 3), (31, 7)]
    assert [model.scale_cell(33, partition) for partition in range(4)] == [(1, 1), (33, 1), (65, 1), (97, 1)]


def test_warp_fragments() -> None:
    # Thread 5: group 1, second in its group of four.
    assert [model.a_fragment(5, i, 2) for i in range(4)] == [(1, 2), (9, 2), (1, 10), (9, 10)]
    assert [model.a_fragment(5, i, 4) for i in range(4)] == [(1, 4), (9, 4), (1, 20), (9, 20)]
    assert [model.b_fragment(5, i, 2) for i in range(2)] == [(2, 1), (10, 1)]
    assert [model.accumulator_fragment(5, i) for i in range(6)] == [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11)]

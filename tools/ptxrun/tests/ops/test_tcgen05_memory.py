"""tcgen05.ld, st, cp: which cells go where."""

from __future__ import annotations

import numpy as np
import pytest
from canonical_layout import Layout
from kernel_text import SCHEDULES, clean
from mma_kernels import store_words
from numpy.typing import NDArray
from tcgen05_kernels import execute, one_thread, read_out, setup, teardown

NOTHING = np.zeros(16, np.uint8)
COLUMNS = 64

# Every cell of 128 lanes and COLUMNS columns gets lane << 16 | column + 1.
FILL = (
    "  shl.b32 %r41, %warp, 21;\n  add.u32 %r41, %r41, %r10;\n"
    "  shl.b32 %r43, %t, 16;\n"
    + "".join(f"  add.u32 %c{i}, %r43, {i + 1};\n" for i in range(COLUMNS))
    + f"  tcgen05.st.sync.aligned.32x32b.x{COLUMNS}.b32 [%r41], {{{', '.join(f'%c{i}' for i in range(COLUMNS))}}};\n"
    + "  tcgen05.wait::st.sync.aligned;\n"
)


def pattern(lane: int, column: int) -> int:
    return lane << 16 | column + 1


# Lane and column of register r of a thread, relative to the address: the layouts of the ISA.
SHAPES = {
    "32x32b": (1, lambda t, r: (t, r)),
    "16x64b": (1, lambda t, r: (t // 4 + 8 * (t % 2), t // 2 % 2 + 2 * r)),
    "16x128b": (2, lambda t, r: (t // 4 + 8 * (r % 2), t % 4 + 4 * (r // 2))),
    "16x256b": (4, lambda t, r: (t // 4 + 8 * (r // 2 % 2), 2 * (t % 4) + r % 2 + 8 * (r // 4))),
}


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES[:2])
@pytest.mark.parametrize("half", [0, 16])
@pytest.mark.parametrize("repeat", [1, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_loads(shape: str, repeat: int, half: int, schedule: str, seed: int) -> None:
    unit, place = SHAPES[shape]
    count = unit * repeat
    lane = half if shape != "32x32b" else 0
    registers = [f"%a{i}" if i < 8 else f"%c{i}" for i in range(count)]
    body = f"""{setup()}{FILL}
  add.u32 %r44, %r41, {lane << 16 | 3};
  tcgen05.ld.sync.aligned.{shape}.x{repeat}.b32 {{{", ".join(registers)}}}, [%r44];
  tcgen05.wait::ld.sync.aligned;
{store_words(registers)}{teardown()}"""
    report, words = execute(body, NOTHING, count, schedule=schedule, seed=seed)
    clean(report)
    for thread in range(128):
        for register in range(count):
            at_lane, at_column = place(thread % 32, register)
            expected = pattern(32 * (thread // 32) + lane + at_lane, 3 + at_column)
            assert words[0, thread, register] == expected


@pytest.mark.parametrize("shape", SHAPES)
def test_packed_halves(shape: str) -> None:
    """A load with .pack::16b joins the low halves of two columns; a store with .unpack::16b takes them apart."""
    unit, place = SHAPES[shape]
    registers = [f"%a{i}" for i in range(2 * unit)]
    body = f"""{setup()}{FILL}
  tcgen05.ld.sync.aligned.{shape}.x2.pack::16b.b32 {{{", ".join(registers)}}}, [%r41];
  tcgen05.wait::ld.sync.aligned;
  tcgen05.st.sync.aligned.{shape}.x2.unpack::16b.b32 [%r41+16], {{{", ".join(registers)}}};
  tcgen05.wait::st.sync.aligned;
  add.u32 %r44, %r41, 16;
  tcgen05.ld.sync.aligned.{shape}.x2.b32 {{{", ".join(f"%c{i}" for i in range(2 * unit))}}}, [%r44];
  tcgen05.wait::ld.sync.aligned;
{store_words([*registers, *(f"%c{i}" for i in range(2 * unit))])}{teardown()}"""
    report, words = execute(body, NOTHING, 4 * unit)
    clean(report)
    for thread in range(128):
        for register in range(2 * unit):
            lane, column = place(thread % 32, register)
            lane += 32 * (thread // 32)
            low, high = pattern(lane, 2 * column) & 0xFFFF, pattern(lane, 2 * column + 1) & 0xFFFF
            assert words[0, thread, register] == low | high << 16
            assert words[0, thread, 2 * unit + register] == pattern(lane, column) & 0xFFFF


def test_split_loads() -> None:
    body = f"""{setup()}{FILL}
  tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {{%a0, %a1}}, [%r41], 20;
  tcgen05.wait::ld.sync.aligned;
{store_words(["%a0", "%a1"])}{teardown()}"""
    report, words = execute(body, NOTHING, 2)
    clean(report)
    for thread in range(128):
        lane, half = 32 * (thread // 32) + thread % 16, thread % 32 // 16
        assert words[0, thread].tolist() == [pattern(lane, 20 * half), pattern(lane, 20 * half + 1)]


# Rows and bytes a row of the source, and the row that each lane gets.
COPIES = {
    "128x256b": (128, 32, {lane: lane for lane in range(128)}),
    "128x128b": (128, 16, {lane: lane for lane in range(128)}),
    "4x256b": (4, 32, {32 * row: row for row in range(4)}),
    "64x128b.warpx2::02_13": (64, 16, {lane: lane % 64 for lane in range(128)}),
    "64x128b.warpx2::01_23": (64, 16, {lane: lane % 32 + 32 * (lane // 64) for lane in range(128)}),
    "32x128b.warpx4": (32, 16, {lane: lane % 32 for lane in range(128)}),
}


@pytest.mark.parametrize("schedule", ["early", "late"])
@pytest.mark.parametrize("span", [0, 32, 128])
@pytest.mark.parametrize("shape", COPIES)
def test_copies(shape: str, span: int, schedule: str) -> None:
    rows, row_bytes, source = COPIES[shape]
    data = np.random.default_rng(20).integers(1, 256, (rows, row_bytes), dtype=np.uint8)
    layout = Layout(max(rows, 8), row_bytes, 8, span, "k", 2048)
    picture = np.zeros(32 * 1024, np.uint8)
    padded = np.zeros((layout.rows, row_bytes), np.uint8)
    padded[:rows] = data
    layout.store(picture, padded)
    body = f"""{setup()}{FILL}
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
{
        one_thread(f'''
  mov.b64 %rd16, {layout.descriptor(True)};
  add.u32 %r45, %r10, 8;
  tcgen05.cp.cta_group::1.{shape} [%r45], %rd16;
''')
    }{read_out(16)}{teardown()}"""
    report, words = execute(body, picture[1024:], 16, schedule=schedule)
    clean(report)
    expected: NDArray[np.uint32] = np.array(
        [[pattern(lane, column) for column in range(16)] for lane in range(128)], np.uint32
    )
    for lane, row in source.items():
        expected[lane, 8 : 8 + row_bytes // 4] = data[row].view(np.uint32)
    np.testing.assert_array_equal(words[0], expected)

"""atom and red: every operation and type, order among lanes, spaces."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from kernel_text import Run, clean, every_schedule

START = """
  ld.param.u64 %rd0, [word];
  ld.param.u64 %rd1, [values];
  mul.wide.u32 %rd2, %t, 8;
  add.u64 %rd2, %rd1, %rd2;
"""


WIDTHS = {"u32": 32, "s32": 32, "b32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "f16": 16, "bf16": 16}

# The word goes to shared memory and back around the operation.
TO_SHARED = """
  setp.ne.u32 %p0, %t, 0;
  @!%p0 ld.global.b64 %rd7, [%rd0];
  @!%p0 st.shared.b64 [tile], %rd7;
  bar.sync 0;
"""
FROM_SHARED = """
  bar.sync 0;
  @!%p0 ld.shared.b64 %rd7, [tile];
  @!%p0 st.global.b64 [%rd0], %rd7;
"""


def reduce(kind: str, op: str, initial: int, values: np.ndarray, space: str = "global", name: str = "red") -> int:
    """The word after every thread has applied its value."""
    bits = WIDTHS.get(kind, 64)
    source, old = {16: ("%h0", "%h1"), 32: ("%r0", "%r1"), 64: ("%rd5", "%rd6")}[bits]
    spelling = f"{name}.{space}.{op}{'.noftz' if '16' in kind else ''}.{kind}"
    target = "[%rd0]" if space == "global" else "[tile]"
    operation = f"{spelling} {'' if name == 'red' else old + ', '}{target}, {source};"
    body = f"{START}\n  ld.global.b{bits} {source}, [%rd2];\n"
    body += f"{TO_SHARED}  {operation}{FROM_SHARED}" if space == "shared" else f"  {operation}\n"
    setup = Run({"word": np.array([initial], np.uint64), "values": values.astype(np.uint64)}, block=len(values))
    results = set()
    for report, buffers in every_schedule(body, setup):
        clean(report)
        results.add(int(buffers["word"].numpy(np.uint64)[0]))
    assert len(results) == 1
    return results.pop()


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(
    ("kind", "op"),
    [(k, o) for k in ("u32", "s32", "u64", "s64") for o in ("min", "max")]
    + [(k, o) for k in ("b32", "b64") for o in ("and", "or", "xor")]
    + [("u32", "add"), ("s32", "add"), ("u64", "add")],
)
def test_integers(kind: str, op: str, space: str) -> None:
    bits = int(kind[1:])
    values = np.random.default_rng(2).integers(0, 1 << 63, 64, dtype=np.uint64) * np.uint64(2)
    initial = 0x7000_0000_F000_0001
    functions: dict[str, Callable[[int, int], int]] = {
        "min": min, "max": max, "add": lambda a, b: a + b,
        "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    }  # fmt: skip
    mask = (1 << bits) - 1
    convert = (lambda x: signed(x, bits)) if kind[0] == "s" else (lambda x: x & mask)
    expected = convert(initial)
    for value in values.tolist():
        expected = convert(functions[op](expected, convert(value)))
    upper = initial & ~mask if bits < 64 else 0
    assert reduce(kind, op, initial, values, space, "atom" if op == "min" else "red") == upper | expected & mask


def test_increment_and_decrement_wrap() -> None:
    assert reduce("u32", "inc", 5, np.full(32, 9)) == (5 + 32) % 10
    assert reduce("u32", "dec", 5, np.full(32, 9)) == (5 - 32) % 10


def test_floats_with_exact_sums() -> None:
    values = np.arange(64)
    as_bits = {
        "f32": lambda x: x.astype(np.float32).view(np.uint32),
        "f64": lambda x: x.astype(np.float64).view(np.uint64),
        "f16": lambda x: x.astype(np.float16).view(np.uint16),
        "bf16": lambda x: (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16),
    }
    assert reduce("f32", "add", 0, as_bits["f32"](values)) == int(as_bits["f32"](np.array([2016]))[0])
    assert reduce("f64", "add", 0, as_bits["f64"](values)) == int(as_bits["f64"](np.array([2016]))[0])
    assert reduce("f16", "add", 0, as_bits["f16"](values[:32])) == int(as_bits["f16"](np.array([496]))[0])
    halves = as_bits["f16"](values[:16]).astype(np.uint64)
    low, high = int(as_bits["f16"](np.array([120]))[0]), int(as_bits["f16"](np.array([16]))[0])
    packed = halves | np.uint64(int(as_bits["f16"](np.array([1]))[0])) << np.uint64(16)
    assert reduce("f16x2", "add", 0, packed) == high << 16 | low
    packed = as_bits["bf16"](values[:16]).astype(np.uint64) * np.uint64(0x10001)
    assert reduce("bf16x2", "add", 0, packed) == int(as_bits["bf16"](np.array([120]))[0]) * 0x10001


def test_old_values_are_handed_out_once() -> None:
    """atom.add gives every lane another ticket; cas lets one lane through; exch hands values on."""
    body = f"""{START}
  atom.global.add.u32 %r0, [%rd0], 1;
  cvt.u64.u32 %rd3, %r0;
  st.global.u64 [%rd2], %rd3;
  add.u64 %rd7, %rd3, 1;
  atom.acq_rel.gpu.global.cas.b64 %rd4, [%rd0+8], 0, %rd7;
  setp.eq.u64 %p0, %rd4, 0;
  @%p0 red.global.add.u64 [%rd0+16], %rd7;
  cvt.u64.u32 %rd5, %t;
  atom.global.exch.b64 %rd6, [%rd0+24], %rd5;
  red.global.add.u64 [%rd0+32], %rd6;
"""
    setup = Run({"word": np.array([0, 0, 0, 1000, 0], np.uint64), "values": 8 * 64}, block=64)
    for report, buffers in every_schedule(body, setup):
        clean(report)
        assert sorted(buffers["values"].numpy(np.uint64).tolist()) == list(range(64))
        _, swapped, winner, last, handed_on = buffers["word"].numpy(np.uint64).tolist()
        assert 1 <= swapped == winner <= 64
        assert handed_on + last == sum(range(64)) + 1000


def test_vectors_and_128_bits() -> None:
    body = f"""{START}
  .reg .b128 %q<3>;
  red.global.add.v4.f32 [%rd0], {{%f1, %f1, %f2, %f2}};
  bar.sync 0;
  setp.ne.u32 %p1, %t, 0;
  @%p1 bra DONE;
  mov.b128 %q0, {{5, 6}};
  atom.global.exch.b128 %q1, [%rd0+16], %q0;
  mov.b128 {{%rd4, %rd5}}, %q1;
  st.global.v2.u64 [%rd1], {{%rd4, %rd5}};
DONE:
"""
    body = body.replace("  red.global", "  mov.f32 %f1, 0f3F800000;\n  mov.f32 %f2, 0f40000000;\n  red.global")
    word = np.zeros(8, np.uint32)
    word[4:] = [1, 2, 3, 4]
    for report, buffers in every_schedule(body, Run({"word": word, "values": 16}, block=32)):
        clean(report)
        assert buffers["word"].numpy(np.float32)[:4].tolist() == [32, 32, 64, 64]
        assert buffers["word"].numpy(np.uint64)[2:].tolist() == [5, 6]
        assert buffers["values"].numpy(np.uint32).tolist() == [1, 2, 3, 4]

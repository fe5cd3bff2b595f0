"""setp, set, selp, slct: every comparison, with predicates combined and inverted."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from elementwise import BITS, Case, check, edges, run_body, signed

ORDERED = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
UNSIGNED = {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}
FLOATS = [0.0, -0.0, 1.0, -1.0, 1.5, math.inf, -math.inf, math.nan, 1e-40, -1e-40, 3e38]


def setp(spelling: str, kind: str, values: Sequence[tuple[int, ...]]) -> list[tuple[bool, bool]]:
    body = f"  {spelling} %p0|%p1, %a0, %a1;\n  selp.b32 %r, 1, 0, %p0;\n  @%p1 or.b32 %r, %r, 2;"
    body = body.replace("%p", "%c")
    result = run_body(body, (kind, kind), "b32", values, "  .reg .pred %c<4>;\n")
    return [(bool(bits & 1), bool(bits & 2)) for bits in result.tolist()]


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32", "b32", "s64", "u64"])
def test_integers(kind: str) -> None:
    values = list(product(edges(BITS[kind]), repeat=2))
    names = {**ORDERED, **(UNSIGNED if kind[0] == "u" else {})}
    if kind[0] == "b":
        names = {name: ORDERED[name] for name in ("eq", "ne")}
    for name, f in names.items():
        for (a, b), (p, q) in zip(values, setp(f"setp.{name}.{kind}", kind, values), strict=True):
            x, y = (signed(v, BITS[kind]) if kind[0] == "s" else v for v in (a, b))
            assert (p, q) == (f(x, y), not f(x, y)), (name, a, b)


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_floats(kind: str) -> None:
    to_bits = {
        "f32": lambda x: int(np.float32(x).view(np.uint32)),
        "f64": lambda x: int(np.float64(x).view(np.uint64)),
        "f16": lambda x: int(np.float16(x).view(np.uint16)),
        "bf16": lambda x: int(np.float32(x).view(np.uint32)) >> 16,
    }[kind]
    to_float = {
        "f32": lambda b: float(np.uint32(b).view(np.float32)),
        "f64": lambda b: float(np.uint64(b).view(np.float64)),
        "f16": lambda b: float(np.uint16(b).view(np.float16)),
        "bf16": lambda b: float(np.uint32(b << 16).view(np.float32)),
    }[kind]
    with np.errstate(over="ignore"):
        values = list(product([to_bits(x) for x in FLOATS], repeat=2))
    cases = {name: (f, False) for name, f in ORDERED.items()}
    cases |= {name + "u": (f, True) for name, f in ORDERED.items()}
    cases["num"], cases["nan"] = (lambda x, y: True, False), (lambda x, y: False, True)
    for name, (f, unordered_result) in cases.items():
        for (a, b), (p, q) in zip(values, setp(f"setp.{name}.{kind}", kind, values), strict=True):
            x, y = to_float(a), to_float(b)
            unordered = math.isnan(x) or math.isnan(y)
            expected = unordered_result if unordered else f(x, y)
            assert (p, q) == (expected, not expected), (name, x, y)


def test_flush_before_comparison() -> None:
    tiny, zero = int(np.float32(1e-40).view(np.uint32)), 0
    assert setp("setp.gt.f32", "f32", [(tiny, zero)]) == [(True, False)]
    assert setp("setp.gt.ftz.f32", "f32", [(tiny, zero)]) == [(False, True)]


@pytest.mark.parametrize("op", ["and", "or", "xor"])
@pytest.mark.parametrize("negated", [False, True])
def test_combined_predicates(op: str, negated: bool) -> None:
    f = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[op]
    body = f"""  setp.ne.u32 %c2, %a2, 0;
  setp.lt.{op}.u32 %c0|%c1, %a0, %a1, {"!" if negated else ""}%c2;
  selp.b32 %r, 1, 0, %c0;
  @%c1 or.b32 %r, %r, 2;"""
    values = list(product((0, 1, 2), (0, 1, 2), (0, 1)))
    result = run_body(body, ("u32",) * 3, "b32", values, "  .reg .pred %c<4>;\n")
    for (a, b, c), bits in zip(values, result.tolist(), strict=True):
        other = bool(c) != negated
        assert bits == f(a < b, other) | f(not a < b, other) << 1


def test_set_and_slct() -> None:
    check(Case("set.lt.u32.s32", ("s32", "s32"), "u32", lambda a, b: -1 if a < b else 0))
    check(Case("set.ge.f32.u32", ("u32", "u32"), "f32", lambda a, b: 0x3F800000 if a >= b else 0))
    check(Case("slct.b32.s32", ("b32", "b32", "s32"), "b32", lambda a, b, c: a if c >= 0 else b))
    check(Case("slct.b64.s32", ("b64", "b64", "s32"), "b64", lambda a, b, c: a if c >= 0 else b))


def test_packed_half_comparison_gives_two_predicates() -> None:
    values = [(0x3C004000, 0x40003C00), (0x00008000, 0x80000000), (0x7E003C00, 0x3C007E00)]
    # lt of (2, 1) and (1, 2); of zeros; of NaNs
    assert setp("setp.lt.f16x2", "f16x2", values) == [(False, True), (False, False), (False, False)]

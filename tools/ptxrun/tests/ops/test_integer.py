"""Integer arithmetic and bit operations against Python's integers."""

from __future__ import annotations

import pytest
from elementwise import BITS, Case, check, edges, run_body, signed, source_values

ALL = ("u16", "s16", "u32", "s32", "u64", "s64")
WIDE = ("u32", "s32", "u64", "s64")
THREE = ("b32", "b32", "b32")


def trunc_div(a: int, b: int) -> int:
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def rem(a: int, b: int) -> int:
    return a if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1)


def both(name: str, f) -> list[Case]:  # type: ignore[no-untyped-def]
    return [Case(f"{name}.{kind}", (kind, kind), kind, f) for kind in ALL]


def halves(f, is_signed: bool):  # type: ignore[no-untyped-def]
    def packed(a: int, b: int) -> int:
        result = 0
        for shift in (0, 16):
            x, y = (a >> shift) & 0xFFFF, (b >> shift) & 0xFFFF
            if is_signed:
                x, y = signed(x, 16), signed(y, 16)
            result |= (f(x, y) & 0xFFFF) << shift
        return result

    return packed


def shift_left(bits: int):  # type: ignore[no-untyped-def]
    return lambda a, by: a << by if by < bits else 0


def funnel(a: int, b: int, n: int, left: bool) -> int:
    both_words = b << 32 | a
    return (both_words << n) >> 32 if left else both_words >> n


def prmt(a: int, b: int, selector: int) -> int:
    source = (b << 32 | a).to_bytes(8, "little")
    result = 0
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = source[nibble & 7]
        if nibble & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << 8 * i
    return result


def prmt_mode(order: list[list[int]]):  # type: ignore[no-untyped-def]
    def f(a: int, b: int, selector: int) -> int:
        source = (b << 32 | a).to_bytes(8, "little")
        return int.from_bytes(bytes(source[i] for i in order[selector & 3]), "little")

    return f


def bfe(a: int, position: int, length: int, bits: int, is_signed: bool) -> int:
    """The PTX ISA's definition, bit by bit."""
    position, length = position & 0xFF, length & 0xFF
    pattern = a & ((1 << bits) - 1)
    top = min(position + length - 1, bits - 1)
    sign = pattern >> top & 1 if is_signed and length else 0
    result = 0
    for i in range(bits):
        inside = i < length and position + i < bits
        result |= (pattern >> (position + i) & 1 if inside else sign) << i
    return result


def bfe_of(bits: int, is_signed: bool):  # type: ignore[no-untyped-def]
    return lambda a, position, length: bfe(a, position, length, bits, is_signed)


def bfi(a: int, b: int, position: int, length: int, bits: int) -> int:
    position, length = position & 0xFF, length & 0xFF
    for i in range(length):
        if position + i < bits:
            b = b & ~(1 << (position + i)) | (a >> i & 1) << (position + i)
    return b


def bfind(a: int, bits: int, shift: bool) -> int:
    pattern = ~a if a < 0 else a
    if pattern == 0:
        return -1
    return bits - pattern.bit_length() if shift else pattern.bit_length() - 1


def lop3(table: int):  # type: ignore[no-untyped-def]
    def f(a: int, b: int, c: int) -> int:
        return sum(1 << i for i in range(32) if table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1)

    return f


def dp4a(a_signed: bool, b_signed: bool):  # type: ignore[no-untyped-def]
    def f(a: int, b: int, c: int) -> int:
        total = c
        for i in range(4):
            x, y = a >> 8 * i & 255, b >> 8 * i & 255
            total += (signed(x, 8) if a_signed else x) * (signed(y, 8) if b_signed else y)
        return total

    return f


def table(bits: int) -> str:
    return f"{{0}}, {{1}}, {{2}}, {bits:#x}"


CASES = [
    *both("add", lambda a, b: a + b),
    *both("sub", lambda a, b: a - b),
    *both("mul.lo", lambda a, b: a * b),
    *both("min", min),
    *both("max", max),
    *[Case(f"mul.hi.{k}", (k, k), k, lambda a, b, n=BITS[k]: a * b >> n) for k in ALL],
    Case("mul.wide.u16", ("u16", "u16"), "u32", lambda a, b: a * b),
    Case("mul.wide.s16", ("s16", "s16"), "u32", lambda a, b: a * b),
    Case("mul.wide.u32", ("u32", "u32"), "u64", lambda a, b: a * b),
    Case("mul.wide.s32", ("s32", "s32"), "u64", lambda a, b: a * b),
    Case("mad.lo.s32", ("s32", "s32", "s32"), "s32", lambda a, b, c: a * b + c),
    Case("mad.hi.u32", ("u32", "u32", "u32"), "u32", lambda a, b, c: (a * b >> 32) + c),
    Case("mad.wide.s32", ("s32", "s32", "s64"), "s64", lambda a, b, c: a * b + c),
    Case("mad.lo.s64", ("s64", "s64", "s64"), "s64", lambda a, b, c: a * b + c),
    Case("mul24.lo.s32", ("s32", "s32"), "s32", lambda a, b: signed(a, 24) * signed(b, 24)),
    Case("mul24.hi.u32", ("u32", "u32"), "u32", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 16),
    Case("add.sat.s32", ("s32", "s32"), "s32", lambda a, b: max(-(1 << 31), min((1 << 31) - 1, a + b))),
    Case("sub.sat.s32", ("s32", "s32"), "s32", lambda a, b: max(-(1 << 31), min((1 << 31) - 1, a - b))),
    Case("sad.s32", ("s32", "s32", "s32"), "s32", lambda a, b, c: abs(a - b) + c),
    *[Case(f"div.{k}", (k, k), k, trunc_div) for k in ALL],
    *[Case(f"rem.{k}", (k, k), k, rem) for k in ALL],
    *[Case(f"abs.{k}", (k,), k, abs) for k in ("s16", "s32", "s64")],
    *[Case(f"neg.{k}", (k,), k, lambda a: -a) for k in ("s16", "s32", "s64")],
    Case("min.u16x2", ("u16x2", "u16x2"), "u16x2", halves(min, False)),
    Case("max.u16x2", ("u16x2", "u16x2"), "u16x2", halves(max, False)),
    Case("max.s16x2", ("s16x2", "s16x2"), "s16x2", halves(max, True)),
    Case("min.s16x2.relu", ("s16x2", "s16x2"), "s16x2", halves(lambda a, b: max(0, min(a, b)), True)),
    Case("add.u16x2", ("u16x2", "u16x2"), "u16x2", halves(lambda a, b: a + b, False)),
    Case("max.relu.s32", ("s32", "s32"), "s32", lambda a, b: max(a, b, 0)),
    *[Case(f"and.{k}", (k, k), k, lambda a, b: a & b) for k in ("b16", "b32", "b64")],
    *[Case(f"or.{k}", (k, k), k, lambda a, b: a | b) for k in ("b16", "b32", "b64")],
    *[Case(f"xor.{k}", (k, k), k, lambda a, b: a ^ b) for k in ("b16", "b32", "b64")],
    *[Case(f"not.{k}", (k,), k, lambda a: ~a) for k in ("b16", "b32", "b64")],
    *[Case(f"cnot.{k}", (k,), k, lambda a: int(a == 0)) for k in ("b16", "b32", "b64")],
    *[Case(f"shl.{k}", (k, "u32"), k, shift_left(BITS[k])) for k in ("b16", "b32", "b64")],
    *[Case(f"shr.{k}", (k, "u32"), k, lambda a, by: a >> min(by, 64)) for k in (*ALL, "b32")],
    Case("shf.l.wrap.b32", ("b32", "b32", "u32"), "b32", lambda a, b, n: funnel(a, b, n & 31, True)),
    Case("shf.r.wrap.b32", ("b32", "b32", "u32"), "b32", lambda a, b, n: funnel(a, b, n & 31, False)),
    Case("shf.l.clamp.b32", ("b32", "b32", "u32"), "b32", lambda a, b, n: funnel(a, b, min(n, 32), True)),
    Case("shf.r.clamp.b32", ("b32", "b32", "u32"), "b32", lambda a, b, n: funnel(a, b, min(n, 32), False)),
    Case("prmt.b32", THREE, "b32", prmt),
    Case("prmt.b32.f4e", THREE, "b32", prmt_mode([[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]])),
    Case("prmt.b32.b4e", THREE, "b32", prmt_mode([[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]])),
    Case("prmt.b32.rc8", THREE, "b32", prmt_mode([[0] * 4, [1] * 4, [2] * 4, [3] * 4])),
    Case("prmt.b32.ecl", THREE, "b32", prmt_mode([[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]])),
    Case("prmt.b32.ecr", THREE, "b32", prmt_mode([[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]])),
    Case("prmt.b32.rc16", THREE, "b32", prmt_mode([[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]])),
    *[Case(f"bfe.{k}", (k, "u32", "u32"), k, bfe_of(BITS[k], k[0] == "s")) for k in WIDE],
    *[Case(f"bfind.{k}", (k,), "u32", lambda a, k=k: bfind(a, BITS[k], False)) for k in WIDE],
    *[Case(f"bfind.shiftamt.{k}", (k,), "u32", lambda a, k=k: bfind(a, BITS[k], True)) for k in WIDE],
    Case("brev.b32", ("b32",), "b32", lambda a: int(f"{a:032b}"[::-1], 2)),
    Case("brev.b64", ("b64",), "b64", lambda a: int(f"{a:064b}"[::-1], 2)),
    Case("popc.b32", ("b32",), "u32", lambda a: a.bit_count()),
    Case("popc.b64", ("b64",), "u32", lambda a: a.bit_count()),
    Case("clz.b32", ("b32",), "u32", lambda a: 32 - a.bit_length()),
    Case("clz.b64", ("b64",), "u32", lambda a: 64 - a.bit_length()),
    *[Case("lop3.b32", THREE, "b32", lop3(t), table(t)) for t in (0x80, 0x96, 0xE8, 0x1B)],
    *[Case(f"dp4a.{a}32.{b}32", THREE, "b32", dp4a(a == "s", b == "s")) for a in "us" for b in "us"],
    Case("bmsk.clamp.b32", ("b32", "b32"), "b32", lambda p, n: ((1 << min(n, 32)) - 1) << p if p < 32 else 0),
    Case("bmsk.wrap.b32", ("b32", "b32"), "b32", lambda p, n: ((1 << (n & 31)) - 1) << (p & 31)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.spelling)
def test_against_python(case: Case) -> None:
    check(case)


def test_bfi() -> None:
    for bits in (32, 64):
        kind = f"b{bits}"
        case = Case(f"bfi.{kind}", (kind, kind, "u32", "u32"), kind, lambda a, b, p, n, k=bits: bfi(a, b, p, n, k))
        values = [
            (a, b, position, length)
            for a in edges(bits)[::3]
            for b in edges(bits)[::3]
            for position in (0, 1, 5, 31, 32, 63, 64, 255, 256)
            for length in (0, 1, 5, 31, 32, 33, 64, 255, 256)
        ]
        check(case, values)


@pytest.mark.parametrize("bits", [32, 64])
def test_carries(bits: int) -> None:
    """A sum and a difference of twice the width; the product of mad.cc and madc."""
    kind, mask = f"u{bits}", (1 << bits) - 1
    values = source_values(Case("", (kind,) * 4, kind, max), [edges(bits)[::4]] * 4)
    text = {
        "add": f"add.cc.{kind} %x, %a0, %a1;\n  addc.{kind} %r, %a2, %a3;",
        "sub": f"sub.cc.{kind} %x, %a0, %a1;\n  subc.{kind} %r, %a2, %a3;",
        "mad": f"mad.lo.cc.{kind} %x, %a0, %a1, %a2;\n  madc.hi.{kind} %r, %a0, %a1, %a3;",
    }
    expected = {
        "add": lambda a, b, c, d: c + d + (a + b >> bits),
        "sub": lambda a, b, c, d: c - d - (a < b),
        "mad": lambda a, b, c, d: (a * b >> bits) + d + ((a * b & mask) + c >> bits),
    }
    for name, body in text.items():
        results = run_body("  " + body, (kind,) * 4, kind, values, f"  .reg .b{bits} %x;\n")
        for value, result in zip(values, results, strict=True):
            assert int(result) == expected[name](*value) & mask, (name, value)

"""One instruction over many operands: every combination of edge values, a thread each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import ptxrun
from kernel_text import HEADER

BITS = {"b16": 16, "u16": 16, "s16": 16, "b32": 32, "u32": 32, "s32": 32, "f32": 32, "b64": 64, "u64": 64, "s64": 64}
BITS |= {"f64": 64, "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32x2": 64, "u16x2": 32, "s16x2": 32, "b8": 16}

KERNEL = """
.visible .entry kernel(.param .u64 data, .param .u64 out, .param .u32 count)
{{
  .reg .pred %p<4>;
  .reg .b32 %i<4>;
  .reg .b64 %at, %q<4>;
  .reg .b64 %s<4>, %d;
{registers}
  mov.u32 %i0, %ctaid.x;
  mov.u32 %i1, %tid.x;
  mad.lo.u32 %i0, %i0, 256, %i1;
  ld.param.u32 %i2, [count];
  setp.ge.u32 %p0, %i0, %i2;
  @%p0 exit;
  ld.param.u64 %q0, [data];
  mul.wide.u32 %q1, %i0, 32;
  add.u64 %at, %q0, %q1;
{loads}
{body}
{store}
  ld.param.u64 %q2, [out];
  mul.wide.u32 %q3, %i0, 8;
  add.u64 %q2, %q2, %q3;
  st.global.b64 [%q2], %d;
  ret;
}}
"""


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


@dataclass(frozen=True)
class Case:
    """`spelling` with sources of the given types. f: source values (integers; signed for s types, bits otherwise) to
    the result's bits. `operands`: the text after the destination, {0} {1} {2} are the sources."""

    spelling: str
    sources: tuple[str, ...]
    result: str
    f: Callable[..., int]
    operands: str = ""

    def body(self) -> str:
        sources = [f"%a{i}" for i in range(len(self.sources))]
        operands = self.operands.format(*sources) if self.operands else ", ".join(sources)
        return f"  {self.spelling} %r, {operands};"


def edges(bits: int) -> list[int]:
    top = 1 << (bits - 1)
    values = [0, 1, 2, 5, 7, 31, 32, 33, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1, 0x5A3C, 0x0FF0F00F]
    return sorted({value % (2 * top) for value in values})


def source_values(case: Case, extra: Sequence[Sequence[int]] | None = None) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(len(case.spelling))
    lists = []
    for index, kind in enumerate(case.sources):
        values = list(extra[index]) if extra else edges(BITS[kind])
        lists.append(values)
    combinations = list(product(*lists))
    for _ in range(64):
        combinations.append(tuple(int(rng.integers(0, 1 << 63)) % (1 << BITS[kind]) for kind in case.sources))
    return combinations


def register(kind: str) -> str:
    return f"b{BITS[kind]}"


def run_body(
    body: str, sources: Sequence[str], result: str, values: Sequence[tuple[int, ...]], registers: str = ""
) -> Any:
    """Bits of the result %r of `body` for each tuple of source bits; sources are %a0, %a1, ..."""
    declared = "".join(f"  .reg .{register(kind)} %a{i};\n" for i, kind in enumerate(sources))
    declared += f"  .reg .{register(result)} %r;\n" + registers
    loads = "".join(f"  ld.global.b{BITS[kind]} %a{i}, [%at+{8 * i}];\n" for i, kind in enumerate(sources))
    store = "  mov.b64 %d, %r;" if BITS[result] == 64 else f"  cvt.u64.u{BITS[result]} %d, %r;"
    text = HEADER.replace("sm_100a", "sm_103a") + KERNEL.format(registers=declared, loads=loads, body=body, store=store)
    data = np.zeros((len(values), 4), np.uint64)
    for i in range(len(sources)):
        data[:, i] = [value[i] for value in values]
    memory = ptxrun.Memory()
    inputs, out = memory.add(data, "data"), memory.add_empty(8 * len(values), "out")
    launch = ptxrun.Launch(ptxrun.Module(text), "kernel", (len(values) + 255) // 256, 256, [inputs, out, len(values)])
    report = ptxrun.run([launch], memory)
    assert not report.findings, "\n".join(map(str, report.findings))
    return out.numpy(np.uint64)


def check(case: Case, values: Sequence[tuple[int, ...]] | None = None) -> None:
    values = source_values(case) if values is None else values
    results = run_body(case.body(), case.sources, case.result, values)
    mask = (1 << BITS[case.result]) - 1
    for bits, result in zip(values, results, strict=True):
        typed = [
            signed(value, BITS[kind]) if kind[0] == "s" and not kind.endswith("x2") else value
            for value, kind in zip(bits, case.sources, strict=True)
        ]
        expected = case.f(*typed) & mask
        assert int(result) == expected, (
            f"{case.spelling} of {[hex(value) for value in bits]}: {int(result):#x}, expected {expected:#x}"
        )

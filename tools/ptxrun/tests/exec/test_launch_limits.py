"""Shapes, sizes and numbers that no launch can have: refused with what is wrong."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import ptxrun
import pytest
from ptxrun.api import Argument

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n"
EMPTY = HEAD + ".visible .entry kernel() { ret; }\n"


def run(text: str = EMPTY, options: dict[str, Any] | None = None, **launch: Any) -> ptxrun.Report:
    shape: dict[str, Any] = {"grid": 1, "block": 1, **launch}
    return ptxrun.run([ptxrun.Launch(ptxrun.Module(text), "kernel", **shape)], ptxrun.Memory(), **(options or {}))


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        ({"grid": (1, 70000, 1)}, "at most 2147483647 x 65535 x 65535"),
        ({"grid": (1, 1, 65536)}, "grid of 1 x 1 x 65536"),
        ({"block": (1, 1, 65)}, "at most 1024 x 1024 x 64"),
        ({"block": (2, 513)}, "1026 threads"),
        ({"grid": 16, "cluster": 16}, "non-portable"),
        ({"grid": 17, "cluster": 17, "non_portable_cluster": True}, "cluster of 17"),
        ({"grid": (1, 1, 1, 2)}, "up to three"),
        ({"grid": ()}, "up to three"),
        ({"grid": -1}, "grid must be an integer from 1"),
        ({"block": 0}, "block must be an integer from 1"),
        ({"smem": -1}, "smem must be an integer from 0"),
        ({"grid": 1.5}, "grid must be an integer"),
        ({"grid": "12"}, "grid must be an integer"),
        ({"smem": 228 << 10}, "0 bytes of static and 233472 of dynamic shared memory: at most 232448"),
        ({"options": {"sms": -1}}, "sms must be an integer from 1"),
        ({"options": {"seed": -1}}, "seed must be an integer from 0"),
        ({"options": {"max_findings": 0}}, "max_findings must be an integer from 1"),
        ({"options": {"max_instructions": -5}}, "max_instructions must be an integer from 0"),
        ({"options": {"registers": {"kernel": 100}}, "block": 1024}, "100 registers for each of 1024 threads"),
        ({"grid": (1 << 10, 1 << 10, 2)}, "2^20 CTAs"),
    ],
)
def test_what_is_refused(launch: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        run(**launch)


@pytest.mark.parametrize(
    "launch",
    [
        {"grid": (1, 1, np.int64(3)), "block": (1, 2, 64)},
        {"grid": 16, "cluster": 16, "non_portable_cluster": True},
        {"grid": 8, "cluster": 8},
        {"smem": 227 << 10},
        {"options": {"registers": {"kernel": 64}}, "block": 1024},
    ],
)
def test_what_fits(launch: dict[str, Any]) -> None:
    assert not run(**launch).findings


def test_local_memory_has_a_limit() -> None:
    text = HEAD + ".visible .entry kernel() {{ .local .b8 s[{}]; ret; }}\n"
    assert not run(text.format(512 << 10)).findings
    with pytest.raises(ValueError, match="local memory"):
        run(text.format(1 << 30))


def test_static_shared_memory_is_named() -> None:
    text = HEAD + ".visible .entry kernel() { .shared .b8 s[300000]; ret; }\n"
    with pytest.raises(ValueError, match="300000 bytes of static and 0 of dynamic"):
        run(text)


NUMBER = """.visible .entry kernel(.param .{type} n, .param .u64 out) {{
  .reg .b64 %rd<2>;
  ld.param.u64 %rd0, [out];
  ld.param.{bits} %rd1, [n];
  st.global.{bits} [%rd0], %rd1;
  ret;
}}
"""


def bits_of(value: Argument, kind: str) -> bytes:
    memory = ptxrun.Memory()
    out = memory.add(np.zeros(8, np.uint8), "out")
    size = int(kind[1:])
    module = ptxrun.Module(HEAD + NUMBER.format(type=kind, bits=f"b{size}"))
    ptxrun.run([ptxrun.Launch(module, "kernel", 1, 1, [value, out])], memory).raise_on_findings()
    return out.data[: size // 8].tobytes()


@pytest.mark.parametrize(
    ("value", "kind", "same"),
    [
        (2, "f32", np.float32(2)),
        (2.5, "f32", np.float32(2.5)),
        (2, "f64", np.float64(2)),
        (np.float32(0.1), "f32", np.float32(0.1)),
        (2.5, "b32", np.float32(2.5)),
        (2, "b32", np.int32(2)),
        (-2, "s32", np.int32(-2)),
        (np.uint64(1 << 63), "u64", np.uint64(1 << 63)),
    ],
)
def test_a_number_takes_the_parameters_type(value: Argument, kind: str, same: np.generic) -> None:
    assert bits_of(value, kind) == same.tobytes()


@pytest.mark.parametrize(
    ("value", "kind"),
    [(2.5, "u32"), (2.0, "s64"), (float("nan"), "u32"), (1e300, "f32"), (1 << 32, "u32"), (np.int32(2), "f32"),
     (np.float32(2), "u32")],
)  # fmt: skip
def test_a_number_that_does_not_fit(value: Argument, kind: str) -> None:
    with pytest.raises(ValueError, match="parameter n"):
        bits_of(value, kind)

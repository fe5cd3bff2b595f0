"""The rewriting itself: what it knows, what it refuses, and that the assembler for sm_90a accepts the result."""

from __future__ import annotations

import numpy as np
import pytest
from downlevel_call import ARCH, CAPABILITY
from downlevel_ptx import RULES, assemble, rewrite
from ptx_program import program
from ptxrun import Launch, Memory, Module, run

HEADER = ".version 9.0\n.target sm_100a\n.address_size 64\n"
CONVERT_EACH = (
    HEADER
    + """
.visible .entry convert_each(.param .u64 from, .param .u64 to)
{
.reg .b64 %rd<5>;
.reg .b32 %r<3>;
.reg .f32 %f<3>;
.reg .b8 code;
ld.param.u64 %rd1, [from];
ld.param.u64 %rd2, [to];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 8;
add.s64 %rd3, %rd1, %rd3;
ld.global.v2.f32 {%f1, %f2}, [%rd3];
cvt.rn.satfinite.e2m1x2.f32 code, %f1, %f2;
cvt.u64.u32 %rd4, %r1;
add.s64 %rd4, %rd2, %rd4;
st.global.u8 [%rd4], code;
ret;
}
"""
)


def texts() -> list[str]:
    return [text for (_, number), text in program(ARCH).modules.items() if number == CAPABILITY and ".entry" in text]


@pytest.mark.parametrize("index", range(4))
def test_the_result_assembles_for_sm_90a(index: int) -> None:
    text = rewrite(texts()[index])
    assert ".target sm_90a\n" in text
    kernels = [line.split("(")[0].split()[-1] for line in text.splitlines() if ".entry" in line]
    assert kernels
    code = assemble(text)
    assert all(kernel.encode() in code for kernel in kernels)


def test_every_kernel_is_among_the_texts() -> None:
    assert len(texts()) == 4


@pytest.mark.parametrize("spelling", RULES)
def test_sm_90a_lacks_each_rewritten_spelling(spelling: str) -> None:
    """No rule is idle, and none can be left out."""
    text = next(text for text in texts() if spelling in text)
    with pytest.raises(RuntimeError, match=r"not supported on \.target 'sm_90a'"):
        assemble(rewrite(text, RULES.keys() - {spelling}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "@%p1 tcgen05.fence::after_thread_sync;", "guarded"),
        (HEADER + "tcgen05.cp.cta_group::1.32x128b.warpx4 [%r1+4], %rd1;", "neither a register"),
        (HEADER.replace("100a", "103a"), "not for sm_100a"),
        ("ret;", "no PTX header"),
    ],
)
def test_what_it_cannot_rewrite_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rewrite(text)


def test_conversions_are_those_of_the_instruction() -> None:
    """The interpreter's own, of every tie, its neighbours, and what saturates."""
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 7.0], np.float32)
    values = np.concatenate([ties, np.nextafter(ties, 0), np.nextafter(ties, 9), [0, 1e-40, 3e38, np.inf, np.nan]])
    values = np.concatenate([values, -values]).astype(np.float32)
    results = []
    for text in (CONVERT_EACH, rewrite(CONVERT_EACH)):
        memory = Memory()
        source, codes = memory.add(values, "values", readonly=True), memory.add_empty(len(values) // 2, "codes")
        launch = Launch(Module(text), "convert_each", grid=1, block=len(values) // 2, args=[source, codes])
        run([launch], memory).raise_on_findings()
        results.append(codes.numpy().tolist())
    assert results[0] == results[1]
    assert len(set(results[0])) > 10

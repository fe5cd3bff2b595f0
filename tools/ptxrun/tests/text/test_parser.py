"""PTX as nvcc writes it: declarations, scopes, initialisers, errors with their line."""

from __future__ import annotations

import numpy as np
import ptxrun
import pytest
from ptxrun.build import core

HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"


def run_words(text: str, words: int, kernel: str = "kernel", block: int = 1) -> list[int]:
    """Words that `kernel(.param .u64 out)` writes."""
    memory = ptxrun.Memory()
    out = memory.add_empty(4 * words, "out")
    report = ptxrun.run([ptxrun.Launch(ptxrun.Module(HEADER + text), kernel, 1, block, [out])], memory)
    assert not report.findings, "\n".join(map(str, report.findings))
    return [int(word) for word in out.numpy(np.uint32)]


def error(text: str) -> str:
    with pytest.raises(core().PtxError) as caught:
        ptxrun.run([ptxrun.Launch(ptxrun.Module(HEADER + text), "kernel", 1, 1)], ptxrun.Memory())
    return str(caught.value)


ENTRY = """.visible .entry kernel(.param .u64 out)
{{
  .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [out];
{body}
  ret;
}}
"""


def entry(body: str) -> str:
    return ENTRY.format(body=body)


def test_entry_attributes_and_parameters() -> None:
    text = """
// a comment  /* in a comment
/* and
   one over lines */
.visible .entry first(
  .param .u64 .ptr .global .align 16 a,
  .param .align 8 .b8 b[40],
  .param .u8 c,
  .param .f32 d,
  .param .align 128 .b8 map[128]
)
.maxntid 256, 2
.minnctapersm 2
.maxnreg 64
{
  .pragma "nounroll";
  .loc 1 5 3
  ret;
}
.weak .entry second() .reqntid 32, 1, 1 .explicitcluster .reqnctapercluster 2, 1, 1 { ret; }
.file 1 "kernel.cu"
.section .debug_str { .b8 1, 2 }
"""
    module = ptxrun.Module(HEADER + text)
    first, second = module.kernels["first"], module.kernels["second"]
    assert [tuple(slot) for slot in first.params] == [
        ("a", 0, 8, 8, "u64"), ("b", 8, 40, 8, "b8"), ("c", 48, 1, 1, "u8"), ("d", 52, 4, 4, "f32"),
        ("map", 128, 128, 128, "b8"),
    ]  # fmt: skip
    assert first.param_bytes == 256
    assert tuple(first.maxntid) == (256, 2, 1)
    assert first.max_registers == 64
    assert tuple(second.reqntid) == (32, 1, 1)
    assert tuple(second.cluster) == (2, 1, 1)


def test_numbers() -> None:
    body = """  .reg .b32 %r<8>;
  mov.b32 %r0, 0x1F;
  mov.b32 %r1, 0b101;
  mov.b32 %r2, 017;
  mov.b32 %r3, -5;
  mov.b32 %r4, 7U;
  mov.f32 %r5, 0f3F800000;
  mov.f32 %r6, 1.5;
  mov.f32 %r7, -2.5e-1;
  st.global.v4.b32 [%rd0], {%r0, %r1, %r2, %r3};
  st.global.v4.b32 [%rd0+16], {%r4, %r5, %r6, %r7};"""
    floats = [int(np.float32(x).view(np.uint32)) for x in (1.0, 1.5, -0.25)]
    assert run_words(entry(body), 8) == [31, 5, 15, 0xFFFFFFFB, 7, *floats]


def test_scopes_hide_registers_and_labels() -> None:
    """Inline assembly in braces: names of its own, labels that occur in several blocks, jumps out of a block."""
    body = """  .reg .b32 %r<4>;
  .reg .pred %p;
  mov.b32 %r0, 1;
  {
  .reg .b32 %r0;
  .reg .pred p;
  mov.b32 %r0, 100;
  setp.eq.u32 p, %r0, 100;
  @p bra DONE;
  mov.b32 %r0, 7;
  DONE:
  mov.b32 %r1, %r0;
  }
  {
  .reg .pred p;
  setp.ne.u32 p, %r1, 100;
  @p bra DONE;
  mov.b32 %r2, 3;
  DONE: { .reg .b32 x; mov.b32 x, 5; { add.u32 x, x, 0; add.u32 %r0, %r0, x; } bra.uni OUT; }
  mov.b32 %r0, 77;
  }
  OUT:
  st.global.b32 [%rd0], %r0;
  st.global.v2.b32 [%rd0+8], {%r1, %r2};
  st.global.b32 [%rd0+4], 0;"""
    assert run_words(entry(body), 4) == [6, 0, 100, 3]


def test_variables_with_initialisers() -> None:
    text = """
.global .align 8 .b8 bytes[16] = {1, 2, 3, 4, 0xFF};
.const .align 4 .u32 table[2][2] = {{10, 11}, {12, 13}};
.global .u64 pointer = table+8;
.global .u64 other = generic(bytes);
.global .f32 real = 0f40490FDB;
"""
    body = """  .reg .b32 %r<6>;
  .reg .b64 %q<4>;
  ld.global.u32 %r0, [bytes];
  ld.global.u32 %r1, [bytes+4];
  ld.const.u32 %r2, [table+4];
  ld.global.u64 %q0, [pointer];
  ld.u32 %r3, [%q0];
  mov.u64 %q1, other;
  ld.u64 %q2, [%q1];
  ld.u8 %r4, [%q2+2];
  ld.global.b32 %r5, [real];
  st.global.v4.b32 [%rd0], {%r0, %r1, %r2, %r3};
  st.global.v2.b32 [%rd0+16], {%r4, %r5};"""
    assert run_words(text + entry(body), 6) == [0x04030201, 0xFF, 11, 12, 3, 0x40490FDB]


def test_shared_variables_and_dynamic_shared_memory() -> None:
    """Static variables first, aligned; the dynamic part behind them, aligned too; nothing at address 0."""
    text = ".extern .shared .align 1024 .b8 dynamic[];\n.shared .align 16 .b8 module_level[20];\n"
    body = """  .reg .b32 %r<4>;
  .shared .align 128 .b32 inner[4];
  mov.u32 %r0, module_level;
  mov.u32 %r1, inner;
  mov.u32 %r2, dynamic;
  mov.u32 %r3, inner+8;
  st.global.v4.b32 [%rd0], {%r0, %r1, %r2, %r3};"""
    memory = ptxrun.Memory()
    out = memory.add_empty(16, "out")
    module = ptxrun.Module(HEADER + text + entry(body))
    report = ptxrun.run([ptxrun.Launch(module, "kernel", 1, 1, [out], smem=64)], memory)
    assert not report.findings
    first, inner, dynamic, inside = (int(word) for word in out.numpy(np.uint32))
    assert first >= 1024
    assert first % 16 == 0
    assert inner % 128 == 0
    assert inner >= first + 20
    assert dynamic % 1024 == 0
    assert dynamic >= inner + 16
    assert inside == inner + 8


def test_functions_with_parameters_and_returns() -> None:
    text = """
.func (.param .b32 retval) twice(.param .b32 x, .param .align 8 .b8 pair[16])
{
  .reg .b32 %r<4>;
  ld.param.b32 %r0, [x];
  ld.param.b32 %r1, [pair+8];
  add.u32 %r0, %r0, %r0;
  add.u32 %r0, %r0, %r1;
  st.param.b32 [retval], %r0;
  ret;
}
.func none() { ret; }
"""
    body = """  .reg .b32 %r<4>;
  mov.u32 %r0, 21;
  { .param .b32 a; .param .align 8 .b8 b[16]; .param .b32 result;
    st.param.b32 [a], %r0;
    st.param.b32 [b+8], 100;
    call.uni (result), twice, (a, b);
    ld.param.b32 %r1, [result]; }
  { .param .b32 a; .param .align 8 .b8 b[16]; .param .b32 result;
    st.param.b32 [a], %r1;
    st.param.b32 [b+8], 1;
    call (result), twice, (a, b);
    ld.param.b32 %r2, [result]; }
  call none;
  st.global.v2.b32 [%rd0], {%r1, %r2};"""
    assert run_words(text + entry(body), 2) == [142, 285]


def test_local_memory_is_per_thread() -> None:
    body = """  .local .align 16 .b8 depot[64];
  .reg .b64 %SP, %SPL, %at;
  .reg .b32 %r<4>;
  mov.u64 %SPL, depot;
  cvta.local.u64 %SP, %SPL;
  mov.u32 %r0, %tid.x;
  st.u32 [%SP+4], %r0;
  st.local.u32 [%SPL+8], 9;
  bar.warp.sync -1;
  ld.local.u32 %r1, [%SPL+4];
  ld.u32 %r2, [%SP+8];
  add.u32 %r1, %r1, %r2;
  mul.wide.u32 %at, %r0, 4;
  add.u64 %at, %at, %rd0;
  st.global.u32 [%at], %r1;"""
    assert run_words(entry(body), 32, block=32) == [9 + i for i in range(32)]


@pytest.mark.parametrize(
    ("body", "line", "reason"),
    [
        ("  .reg .b32 %r<2>;\n  mov.b32 %r0, 1;\n  add.nonsense.u32 %r0, %r0, 1;", 8, "nonsense"),
        ("  frobnicate.u32 %rd0, %rd0;", 6, "unknown instruction"),
        ("  .reg .b32 %r<2>;\n  add.u32 %r0, %r9, 1;", 7, "unknown name %r9"),
        ("  .reg .b32 %r<2>;\n  add.u64 %rd0, %rd0, %r0;", 7, "another width"),
        ("  bra NOWHERE;", 6, "unknown label"),
        ("  .reg .b32 %r<2>;\n  mov.b32 %r0, %r0, %r1;", 7, "number of operands"),
        ("  mov.b64 %rd0 1;", 6, "expected ','"),
        ("  .reg .b32 %x;\n  .reg .b32 %x; mov.b32 %x, 1;", 7, "declared twice"),
        ("  .reg .b33 %x;", 6, "unknown type"),
    ],
)
def test_errors_name_line_and_reason(body: str, line: int, reason: str) -> None:
    text = ".visible .entry kernel()\n{\n" + body.replace("%rd0", "%q0") + "\n  ret;\n}\n"
    text = text.replace("{\n", "{ .reg .b64 %q<2>;\n", 1)
    message = error(text)
    assert f"line {line}:" in message
    assert reason in message


def test_text_that_is_no_ptx() -> None:
    for text in ("", "hello", "int main() {}"):
        with pytest.raises(core().PtxError):
            ptxrun.Module(text)


def test_census_says_what_is_not_modelled() -> None:
    body = """  .reg .b32 %r<4>;
  mov.b32 %r0, 1;
  mov.b32 %r1, 2;
  vadd.u32.u32.u32 %r2, %r0, %r1;
  add.u32 %r0, %r0, %r1;"""
    lines = {line.spelling: line for line in ptxrun.Module(HEADER + entry(body)).census()}
    assert lines["mov.b32"].count == 2
    assert not lines["mov.b32"].problem
    assert "vadd" in lines["vadd.u32.u32.u32"].problem
    assert set(lines) == {"mov.b32", "vadd.u32.u32.u32", "add.u32", "ld.param.u64", "ret"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("  add.u32 %r0, " + "(" * 20000, "nested too deeply"),
        ("  {" * 50000, "nested too deeply"),
        ("  .reg .b32 %x<4000000000>;", "registers"),
        ("  .reg .b32 %x<-1>;", "registers"),
        ("  .shared .b8 s[-4];", "array"),
        ("  .shared .b8 s[4294967296];", "array"),
        ("  .shared .b8 s[65536][65536];", "array"),
        ("  .shared .align 3 .b8 s[4];", "alignment"),
        ("  tcgen05.ld.sync.aligned.32x32b.x1.b32;", ""),
    ],
)
def test_absurd_text_is_an_error(body: str, reason: str) -> None:
    assert reason in error(".visible .entry kernel()\n{\n" + body + "\n  ret;\n}\n")


def test_braces_may_nest() -> None:
    assert run_words(entry("  {" * 100 + "  st.global.u32 [%rd0], 3;" + "}" * 100), 1) == [3]


@pytest.mark.parametrize(
    ("body", "spelling"),
    [
        ("mov.u32 %r1, %tid.w;", "mov.u32"),
        ("mov.u32 %r1, %r2, %r3;", "mov.u32"),
        ("mov.u32.foo %r1, %r2;", "mov.u32.foo"),
        ("selp.b32 %r1, %r2, 4;", "selp.b32"),
        ("tcgen05.ld.sync.aligned.32x32b.x1.b32;", "tcgen05.ld.sync.aligned.32x32b.x1.b32"),
    ],
)
def test_census_of_half_an_instruction(body: str, spelling: str) -> None:
    text = HEADER + entry("  .reg .b32 %r<4>;\n  add.u32 %r2, %r3, 1;\n  " + body)
    lines = {line.spelling: line for line in ptxrun.Module(text).census()}
    assert lines[spelling].problem


WGMMA = "wgmma.commit_group.sync.aligned;"
TENSOR = "tcgen05.wait::ld.sync.aligned;"
POOL = "setmaxnreg.dec.sync.aligned.u32 40;"


@pytest.mark.parametrize(
    ("target", "body", "exists"),
    [
        *[("sm_90a", WGMMA, True), ("sm_90", WGMMA, False), ("sm_100a", WGMMA, False), ("sm_50", WGMMA, False)],
        *[("sm_100a", TENSOR, True), ("sm_103a", TENSOR, True), ("sm_100f", TENSOR, True)],
        *[("sm_100", TENSOR, False), ("sm_90a", TENSOR, False), ("sm_120a", TENSOR, False)],
        *[("sm_90a", POOL, True), ("sm_90", POOL, False), ("sm_103a", POOL, True)],
        *[("sm_90", "griddepcontrol.wait;", True), ("sm_89", "griddepcontrol.wait;", False)],
        *[("sm_80", "cp.async.commit_group;", True), ("sm_75", "cp.async.commit_group;", False)],
        *[("sm_80", "cp.async.bulk.commit_group;", False), ("sm_50", "bar.sync 0;", True)],
    ],
)
def test_families_belong_to_targets(target: str, body: str, exists: bool) -> None:
    text = HEADER.replace("sm_90a", target) + entry("  " + body)
    problems = [line.problem for line in ptxrun.Module(text).census() if line.problem]
    assert (not problems) == exists
    assert all(target in problem for problem in problems)

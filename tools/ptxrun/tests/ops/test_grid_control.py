"""Launch chains, register pools, cluster launch control."""

from __future__ import annotations

import numpy as np
import ptxrun
import pytest
from kernel_text import SCHEDULES, Run, clean, entry, init_barriers, launch, module, wait
from ptxrun.api import Schedule

FIRST = """
  ld.param.u64 %rd0, [words];
  <early>
  mad.lo.u32 %r0, %cta, 32, %t;
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd0, %rd1;
  st.global.u32 [%rd1], %r0;
"""
SECOND = """
  ld.param.u64 %rd0, [words];
  mad.lo.u32 %r0, %cta, 32, %t;
  mov.u32 %r1, 255;
  sub.u32 %r1, %r1, %r0;
  mul.wide.u32 %rd1, %r1, 4;
  add.u64 %rd1, %rd0, %rd1;
  <wait>
  ld.global.u32 %r2, [%rd1];
  mul.wide.u32 %rd2, %r0, 4;
  add.u64 %rd2, %rd0, %rd2;
  st.global.u32 [%rd2+1024], %r2;
"""


def chain(early: str, wait_: str, pdl: bool, schedule: Schedule, seed: int) -> tuple[ptxrun.Report, np.ndarray]:
    code = module(
        entry(FIRST.replace("<early>", early), "words:u64", "first"),
        entry(SECOND.replace("<wait>", wait_), "words:u64", "second"),
    )
    memory = ptxrun.Memory()
    words = memory.add_empty(2048, "words")
    launches = [
        ptxrun.Launch(code, "first", 8, 32, [words]),
        ptxrun.Launch(code, "second", 8, 32, [words], pdl=pdl),
    ]
    report = ptxrun.run(launches, memory, schedule=schedule, seed=seed, sms=4)
    return report, words.numpy(np.uint32)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_launch_chain(schedule: Schedule, seed: int) -> None:
    trigger = "griddepcontrol.launch_dependents;"
    for early, wait_, pdl in [
        ("", "", False),
        (trigger, "griddepcontrol.wait;", True),
        ("", "griddepcontrol.wait;", True),
    ]:
        report, words = chain(early, wait_, pdl, schedule, seed)
        clean(report)
        assert (words[256:] == 255 - np.arange(256)).all()


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_missing_grid_wait(schedule: Schedule, seed: int) -> None:
    report, _ = chain("griddepcontrol.launch_dependents;", "", True, schedule, seed)
    assert "race" in report.codes
    assert set(report.codes) <= {"race", "uninitialised_read"}
    race = next(finding for finding in report.findings if finding.code == "race")
    assert race.other is not None
    assert {race.place.launch, race.other.launch} == {0, 1}


SLOW = """
  griddepcontrol.launch_dependents;
  mov.u32 %r5, 20000;
SPIN:
  sub.u32 %r5, %r5, 1;
  setp.ne.u32 %p1, %r5, 0;
  @%p1 bra SPIN;
""" + FIRST.replace("<early>", "")


def chain_of_three(
    code: ptxrun.Module, ctas: tuple[int, int, int], schedule: Schedule, seed: int, threads: int = 32
) -> tuple[ptxrun.Report, np.ndarray]:
    """Entries `first`, `second` (of `threads` a CTA) and `third`, each but the first beside its predecessor."""
    memory = ptxrun.Memory()
    words = memory.add_empty(2048, "words")
    launches = [
        ptxrun.Launch(code, "first", ctas[0], 32, [words]),
        ptxrun.Launch(code, "second", ctas[1], threads, [words], pdl=True),
        ptxrun.Launch(code, "third", ctas[2], 32, [words], pdl=True),
    ]
    report = ptxrun.run(launches, memory, schedule=schedule, seed=seed, sms=8)
    return report, words.numpy(np.uint32)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize("waits", [True, False])
def test_a_launch_that_ends_before_its_predecessor(waits: bool, schedule: Schedule, seed: int) -> None:
    """The second of three does nothing; the third is ordered after the first by its own wait only."""
    code = module(
        entry(SLOW, "words:u64", "first"),
        entry("", "words:u64", "second"),
        entry(SECOND.replace("<wait>", "griddepcontrol.wait;" if waits else ""), "words:u64", "third"),
    )
    report, words = chain_of_three(code, (8, 8, 8), schedule, seed)
    if waits:
        clean(report)
        assert (words[256:] == 255 - np.arange(256)).all()
        return
    assert set(report.codes) <= {"race", "uninitialised_read"}
    race = next(finding for finding in report.findings if finding.code == "race")
    assert race.other is not None
    assert {race.place.launch, race.other.launch} == {0, 2}


WRITE = """
  ld.param.u64 %rd0, [words];
  st.global.u32 [%rd0], %cta;
"""
COUNT = """
  ld.param.u64 %rd0, [words];
  atom.global.add.u32 %r0, [%rd0], 1;
"""
TRIGGER, WAIT = "griddepcontrol.launch_dependents;", "griddepcontrol.wait;"


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(
    ("second", "ordered"),
    [
        (WAIT + TRIGGER, True),
        (TRIGGER + WAIT, False),
        (TRIGGER, False),
        ("setp.eq.u32 %p0, %cta, 0; @!%p0 bra WAITS; " + TRIGGER + "WAITS: " + WAIT + TRIGGER, False),
    ],
    ids=["waits_first", "waits_afterwards", "does_not_wait", "one_cta_does_not_wait_first"],
)
@pytest.mark.parametrize("ctas", [1, 3])
def test_what_a_launch_had_waited_for(ctas: int, second: str, ordered: bool, schedule: Schedule, seed: int) -> None:
    """The third of three waits for nobody: it starts when every CTA of the second has let it."""
    code = module(
        entry(WRITE, "words:u64", "first"), entry(second, "words:u64", "second"), entry(COUNT, "words:u64", "third")
    )
    report, words = chain_of_three(code, (1, ctas, 2), schedule, seed)
    if ordered:
        clean(report)
        assert words[0] == 64
    else:
        assert set(report.codes) & {"race", "uninitialised_read"}


# Tables of 64 words; flags and counters from word 256 on are zero before CTA 0 of the second launch writes the tables.
ZERO = """
  ld.param.u64 %rd0, [words];
  mul.wide.u32 %rd1, %t, 4;
  add.u64 %rd1, %rd0, %rd1;
  mov.u32 %r0, 0;
  st.global.u32 [%rd1+1024], %r0;
"""
TABLES = """
  ld.param.u64 %rd0, [words];
  and.b32 %r0, %t, 31;
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd0, %rd1;
  mad.lo.u32 %r1, %r0, 3, 1;
  griddepcontrol.wait;
  setp.ne.u32 %p0, %cta, 0;
  setp.ne.u32 %p1, %cta, 1;
  setp.ne.u32 %p3, %r0, 0;
  setp.gt.u32 %p4, %t, 31;
  @%p4 bra SECOND_WARP;
  <early>
  @%p0 bra WRITTEN;
  st.global.u32 [%rd1], %r1;
  st.global.u32 [%rd1+128], %r1;
  <fence>
WRITTEN:
  bar.warp.sync 0xffffffff;
  @%p3 bra PASSED;
  <barrier>
PASSED:
  bar.warp.sync 0xffffffff;
  <late>
  griddepcontrol.launch_dependents;
  <after>
  ret;
SECOND_WARP:
  <second_warp>
"""
# By thread 0 of each of three CTAs.
GRID_BARRIER = """
  atom.global.acq_rel.gpu.add.u32 %r5, [%rd0+1024], 1;
AGAIN:
  ld.acquire.gpu.global.u32 %r5, [%rd0+1024];
  setp.lt.u32 %p2, %r5, 3;
  @%p2 bra AGAIN;
"""
# CTA 0 asks nobody.
FLAG = """
  mov.u32 %r5, 1;
  @!%p0 st.release.gpu.global.u32 [%rd0+1024], %r5;
  @!%p0 bra PASSED;
AGAIN:
  ld.acquire.gpu.global.u32 %r5, [%rd0+1024];
  setp.eq.u32 %p2, %r5, 0;
  @%p2 bra AGAIN;
"""
USE_TABLES = """
  ld.param.u64 %rd0, [words];
  mul.wide.u32 %rd1, %t, 4;
  add.u64 %rd1, %rd0, %rd1;
  ld.global.u32 %r1, [%rd1];
  ld.global.u32 %r2, [%rd1+128];
  add.u32 %r1, %r1, %r2;
  shl.b32 %r0, %cta, 7;
  cvt.u64.u32 %rd2, %r0;
  add.u64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1+512], %r1;
"""


def tables(
    schedule: Schedule, seed: int, ctas: int = 3, threads: int = 32, use: str = USE_TABLES, **parts: str
) -> tuple[ptxrun.Report, np.ndarray]:
    """The third launch uses what CTA 0 of the second has written and does not wait. Returns the two sums of it."""
    second = TABLES
    for name in ("early", "fence", "barrier", "late", "after", "second_warp"):
        second = second.replace(f"<{name}>", parts.pop(name, ""))
    assert not parts
    bodies = {"first": ZERO, "second": second, "third": use}
    code = module(*(entry(body, "words:u64", name) for name, body in bodies.items()))
    report, words = chain_of_three(code, (1, ctas, 2), schedule, seed, threads)
    return report, words[128:192]


def races_with_the_second(report: ptxrun.Report) -> None:
    assert set(report.codes) <= {"race", "uninitialised_read"}
    races = [finding for finding in report.findings if finding.code == "race"]
    assert races
    for race in races:
        assert race.other is not None
        assert {race.place.launch, race.other.launch} == {1, 2}


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize("barrier", [GRID_BARRIER, FLAG], ids=["barrier", "flag"])
def test_what_every_cta_knew(barrier: str, schedule: Schedule, seed: int) -> None:
    report, sums = tables(schedule, seed, barrier=barrier)
    clean(report)
    assert (sums == np.tile(6 * np.arange(32) + 2, 2)).all()


# The CTA's second warp lets the next launch start after the first has done so, and knows nothing; CTA 0 goes on last.
RELAXED_WAIT = """
{label}:
  ld.relaxed.gpu.global.u32 %r6, [%rd0+{at}];
  setp.eq.u32 %p5, %r6, 0;
  @%p5 bra {label};
"""
SECOND_WARP = {
    "after": "mov.u32 %r6, 1; @!%p1 st.relaxed.gpu.global.u32 [%rd0+1028], %r6;",
    "second_warp": "@%p1 bra DONE;"
    + RELAXED_WAIT.format(label="FIRST_WARP", at=1028)
    + TRIGGER
    + "mov.u32 %r6, 1; st.relaxed.gpu.global.u32 [%rd0+1032], %r6; DONE:",
    "late": "@%p0 bra LAST;" + RELAXED_WAIT.format(label="OTHERS", at=1032) + "LAST:",
}


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"barrier": GRID_BARRIER.replace("acq_rel", "acquire")},
        {"barrier": GRID_BARRIER.replace("gpu", "cta")},
        {"barrier": GRID_BARRIER, "early": f"@!%p1 {TRIGGER}"},
        {"barrier": GRID_BARRIER, "early": f"@!%p1 {TRIGGER}".replace("p1", "p0")},
        {"barrier": GRID_BARRIER, "late": "@!%p0 st.global.u32 [%rd1], %r1;"},
        {"barrier": GRID_BARRIER, "late": "@!%p1 st.global.u32 [%rd1], %r1;"},
        {"barrier": GRID_BARRIER, "after": "@!%p0 st.global.u32 [%rd1], %r1;"},
        {"barrier": FLAG, "late": "@!%p0 st.global.u32 [%rd1], %r1;"},
        {"barrier": GRID_BARRIER, "late": "@!%p1 ret;"},
        {"barrier": GRID_BARRIER, **SECOND_WARP},
    ],
    ids=[
        "no_barrier",
        "barrier_does_not_release",
        "barrier_of_cta_scope",
        "reader_starts_it_early",
        "writer_starts_it_early",
        "writer_writes_again",
        "reader_writes_again",
        "written_after_the_start",
        "written_after_the_flag",
        "one_cta_ends",
        "another_warp_knows_nothing",
    ],
)
def test_what_not_every_cta_knew(parts: dict[str, str], schedule: Schedule, seed: int) -> None:
    report, _ = tables(schedule, seed, threads=64 if "second_warp" in parts else 32, **parts)
    races_with_the_second(report)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_what_a_single_cta_knew(schedule: Schedule, seed: int) -> None:
    """Its barrier has CTA scope."""
    write = "bar.sync 0; st.global.u32 [%rd1], %r1; bar.sync 0;"
    report, _ = tables(schedule, seed, ctas=1, threads=64, late="bar.sync 0; bar.sync 0;", second_warp=write)
    races_with_the_second(report)


COPY_TABLES = (
    init_barriers(1)
    + """
  ld.param.u64 %rd0, [words];
  mov.u32 %r1, tile;
  @%p7 bra ISSUED;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], 256;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 256, [bars];
ISSUED:
"""
    + wait("bars", 0, "WAIT")
)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_tables_that_a_bulk_copy_reads(schedule: Schedule, seed: int) -> None:
    report, _ = tables(schedule, seed, use=COPY_TABLES, barrier=GRID_BARRIER, fence="fence.proxy.async.global;")
    clean(report)
    report, _ = tables(schedule, seed, use=COPY_TABLES, barrier=GRID_BARRIER)
    assert set(report.codes) == {"missing_proxy_fence"}
    report, _ = tables(schedule, seed, use=COPY_TABLES, barrier=GRID_BARRIER, late="fence.proxy.async.global;")
    clean(report)


REGISTERS = """
  setp.ge.u32 %p0, %t, 128;
  @%p0 bra CONSUMER;
  setmaxnreg.dec.sync.aligned.u32 <less>;
  bra DONE;
CONSUMER:
  setmaxnreg.inc.sync.aligned.u32 <more>;
DONE:
"""


def test_register_pool() -> None:
    """168 registers a thread, 384 threads: 40 + 2 x 232 = 3 x 168."""
    for less, more, codes in [("40", "232", {}), ("40", "240", {"deadlock": 1}), ("176", "168", {"register_pool": 1})]:
        body = REGISTERS.replace("<less>", less).replace("<more>", more)
        for schedule, seed in SCHEDULES:
            report, _ = launch(body, Run(block=384), schedule, seed, registers={"kernel": 168})
            assert report.codes == codes
            assert "registers of CTA" in report.trace or "deadlock" not in codes


CANCEL = (
    init_barriers(1)
    + """
  ld.param.u64 %rd0, [out];
  mov.u32 %r20, 0;
  mov.u32 %r1, %cta;
NEXT:
  mul.wide.u32 %rd1, %r1, 4;
  add.u64 %rd1, %rd0, %rd1;
  @!%p7 st.global.u32 [%rd1], %r1;
  bar.sync 0;
  @%p7 bra ASKED;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], 16;
  clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [tile], [bars];
ASKED:
"""
    + wait("bars", "%r20", "WAIT")
    + """
  xor.b32 %r20, %r20, 1;
  ld.shared.b128 %q0, [tile];
  fence.proxy.async.shared::cta;
  bar.sync 0;
  clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q0;
  @!%p1 bra DONE;
  clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r1, %r2, %r3, _}, %q0;
  clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r4, %q0;
  setp.ne.u32 %p2, %r1, %r4;
  @%p2 trap;
  bra NEXT;
DONE:
"""
)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_cluster_launch_control(schedule: Schedule, seed: int) -> None:
    """Two SMs, one CTA on each at a time: those that run take the work of those that have not started."""
    body = ".reg .b128 %q0;\n" + CANCEL
    setup = Run({"out": np.full(64, 1000, np.uint32)}, grid=64, smem=200_000)
    report, buffers = launch(body, setup, schedule, seed, sms=2)
    clean(report)
    assert (buffers["out"].numpy(np.uint32) == np.arange(64)).all()


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_what_a_cta_knew_that_took_all_the_work(schedule: Schedule, seed: int) -> None:
    """As with a launch of a single CTA: what it knows of itself need not be visible to others."""
    read = "ld.param.u64 %rd0, [out]; mul.wide.u32 %rd1, %t, 4; add.u64 %rd1, %rd0, %rd1; ld.global.u32 %r0, [%rd1];"
    code = module(entry(".reg .b128 %q0;\n" + CANCEL + TRIGGER, "out:u64", "first"), entry(read, "out:u64", "second"))
    memory = ptxrun.Memory()
    out = memory.add(np.full(8, 1000, np.uint32), "out")
    launches = [
        ptxrun.Launch(code, "first", 8, 64, [out], smem=200_000),
        ptxrun.Launch(code, "second", 1, 8, [out], pdl=True),
    ]
    report = ptxrun.run(launches, memory, schedule=schedule, seed=seed, sms=1)
    assert set(report.codes) == {"race"}
    assert (out.numpy(np.uint32) == np.arange(8)).all()

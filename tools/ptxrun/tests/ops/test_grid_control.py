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
    code: ptxrun.Module, ctas: tuple[int, int, int], schedule: Schedule, seed: int
) -> tuple[ptxrun.Report, np.ndarray]:
    """Entries `first`, `second` (no parameters) and `third`, each but the first beside its predecessor."""
    memory = ptxrun.Memory()
    words = memory.add_empty(2048, "words")
    launches = [
        ptxrun.Launch(code, "first", ctas[0], 32, [words]),
        ptxrun.Launch(code, "second", ctas[1], 32, pdl=True),
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
        entry("", "", "second"),
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
        ("setp.eq.u32 %p0, %cta, 1; @!%p0 bra WAITS; " + TRIGGER + "WAITS: " + WAIT + TRIGGER, False),
    ],
    ids=["waits_first", "waits_afterwards", "does_not_wait", "one_cta_does_not_wait_first"],
)
def test_what_a_launch_had_waited_for(second: str, ordered: bool, schedule: Schedule, seed: int) -> None:
    """The third of three waits for nobody: it starts when every CTA of the second has let it."""
    code = module(
        entry(WRITE, "words:u64", "first"), entry(second, "", "second"), entry(COUNT, "words:u64", "third")
    )
    report, words = chain_of_three(code, (1, 3, 2), schedule, seed)
    if ordered:
        clean(report)
        assert words[0] == 64
    else:
        assert set(report.codes) & {"race", "uninitialised_read"}


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

"""Lanes that part and meet again, calls, loops, waiting for each other inside a warp."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from kernel_text import Run, clean, every_schedule, launch

OUT = """
  ld.param.u64 %rd0, [out];
  mov.u32 %r29, %ntid.x;
  mad.lo.u32 %r30, %cta, %r29, %t;
  mul.wide.u32 %rd1, %r30, 4;
  add.u64 %rd1, %rd0, %rd1;
"""


def words(body: str, block: int = 64, grid: int = 1) -> np.ndarray:
    results = []
    for report, buffers in every_schedule(OUT + body, Run({"out": 4 * block * grid}, block=block, grid=grid)):
        clean(report)
        results.append(buffers["out"].numpy(np.uint32))
    for other in results[1:]:
        assert np.array_equal(results[0], other)
    return results[0]


def findings(body: str, block: int = 32) -> dict[str, str]:
    report, _ = launch(OUT + body, Run({"out": 4 * block}, block=block))
    return {finding.code: finding.message for finding in report.findings}


def test_branches_meet_again() -> None:
    """Nested conditions; a shuffle and a vote afterwards see all lanes."""
    body = """
  and.b32 %r0, %t, 1;
  setp.eq.u32 %p0, %r0, 0;
  @%p0 bra EVEN;
  mov.u32 %r1, 100;
  and.b32 %r2, %t, 2;
  setp.eq.u32 %p1, %r2, 0;
  @%p1 bra JOIN;
  add.u32 %r1, %r1, 50;
  bra JOIN;
EVEN:
  mov.u32 %r1, 200;
JOIN:
  add.u32 %r1, %r1, %lane;
  shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;
  vote.sync.ballot.b32 %r4, %p0, -1;
  and.b32 %r4, %r4, 0xFF;
  add.u32 %r3, %r3, %r4;
  st.global.u32 [%rd1], %r3;
"""
    lanes = np.arange(64) % 32
    value = np.where(lanes % 2 == 0, 200, np.where(lanes & 2, 150, 100)) + lanes
    expected = value.reshape(-1, 32)[:, np.arange(32) ^ 1].reshape(-1) + 0x55
    assert np.array_equal(words(body), expected)


def test_loops_of_different_length() -> None:
    """Collatz: every lane leaves the loop at another time."""
    body = """
  add.u32 %r1, %t, 1;
  mov.u32 %r2, 0;
LOOP:
  setp.eq.u32 %p0, %r1, 1;
  @%p0 bra END;
  and.b32 %r3, %r1, 1;
  setp.eq.u32 %p1, %r3, 0;
  @%p1 shr.u32 %r1, %r1, 1;
  @!%p1 mad.lo.u32 %r1, %r1, 3, 1;
  add.u32 %r2, %r2, 1;
  bra LOOP;
END:
  st.global.u32 [%rd1], %r2;
"""

    def steps(n: int) -> int:
        count = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            count += 1
        return count

    assert words(body).tolist() == [steps(n + 1) for n in range(64)]


def test_lanes_that_exit_are_not_waited_for() -> None:
    body = """
  setp.ge.u32 %p0, %lane, 20;
  st.global.u32 [%rd1], 0;
  @%p0 exit;
  vote.sync.ballot.b32 %r0, 1, 0xFFFFF;
  bar.warp.sync 0xFFFFF;
  activemask.b32 %r1;
  sub.u32 %r2, %r0, %r1;
  add.u32 %r2, %r2, 5;
  st.global.u32 [%rd1], %r2;
"""
    assert words(body, 32).tolist() == [5] * 20 + [0] * 12


def test_two_halves_of_a_warp_synchronise_apart() -> None:
    """Shuffles with half masks in both arms of a branch."""
    body = """
  setp.lt.u32 %p0, %lane, 16;
  @%p0 bra LOW;
  shfl.sync.idx.b32 %r0, %lane, 20, 31, 0xFFFF0000;
  bra JOIN;
LOW:
  shfl.sync.idx.b32 %r0, %lane, 3, 31, 0x0000FFFF;
JOIN:
  st.global.u32 [%rd1], %r0;
"""
    assert words(body, 32).tolist() == [3] * 16 + [20] * 16


def test_divergent_calls_and_indexed_branches() -> None:
    body = """
  and.b32 %r0, %t, 3;
TABLE: .branchtargets A, B, C, D;
  brx.idx %r0, TABLE;
A:
  mov.u32 %r1, 10;
  bra JOIN;
B:
  mov.u32 %r1, 20;
  bra JOIN;
C:
  mov.u32 %r1, 30;
  bra JOIN;
D:
  mov.u32 %r1, 40;
JOIN:
  bar.warp.sync -1;
  add.u32 %r1, %r1, %t;
  st.global.u32 [%rd1], %r1;
"""
    t = np.arange(64)
    assert np.array_equal(words(body), 10 * (t % 4 + 1) + t)


def test_a_lock_inside_a_warp() -> None:
    """A spin lock taken by every lane of two CTAs in turn: no lane starves another."""
    body = """
  setp.ne.u32 %p3, %t, %t;
SPIN:
  atom.acquire.gpu.global.cas.b32 %r0, [%rd0], 0, 1;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra SPIN;
  ld.relaxed.gpu.global.u32 %r1, [%rd0+4];
  add.u32 %r1, %r1, 1;
  st.relaxed.gpu.global.u32 [%rd0+4], %r1;
  atom.release.gpu.global.exch.b32 %r2, [%rd0], 0;
"""
    for report, buffers in every_schedule(
        "  ld.param.u64 %rd0, [out];\n" + body, Run({"out": np.zeros(2, np.uint32)}, block=32, grid=2)
    ):
        clean(report)
        assert buffers["out"].numpy(np.uint32).tolist() == [0, 64]


def test_flags_between_ctas() -> None:
    """CTA 1 waits in a polling loop for CTA 0, which waits for it in turn."""
    body = """
  ld.param.u64 %rd0, [out];
  setp.eq.u32 %p0, %cta, 1;
  @%p0 bra SECOND;
  st.release.gpu.global.u32 [%rd0], 1;
FIRST_WAITS:
  ld.acquire.gpu.global.u32 %r0, [%rd0+4];
  setp.eq.u32 %p1, %r0, 0;
  @%p1 bra FIRST_WAITS;
  st.global.u32 [%rd0+8], %r0;
  ret;
SECOND:
  ld.acquire.gpu.global.u32 %r0, [%rd0];
  setp.eq.u32 %p1, %r0, 0;
  @%p1 bra SECOND;
  st.release.gpu.global.u32 [%rd0+4], 2;
"""
    for report, buffers in every_schedule(body, Run({"out": np.zeros(3, np.uint32)}, block=1, grid=2)):
        clean(report)
        assert buffers["out"].numpy(np.uint32).tolist() == [1, 2, 2]


@pytest.mark.parametrize("load", ["ld.acquire.gpu.global", "ld.volatile.global", "ld.relaxed.sys.global"])
def test_polling_for_what_never_comes_is_a_deadlock(load: str) -> None:
    body = f"""
  ld.param.u64 %rd0, [out];
WAIT:
  {load}.u32 %r0, [%rd0];
  setp.eq.u32 %p0, %r0, 0;
  nanosleep.u32 100;
  @%p0 bra WAIT;
"""
    report, _ = launch(body, Run({"out": np.zeros(1, np.uint32)}, block=32))
    assert [finding.code for finding in report.findings] == ["deadlock"]
    assert "polls" in report.trace


def test_a_timeout_ends_a_polling_loop() -> None:
    body = """
  ld.param.u64 %rd0, [out];
  mov.u64 %rd2, %globaltimer;
WAIT:
  ld.acquire.gpu.global.u32 %r0, [%rd0];
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra DONE;
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd3, %rd3, %rd2;
  setp.lt.u64 %p1, %rd3, 1000000;
  @%p1 bra WAIT;
  st.global.u32 [%rd0+4], 7;
DONE:
"""
    report, buffers = launch(body, Run({"out": np.zeros(2, np.uint32)}, block=1))
    clean(report)
    assert buffers["out"].numpy(np.uint32).tolist() == [0, 7]


def test_lanes_that_never_arrive() -> None:
    body = """
  setp.lt.u32 %p0, %lane, 16;
  @%p0 bra LOW;
  bar.sync 1, 64;
LOW:
  shfl.sync.idx.b32 %r0, %lane, 0, 31, -1;
"""
    found = findings(body)
    assert "deadlock" in found
    assert "never come" in found["not_converged"]


def test_a_shuffle_from_a_lane_outside_the_mask() -> None:
    body = """
  setp.ge.u32 %p0, %lane, 16;
  @%p0 exit;
  shfl.sync.idx.b32 %r0, %lane, 20, 31, 0x0000FFFF;
"""
    assert "not_converged" in findings(body)


def test_trap_ends_the_run() -> None:
    body = """
  setp.eq.u32 %p0, %t, 3;
  @%p0 trap;
  bar.sync 0;
"""
    assert "trap" in findings(body)


def test_an_endless_loop_meets_the_limit() -> None:
    report, _ = launch("LOOP:\n  bra LOOP;\n", Run({}, block=32), max_instructions=10000)
    assert report.launches[0].instructions < 20000
    (finding,) = report.findings
    assert finding.code == "instruction_limit"
    assert finding.place.instruction == "bra LOOP"
    assert "`bra LOOP`" in report.trace


def test_a_signal_handler_ends_a_run() -> None:
    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(TimeoutError):
            launch("LOOP:\n  bra LOOP;\n", Run({}, block=32), max_instructions=1 << 36)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

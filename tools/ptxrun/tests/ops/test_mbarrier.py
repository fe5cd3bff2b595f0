"""mbarrier: phases, counts, states, transaction bytes."""

from __future__ import annotations

import numpy as np
from kernel_text import Run, clean, every_schedule, init_barriers, launch, wait

OUT = "  ld.param.u64 %rd0, [out];\n  mul.wide.u32 %rd1, %t, 4;\n  add.u64 %rd1, %rd0, %rd1;\n"


def outputs(body: str, block: int = 64) -> list[np.ndarray]:
    results = []
    for report, buffers in every_schedule(OUT + body, Run({"out": 4 * block}, block=block)):
        clean(report)
        results.append(buffers["out"].numpy(np.uint32))
    return results


def test_phases_alternate() -> None:
    """All threads arrive eight times; each wait names the parity of its round."""
    body = (
        init_barriers(64)
        + "  mov.u32 %r0, 0;\nROUND:\n  mbarrier.arrive.shared::cta.b64 _, [bars];\n  and.b32 %r1, %r0, 1;\n"
        + wait("bars", "%r1", "WAIT")
        + """
  add.u32 %r0, %r0, 1;
  setp.lt.u32 %p0, %r0, 8;
  @%p0 bra ROUND;
  st.global.u32 [%rd1], %r0;
"""
    )
    for out in outputs(body):
        assert (out == 8).all()


def test_state_of_an_arrival() -> None:
    """test_wait on the state is false before the last arrival and true after it."""
    body = (
        init_barriers(2)
        + """
  setp.ne.u32 %p0, %t, 0;
  @%p0 bra DONE;
  mbarrier.arrive.shared::cta.b64 %rd2, [bars];
  mbarrier.pending_count.b64 %r1, %rd2;
  mbarrier.test_wait.shared::cta.b64 %p1, [bars], %rd2;
  mbarrier.arrive.shared::cta.b64 %rd3, [bars];
  mbarrier.test_wait.shared::cta.b64 %p2, [bars], %rd2;
  mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %p3, [bars], 0;
  mbarrier.test_wait.parity.shared::cta.b64 %p4, [bars], 1;
  selp.u32 %r2, 1, 0, %p1;
  selp.u32 %r3, 2, 0, %p2;
  selp.u32 %r4, 4, 0, %p3;
  selp.u32 %r5, 8, 0, %p4;
  or.b32 %r2, %r2, %r3;
  or.b32 %r4, %r4, %r5;
  or.b32 %r2, %r2, %r4;
  mad.lo.u32 %r2, %r1, 16, %r2;
DONE:
  @%p0 mov.u32 %r2, 0;
  st.global.u32 [%rd1], %r2;
"""
    )
    for out in outputs(body):
        assert out[0] == 2 * 16 + 6


def test_counts_and_drops() -> None:
    """One arrival for many, and a thread that leaves the barrier for good."""
    body = (
        init_barriers(64)
        + """
  setp.eq.u32 %p0, %t, 63;
  @%p0 mbarrier.arrive_drop.shared::cta.b64 _, [bars];
  setp.eq.u32 %p1, %t, 0;
  @%p1 mbarrier.arrive.release.cta.shared::cta.b64 _, [bars], 63;
"""
        + wait("bars", 0, "FIRST")
        + "  bar.sync 0;\n  @!%p0 mbarrier.arrive.shared::cta.b64 _, [bars];\n"
        + wait("bars", 1, "SECOND")
        + "  st.global.u32 [%rd1], 3;\n"
    )
    for out in outputs(body):
        assert (out == 3).all()


def test_bytes_complete_the_phase() -> None:
    """A phase with all arrivals made waits for its bytes; they may also arrive before they are expected."""
    body = (
        init_barriers(1)
        + """
  setp.eq.u32 %p0, %t, 0;
  @%p0 mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [bars], 48;
  @%p0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bars], 16;
  @%p0 mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [bars], 64;
  setp.eq.u32 %p1, %t, 32;
  @%p1 mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [bars], 32;
"""
        + wait("bars", 0, "WAIT")
        + "  st.global.u32 [%rd1], 9;\n"
    )
    for out in outputs(body):
        assert (out == 9).all()


def test_polling_with_test_wait() -> None:
    body = (
        init_barriers(1)
        + """
  setp.eq.u32 %p0, %warp, 1;
  @%p0 bra POLL;
  mov.u32 %r0, 5000;
SPIN:
  sub.u32 %r0, %r0, 1;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra SPIN;
  setp.eq.u32 %p2, %lane, 0;
  @%p2 mbarrier.arrive.shared::cta.b64 _, [bars];
POLL:
  mbarrier.test_wait.parity.shared::cta.b64 %p3, [bars], 0;
  @!%p3 bra POLL;
  st.global.u32 [%rd1], 1;
"""
    )
    for out in outputs(body):
        assert (out == 1).all()


def test_try_wait_gives_up() -> None:
    """A peek at a phase that only the same thread can complete later returns false instead of blocking for ever."""
    body = (
        init_barriers(1)
        + """
  setp.ne.u32 %p0, %t, 0;
  @%p0 bra DONE;
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [bars], 0, 1000;
  selp.u32 %r1, 1, 7, %p1;
  mbarrier.arrive.shared::cta.b64 _, [bars];
"""
        + wait("bars", 0, "WAIT")
        + "  st.global.u32 [%rd1], %r1;\nDONE:\n"
    )
    for report, buffers in every_schedule(OUT + body, Run({"out": 256})):
        clean(report)
        assert buffers["out"].numpy(np.uint32)[0] == 7


def test_deadlock_names_phase_and_counts() -> None:
    body = init_barriers(3) + "  @!%p7 mbarrier.arrive.shared::cta.b64 _, [bars];\n" + wait("bars", 0, "WAIT")
    report, _ = launch(OUT + body, Run({"out": 256}))
    assert report.codes == {"deadlock": 1}
    assert "phase 0 (parity 0; pending: 2 of 3 arrivals, 0 bytes)" in report.trace
    assert report.trace.count("warp ") >= 2


def test_remote_arrival() -> None:
    """CTA 1 arrives on CTA 0's barrier; its store before that is seen."""
    body = (
        init_barriers(1, sync="barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;")
        + """
  mov.u32 %r1, bars;
  mov.u32 %r2, tile;
  mapa.shared::cluster.u32 %r3, %r1, 0;
  mapa.shared::cluster.u32 %r4, %r2, 0;
  setp.eq.u32 %p0, %cta, 0;
  @%p0 bra RECEIVER;
  setp.ne.u32 %p1, %t, 0;
  @!%p1 st.shared::cluster.u32 [%r4], 77;
  @!%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];
  bra DONE;
RECEIVER:
"""
        + wait("bars", 0, "WAIT").replace("parity.shared", "parity.acquire.cluster.shared")
        + """
  ld.shared.u32 %r5, [tile];
  st.global.u32 [%rd1], %r5;
DONE:
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
"""
    )
    for report, buffers in every_schedule(OUT + body, Run({"out": 256}, grid=2, cluster=2)):
        clean(report)
        assert (buffers["out"].numpy(np.uint32) == 77).all()

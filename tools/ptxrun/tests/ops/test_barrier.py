"""bar, barrier and barrier.cluster: who waits for whom, and the values of reductions."""

from __future__ import annotations

import numpy as np
from kernel_text import Run, clean, every_schedule

OUT = """
  ld.param.u64 %rd0, [out];
  mov.u32 %r29, %ntid.x;
  mad.lo.u32 %r30, %cta, %r29, %t;
  mul.wide.u32 %rd1, %r30, 4;
  add.u64 %rd1, %rd0, %rd1;
"""


def outputs(body: str, block: int, grid: int = 1, cluster: int = 1) -> list[np.ndarray]:
    setup = Run({"out": 4 * block * grid}, block=block, grid=grid, cluster=cluster)
    results = []
    for report, buffers in every_schedule(OUT + body, setup):
        clean(report)
        results.append(buffers["out"].numpy(np.uint32))
    return results


def test_reductions() -> None:
    body = """
  and.b32 %r0, %t, 3;
  setp.eq.u32 %p0, %r0, 1;
  bar.red.popc.u32 %r1, 0, %p0;
  barrier.cta.red.popc.aligned.u32 %r2, 1, 96, !%p0;
  setp.lt.u32 %p1, %t, 95;
  bar.red.and.pred %p2, 0, %p1;
  bar.red.or.pred %p3, 0, !%p1;
  selp.u32 %r3, 1, 0, %p2;
  selp.u32 %r4, 1, 0, %p3;
  shl.b32 %r2, %r2, 8;
  shl.b32 %r3, %r3, 16;
  shl.b32 %r4, %r4, 17;
  or.b32 %r1, %r1, %r2;
  or.b32 %r3, %r3, %r4;
  or.b32 %r1, %r1, %r3;
  st.global.u32 [%rd1], %r1;
"""
    for out in outputs(body, 96):
        assert (out == (24 | 72 << 8 | 0 << 16 | 1 << 17)).all()


def test_arrive_does_not_wait() -> None:
    """Warp 0 hands a word to warp 1 by arrive and sync, and takes the answer by a second barrier."""
    body = """
  setp.eq.u32 %p0, %warp, 1;
  @%p0 bra TAKER;
  st.shared.u32 [tile], 5;
  bar.arrive 3, 64;
  bar.sync 4, 64;
  ld.shared.u32 %r1, [tile+4];
  st.global.u32 [%rd1], %r1;
  bra DONE;
TAKER:
  bar.sync 3, 64;
  ld.shared.u32 %r1, [tile];
  add.u32 %r2, %r1, 1;
  st.shared.u32 [tile+4], %r2;
  bar.arrive 4, 64;
  st.global.u32 [%rd1], %r1;
DONE:
"""
    for out in outputs(body, 64):
        assert (out[:32] == 6).all()
        assert (out[32:] == 5).all()


def test_exited_warps_are_not_waited_for() -> None:
    body = """
  st.global.u32 [%rd1], 1;
  setp.ge.u32 %p0, %t, 32;
  @%p0 bra DONE;
  bar.sync 0;
  st.global.u32 [%rd1], 2;
DONE:
"""
    for out in outputs(body, 96):
        assert (out[:32] == 2).all()
        assert (out[32:] == 1).all()


def test_threads_of_a_warp_arrive_apart() -> None:
    """barrier.sync without .aligned: both halves of a warp arrive by themselves."""
    body = """
  setp.lt.u32 %p0, %lane, 16;
  @%p0 bra LOW;
  barrier.sync 1, 64;
  mov.u32 %r1, 1;
  bra JOIN;
LOW:
  barrier.sync 1, 64;
  mov.u32 %r1, 2;
JOIN:
  st.global.u32 [%rd1], %r1;
"""
    for out in outputs(body, 64):
        assert (out.reshape(-1, 16) == [[2], [1], [2], [1]]).all()


def test_cluster_barrier_and_distributed_shared_memory() -> None:
    """Every thread sends its number to the next CTA of a cluster of four."""
    body = """
  mov.u32 %r0, tile;
  mad.lo.u32 %r1, %t, 4, %r0;
  mov.u32 %r2, %cluster_ctarank;
  add.u32 %r3, %r2, 1;
  and.b32 %r3, %r3, 3;
  mapa.shared::cluster.u32 %r4, %r1, %r3;
  barrier.cluster.arrive.relaxed.aligned;
  barrier.cluster.wait.aligned;
  st.shared::cluster.u32 [%r4], %r30;
  barrier.cluster.arrive.release.aligned;
  barrier.cluster.wait.acquire.aligned;
  ld.shared.u32 %r5, [%r1];
  getctarank.shared::cluster.u32 %r6, %r4;
  mad.lo.u32 %r5, %r6, 1000, %r5;
  st.global.u32 [%rd1], %r5;
"""
    expected = []
    for cta in range(8):
        rank = cta % 4
        sender = cta - rank + (rank - 1) % 4
        expected.append(sender * 64 + np.arange(64) + 1000 * ((rank + 1) % 4))
    for out in outputs(body, 64, grid=8, cluster=4):
        assert (out.reshape(8, 64) == expected).all()

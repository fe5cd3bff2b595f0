"""Copies of contiguous bytes: cp.async.bulk both ways and between CTAs, cp.reduce, cp.async."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_text import Run, clean, every_schedule, init_barriers, wait

WORDS = np.random.default_rng(1).integers(0, 2**32, 1024, dtype=np.uint32)


def run_all(body: str, setup: Run) -> list[dict[str, np.ndarray]]:
    results = []
    for report, buffers in every_schedule(body, setup):
        clean(report)
        results.append({name: buffer.numpy(np.uint32) for name, buffer in buffers.items()})
    return results


# Thread i stores word i of tile into out.
SHOW = """
  ld.param.u64 %rd8, [out];
  mov.u32 %r20, tile;
  mad.lo.u32 %r20, %t, 4, %r20;
  ld.shared.u32 %r21, [%r20];
  mov.u32 %r23, %ntid.x;
  mad.lo.u32 %r22, %cta, %r23, %t;
  mul.wide.u32 %rd9, %r22, 4;
  add.u64 %rd8, %rd8, %rd9;
  st.global.u32 [%rd8], %r21;
"""


def test_load() -> None:
    body = (
        "  ld.param.u64 %rd0, [words];\n  mov.u32 %r1, tile;\n"
        + init_barriers(1)
        + """
  @%p7 bra ISSUED;
  createpolicy.fractional.L2::evict_first.b64 %rd2, 1.0;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], 512;
  cp.async.bulk.prefetch.L2.global [%rd0], 512;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0+1024], 256, [bars];
  cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r1+256], [%rd0], 256, [bars], %rd2;
ISSUED:
"""
        + wait("bars", 0, "WAIT")
        + SHOW
    )
    for out in run_all(body, Run({"words": WORDS, "out": 512}, block=128)):
        assert (out["out"] == np.concatenate([WORDS[256:320], WORDS[:64]])).all()


def test_multicast() -> None:
    """One copy by CTA 1 fills CTAs 0, 1 and 3 of a cluster of four; each waits on its own mbarrier."""
    body = (
        "  ld.param.u64 %rd0, [words];\n  mov.u32 %r1, tile;\n  mov.u32 %r2, bars;\n"
        + init_barriers(1)
        + """
  setp.ne.u32 %p0, %cta, 2;
  @!%p7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], 256;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  setp.ne.or.u32 %p1, %cta, 1, %p7;
  @%p1 bra ISSUED;
  mov.u16 %h0, 11;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd0], 256, [%r2], %h0;
ISSUED:
  @!%p0 bra OTHER;
"""
        + wait("bars", 0, "WAIT")
        + SHOW
        + """
  bra DONE;
OTHER:
  @!%p7 mbarrier.complete_tx.shared::cta.b64 [bars], 256;
DONE:
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
"""
    )
    for out in run_all(body, Run({"words": WORDS, "out": np.zeros(256, np.uint32)}, grid=4, cluster=4)):
        shown = out["out"].reshape(4, 64)
        assert all((shown[cta] == (WORDS[:64] if cta != 2 else 0)).all() for cta in range(4))


def test_between_ctas() -> None:
    body = (
        init_barriers(1)
        + """
  mov.u32 %r1, tile;
  mov.u32 %r2, bars;
  mad.lo.u32 %r3, %t, 4, %r1;
  mad.lo.u32 %r4, %cta, 100, %t;
  st.shared.u32 [%r3+1024], %r4;
  @!%p7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], 256;
  fence.proxy.async.shared::cta;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  @%p7 bra ISSUED;
  xor.b32 %r5, %cta, 1;
  mapa.shared::cluster.u32 %r6, %r1, %r5;
  mapa.shared::cluster.u32 %r7, %r2, %r5;
  cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r6], [%r1+1024], 256, [%r7];
ISSUED:
"""
        + wait("bars", 0, "WAIT")
        + SHOW
        + "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n"
    )
    for out in run_all(body, Run({"out": 512}, grid=2, cluster=2)):
        assert (out["out"].reshape(2, 64) == [100 + np.arange(64), np.arange(64)]).all()


def test_store_and_groups() -> None:
    """Three groups of one thread; the first source is reused once its group, and not the others, has been read."""
    body = """
  ld.param.u64 %rd0, [out];
  mov.u32 %r1, tile;
  mad.lo.u32 %r3, %t, 4, %r1;
  st.shared.u32 [%r3], %t;
  st.shared.u32 [%r3+256], 1;
  st.shared.u32 [%r3+512], 2;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  setp.ne.u32 %p0, %t, 0;
  @%p0 bra ISSUED;
  cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 256;
  cp.async.bulk.commit_group;
  cp.async.bulk.global.shared::cta.bulk_group [%rd0+256], [%r1+256], 256;
  cp.async.bulk.commit_group;
  cp.async.bulk.global.shared::cta.bulk_group [%rd0+512], [%r1+512], 256;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 2;
ISSUED:
  bar.sync 0;
  st.shared.u32 [%r3], 99;
  @!%p0 cp.async.bulk.wait_group 0;
"""
    for out in run_all(body, Run({"out": 768})):
        assert (out["out"] == np.repeat([0, 1, 2], 64) + np.r_[np.arange(64), np.zeros(128, int)]).all()


def test_a_warp_stores_once() -> None:
    """All lanes with the same operands are one copy, as a warp's copy is on hardware."""
    body = """
  ld.param.u64 %rd0, [out];
  mov.u32 %r1, tile;
  mad.lo.u32 %r3, %t, 4, %r1;
  st.shared.u32 [%r3], %t;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  setp.ne.u32 %p0, %warp, 0;
  @%p0 bra DONE;
  cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 256;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
DONE:
"""
    for report, buffers in every_schedule(body, Run({"out": 256})):
        clean(report)
        assert (buffers["out"].numpy(np.uint32) == np.arange(64)).all()
        assert report.buffers["out"].bytes_written == 256


REDUCTIONS = [
    ("add.u32", np.uint32, lambda a, b: a + b),
    ("min.s32", np.int32, np.minimum),
    ("max.u64", np.uint64, np.maximum),
    ("and.b32", np.uint32, np.bitwise_and),
    ("xor.b32", np.uint32, np.bitwise_xor),
    ("add.f32", np.float32, lambda a, b: a + b),
    ("add.noftz.f16", np.float16, lambda a, b: a + b),
    ("inc.u32", np.uint32, lambda a, b: np.where(a >= b, 0, a + 1)),
]


@pytest.mark.parametrize(("op", "dtype", "function"), REDUCTIONS, ids=[case[0] for case in REDUCTIONS])
def test_reduce(op: str, dtype: type, function: object) -> None:
    rng = np.random.default_rng(2)

    def operand() -> np.ndarray:
        count = 256 // np.dtype(dtype).itemsize
        if np.issubdtype(dtype, np.floating):
            return rng.normal(size=count).astype(dtype)
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, count, dtype, endpoint=True)

    first, second = operand(), operand()
    body = f"""
  ld.param.u64 %rd0, [out];
  ld.param.u64 %rd1, [second];
  mul.wide.u32 %rd2, %t, 4;
  add.u64 %rd1, %rd1, %rd2;
  ld.global.u32 %r0, [%rd1];
  mov.u32 %r1, tile;
  mad.lo.u32 %r3, %t, 4, %r1;
  st.shared.u32 [%r3], %r0;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  setp.ne.u32 %p0, %t, 0;
  @%p0 bra DONE;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.{op} [%rd0], [%r1], 256;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
DONE:
"""
    with np.errstate(over="ignore"):
        expected = function(first, second).astype(dtype)  # type: ignore[operator]
    for out in run_all(body, Run({"out": first, "second": second})):
        assert (out["out"] == expected.view(np.uint32)).all()


def test_cp_async() -> None:
    """16, 8 and 4 bytes a thread; fewer source bytes leave zeros; groups complete in order."""
    body = (
        """
  ld.param.u64 %rd0, [words];
  mul.wide.u32 %rd1, %t, 4;
  add.u64 %rd1, %rd0, %rd1;
  mov.u32 %r1, tile;
  mad.lo.u32 %r2, %t, 4, %r1;
  setp.lt.u32 %p0, %t, 16;
  mad.lo.u32 %r3, %t, 16, %r1;
  mul.wide.u32 %rd2, %t, 16;
  add.u64 %rd2, %rd0, %rd2;
  @%p0 cp.async.cg.shared.global.L2::128B [%r3], [%rd2], 16;
  cp.async.commit_group;
  setp.lt.u32 %p1, %t, 24;
  and.pred %p1, %p1, !%p0;
  mad.lo.u32 %r4, %t, 8, %r1;
  mul.wide.u32 %rd3, %t, 8;
  add.u64 %rd3, %rd0, %rd3;
  @%p1 cp.async.ca.shared.global [%r4+128], [%rd3], 8, 4;
  mov.u32 %r5, 0;
  cp.async.ca.shared.global [%r2+320], [%rd1], 4, %r5;
  cp.async.commit_group;
  cp.async.wait_group 0;
  bar.sync 0;
"""
        + SHOW
    )
    for out in run_all(body, Run({"words": WORDS, "out": 512}, block=128)):
        expected = np.zeros(128, np.uint32)
        expected[:64] = WORDS[:64]
        expected[64:80:2] = WORDS[32:48:2]
        assert (out["out"] == expected).all()


def test_cp_async_arrives_on_an_mbarrier() -> None:
    """The barrier counts the arrivals of 32 lanes with .noinc, and none of those without."""
    for variant, count in ((".noinc", 32), ("", 1)):
        body = (
            "  ld.param.u64 %rd0, [words];\n"
            + init_barriers(count)
            + """
  mul.wide.u32 %rd1, %t, 16;
  add.u64 %rd1, %rd0, %rd1;
  mov.u32 %r1, tile;
  mad.lo.u32 %r2, %t, 16, %r1;
  setp.eq.u32 %p0, %warp, 1;
  @%p0 bra WAITER;
  cp.async.cg.shared.global [%r2], [%rd1], 16;
  cp.async.mbarrier.arrive"""
            + variant
            + ".shared::cta.b64 [bars];\n"
            + ("" if variant else "  @!%p7 mbarrier.arrive.shared::cta.b64 _, [bars];\n")
            + "WAITER:\n"
            + wait("bars", 0, "WAIT")
            + SHOW
        )
        for out in run_all(body, Run({"words": WORDS, "out": 256})):
            assert (out["out"] == WORDS[:64]).all()

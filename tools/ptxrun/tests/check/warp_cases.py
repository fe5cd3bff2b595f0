"""Faults of warps among themselves: races, barriers, initialisation, addresses."""

from __future__ import annotations

import numpy as np
from kernel_text import Run
from twins import Twins

WORDS = np.zeros(256, np.uint32)

CASES = [
    Twins(
        "shared read without a barrier",
        "race",
        """
  shl.b32 %r0, %t, 2;
  mov.u32 %r1, tile;
  add.u32 %r2, %r1, %r0;
  st.shared.u32 [%r2], %t;
  <sync>
  xor.b32 %r3, %r0, 128;
  add.u32 %r3, %r1, %r3;
  ld.shared.u32 %r4, [%r3];
""",
        {"sync": ""},
        {"sync": "bar.sync 0;"},
        also=("uninitialised_read",),
    ),
    Twins(
        "shared overwritten without a barrier",
        "race",
        """
  shl.b32 %r0, %t, 2;
  mov.u32 %r1, tile;
  add.u32 %r2, %r1, %r0;
  st.shared.u32 [%r2], %t;
  bar.sync 0;
  xor.b32 %r3, %r0, 128;
  add.u32 %r3, %r1, %r3;
  ld.shared.u32 %r4, [%r3];
  <sync>
  st.shared.u32 [%r2], 7;
""",
        {"sync": ""},
        {"sync": "barrier.sync 1, 64;"},
    ),
    Twins(
        "flag without a fence",
        "race",
        """
  ld.param.u64 %rd0, [words];
  setp.ne.u32 %p0, %t, 0;
  @%p0 bra DONE;
  setp.eq.u32 %p1, %cta, 1;
  @%p1 bra READER;
  st.global.u32 [%rd0], 42;
  <release>
  st.volatile.global.u32 [%rd0+128], 1;
  bra DONE;
READER:
  ld.volatile.global.u32 %r0, [%rd0+128];
  setp.eq.u32 %p2, %r0, 0;
  @%p2 bra READER;
  <acquire>
  ld.global.u32 %r1, [%rd0];
DONE:
""",
        {"release": "", "acquire": ""},
        {"release": "fence.acq_rel.gpu;", "acquire": "fence.acq_rel.gpu;"},
        Run({"words": WORDS}, grid=2, block=32),
    ),
    Twins(
        "flag with a fence of a narrow scope",
        "race",
        """
  ld.param.u64 %rd0, [words];
  setp.ne.u32 %p0, %t, 0;
  @%p0 bra DONE;
  setp.eq.u32 %p1, %cta, 1;
  @%p1 bra READER;
  st.global.u32 [%rd0], 42;
  <release>
  bra DONE;
READER:
  ld.acquire.gpu.global.u32 %r0, [%rd0+128];
  setp.eq.u32 %p2, %r0, 0;
  @%p2 bra READER;
  ld.global.u32 %r1, [%rd0];
DONE:
""",
        {"release": "st.release.cta.global.u32 [%rd0+128], 1;"},
        {"release": "st.release.gpu.global.u32 [%rd0+128], 1;"},
        Run({"words": WORDS}, grid=2, block=32),
    ),
    Twins(
        "counter of CTAs with a relaxed atomic only",
        "race",
        """
  ld.param.u64 %rd0, [words];
  mul.wide.u32 %rd1, %cta, 4;
  add.u64 %rd1, %rd0, %rd1;
  setp.ne.u32 %p0, %t, 0;
  @!%p0 st.global.u32 [%rd1], %cta;
  @!%p0 <fence>
  @!%p0 atom.global.add.u32 %r0, [%rd0+512], 1;
  @%p0 bra DONE;
  setp.ne.u32 %p1, %r0, 3;
  @%p1 bra DONE;
  <fence>
  ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0];
DONE:
""",
        {"fence": "membar.cta;"},
        {"fence": "membar.gl;"},
        Run({"words": WORDS}, grid=4, block=32),
    ),
    Twins(
        "distributed shared memory without a cluster barrier",
        "race",
        """
  mov.u32 %r1, tile;
  setp.ne.u32 %p0, %t, 0;
  @!%p0 st.shared.u32 [%r1], %cta;
  <sync>
  xor.b32 %r2, %cta, 1;
  mapa.shared::cluster.u32 %r3, %r1, %r2;
  ld.shared::cluster.u32 %r4, [%r3];
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
""",
        {"sync": "bar.sync 0;"},
        {"sync": "barrier.cluster.arrive.release.aligned;\n  barrier.cluster.wait.acquire.aligned;"},
        Run(grid=2, block=32, cluster=2),
        also=("uninitialised_read",),
    ),
    Twins(
        "relaxed cluster arrival",
        "race",
        """
  mov.u32 %r1, tile;
  setp.ne.u32 %p0, %t, 0;
  @!%p0 st.shared.u32 [%r1], %cta;
  barrier.cluster.arrive<sem>.aligned;
  barrier.cluster.wait.aligned;
  xor.b32 %r2, %cta, 1;
  mapa.shared::cluster.u32 %r3, %r1, %r2;
  ld.shared::cluster.u32 %r4, [%r3];
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
""",
        {"sem": ".relaxed"},
        {"sem": ""},
        Run(grid=2, block=32, cluster=2),
    ),
    Twins(
        "distributed shared memory of a CTA that has exited",
        "cluster",
        """
  mov.u32 %r1, tile;
  st.shared.u32 [%r1], %cta;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  setp.eq.u32 %p0, %cta, 0;
  @%p0 bra DONE;
  mapa.shared::cluster.u32 %r3, %r1, 0;
  <delay>
  ld.shared::cluster.u32 %r4, [%r3];
DONE:
  <sync>
""",
        {
            "sync": "",
            "delay": "mov.u32 %r5, 3000;\nSPIN:\n  sub.u32 %r5, %r5, 1;\n  setp.ne.u32 %p1, %r5, 0;\n  @%p1 bra SPIN;",
        },
        {"sync": "barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;", "delay": ""},
        Run(grid=2, block=32, cluster=2),
    ),
    Twins(
        "CTA rank outside of the cluster",
        "cluster",
        """
  mov.u32 %r1, tile;
  mapa.shared::cluster.u32 %r3, %r1, <rank>;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
""",
        {"rank": "2"},
        {"rank": "1"},
        Run(grid=2, block=32, cluster=2),
        also=("uninitialised_register",),
    ),
    Twins(
        "uninitialised shared memory",
        "uninitialised_read",
        """
  mov.u32 %r1, tile;
  <store>
  ld.shared.v2.u32 {%r2, %r3}, [%r1];
""",
        {"store": "st.shared.u32 [%r1], 1;"},
        {"store": "st.shared.v2.u32 [%r1], {1, 2};"},
        Run(block=32),
    ),
    Twins(
        "uninitialised global memory",
        "uninitialised_read",
        """
  ld.param.u64 %rd0, [out];
  mov.u16 %h0, 7;
  st.global.u16 [%rd0], %h0;
  ld.global.u16 %h1, [%rd0+<offset>];
""",
        {"offset": "2"},
        {"offset": "0"},
        Run({"out": 64}, block=32),
    ),
    Twins(
        "index past the end",
        "out_of_bounds",
        """
  ld.param.u64 %rd0, [words];
  mul.wide.u32 %rd1, %t, 4;
  add.u64 %rd1, %rd0, %rd1;
  ld.global.u32 %r0, [%rd1+<offset>];
""",
        {"offset": "900"},
        {"offset": "768"},
        Run({"words": WORDS}, block=64),
    ),
    Twins(
        "address that is not aligned",
        "misaligned",
        """
  ld.param.u64 %rd0, [words];
  ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%rd0+<offset>];
""",
        {"offset": "8"},
        {"offset": "16"},
        Run({"words": WORDS}, block=32),
    ),
    Twins(
        "barrier that a warp leaves out",
        "deadlock",
        """
  setp.eq.u32 %p0, %warp, 1;
  @%p0 bra OTHER;
  barrier.sync 2, 64;
  bra DONE;
OTHER:
  <sync>
DONE:
""",
        {"sync": ""},
        {"sync": "barrier.sync 2, 64;"},
        message="barrier 2",
    ),
    Twins(
        "barrier with two thread counts",
        "barrier_mismatch",
        """
  setp.eq.u32 %p0, %warp, 1;
  @%p0 bra OTHER;
  bar.sync 2, 64;
  bra DONE;
OTHER:
  bar.sync 2, <threads>;
DONE:
""",
        {"threads": "96"},
        {"threads": "64"},
        also=("deadlock",),
    ),
    Twins(
        "barrier of an odd number of threads",
        "bad_operand",
        "  mov.u32 %r0, <threads>;\n  bar.sync 2, %r0;\n",
        {"threads": "63"},
        {"threads": "64"},
    ),
    Twins(
        "cluster barrier waited for without an arrival",
        "barrier_mismatch",
        """
  <arrive>
  barrier.cluster.wait.aligned;
""",
        {"arrive": ""},
        {"arrive": "barrier.cluster.arrive.aligned;"},
        Run(grid=2, block=32, cluster=2),
    ),
    Twins(
        "read-only load of what the kernel has written",
        "read_only_path",
        """
  ld.param.u64 %rd0, [words];
  mul.wide.u32 %rd1, %t, 4;
  add.u64 %rd1, %rd0, %rd1;
  st.global.u32 [%rd1], %t;
  bar.sync 0;
  ld.global<path>.u32 %r0, [%rd0];
  ld.global.nc.u32 %r1, [%rd0+512];
""",
        {"path": ".nc"},
        {"path": ""},
        Run({"words": WORDS}),
    ),
    Twins(
        "half a warp at an aligned barrier",
        "not_converged",
        """
  setp.lt.u32 %p0, %lane, 16;
  <all>
  @%p0 bra OTHER;
  bar.sync 0;
  bra DONE;
OTHER:
  bar.warp.sync 0xffffffff;
DONE:
""",
        {"all": ""},
        {"all": "bar.warp.sync 0xffffffff;\n  bar.sync 0;\n  bra DONE;"},
        Run(block=32),
        also=("deadlock",),
        message="waits for other lanes of the warp",
    ),
    Twins(
        "trap",
        "trap",
        "  setp.eq.u32 %p0, %t, <thread>;\n  @%p0 trap;\n",
        {"thread": "40"},
        {"thread": "64"},
    ),
]

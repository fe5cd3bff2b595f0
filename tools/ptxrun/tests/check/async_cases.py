"""Faults of asynchronous operations: copies, mbarriers, proxies."""

from __future__ import annotations

import numpy as np
import ptxrun
from kernel_text import Run, init_barriers, wait
from twins import Twins

WORDS = np.arange(1024, dtype=np.uint32)

LOAD = """
  ld.param.u64 %rd0, [words];
  mov.u32 %r1, tile;
""" + init_barriers(1, 1)

# Thread 0 loads <bytes> bytes into tile; everybody waits and reads.
SIMPLE_LOAD = (
    LOAD
    + """
  @%p7 bra ISSUED;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], <expected>;
  mov.u32 %r5, <bytes>;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], %r5, [bars];
ISSUED:
  <wait>
  shl.b32 %r2, %t, 2;
  add.u32 %r2, %r1, %r2;
  ld.shared.u32 %r3, [%r2];
  <after>
"""
)
RIGHT_LOAD = {"expected": "256", "bytes": "256", "wait": wait("bars", 0, "WAIT"), "after": ""}
READS = Run({"words": WORDS})


def load_case(name: str, code: str, wrong: dict[str, str], also: tuple[str, ...] = (), message: str = "") -> Twins:
    return Twins(name, code, SIMPLE_LOAD, {**RIGHT_LOAD, **wrong}, RIGHT_LOAD, READS, also, message)


STORE = """
  ld.param.u64 %rd0, [out];
  mov.u32 %r1, tile;
  shl.b32 %r2, %t, 2;
  add.u32 %r2, %r1, %r2;
  st.shared.u32 [%r2], %t;
  <fence>
  bar.sync 0;
  setp.ne.u32 %p0, %t, 0;
  @%p0 bra ISSUED;
  cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 256;
  cp.async.bulk.commit_group;
  <wait>
ISSUED:
  <sync>
  <reuse>
  setp.ne.u32 %p0, %t, 0;
  @!%p0 cp.async.bulk.wait_group 0;
"""
RIGHT_STORE = {
    "fence": "fence.proxy.async.shared::cta;",
    "wait": "cp.async.bulk.wait_group.read 0;",
    "sync": "bar.sync 0;",
    "reuse": "st.shared.u32 [%r2], 0;",
}
WRITES = Run({"out": 4096})


def store_case(name: str, code: str, wrong: dict[str, str], right: dict[str, str] | None = None) -> Twins:
    twin = {**RIGHT_STORE, **(right or {})}
    return Twins(name, code, STORE, {**twin, **wrong}, twin, WRITES)


# A producer warp and a consumer warp over one slot, three rounds.
RING = (
    "  ld.param.u64 %rd0, [words];\n  mov.u32 %r1, tile;\n"
    + init_barriers(1, 1)
    + """
  mov.u32 %r4, 0;
  setp.eq.u32 %p0, %warp, 1;
  @%p0 bra CONSUMER;
  @%p7 bra DONE;
PRODUCER:
  xor.b32 %r5, %r4, 1;
  and.b32 %r5, %r5, 1;
  <wait_empty>
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], 128;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 128, [bars];
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p1, %r4, 3;
  @%p1 bra PRODUCER;
  bra DONE;
CONSUMER:
  and.b32 %r5, %r4, 1;
"""
    + wait("bars", "%r5", "FULL")
    + """
  shl.b32 %r2, %lane, 2;
  add.u32 %r2, %r1, %r2;
  ld.shared.u32 %r3, [%r2];
  setp.eq.u32 %p2, %lane, 0;
  bar.warp.sync 0xffffffff;
  <release>
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p1, %r4, 3;
  @%p1 bra CONSUMER;
DONE:
"""
)
RIGHT_RING = {
    "wait_empty": wait("bars+8", "%r5", "EMPTY"),
    "release": "@%p2 mbarrier.arrive.shared::cta.b64 _, [bars+8];",
}

CP_ASYNC = """
  ld.param.u64 %rd0, [words];
  mul.wide.u32 %rd1, %t, 16;
  add.u64 %rd1, %rd0, %rd1;
  mov.u32 %r1, tile;
  shl.b32 %r2, %t, 4;
  add.u32 %r2, %r1, %r2;
  cp.async.cg.shared.global [%r2], [%rd1], 16;
  cp.async.commit_group;
  cp.async.cg.shared.global [%r2+1024], [%rd1], 16;
  cp.async.commit_group;
  cp.async.wait_group <groups>;
  ld.shared.u32 %r3, [%r2+<offset>];
  cp.async.wait_all;
"""

CASES = [
    load_case(
        "load read without a wait",
        "missing_wait",
        {"wait": "", "after": wait("bars", 0, "LATE")},
        also=("overwrite_in_flight", "uninitialised_read"),
    ),
    load_case(
        "wait for the wrong parity",
        "missing_wait|overwrite_in_flight",
        {"wait": wait("bars", 1, "WAIT"), "after": wait("bars", 0, "LATE")},
        also=("phase_overrun", "uninitialised_read", "deadlock"),
    ),
    load_case("too few bytes expected", "tx_mismatch", {"expected": "128"}, also=("deadlock", "missing_wait")),
    load_case("too many bytes expected", "tx_mismatch", {"expected": "512"}, also=("deadlock",)),
    load_case(
        "load nobody waits for",
        "pending_at_exit",
        {"wait": "bra END;", "after": "END:"},
        also=("cluster",),
    ),
    load_case(
        "bulk size not a multiple of 16",
        "bad_operand",
        {"bytes": "264", "expected": "256"},
        also=("deadlock", "tx_mismatch"),
    ),
    load_case(
        "copy past the end of the buffer",
        "out_of_bounds",
        {"bytes": "8192", "expected": "8192"},
        also=("deadlock", "tx_mismatch"),
    ),
    load_case(
        "two arrivals on a barrier of one", "over_arrival", {"after": "mbarrier.arrive.shared::cta.b64 _, [bars+8], 2;"}
    ),
    load_case(
        "shared store over an mbarrier", "invalid_mbarrier", {"after": "st.shared.u32 [bars+8], 0;"}, also=("race",)
    ),
    load_case(
        "mbarrier that was not initialised",
        "invalid_mbarrier",
        {"after": "mbarrier.arrive.shared::cta.b64 _, [bars+16];"},
    ),
    load_case(
        "mbarrier initialised twice",
        "invalid_mbarrier",
        {"after": "bar.sync 0;\n  @!%p7 mbarrier.init.shared::cta.b64 [bars+8], 1;"},
    ),
    Twins(
        "mbarrier initialised without a fence",
        "missing_proxy_fence",
        SIMPLE_LOAD.replace("@!%p7 fence.mbarrier_init.release.cluster;", "<fence>"),
        {**RIGHT_LOAD, "fence": ""},
        {**RIGHT_LOAD, "fence": "@!%p7 fence.proxy.async.shared::cta;"},
        READS,
    ),
    Twins(
        "mbarrier used before others see it",
        "race|invalid_mbarrier",
        init_barriers(64, sync="")
        + "  <sync>\n  mbarrier.arrive.shared::cta.b64 _, [bars];\n"
        + wait("bars", 0, "WAIT"),
        {"sync": ""},
        {"sync": "bar.sync 0;"},
        also=("deadlock",),
    ),
    Twins(
        "slot filled again before it was read",
        "overwrite_in_flight",
        RING,
        {**RIGHT_RING, "wait_empty": ""},
        RIGHT_RING,
        READS,
        also=("phase_overrun", "over_arrival", "tx_mismatch", "deadlock", "missing_wait"),
    ),
    Twins(
        "slot released before it was read",
        "overwrite_in_flight",
        RING.replace("  ld.shared.u32 %r3, [%r2];", "  <early>\n  ld.shared.u32 %r3, [%r2];"),
        {**RIGHT_RING, "early": "setp.eq.u32 %p2, %lane, 0;\n  " + RIGHT_RING["release"], "release": ""},
        {**RIGHT_RING, "early": ""},
        READS,
    ),
    Twins(
        "slot never released",
        "deadlock",
        RING,
        {**RIGHT_RING, "release": ""},
        RIGHT_RING,
        READS,
        message="mbarrier at shared",
    ),
    Twins(
        "phase that a waiter may miss",
        "phase_overrun|deadlock",
        init_barriers(32)
        + """
  setp.eq.u32 %p0, %warp, 1;
  @%p0 bra WAITER;
  mbarrier.arrive.shared::cta.b64 %rd1, [bars];
  <sync>
  mbarrier.arrive.shared::cta.b64 %rd1, [bars];
  bra DONE;
WAITER:
"""
        + wait("bars", 0, "WAIT")
        + "  <sync>\nDONE:\n",
        {"sync": ""},
        {"sync": "barrier.sync 1, 64;"},
    ),
    store_case("stores without a proxy fence", "missing_proxy_fence", {"fence": ""}),
    store_case(
        "proxy fence of another space",
        "missing_proxy_fence",
        {"fence": "fence.proxy.async.global;"},
        {"fence": "fence.proxy.async;"},
    ),
    store_case("source reused without wait_group.read", "overwrite_in_flight", {"wait": ""}),
    store_case("source reused without a barrier after the wait", "overwrite_in_flight|race", {"sync": ""}),
    store_case(
        "destination read before the copy is complete",
        "missing_wait",
        {"wait": "cp.async.bulk.wait_group.read 0;"},
        {"wait": "cp.async.bulk.wait_group 0;", "reuse": "ld.global.u32 %r3, [%rd0];"},
    ),
    Twins(
        "copy out of shared memory pending at exit",
        "pending_at_exit",
        STORE.replace("  @!%p0 cp.async.bulk.wait_group 0;", "  <last>"),
        {**RIGHT_STORE, "wait": "", "reuse": "", "last": ""},
        {**RIGHT_STORE, "wait": "", "reuse": "", "last": "@!%p0 cp.async.bulk.wait_group.read 0;"},
        WRITES,
        also=("cluster",),
    ),
    Twins(
        "cp.async read before its group is complete",
        "missing_wait",
        CP_ASYNC,
        {"groups": "1", "offset": "1024"},
        {"groups": "1", "offset": "0"},
        READS,
    ),
    Twins(
        "cp.async read by another warp",
        "missing_wait|overwrite_in_flight",
        CP_ASYNC.replace(
            "  ld.shared.u32 %r3, [%r2+<offset>];", "  <sync>\n  xor.b32 %r2, %r2, 512;\n  ld.shared.u32 %r3, [%r2];"
        ),
        {"groups": "0", "sync": ""},
        {"groups": "0", "sync": "bar.sync 0;"},
        READS,
        also=("uninitialised_read",),
    ),
    Twins(
        "tensor map that is none",
        "bad_descriptor",
        """
  mov.b64 %rd0, <map>;
  cvta.param.u64 %rd0, %rd0;
  prefetch.tensormap [%rd0];
  mov.u32 %r1, tile;
"""
        + init_barriers(1)
        + """
  mov.u32 %r2, 0;
  @%p7 bra ISSUED;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], 64;
  cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd0, {%r2}], [bars];
ISSUED:
"""
        + wait("bars", 0, "WAIT"),
        {"map": "zeros"},
        {"map": "words"},
        Run(
            {"data": WORDS},
            params="words:map zeros:map",
            block=32,
            maps=lambda buffers: [ptxrun.TensorMap(buffers["data"], "u32", (1024,), (16,)), bytes(128)],
        ),
        also=("deadlock", "tx_mismatch"),
    ),
]

"""Faults around tensor memory: its life, the lanes of a warp, waits and fences. Products are in tests/mutation."""

from __future__ import annotations

from kernel_text import Run
from twins import Twins

EIGHT_WARPS = Run(block=256)

# Warp 0 allocates 64 columns. It writes lanes 0..31, and warp 4 reads them.
HANDOVER = """
  setp.ne.u32 %p0, %warp, 0;
  @%p0 bra ALLOCATED;
  mov.u32 %r1, tile;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 64;
  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
ALLOCATED:
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  ld.shared.u32 %r2, [tile];
  @%p0 bra READER;
  mov.u32 %r3, 5;
  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r2], {%r3};
  <wait_st>
  <before>
  bar.sync 0;
  <again>
  bra FREE;
READER:
  bar.sync 0;
  setp.ne.u32 %p1, %warp, 4;
  @%p1 bra FREE;
  <after>
  add.u32 %r2, %r2, <address>;
  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r4}, [%r2];
  <wait_ld>
  add.u32 %r5, %r4, 1;
FREE:
  tcgen05.wait::ld.sync.aligned;
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  @%p0 bra DONE;
  ld.shared.u32 %r2, [tile];
  <free>
DONE:
"""
RIGHT = {
    "wait_st": "tcgen05.wait::st.sync.aligned;",
    "before": "tcgen05.fence::before_thread_sync;",
    "again": "",
    "after": "tcgen05.fence::after_thread_sync;",
    "address": "0",
    "wait_ld": "tcgen05.wait::ld.sync.aligned;",
    "free": "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 64;",
}


def case(name: str, code: str, wrong: dict[str, str], also: tuple[str, ...] = ()) -> Twins:
    return Twins(name, code, HANDOVER, {**RIGHT, **wrong}, RIGHT, EIGHT_WARPS, also)


CASES = [
    case("handed over without a fence before", "missing_tcgen05_fence", {"before": ""}),
    case("taken over without a fence after", "missing_tcgen05_fence", {"after": ""}),
    case("handed over before the store is complete", "missing_wait", {"wait_st": ""}, also=("overwrite_in_flight",)),
    case("loaded register used at once", "register_in_flight", {"wait_ld": ""}),
    case(
        "written again while it is read",
        "overwrite_in_flight|missing_wait",
        {"again": "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r2], {%r3};\n  tcgen05.wait::st.sync.aligned;"},
    ),
    case("columns that nobody wrote", "uninitialised_read", {"address": "1"}),
    case("columns outside of the allocation", "tmem_access", {"address": "64"}, also=("uninitialised_register",)),
    case("lanes of another warp", "tmem_access", {"address": "0x200000"}, also=("uninitialised_register",)),
    case("columns that are not freed", "tmem_lifecycle", {"free": ""}),
    case("freed in another size", "tmem_lifecycle", {"free": RIGHT["free"].replace("64", "32")}),
    case(
        "used after it was freed",
        "tmem_access",
        {"free": f"{RIGHT['free']}\n  tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r4}}, [%r2];\n  {RIGHT['wait_ld']}"},
    ),
]

"""Instructions taken out of the sm_90a kernels."""

from __future__ import annotations

from ptx_faults import Fault, dropped, respelled


def without(stage: str, opcode: str, *codes: str, at: int = 0) -> Fault:
    name = f"{stage}_without_{opcode}" + (f"_{at}" if at else "")
    return Fault(name, opcode, dropped, frozenset(codes), at, stage)


def changed(name: str, opcode: str, old: str, new: str, code: str, at: int = 0, stage: str = "") -> Fault:
    """One instruction spelled otherwise. The stage is by default the first word of the name."""
    return Fault(name, opcode, respelled(old, new), frozenset({code}), at, stage or name.split("_")[0])


FUSED = [
    without("experts", "bar.sync", "race", "uninitialised_read", "overwrite_in_flight"),
    without("experts", "mbarrier.arrive.shared.b64", "deadlock"),
    without("experts", "st.relaxed.gpu.global.u64", "deadlock"),
    without("experts", "st.relaxed.gpu.global.u32", "deadlock"),
    without("experts", "st.global.v4.u32", "uninitialised_read"),  # packets are not marked
    without("experts", "st.global.v4.u32", "uninitialised_read", at=1),  # y is not marked
]
ROUTED = [
    without("routed_fc1", "bar.sync", "race", "uninitialised_read", "overwrite_in_flight", "invalid_mbarrier"),
    without("routed_fc1", "bar.sync", "race", at=4),  # between routing and quantising in one CTA
    without("routed_fc1", "cp.async.mbarrier.arrive.noinc.shared::cta.b64", "deadlock", "missing_wait"),
    without("routed_fc1", "mbarrier.arrive.shared.b64", "deadlock"),
    without("routed_fc1", "red.release.gpu.global.add.s32", "deadlock"),
    without("routed_fc1", "fence.proxy.async;", "missing_proxy_fence"),
    changed("grid_barrier_relaxed", "atom.add.release", "release", "relaxed", "race", stage="routed_fc1"),
    changed("fc2_awaits_fc1_relaxed", "ld.acquire", "acquire", "relaxed", "race"),
]
STAGED = [
    without("prologue", "bar.sync", "race", "uninitialised_read"),
    without("fc1", "griddepcontrol.wait", "race", "uninitialised_read"),
    without("fc1", "mbarrier.arrive.shared.b64", "deadlock"),
    without("fc1", "cp.async.mbarrier.arrive.noinc.shared::cta.b64", "deadlock", "missing_wait"),
    without("fc1", "red.release.gpu.global.add.s32", "deadlock"),
    changed("fc1_announces_relaxed", "red.release", "release", "relaxed", "race"),
    changed("fc2_leaves_items_undrawn", "atom.global.add", ", 1;", ", 2;", "uninitialised_read"),
    changed("fc2_awaits_fc1_relaxed", "ld.acquire", "acquire", "relaxed", "race"),
    without("fc2", "bar.sync", "race", "overwrite_in_flight", "invalid_mbarrier"),
    without("fc2", "red.release.gpu.global.add.s32", "deadlock"),
]
WIDE = [
    changed("fc2_finalises_relaxed", "ld.acquire", "acquire", "relaxed", "race", at=2),
    without("fc2", "fence.proxy.async;", "missing_proxy_fence"),
    without("fc2", "cp.async.bulk.shared", "deadlock"),
]

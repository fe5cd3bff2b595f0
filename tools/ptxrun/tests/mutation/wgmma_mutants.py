"""Faults in wgmma_gemm.ptx, and the findings that name them."""

from __future__ import annotations

from mutant import Mutant, change, drop

TRY_WAIT = "  mbarrier.try_wait.parity.shared::cta.b64 %p, "
PRODUCTS = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"

MUTANTS: list[Mutant] = [
    drop("no_wgmma_fence", "  wgmma.fence.sync.aligned;", {"missing_wgmma_fence"}),
    drop("no_commit", "  wgmma.commit_group.sync.aligned;", {"register_in_flight", "overwrite_in_flight"}),
    change(
        "one_group_pending",
        "wgmma.wait_group.sync.aligned 0;",
        "wgmma.wait_group.sync.aligned 1;",
        {"register_in_flight", "overwrite_in_flight"},
    ),
    drop("no_wait_group", "  wgmma.wait_group.sync.aligned 0;", {"register_in_flight", "overwrite_in_flight"}),
    change(
        "sum_touched_in_flight",
        "  wgmma.commit_group.sync.aligned;",
        "  wgmma.commit_group.sync.aligned;\n  mov.b32 %c5, 0;",
        {"register_in_flight"},
    ),
    change(
        "operand_touched_in_flight",
        "  wgmma.commit_group.sync.aligned;",
        "  wgmma.commit_group.sync.aligned;\n  mov.b32 %a1, 0;",
        {"register_in_flight"},
    ),
    change(
        "accumulates_on_nothing",
        "setp.ne.u32 %accumulate, %kb, 0;",
        "setp.eq.u32 %accumulate, 0, 0;",
        {"uninitialised_register"},
    ),
    drop(
        "operand_not_loaded",
        "  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%a4, %a5, %a6, %a7}, [%lo];",
        {"uninitialised_register"},
    ),
    change(
        "slot_given_back_early",
        "  wgmma.commit_group.sync.aligned;",
        "  @%leader mbarrier.arrive.shared::cta.b64 _, [%empty];\n  wgmma.commit_group.sync.aligned;",
        {"over_arrival", "overwrite_in_flight", "phase_overrun"},
    ),
    change("full_counts_two", "[%bars], 1;", "[%bars], 2;", {"deadlock"}),
    change("empty_counts_five", "[%bars+16], 4;", "[%bars+16], 5;", {"deadlock"}),
    change("empty_counts_three", "[%bars+16], 4;", "[%bars+16], 3;", {"over_arrival", "phase_overrun"}),
    drop("empty_not_initialised", "  mbarrier.init.shared::cta.b64 [%bars+24], 4;", {"invalid_mbarrier"}),
    change("every_lane_arrives", "@%leader mbarrier.arrive", "mbarrier.arrive", {"over_arrival", "phase_overrun"}),
    drop("slot_never_given_back", "  @%leader mbarrier.arrive.shared::cta.b64 _, [%empty];", {"deadlock"}),
    drop("producer_phase_stays", "  @%p xor.b32 %phase, %phase, 1;", {"overwrite_in_flight", "phase_overrun"}),
    drop(
        "multiplier_phase_stays",
        "  @%p xor.b32 %phase, %phase, 1;",
        {"missing_wait", "phase_overrun"},
        "MULTIPLY_BLOCK:",
    ),
    change("producer_parity", "xor.b32 %parity, %phase, 1;", "mov.b32 %parity, %phase;", {"deadlock"}),
    drop("no_wait_for_full", TRY_WAIT + "[%full], %phase;\n  @!%p bra WAIT_FULL;", {"missing_wait"}),
    drop("no_wait_for_empty", TRY_WAIT + "[%empty], %parity;\n  @!%p bra WAIT_EMPTY;", {"overwrite_in_flight"}),
    change("expects_less", "[%full], 16384;", "[%full], 8192;", {"tx_mismatch"}),
    change("expects_more", "[%full], 16384;", "[%full], 16400;", {"deadlock", "tx_mismatch"}),
    change("one_slot_for_two", "shl.b32 %at, %slot, 14;", "and.b32 %at, %slot, 0;", {"overwrite_in_flight"}),
    change("slots_overlap", "shl.b32 %at, %slot, 14;", "shl.b32 %at, %slot, 13;", {"overwrite_in_flight"}),
    change(
        "output_over_a_slot",
        "add.u32 %out, %out, 32768;",
        "add.u32 %out, %out, 16384;",
        {"overwrite_in_flight", "race"},
    ),
    drop("no_proxy_fence", "  fence.proxy.async.shared::cta;", {"missing_proxy_fence"}),
    drop("no_barrier_before_the_store", "  bar.sync 1, 128;", {"race"}, "MULTIPLIER:", 1),
    drop("no_wait_for_the_last_store", "  @!%p cp.async.bulk.wait_group.read 0;", {"overwrite_in_flight"}),
    drop("exit_before_the_store_has_read", "  cp.async.bulk.wait_group 0;", {"pending_at_exit"}),
    drop("registers_not_given_up", "  setmaxnreg.dec.sync.aligned.u32 40;", {"register_pool", "deadlock"}),
    change(
        "registers_beyond_the_pool",
        "setmaxnreg.dec.sync.aligned.u32 40;",
        "setmaxnreg.dec.sync.aligned.u32 152;",
        {"register_pool", "deadlock"},
    ),
    change("reserved_descriptor_bits", "mov.u32 %hi, 0x40000040;", "mov.u32 %hi, 0x48000040;", {"bad_descriptor"}),
    change("stride_512", "mov.u32 %hi, 0x40000040;", "mov.u32 %hi, 0x40000020;", {"bad_descriptor"}),
    change("base_offset", "mov.u32 %hi, 0x40000040;", "mov.u32 %hi, 0x40020040;", {"bad_descriptor"}),
    change("swizzle_of_64_bytes", "mov.u32 %hi, 0x40000040;", "mov.u32 %hi, 0x80000040;", {"bad_descriptor"}),
]

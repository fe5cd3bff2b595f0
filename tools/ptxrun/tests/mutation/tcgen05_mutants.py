"""Faults in tcgen05_gemm.ptx, and the findings that name them."""

from __future__ import annotations

from mutant import Mutant, change, drop

TRY_WAIT = "  mbarrier.try_wait.parity.shared::cta.b64 %p, "
MMA = "0x08100480"
COMMIT = "  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%empty];\n"

PHASES: list[Mutant] = [
    change("full_counts_two", "[%bars], 1;", "[%bars], 2;", {"deadlock"}),
    change("empty_counts_two", "[%bars+16], 1;", "[%bars+16], 2;", {"deadlock"}),
    change("acc_full_counts_two", "[%bars+32], 1;", "[%bars+32], 2;", {"deadlock"}),
    change(
        "acc_empty_counts_96", "[%bars+40], 128;", "[%bars+40], 96;", {"overwrite_in_flight", "race", "over_arrival"}
    ),
    change("acc_empty_counts_129", "[%bars+40], 128;", "[%bars+40], 129;", {"deadlock"}),
    drop("full_1_not_initialised", "  mbarrier.init.shared::cta.b64 [%bars+8], 1;", {"invalid_mbarrier"}),
    drop("acc_empty_not_initialised", "  mbarrier.init.shared::cta.b64 [%bars+40], 128;", {"invalid_mbarrier"}),
    change("producer_parity", "xor.b32 %parity, %phase, 1;", "mov.b32 %parity, %phase;", {"deadlock"}),
    drop("producer_phase_stays", "  @%p xor.b32 %phase, %phase, 1;", {"overwrite_in_flight", "phase_overrun"}),
    drop(
        "multiplier_phase_stays",
        "  @%p xor.b32 %phase, %phase, 1;",
        {"missing_wait", "phase_overrun", "over_arrival"},
        "MULTIPLY_BLOCK:",
    ),
    drop(
        "multiplier_acc_phase_stays",
        "  xor.b32 %acc_phase, %acc_phase, 1;",
        {"overwrite_in_flight", "phase_overrun"},
        "MULTIPLY_BLOCK:",
    ),
    drop("epilogue_acc_phase_stays", "  xor.b32 %acc_phase, %acc_phase, 1;", {"missing_wait", "race"}, "EPILOGUE:"),
    drop("multiplier_slot_stays", "  xor.b32 %slot, %slot, 1;", {"deadlock"}, "MULTIPLY_BLOCK:"),
    change(
        "producer_waits_for_other_slot", "%empty, %full, 16;", "%empty, %full, 24;", {"invalid_mbarrier", "deadlock"}
    ),
    change("commit_to_full", "[%empty];", "[%full];", {"over_arrival", "deadlock"}, "MULTIPLY_BLOCK:"),
    drop(
        "no_commit_of_slot",
        "  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%empty];",
        {"deadlock"},
    ),
    drop(
        "no_commit_of_accumulator",
        "  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%at];",
        {"deadlock"},
    ),
    drop("accumulator_not_given_back", "  mbarrier.arrive.shared::cta.b64 _, [%bars+40];", {"deadlock"}),
    change("every_lane_loads", "elect.sync _|%elected, 0xffffffff;", "setp.eq.u32 %elected, 0, 0;", {"over_arrival"}),
    change(
        "every_lane_multiplies",
        "elect.sync _|%elected, 0xffffffff;",
        "setp.eq.u32 %elected, 0, 0;",
        {"over_arrival", "phase_overrun"},
        "MULTIPLIER:",
    ),
]

TRANSACTIONS: list[Mutant] = [
    change("expects_less", "[%full], 28672;", "[%full], 28656;", {"tx_mismatch"}),
    change("expects_more", "[%full], 28672;", "[%full], 28688;", {"deadlock", "tx_mismatch"}),
    change(
        "expects_nothing",
        "arrive.expect_tx.shared::cta.b64 _, [%full], 28672;",
        "arrive.shared::cta.b64 _, [%full];",
        {"tx_mismatch"},
    ),
    change("copies_half_the_scales", "[%from], 2048, [%full];", "[%from], 1024, [%full];", {"deadlock", "tx_mismatch"}),
    change("copies_2040_bytes", "[%from], 2048, [%full];", "[%from], 2040, [%full];", {"bad_operand", "misaligned"}),
    change("signals_the_other_slot", "{%x, %y}], [%full];", "{%x, %y}], [%bars];", {"tx_mismatch", "deadlock"}),
]

WAITS: list[Mutant] = [
    drop("no_wait_for_full", TRY_WAIT + "[%full], %phase;\n  @!%p bra WAIT_FULL;", {"missing_wait"}),
    drop("no_wait_for_empty", TRY_WAIT + "[%empty], %parity;\n  @!%p bra WAIT_EMPTY;", {"overwrite_in_flight"}),
    drop(
        "no_wait_for_accumulator",
        TRY_WAIT + "[%bars+32], %acc_phase;\n  @!%p bra WAIT_ACC_FULL;",
        {"missing_wait", "uninitialised_read"},
    ),
    drop(
        "no_wait_for_epilogue",
        TRY_WAIT + "[%bars+40], %parity;\n  @!%p bra WAIT_ACC_EMPTY;",
        {"race", "overwrite_in_flight"},
    ),
    drop("no_wait_for_loads", "  tcgen05.wait::ld.sync.aligned;", {"register_in_flight", "missing_wait"}),
    drop("no_wait_for_the_last_store", "  @!%p cp.async.bulk.wait_group.read 0;", {"overwrite_in_flight"}),
    drop("exit_before_the_store_has_read", "  cp.async.bulk.wait_group 0;", {"pending_at_exit"}),
    drop("store_in_no_group", "  cp.async.bulk.commit_group;", {"overwrite_in_flight", "pending_at_exit"}),
    drop("no_barrier_before_the_store", "  bar.sync 1, 128;", {"race"}, "EPILOGUE:", 1),
    drop("no_barrier_after_the_store", "  bar.sync 1, 128;", {"race", "overwrite_in_flight"}, "EPILOGUE:"),
    drop("no_barrier_after_the_setup", "  bar.sync 0;", {"race", "invalid_mbarrier", "uninitialised_read"}),
    change("barrier_of_96", "bar.sync 1, 128;", "bar.sync 1, 96;", {"barrier_mismatch", "race"}, "EPILOGUE:", 1),
    change("barrier_of_160", "bar.sync 1, 128;", "bar.sync 1, 160;", {"deadlock", "barrier_mismatch"}, "EPILOGUE:", 1),
]

FENCES: list[Mutant] = [
    drop("no_proxy_fence", "  fence.proxy.async.shared::cta;", {"missing_proxy_fence"}),
    drop(
        "no_fence_before_giving_back", "  tcgen05.fence::before_thread_sync;", {"missing_tcgen05_fence"}, "STORE_TILE:"
    ),
    drop(
        "no_fence_after_accumulator_full",
        "  tcgen05.fence::after_thread_sync;",
        {"missing_tcgen05_fence"},
        "WAIT_ACC_FULL:",
    ),
    drop(
        "no_fence_after_accumulator_empty",
        "  tcgen05.fence::after_thread_sync;",
        {"missing_tcgen05_fence"},
        "WAIT_ACC_EMPTY:",
    ),
]

SLOTS: list[Mutant] = [
    change(
        "one_slot_for_two",
        "mad.lo.u32 %at, %slot, 28672, %base;",
        "mad.lo.u32 %at, %slot, 0, %base;",
        {"overwrite_in_flight"},
    ),
    change(
        "slots_overlap",
        "mad.lo.u32 %at, %slot, 28672, %base;",
        "mad.lo.u32 %at, %slot, 24576, %base;",
        {"overwrite_in_flight"},
    ),
    change(
        "output_over_a_slot",
        "add.u32 %out, %out, 57344;",
        "add.u32 %out, %out, 32768;",
        {"overwrite_in_flight", "race"},
    ),
    change(
        "commit_before_the_products",
        "  shr.u32 %lo, %at, 4;\n  or.b32",
        COMMIT + "  shr.u32 %lo, %at, 4;\n  or.b32",
        {"over_arrival", "overwrite_in_flight", "phase_overrun"},
    ),
    change("target_not_aligned", "add.u32 %at, %at, 16384;", "add.u32 %at, %at, 16392;", {"misaligned"}),
    change(
        "target_not_aligned_for_the_swizzle",
        "add.u32 %at, %at, 16384;",
        "add.u32 %at, %at, 16400;",
        {"misaligned", "bad_descriptor"},
    ),
    change(
        "store_not_aligned",
        "  add.u32 %at, %base, 57344;",
        "  add.u32 %at, %base, 57352;",
        {"misaligned", "bad_descriptor"},
    ),
    change("barrier_not_aligned", "[%bars+40], 128;", "[%bars+44], 128;", {"misaligned"}),
    change(
        "scales_beyond_the_buffer",
        "mul.wide.u32 %advance, %offset, 2048;",
        "mul.wide.u32 %advance, %offset, 4096;",
        {"out_of_bounds"},
    ),
    change(
        "shared_memory_beyond_the_end", "add.u32 %out, %out, 57344;", "add.u32 %out, %out, 65536;", {"out_of_bounds"}
    ),
]

TENSOR_MEMORY: list[Mutant] = [
    change("too_few_columns", "[%at], 128;", "[%at], 64;", {"tmem_access", "tmem_lifecycle"}, "INIT_DONE:"),
    change("columns_not_a_power_of_two", "[%at], 128;", "[%at], 96;", {"bad_operand", "tmem_lifecycle"}, "INIT_DONE:"),
    drop("never_freed", "  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 128;", {"tmem_lifecycle"}),
    change("half_freed", "b32 %tmem, 128;", "b32 %tmem, 64;", {"tmem_lifecycle"}),
    change(
        "freed_twice",
        "b32 %tmem, 128;",
        "b32 %tmem, 128;\n  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 128;",
        {"tmem_lifecycle"},
    ),
    change("other_warps_lanes", "shl.b32 %quadrant, %warp, 21;", "shl.b32 %quadrant, %warp, 20;", {"tmem_access"}),
    change(
        "load_beyond_the_columns", "add.u32 %at, %at, 32;", "add.u32 %at, %at, 112;", {"tmem_access"}, "STORE_TILE:"
    ),
    change(
        "accumulates_on_nothing",
        "setp.ne.u32 %accumulate, %kb, 0;",
        "setp.eq.u32 %accumulate, 0, 0;",
        {"uninitialised_read"},
    ),
    drop(
        "scales_not_copied", "  tcgen05.cp.cta_group::1.32x128b.warpx4 [%sfb], %desc_sfb;", {"uninitialised_read"}, at=3
    ),
    change(
        "scales_from_elsewhere",
        "add.u32 %sfb, %tmem, 80;",
        "add.u32 %sfb, %tmem, 96;",
        {"uninitialised_read"},
        "MULTIPLY_BLOCK:",
        1,
    ),
]

DESCRIPTORS: list[Mutant] = [
    change("scale_version", "0x4008;", "0x0008;", {"bad_descriptor"}),
    change("matrix_version", "0x40004040;", "0x40000040;", {"bad_descriptor"}),
    change("matrix_version_2", "0x40004040;", "0x40008040;", {"bad_descriptor"}),
    change("swizzle_mode_3", "0x40004040;", "0x60004040;", {"bad_descriptor"}),
    change("swizzle_mode_64", "0x40004040;", "0x80004040;", {"bad_descriptor"}),
    change("base_offset", "0x40004040;", "0x40024040;", {"bad_descriptor"}),
    change("stride_512", "0x40004040;", "0x40004020;", {"bad_descriptor"}),
    change(
        "reserved_bits_of_the_address", "or.b32 %lo, %lo, 0x10000;", "or.b32 %lo, %lo, 0x14000;", {"bad_descriptor"}
    ),
    change("a_type", MMA, "0x08100400", {"bad_descriptor"}),
    change("b_type", MMA, "0x08100880", {"bad_descriptor"}),
    change("n_zero", MMA, "0x08000480", {"bad_descriptor"}),
    change("n_264", MMA, "0x08420480", {"bad_descriptor"}),
    change("m_64", MMA, "0x04100480", {"bad_descriptor"}),
    change("transposed_a", MMA, "0x08108480", {"bad_descriptor"}),
    change("scale_id", MMA, "0x28100480", {"bad_descriptor"}),
    change("reserved_bit", MMA, "0x08100482", {"bad_descriptor"}),
    change("k_96", MMA, "0x88100480", {"bad_descriptor"}),
    change("n_56", MMA, "0x080e0480", {"uninitialised_read"}, at=-1),
]

MUTANTS = [*PHASES, *TRANSACTIONS, *WAITS, *FENCES, *SLOTS, *TENSOR_MEMORY, *DESCRIPTORS]

"""Slips in the sm_100a kernels, the prologue and the finalise, as changes of their PTX.

Not among them, for they change nothing that the PTX rules forbid: one of two proxy fences on the way from the token
warps to the MMAs (either side's is enough), the tcgen05 fences around the CTA's first barrier (only an address passes
it), and strides of operands that fit into one atom.
"""

from __future__ import annotations

from ptx_faults import WRONG_BITS, Edit, Fault, added, dropped, flipped, respelled
from ptxrun.api import Schedule

# Instructions.
WAIT = "mbarrier.try_wait"
EXPECT = "mbarrier.arrive.expect_tx"
INIT = "mbarrier.init"
MMA = "tcgen05.mma"
TENSOR_COPY = "cp.async.bulk.tensor"
BULK_COPY = "cp.async.bulk.shared"

# Their registers, from the left.
BARRIER, PHASE = 0, 1
SUMS, A, B, INSTRUCTION, A_SCALES, B_SCALES = range(6)
TO, TENSOR_MAP, COLUMN, ROW, SIGNAL = range(5)

SWIZZLE, STRIDE = 1 << 61, 1 << 32  # the lowest bits of fields of a shared memory descriptor
COLUMNS, B_FORMAT, NEGATE_A, UE8M0 = 1 << 17, 1 << 10, 1 << 13, 1 << 23  # of an instruction descriptor
SCALE_ATOM_COLUMNS = 4


def fault(
    name: str,
    opcode: str,
    edit: Edit,
    *codes: str,
    at: int | None = 0,
    stage: str = "experts",
    schedule: Schedule = "late",
) -> Fault:
    return Fault(name, opcode, edit, frozenset(codes), at, stage, schedule)


# A call that a prologue precedes: tiles of 8 rows, three of them.
STAGED = [
    fault("barriers_not_published", "fence.mbarrier_init", dropped, "missing_proxy_fence"),
    fault("no_proxy_fence_for_tokens", "fence.proxy.async", dropped, "missing_proxy_fence", at=None),
    fault("no_barrier_before_the_roles", "bar.sync", dropped, "invalid_mbarrier", "race"),
    fault("mma_not_fenced_after_epilogue", "tcgen05.fence::after", dropped, "missing_tcgen05_fence", at=1),
    fault("epilogue_not_fenced_after_mma", "tcgen05.fence::after", dropped, "missing_tcgen05_fence", at=2),
    fault("epilogue_not_fenced_before_mma", "tcgen05.fence::before", dropped, "missing_tcgen05_fence", at=1),
    fault("fc1_sums_not_awaited", "tcgen05.wait::ld", dropped, "register_in_flight"),
    fault("fc2_sums_not_awaited", "tcgen05.wait::ld", dropped, "register_in_flight", at=1),
    fault("no_grid_dependency_wait", "griddepcontrol.wait", dropped, "race"),
    fault("finalise_does_not_wait", "griddepcontrol.wait", dropped, "race", stage="finalize"),
    fault("tile_read_relaxed", "ld.acquire", respelled("acquire.gpu", "relaxed.gpu"), "race"),
    fault("tile_stored_relaxed", "red.release", respelled("release.gpu", "relaxed.gpu"), "race"),
    fault("tile_part_not_counted", "red.release", dropped, "deadlock"),
    fault("tile_part_counted_twice", "red.release", added(1, 1), "uninitialised_read"),
    # phases and barriers
    fault("item_done_phase", WAIT, flipped(PHASE), "deadlock"),
    fault("item_claimed_phase", WAIT, flipped(PHASE), "deadlock", at=1),
    fault("sums_stored_phase", WAIT, flipped(PHASE), "deadlock", at=2),
    fault("stage_arrived_phase", WAIT, flipped(PHASE), "missing_wait", at=3),
    fault("stage_consumed_phase", WAIT, flipped(PHASE), "deadlock", at=5),
    fault("waits_on_the_next_slot", WAIT, added(BARRIER, 8), "missing_wait", at=3),
    fault("arrived_counts_one_more", INIT, added(1, 1), "deadlock"),
    fault("arrived_counts_one_less", INIT, added(1, -1), "over_arrival"),
    fault("consumed_counts_two", INIT, added(1, 1), "deadlock", at=1),
    fault("item_done_counts_one_less", INIT, added(1, -1), "phase_overrun", "race", at=15),
    fault("sums_stored_counts_one_less", INIT, added(1, -1), "phase_overrun", at=23),
    fault("last_barrier_not_initialised", INIT, dropped, "invalid_mbarrier", at=-1),
    fault("expects_16_bytes_more", EXPECT, added(1, 16), "tx_mismatch", at=None),
    fault("expects_16_bytes_less", EXPECT, added(1, -16), "tx_mismatch", at=4),
    fault("item_not_released", "mbarrier.arrive.shared", dropped, "deadlock", at=1),
    fault("sums_not_released", "mbarrier.arrive.shared", dropped, "deadlock", at=-1),
    fault("tokens_never_arrive", "cp.async.mbarrier.arrive", dropped, "deadlock"),
    fault("stage_not_committed", "tcgen05.commit", dropped, "deadlock"),
    fault("sums_not_committed", "tcgen05.commit", dropped, "deadlock", at=-1),
    fault("commits_to_the_next_slot", "tcgen05.commit", added(BARRIER, 8), "phase_overrun"),
    fault("commits_to_sums_stored", "tcgen05.commit", added(BARRIER, 16), "deadlock", at=-1),
    # MMAs and their scales
    fault("weight_swizzle_bit", MMA, flipped(A, SWIZZLE), "bad_descriptor", at=None),
    fault("weight_stride_bit", MMA, flipped(A, STRIDE), "uninitialised_read", WRONG_BITS),
    fault("weights_of_the_next_step", MMA, added(A, 2), WRONG_BITS),
    fault("tokens_of_the_next_chunk", MMA, added(B, 64), "bad_descriptor"),
    fault("weights_negated", MMA, flipped(INSTRUCTION, NEGATE_A), WRONG_BITS),
    fault("scale_format_bit", MMA, flipped(INSTRUCTION, UE8M0), WRONG_BITS),
    fault("token_format_bit", MMA, flipped(INSTRUCTION, B_FORMAT), "bad_descriptor"),
    fault("eight_more_columns", MMA, added(INSTRUCTION, COLUMNS), "overwrite_in_flight"),
    fault("weight_scale_column", MMA, added(A_SCALES, SCALE_ATOM_COLUMNS), WRONG_BITS),
    fault("token_scale_column", MMA, added(B_SCALES, SCALE_ATOM_COLUMNS), WRONG_BITS),
    fault("the_other_accumulator", MMA, flipped(SUMS, 8), "overwrite_in_flight", "uninitialised_read"),
    fault("first_step_accumulates", "setp.ne.u32 add", respelled(".ne.", ".eq."), "uninitialised_read"),
    fault("step_left_out", MMA, dropped, WRONG_BITS, at=1),
    fault("scales_not_copied", "tcgen05.cp", dropped, "uninitialised_read"),
    fault("scales_one_column_on", "tcgen05.cp", added(0, 1), "uninitialised_read"),
    fault("token_scales_of_no_step", "tcgen05.cp", added(1, 32), "uninitialised_read", at=3),
    fault("weight_scale_stride_bit", "tcgen05.cp", flipped(1, STRIDE), "uninitialised_read", WRONG_BITS),
    # copies
    fault("weights_of_the_next_row", TENSOR_COPY, added(ROW, 1), WRONG_BITS),
    fault("weights_of_the_next_stage", TENSOR_COPY, added(COLUMN, 128), WRONG_BITS),
    fault("weights_one_atom_on", TENSOR_COPY, added(TO, 1024), "uninitialised_read"),
    fault("copy_signals_the_next_slot", TENSOR_COPY, added(SIGNAL, 8), "tx_mismatch"),
    fault("weight_scales_of_the_next_stage", BULK_COPY, added(1, 2048), WRONG_BITS),
    fault("weight_scales_16_bytes_short", BULK_COPY, added(2, -16), "tx_mismatch"),
    fault("tokens_not_swizzled", "cp.async.cg", flipped(0, 16), WRONG_BITS, at=None),
    fault("tokens_of_the_next_piece", "cp.async.cg", added(1, 16), "uninitialised_read", at=None),
    fault("token_scales_one_row_on", "cp.async.ca", added(0, 16), WRONG_BITS, at=None),
    # tensor memory
    fault("sums_one_column_on", "tcgen05.ld", added(0, 1), "overwrite_in_flight"),
    fault("sums_16_lanes_on", "tcgen05.ld", added(0, 16 << 16), "tmem_access", at=1),
    fault("sums_of_the_next_quadrant", "tcgen05.ld", added(0, 32 << 16), "tmem_access"),
    fault("too_few_columns", "tcgen05.alloc", added(1, -64), "tmem_lifecycle"),
    fault("columns_no_power_of_two", "tcgen05.alloc", added(1, -32), "bad_operand"),
    fault("tensor_memory_not_freed", "tcgen05.dealloc", dropped, "tmem_lifecycle"),
    fault("half_of_it_freed", "tcgen05.dealloc", added(1, -64), "tmem_lifecycle"),
    # distribution of the work
    fault("every_other_unit_drawn", "atom.global.add", respelled(", 1;", ", 2;"), "deadlock"),
    fault("work_counter_not_set", "st.global.u32", dropped, "uninitialised_read", at=4, stage="prologue"),
    fault("work_counter_starts_at_one", "st.global.u32", added(1, 1), "deadlock", at=4, stage="prologue"),
    fault("one_tile_too_many", "st.global.u32", added(1, 1), "uninitialised_read", at=3, stage="prologue"),
    fault("tile_not_stored", "st.global.v4.u32", dropped, "uninitialised_read", stage="prologue"),
    fault("tile_counter_not_zero", "st.global.v4.u32", added(4, 1), "uninitialised_read", stage="prologue"),
    fault("no_cluster_barrier", "barrier.cluster.wait", dropped, "barrier_mismatch", "cluster", stage="prologue"),
    fault("a_cta_ends_before_others_read", "barrier.cluster.wait", dropped, "cluster", at=1, stage="prologue"),
]

# A call of few tokens: the kernel routes and quantises for itself.
FUSED = [
    fault("no_proxy_fence_for_tokens", "fence.proxy.async", dropped, "missing_proxy_fence", at=None),
    fault("grid_barrier_without_arrival", "atom.add.release.gpu", dropped, "deadlock"),
    fault("grid_barrier_not_released", "atom.add.release.gpu", respelled("release", "relaxed"), "race"),
    fault("grid_barrier_not_acquired", "ld.acquire.gpu.u32", respelled("acquire", "relaxed"), "race"),
    fault("routing_barrier_left_out", "bar.sync", dropped, "race"),
    fault("work_counter_not_set", "st.global.u32", dropped, "uninitialised_read", at=-3),
    fault("work_counter_skips_a_unit", "st.global.u32", added(1, 1), "deadlock", at=-3),
    fault("work_counter_repeats_a_unit", "st.global.u32", added(1, -1), "race", at=-3, schedule="random"),
    fault("tile_counters_not_set", "st.global.v4.u32", dropped, "uninitialised_read", at=None),
    fault("tile_counters_not_zero", "st.global.v4.u32", added(4, 1), "uninitialised_read", at=None),
    fault("finalise_does_not_wait", "griddepcontrol.wait", dropped, "race", stage="finalize"),
]

# One tile of twelve rows: more than one atom of tokens.
TWO_ATOMS = [
    fault("token_stride_bit", MMA, flipped(B, STRIDE), "uninitialised_read", WRONG_BITS),
    fault("token_scale_stride_bit", "tcgen05.cp", flipped(1, STRIDE), "uninitialised_read", WRONG_BITS, at=4),
    fault("eight_columns_less", MMA, added(INSTRUCTION, -COLUMNS), "uninitialised_read"),
]

# One tile of 140 rows: two atoms of token scales.
TWO_SCALE_ATOMS = [
    fault("token_scales_of_the_other_atom", "tcgen05.cp", added(1, -32), WRONG_BITS, at=5),
    fault("no_second_atom", "tcgen05.cp", dropped, "uninitialised_read", at=5),
]

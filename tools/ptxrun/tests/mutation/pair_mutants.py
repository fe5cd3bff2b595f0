"""Faults in tcgen05_pair_gemm.ptx that only a pair of CTAs can have, and the findings that name them."""

from __future__ import annotations

from mutant import Mutant, change, drop

CLUSTER_BARRIER = "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n"

MUTANTS: list[Mutant] = [
    change("expects_own_bytes_only", "[%full], 49152;", "[%full], 24576;", {"tx_mismatch"}),
    change(
        "signals_own_barrier",
        "add.u32 %full, %leader, %offset;",
        "add.u32 %full, %bars, %offset;",
        {"deadlock", "tx_mismatch"},
    ),
    change("commits_to_one", "mov.b16 %both, 3;", "mov.b16 %both, 1;", {"deadlock"}),
    change("commits_to_three", "mov.b16 %both, 3;", "mov.b16 %both, 7;", {"cluster", "bad_operand"}),
    change("half_the_epilogue_counts", "[%bars+40], 256;", "[%bars+40], 128;", {"over_arrival", "phase_overrun"}),
    change(
        "gives_back_to_itself",
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%leader+40];",
        "mbarrier.arrive.shared::cta.b64 _, [%bars+40];",
        {"deadlock"},
    ),
    change(
        "gives_back_in_the_cta",
        "mbarrier.arrive.release.cluster.shared",
        "mbarrier.arrive.relaxed.cluster.shared",
        {"overwrite_in_flight"},
    ),
    drop("no_barrier_after_the_setup", CLUSTER_BARRIER, {"race", "invalid_mbarrier", "uninitialised_read"}),
    change(
        "setup_known_in_the_cta",
        CLUSTER_BARRIER,
        "  bar.sync 0;\n",
        {"race", "invalid_mbarrier", "uninitialised_read", "cluster"},
    ),
    change(
        "peer_leaves_early", CLUSTER_BARRIER, "  bar.sync 0;\n", {"cluster", "pending_at_exit", "tmem_lifecycle"}, at=1
    ),
    change("m_128", "0x10100480", "0x04100480", {"bad_descriptor"}),
    change(
        "both_multiply",
        "  setp.ne.u32 %p, %rank, 0;\n  @%p bra DONE;",
        "  setp.ge.u32 %p, %rank, 2;\n  @%p bra DONE;",
        {"bad_operand", "missing_wait", "over_arrival", "deadlock", "race"},
    ),
    change(
        "one_cta_allocates",
        "  tcgen05.alloc.cta_group::2",
        "  setp.eq.u32 %p, %rank, 1;\n  @%p bra ALLOC_DONE;\n  tcgen05.alloc.cta_group::2",
        {"deadlock", "tmem_lifecycle"},
    ),
]

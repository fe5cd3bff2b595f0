"""Other ways to write the kernels that are right, too, beside ways that look alike and are not."""

from __future__ import annotations

import pytest
from gemms import RUNNERS, source
from mutant import change, drop
from pair_mutants import CLUSTER_BARRIER
from ptxrun.api import Schedule

SCHEDULES: list[Schedule] = ["early", "late", "random"]
WAIT = "  tcgen05.wait::ld.sync.aligned;"
REGISTERS = "%d<64>;"


def renamed(copy: str) -> str:
    """tcgen05_gemm with the result %d0 of a load under another name, and its copy before the wait."""
    text = source("tcgen05_gemm").replace(REGISTERS, "%d<64>, %e;").replace("{%d0, %d1,", "{%e, %d1,", 1)
    return text.replace(WAIT, copy + WAIT)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_copy_of_a_load_result_is_the_result(schedule: Schedule) -> None:
    outcome = RUNNERS["tcgen05_gemm"](renamed("  mov.b32 %d0, %e;\n"), schedule, 0)
    outcome.report.raise_on_findings()
    assert outcome.right


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("copy", ["  add.u32 %d0, %e, 0;\n", "  mov.b32 %d0, %e;\n  or.b32 %x, %e, 1;\n"])
def test_a_use_of_a_load_result_before_the_wait_is_reported(copy: str, schedule: Schedule) -> None:
    """The value is right, as it is in machine code, whose registers are in order."""
    outcome = RUNNERS["tcgen05_gemm"](renamed(copy), schedule, 0)
    assert set(outcome.report.codes) == {"register_in_flight"}
    assert outcome.right


RELAXED = "  bar.sync 0;\n  barrier.cluster.arrive.relaxed.aligned;\n  barrier.cluster.wait.aligned;\n"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_relaxed_arrival_hands_on_what_a_fence_covers(schedule: Schedule) -> None:
    text = change("relaxed", CLUSTER_BARRIER, RELAXED, set()).apply(source("tcgen05_pair_gemm"))
    outcome = RUNNERS["tcgen05_pair_gemm"](text, schedule, 0)
    outcome.report.raise_on_findings()
    assert outcome.right
    unfenced = drop("unfenced", "  fence.mbarrier_init.release.cluster;", set()).apply(text)
    assert "race" in RUNNERS["tcgen05_pair_gemm"](unfenced, schedule, 0).report.codes

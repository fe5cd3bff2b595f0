"""A correct kernel gives its product without findings; each of its mutants is reported by a finding that names why."""

from __future__ import annotations

import pair_mutants
import pytest
import tcgen05_mutants
import wgmma_mutants
from gemms import RUNNERS, source
from mutant import Mutant
from ptxrun.api import Schedule
from ptxrun.toolkit import run_nvcc

SCHEDULES: list[Schedule] = ["early", "late", "random"]
MUTANTS: dict[str, list[Mutant]] = {
    "tcgen05_gemm": tcgen05_mutants.MUTANTS,
    "tcgen05_pair_gemm": pair_mutants.MUTANTS,
    "wgmma_gemm": wgmma_mutants.MUTANTS,
}
ARCHS = {"tcgen05_gemm": "sm_100a", "tcgen05_pair_gemm": "sm_100a", "wgmma_gemm": "sm_90a"}
CASES = [pytest.param(kernel, mutant, id=f"{kernel}-{mutant.name}") for kernel in MUTANTS for mutant in MUTANTS[kernel]]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kernel", MUTANTS)
def test_the_kernel_is_right(kernel: str, schedule: Schedule) -> None:
    for seed in range(3 if schedule == "random" else 1):
        outcome = RUNNERS[kernel](source(kernel), schedule, seed)
        outcome.report.raise_on_findings()
        assert outcome.right


@pytest.mark.parametrize(("kernel", "mutant"), CASES)
def test_a_mutant_is_reported(kernel: str, mutant: Mutant) -> None:
    """Under every schedule."""
    text = mutant.apply(source(kernel))
    for schedule in SCHEDULES:
        report = RUNNERS[kernel](text, schedule, 0).report
        assert report.codes.keys() & mutant.codes, f"{schedule}: {dict(report.codes)}\n{report}"


def test_how_many_there_are() -> None:
    assert len(tcgen05_mutants.MUTANTS) >= 40
    assert len(wgmma_mutants.MUTANTS) >= 20
    for mutants in MUTANTS.values():
        assert len({mutant.name for mutant in mutants}) == len(mutants)


@pytest.mark.toolkit
@pytest.mark.parametrize(("kernel", "arch"), list(ARCHS.items()))
def test_the_assembler_takes_the_kernel(kernel: str, arch: str, tmp_path: object) -> None:
    run_nvcc(
        ["-cubin", f"-arch={arch}", f"{__file__.rsplit('/', 1)[0]}/{kernel}.ptx", "-o", f"{tmp_path}/kernel.cubin"]
    )

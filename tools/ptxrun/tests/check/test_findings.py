"""Every fault is reported with its code under every schedule, and the corrected kernel with nothing."""

from __future__ import annotations

import async_cases
import ptxrun
import pytest
import tensor_cases
import warp_cases
from kernel_text import SCHEDULES, clean, launch
from twins import Twins

CASES = warp_cases.CASES + async_cases.CASES + tensor_cases.CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_fault_is_reported(case: Twins) -> None:
    for schedule, seed in SCHEDULES:
        report, _ = launch(case.text(case.wrong), case.setup, schedule, seed)
        shown = "\n".join(map(str, report.findings))
        assert case.codes & set(report.codes), f"{schedule}: {shown or 'nothing was found'}"
        assert set(report.codes) <= {*case.codes, *case.also}, f"{schedule}: {shown}"
        texts = [finding.message for finding in report.findings if finding.code in case.codes] + [report.trace]
        assert any(case.message in text for text in texts), shown


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_twin_is_clean(case: Twins) -> None:
    for schedule, seed in SCHEDULES:
        clean(launch(case.text(case.right), case.setup, schedule, seed)[0])


def test_codes_are_documented() -> None:
    assert set().union(*(case.codes for case in CASES)) <= set(ptxrun.finding_codes())

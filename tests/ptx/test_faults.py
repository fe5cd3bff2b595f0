"""These tests can fail: instructions taken out of the shipped PTX are reported."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ptx_cases import sparse
from ptx_operator import Call
from ptxrun import Launch, Module

FEW, STAGED = 2, 65  # tokens: the fused path, the one with a launch a stage
FAULTS = [
    (FEW, "experts", "bar.sync", {"race", "uninitialised_read", "overwrite_in_flight"}),
    (FEW, "experts", "fence.proxy.async", {"missing_proxy_fence"}),
    (FEW, "experts", "mbarrier.arrive.shared.b64", {"deadlock"}),
    (FEW, "finalize", "griddepcontrol.wait", {"race", "uninitialised_read"}),
    (STAGED, "prologue", "bar.sync", {"race", "uninitialised_read"}),
    (STAGED, "fc1", "griddepcontrol.wait", {"race", "uninitialised_read"}),
    (STAGED, "fc1", "mbarrier.arrive.shared.b64", {"deadlock"}),
    (STAGED, "fc1", "cp.async.mbarrier.arrive.noinc.shared::cta.b64", {"deadlock", "missing_wait"}),
    (STAGED, "fc2", "griddepcontrol.wait", {"race", "uninitialised_read"}),
    (STAGED, "fc2", "bar.sync", {"race", "overwrite_in_flight", "invalid_mbarrier"}),
    (STAGED, "finalize", "griddepcontrol.wait", {"race", "uninitialised_read"}),
]


def without(launch: Launch, opcode: str) -> Launch:
    """The launch with the first instruction of its kernel that begins with `opcode` taken out."""
    text = launch.module.text
    start = text.index(opcode, text.index(f".entry {launch.kernel}("))
    return replace(launch, module=Module(text[:start] + text[text.index(";", start) + 1 :]))


@pytest.mark.parametrize(("num_tokens", "stage", "opcode", "codes"), FAULTS)
def test_a_missing_instruction_is_reported(num_tokens: int, stage: str, opcode: str, codes: set[str]) -> None:
    call = Call(sparse(num_tokens, 3))
    launches = call.launches()
    index = call.stages().index(stage)
    launches[index] = without(launches[index], opcode)
    report = call.execute(launches, "late")
    assert report.codes.keys() & codes, str(report)

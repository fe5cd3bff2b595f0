"""The rewritten kernels in the interpreter, as sm_90a code: the bits that the sm_100a code gives there, no findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from downlevel_call import ARCH
from downlevel_ptx import rewrite
from ptx_cases import POOL, judge, same_bits, sparse, thin_out
from ptx_operator import Call
from ptx_program import SM_COUNT
from ptxrun import Launch, Module
from ptxrun.api import Schedule

from cake_moe.testing.inputs import MoeInputs, make_inputs

CALLS_OF_MMA = "call.uni downlevel_mma_nvfp4"


@cache
def rewritten(text: str) -> Module:
    return Module(rewrite(text))


def rewritten_launches(call: Call) -> list[Launch]:
    return [replace(launch, module=rewritten(launch.module.text)) for launch in call.launches()]


def run_rewritten(problem: MoeInputs, schedule: Schedule, seed: int = 0, sm_count: int = SM_COUNT) -> Call:
    call = Call(problem, ARCH, sm_count=sm_count)
    call.execute(rewritten_launches(call), schedule, seed).raise_on_findings()
    return call


def check_bits_of_sm_100a(problem: MoeInputs, schedule: Schedule) -> None:
    call = run_rewritten(problem, schedule)
    expected = Call(problem, ARCH, sm_count=SM_COUNT)
    expected.run(schedule).raise_on_findings()
    for name, buffer in expected.sections.items():
        assert call.sections[name].data.tobytes() == buffer.data.tobytes(), name
    assert torch.equal(call.result()[0].view(torch.int16), expected.result()[0].view(torch.int16))


def test_bits_of_sm_100a() -> None:
    """Block scales from zero and subnormal to the largest, sums that round."""
    check_bits_of_sm_100a(thin_out(make_inputs(1, kind="wide", experts=POOL, seed=5), 1), "late")


@pytest.mark.full
@pytest.mark.parametrize("options", [{}, {"kind": "nan_row"}, {"kind": "subnormal", "zero_weights": True}], ids=str)
@pytest.mark.parametrize("num_tokens", [2, 65])
def test_bits_of_sm_100a_of_other_inputs(num_tokens: int, options: dict[str, Any]) -> None:
    check_bits_of_sm_100a(thin_out(make_inputs(num_tokens, experts=POOL, seed=6, **options), 3), "random")


@pytest.mark.full
@pytest.mark.parametrize("schedule", ["early", "late", "random"])
@pytest.mark.parametrize(("num_tokens", "routes", "sm_count"), [(1, 2, 132), (2, 3, 8), (65, 3, 132), (1024, 4, 132)])
def test_bits_of_the_cpu_backend(num_tokens: int, routes: int, sm_count: int, schedule: Schedule) -> None:
    problem = sparse(num_tokens, routes)
    call = run_rewritten(problem, schedule, seed=num_tokens, sm_count=sm_count)
    judge(problem, call)
    same_bits(problem, *call.result())


def without_version(text: str) -> str:
    """Matrix descriptors without the bit that says that they are tcgen05's."""
    version = str(1 << 62 | 1 << 46 | 64 << 32 | 1 << 16)
    assert version in text
    return text.replace(version, str(int(version) - (1 << 46)))


def without_commit(text: str) -> str:
    return text.replace("call.uni downlevel_commit", "//", 1)


def with_scales_outside(text: str) -> str:
    """Scales of A that would reach past the last column of tensor memory."""
    start = text.index(CALLS_OF_MMA)
    at = text.rindex("st.param.b32 [argument4], ", 0, start)
    end = text.index(";", at)
    return text[:at] + "st.param.b32 [argument4], 511" + text[end:]


@pytest.mark.parametrize(
    ("fault", "codes"),
    [(without_version, {"trap"}), (without_commit, {"deadlock"}), (with_scales_outside, {"trap"})],
)
def test_faults_are_reported(fault: Callable[[str], str], codes: set[str]) -> None:
    call = Call(sparse(1, 1), ARCH, sm_count=SM_COUNT)
    launches = rewritten_launches(call)
    launches[0] = replace(launches[0], module=Module(fault(launches[0].module.text)))
    report = call.execute(launches, "late")
    assert report.codes.keys() & codes, str(report)

"""Every way to call the operator gives the same bits, and writes where it was told to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

import cake_moe
from cake_moe import ops
from cake_moe.testing import auto_prepare
from cake_moe.testing.inputs import MoeInputs
from cake_moe.testing.stages import POISON, Stages, run, stage_views

Problems = Callable[[int], MoeInputs]
SameBits = Callable[[Tensor, Tensor], bool]
M = 6


@pytest.fixture
def problem(make_problem: Problems) -> MoeInputs:
    return make_problem(M)


@pytest.fixture
def expected(problem: MoeInputs) -> Tensor:
    return run(problem)[0]


def prepared(num_tokens: int, **options: Any) -> Tensor:
    workspace = torch.full((cake_moe.workspace_size(num_tokens),), POISON, dtype=torch.uint8)
    return cake_moe.prepare_workspace(workspace, num_tokens, **options)


def poisoned(like: Tensor) -> Tensor:
    output = torch.empty_like(like)
    output.view(torch.uint8).fill_(POISON)
    return output


def test_workspace_and_output(problem: MoeInputs, expected: Tensor, same_bits: SameBits) -> None:
    output = poisoned(problem.input)
    result = cake_moe.fused_moe(**vars(problem), workspace=prepared(M), output=output)
    assert result is output
    assert same_bits(output, expected)


def test_counts_in_turn(make_problem: Problems, same_bits: SameBits) -> None:
    """A thread keeps the plan of its last call, so every expectation comes from a thread of its own."""

    def alone(problem: MoeInputs) -> tuple[Tensor, Stages]:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(run, problem).result()

    problems = [make_problem(num_tokens) for num_tokens in (M, 1, 9, M)]
    expected = [alone(problem) for problem in problems]
    workspace = prepared(9, up_to=True)
    for problem, (output, stages) in zip(problems, expected, strict=True):
        assert same_bits(cake_moe.fused_moe(**vars(problem), workspace=workspace), output)
        assert same_bits(stage_views(workspace, problem.num_tokens).hq, stages.hq)


def test_output_is_allocated(problem: MoeInputs, expected: Tensor, same_bits: SameBits) -> None:
    result = cake_moe.fused_moe(**vars(problem), workspace=prepared(M))
    assert (result.shape, result.dtype, result.device) == (expected.shape, torch.bfloat16, expected.device)
    assert same_bits(result, expected)


def test_everything_is_allocated(problem: MoeInputs, expected: Tensor, same_bits: SameBits) -> None:
    assert same_bits(cake_moe.fused_moe(**vars(problem)), expected)


def test_output_without_workspace(problem: MoeInputs, expected: Tensor, same_bits: SameBits) -> None:
    output = poisoned(problem.input)
    assert cake_moe.fused_moe(**vars(problem), output=output) is output
    assert same_bits(output, expected)


@pytest.mark.parametrize("refused", [False, True])
def test_the_temporary_workspace_leaves_no_state(
    problem: MoeInputs, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes go back to the allocator, and the next owner of them has prepared nothing."""
    workspace = torch.full((cake_moe.workspace_size(M),), POISON, dtype=torch.uint8)
    monkeypatch.setattr(ops, "_temporary_workspace", lambda _: (workspace, M))
    if refused:
        with pytest.raises(ValueError, match="output must be bfloat16"):
            cake_moe.fused_moe(**vars(problem), output=problem.input.float())
    else:
        cake_moe.fused_moe(**vars(problem), output=poisoned(problem.input))
    with pytest.raises(ValueError, match="got an unprepared buffer"):
        cake_moe.fused_moe(**vars(problem), workspace=workspace)


def test_no_tokens_into_an_output_without_workspace(make_problem: Problems) -> None:
    none = make_problem(1).take(slice(0, 0))
    output = torch.empty_like(none.input)
    assert cake_moe.fused_moe(**vars(none), output=output) is output


def test_raw_operators(problem: MoeInputs, expected: Tensor, same_bits: SameBits) -> None:
    output = poisoned(problem.input)
    assert torch.ops.cake.fused_moe(**vars(problem), workspace=prepared(M), output=output) is None
    assert same_bits(output, expected)
    assert same_bits(torch.ops.cake.fused_moe_functional(**vars(problem)), expected)


def test_default_betas_are_4_and_25_on_every_path(problem: MoeInputs, same_bits: SameBits) -> None:
    arguments = vars(problem) | {"situ_beta": None, "situ_linear_beta": None}
    betas = {"situ_beta": torch.full((896,), 4.0), "situ_linear_beta": torch.full((896,), 25.0)}
    expected = cake_moe.fused_moe(**(vars(problem) | betas))
    assert same_bits(cake_moe.fused_moe(**arguments), expected)
    assert same_bits(cake_moe.fused_moe(**arguments, workspace=prepared(M)), expected)
    assert not same_bits(cake_moe.fused_moe(**vars(problem)), expected)


def test_one_beta_alone(problem: MoeInputs, same_bits: SameBits) -> None:
    arguments = vars(problem) | {"situ_linear_beta": None}
    both = cake_moe.fused_moe(**(arguments | {"situ_linear_beta": torch.full((896,), 25.0)}))
    assert same_bits(cake_moe.fused_moe(**arguments), both)
    assert same_bits(cake_moe.fused_moe(**arguments, workspace=prepared(M)), both)


def test_block_scales_as_float8(problem: MoeInputs, expected: Tensor, same_bits: SameBits) -> None:
    scales = [s.view(torch.float8_e4m3fn) if s.dtype == torch.uint8 else s for s in problem.quant_scales]
    assert same_bits(cake_moe.fused_moe(**(vars(problem) | {"quant_scales": scales})), expected)


def test_scales_as_a_tuple(problem: MoeInputs, expected: Tensor, same_bits: SameBits) -> None:
    arguments = vars(problem) | {"quant_scales": tuple(problem.quant_scales)}
    assert same_bits(cake_moe.fused_moe(**arguments), expected)


def test_input_scale_of_any_shape_with_one_element(problem: MoeInputs, expected: Tensor, same_bits: SameBits) -> None:
    for shape in ((), (1, 1)):
        scales = [problem.quant_scales[0].reshape(shape), *problem.quant_scales[1:]]
        assert same_bits(cake_moe.fused_moe(**(vars(problem) | {"quant_scales": scales})), expected)


def test_float32_route_weights(problem: MoeInputs, expected: Tensor, same_bits: SameBits) -> None:
    arguments = vars(problem) | {"token_final_scales": problem.token_final_scales.float()}
    assert same_bits(cake_moe.fused_moe(**arguments), expected)


def test_workspace_as_int8(problem: MoeInputs, expected: Tensor, same_bits: SameBits) -> None:
    workspace = prepared(M)
    assert same_bits(cake_moe.fused_moe(**vars(problem), workspace=workspace.view(torch.int8)), expected)


def test_rows_of_larger_tensors(make_problem: Problems, same_bits: SameBits) -> None:
    """Views that start inside a storage are arguments like any other."""
    whole = make_problem(16)
    part = whole.take(slice(5, 5 + M))
    output = poisoned(whole.input)
    cake_moe.fused_moe(**vars(part), workspace=prepared(M), output=output[5 : 5 + M])
    assert same_bits(output[5 : 5 + M], run(part)[0])
    assert (output[:5].view(torch.uint8) == POISON).all()
    assert (output[5 + M :].view(torch.uint8) == POISON).all()


def test_inputs_are_left_alone(problem: MoeInputs) -> None:
    small = [value for value in vars(problem).values() if isinstance(value, Tensor) and value.numel() < 1 << 20]
    small += [scale for scale in problem.quant_scales if scale.numel() < 1 << 20]
    before = [tensor.clone() for tensor in small]
    cake_moe.fused_moe(**vars(problem), workspace=prepared(M))
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(small, before, strict=True))


def test_the_given_betas_do_not_end_up_in_the_workspace(problem: MoeInputs) -> None:
    workspace = prepared(M)
    cake_moe.fused_moe(**vars(problem), workspace=workspace)
    stages = stage_views(workspace, M)
    assert (stages.beta == 4).all()
    assert (stages.linear_beta == 25).all()


def test_auto_prepare_is_off_outside(problem: MoeInputs, expected: Tensor, same_bits: SameBits) -> None:
    workspace = torch.full((cake_moe.workspace_size(M),), POISON, dtype=torch.uint8)
    arguments = vars(problem) | {"situ_beta": None, "situ_linear_beta": None}
    with auto_prepare():
        with auto_prepare():
            pass
        inside = cake_moe.fused_moe(**arguments, workspace=workspace)
    assert same_bits(inside, cake_moe.fused_moe(**arguments))
    with pytest.raises(ValueError, match="must be prepared for 6 tokens"):
        cake_moe.fused_moe(**arguments, workspace=workspace)


def test_auto_prepare_ends_with_an_exception() -> None:
    def fail() -> None:
        with auto_prepare():
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.ops.cake._set_auto_prepare(False) is False

"""TorchScript: the operators scripted, saved and loaded again.

torch's stable ABI takes the tensors out of a list that TorchScript owns: one list serves one call of an operator.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any, List  # noqa: UP035

import pytest
import torch
from torch import Tensor

import cake_moe
from cake_moe.testing.inputs import MoeInputs

pytestmark = [
    pytest.mark.skipif(sys.version_info >= (3, 14), reason="torch.jit does not support Python 3.14"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
]


class Layer(torch.nn.Module):
    def forward(
        self,
        x: Tensor,
        ids: Tensor,
        weights: Tensor,
        w13: Tensor,
        w2: Tensor,
        scales: List[Tensor],  # noqa: UP006
        workspace: Tensor,
        output: Tensor,
    ) -> int:
        torch.ops.cake.prepare_workspace(workspace, x.size(0))
        torch.ops.cake.fused_moe(x, ids, weights, w13, w2, scales, workspace, output)
        torch.ops.cake.forget_workspace(workspace)
        return torch.ops.cake.workspace_size(x.size(0))


class Functional(torch.nn.Module):
    def forward(
        self,
        x: Tensor,
        ids: Tensor,
        weights: Tensor,
        w13: Tensor,
        w2: Tensor,
        scales: List[Tensor],  # noqa: UP006
        times: int,
    ) -> Tensor:
        total = torch.zeros_like(x)
        for _ in range(times):
            total = total + torch.ops.cake.fused_moe_functional(x, ids, weights, w13, w2, scales)
        return total


def operands(problem: MoeInputs) -> tuple[Any, ...]:
    inputs = (problem.input, problem.token_selected_experts, problem.token_final_scales)
    return (*inputs, problem.fc1_expert_weights, problem.fc2_expert_weights, problem.quant_scales)


def saved_and_loaded(module: torch.nn.Module) -> torch.jit.ScriptModule:
    archive = io.BytesIO()
    torch.jit.save(torch.jit.script(module), archive)
    archive.seek(0)
    return torch.jit.load(archive)


def test_script_save_load_and_call(make_problem: Callable[[int], MoeInputs]) -> None:
    layer, functional = saved_and_loaded(Layer()), saved_and_loaded(Functional())
    workspace = torch.empty(cake_moe.workspace_size(16), dtype=torch.uint8)
    for tokens in (5, 16, 5):
        problem = make_problem(tokens)
        output = torch.full_like(problem.input, torch.nan)
        assert layer(*operands(problem), workspace, output) == cake_moe.workspace_size(tokens)
        expected = cake_moe.fused_moe(*operands(problem))
        assert torch.equal(output, expected)
        assert torch.equal(functional(*operands(problem), 1), expected)


def test_a_used_list_is_named(problem: MoeInputs) -> None:
    with pytest.raises(Exception, match="fused_moe: quant_scales must be a new list in every call from TorchScript"):
        torch.jit.script(Functional())(*operands(problem), 2)


class ListAttribute(torch.nn.Module):
    def __init__(self, scales: list[Tensor]) -> None:
        super().__init__()
        self.scales = torch.jit.Attribute(scales, List[Tensor])  # noqa: UP006

    def forward(self, x: Tensor, ids: Tensor, weights: Tensor, w13: Tensor, w2: Tensor) -> Tensor:
        return torch.ops.cake.fused_moe_functional(x, ids, weights, w13, w2, self.scales)


class NewList(torch.nn.Module):
    def __init__(self, scales: list[Tensor]) -> None:
        super().__init__()
        self.s0, self.s1, self.s2, self.s3, self.s4, self.s5 = scales

    def forward(self, x: Tensor, ids: Tensor, weights: Tensor, w13: Tensor, w2: Tensor) -> Tensor:
        scales = [self.s0, self.s1, self.s2, self.s3, self.s4, self.s5]
        return torch.ops.cake.fused_moe_functional(x, ids, weights, w13, w2, scales)


def frozen(module: torch.nn.Module, _: Any) -> Any:
    return torch.jit.freeze(torch.jit.script(module.eval()))


def traced(module: torch.nn.Module, arguments: Any) -> Any:
    return torch.jit.trace(lambda *inputs: module(*inputs), arguments, check_trace=False)


def scripted(module: torch.nn.Module, _: Any) -> Any:
    return torch.jit.script(module)


@pytest.mark.parametrize(("compile", "module"), [(scripted, ListAttribute), (frozen, NewList), (traced, NewList)])
def test_a_list_that_outlives_the_call_serves_one(
    problem: MoeInputs, compile: Callable[..., Any], module: Callable[..., torch.nn.Module]
) -> None:
    *inputs, scales = operands(problem)
    function = compile(module(list(scales)), tuple(inputs))
    assert torch.equal(function(*inputs), cake_moe.fused_moe(*inputs, scales))
    with pytest.raises(Exception, match="fused_moe: quant_scales must be a new list in every call from TorchScript"):
        function(*inputs)


def test_a_list_built_in_the_call_serves_every_call(problem: MoeInputs) -> None:
    *inputs, scales = operands(problem)
    function = torch.jit.script(NewList(list(scales)))
    for _ in range(3):
        assert torch.equal(function(*inputs), cake_moe.fused_moe(*inputs, scales))


def test_errors_keep_their_text(problem: MoeInputs) -> None:
    x, *rest = operands(problem)
    workspace, output = torch.empty(cake_moe.workspace_size(5), dtype=torch.uint8), torch.empty_like(x)
    with pytest.raises(Exception, match="fused_moe: input must be bfloat16, got float32"):
        torch.jit.script(Layer())(x.float(), *rest, workspace, output)

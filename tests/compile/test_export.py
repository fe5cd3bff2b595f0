"""torch.export with a dynamic token count, and an AOTInductor package of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import cake_moe
from cake_moe.testing.inputs import MoeInputs

Problems = Callable[[int], MoeInputs]
M = torch.export.Dim("M", min=1, max=16384)
BY_TOKEN, FIXED = {0: M}, None


class Layer(torch.nn.Module):
    """Weights, scales and workspace are arguments, as in an engine that owns them."""

    def forward(
        self,
        x: Tensor,
        ids: Tensor,
        weights: Tensor,
        w13: Tensor,
        w2: Tensor,
        scales: list[Tensor],
        workspace: Tensor | None = None,
        output: Tensor | None = None,
    ) -> Tensor:
        return cake_moe.fused_moe(x, ids, weights, w13, w2, scales, workspace=workspace, output=output)


def operands(problem: MoeInputs) -> tuple[Any, ...]:
    inputs = (problem.input, problem.token_selected_experts, problem.token_final_scales)
    return (*inputs, problem.fc1_expert_weights, problem.fc2_expert_weights, problem.quant_scales)


def export(arguments: tuple[Any, ...], strict: bool = False) -> torch.export.ExportedProgram:
    shapes: tuple[Any, ...] = (BY_TOKEN, BY_TOKEN, BY_TOKEN, FIXED, FIXED, [FIXED] * 6)
    if len(arguments) > len(shapes):
        shapes = (*shapes, FIXED, BY_TOKEN)
    return torch.export.export(Layer(), arguments, dynamic_shapes=shapes, strict=strict)


@pytest.mark.parametrize("strict", [False, True], ids=["draft", "strict"])
def test_export_functional(make_problem: Problems, strict: bool) -> None:
    program = export(operands(make_problem(5)), strict).module()
    for tokens in (1, 7, 16):
        arguments = operands(make_problem(tokens))
        assert torch.equal(program(*arguments), Layer()(*arguments))


@pytest.fixture
def workspace(new_workspace: Callable[[int], Tensor]) -> Tensor:
    return cake_moe.prepare_workspace(new_workspace(16), 16, up_to=True)


def test_export_holds_the_operator_itself(make_problem: Problems, workspace: Tensor) -> None:
    problem = make_problem(5)
    program = export((*operands(problem), workspace, torch.empty_like(problem.input)))
    calls = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert calls == [torch.ops.cake.fused_moe.default]


def test_aot_inductor_package(make_problem: Problems, workspace: Tensor, tmp_path: Path) -> None:
    problem = make_problem(5)
    program = export((*operands(problem), workspace, torch.empty_like(problem.input)))
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "layer.pt2"))
    package = torch._inductor.aoti_load_package(path)
    for tokens in (1, 7, 16):
        problem = make_problem(tokens)
        output = torch.full_like(problem.input, torch.nan)
        result = package(*operands(problem), workspace, output)
        expected = Layer()(*operands(problem))
        assert torch.equal(output, expected)
        assert torch.equal(result, expected)

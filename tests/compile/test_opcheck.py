"""torch.library.opcheck for every operator: schema, fake implementation, autograd registration, AOT dispatch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import cake_moe
from cake_moe.testing import auto_prepare
from cake_moe.testing.inputs import MoeInputs

ops = torch.ops.cake


def inputs(problem: MoeInputs) -> tuple[object, ...]:
    return (
        problem.input,
        problem.token_selected_experts,
        problem.token_final_scales,
        problem.fc1_expert_weights,
        problem.fc2_expert_weights,
        problem.quant_scales,
    )


@pytest.mark.parametrize("betas", [False, True], ids=["defaults", "betas"])
def test_fused_moe(opcheck: Callable[..., None], problem: MoeInputs, betas: bool) -> None:
    workspace = torch.zeros(cake_moe.workspace_size(problem.num_tokens), dtype=torch.uint8)
    output = torch.zeros_like(problem.input)
    tail = (problem.situ_beta, problem.situ_linear_beta) if betas else ()
    with auto_prepare():
        opcheck(ops.fused_moe.default, (*inputs(problem), workspace, output, *tail))


@pytest.mark.parametrize("betas", [False, True], ids=["defaults", "betas"])
def test_fused_moe_functional(opcheck: Callable[..., None], problem: MoeInputs, betas: bool) -> None:
    tail = (problem.situ_beta, problem.situ_linear_beta) if betas else ()
    with auto_prepare():
        opcheck(ops.fused_moe_functional.default, (*inputs(problem), *tail))


def test_prepare_workspace(opcheck: Callable[..., None]) -> None:
    workspace = torch.zeros(cake_moe.workspace_size(8), dtype=torch.uint8)
    opcheck(ops.prepare_workspace.default, (workspace, 8), {"up_to": True})


def test_forget_workspace(opcheck: Callable[..., None]) -> None:
    opcheck(ops.forget_workspace.default, (torch.zeros(cake_moe.workspace_size(1), dtype=torch.uint8),))


def test_workspace_size(opcheck: Callable[..., None]) -> None:
    opcheck(ops.workspace_size.default, (17,))


def test_quantize_nvfp4(opcheck: Callable[..., None]) -> None:
    x = torch.randn(3, 5, 64).bfloat16()
    opcheck(ops.quantize_nvfp4.default, (x, torch.tensor([0.5])))

"""FlashInfer's caller, on the CPU: size query, preparation and call through cake_moe.flashinfer."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import cake_moe
from cake_moe.flashinfer import (
    ActivationType,
    SiTU,
    TrtllmFp4Config,
    cake_fused_moe_prepare_workspace,
    cutlass_fused_moe,
    cutlass_fused_moe_workspace_size,
)
from cake_moe.testing.compare import compare
from cake_moe.testing.inputs import MoeInputs
from cake_moe.testing.stages import stage_views


@pytest.mark.parametrize("tokens", [2])
def test_caller_owned_execution(make_problem: Callable[[int], MoeInputs], tokens: int) -> None:
    problem = make_problem(tokens)
    x, max_tokens = problem.input, 32

    size = cutlass_fused_moe_workspace_size(
        max_tokens,
        3584,
        384,
        896,
        16,
        x_dtype=torch.bfloat16,
        weight_dtype=torch.uint8,
        activation_type=ActivationType.Situ,
        tp_size=8,
        backend="cake",
    )
    buffer = torch.empty(size, dtype=torch.uint8, device=x.device)
    result = torch.full_like(x, torch.nan)
    assert cake_fused_moe_prepare_workspace(buffer, tokens, backend="cake") is buffer
    returned = cutlass_fused_moe(
        x,
        problem.token_selected_experts,
        problem.token_final_scales,
        problem.fc1_expert_weights,
        problem.fc2_expert_weights,
        torch.bfloat16,
        problem.quant_scales,
        activation_type=ActivationType.Situ,
        tp_size=8,
        backend="cake",
        workspace_buffer=buffer,
        output=result,
        situ_beta=problem.situ_beta,
        situ_linear_beta=problem.situ_linear_beta,
    )
    assert returned is result
    compare(problem, result, stage_views(buffer, tokens))


def test_size_is_that_of_the_library() -> None:
    for tokens in (1, 64, 16384):
        size = cutlass_fused_moe_workspace_size(
            tokens,
            hidden_size=3584,
            intermediate_size=384,
            num_experts_total=896,
            top_k=16,
            x_dtype=torch.bfloat16,
            weight_dtype=torch.uint8,
            activation_type=10,
            tp_size=8,
            tp_rank=7,
            device="cpu",
            backend="cake",
        )
        assert size == cake_moe.workspace_size(tokens)


def test_output_may_be_left_to_the_call(make_problem: Callable[[int], MoeInputs]) -> None:
    problem = make_problem(2)
    arguments = vars(problem)
    workspace = cake_moe.prepare_workspace(torch.empty(cake_moe.workspace_size(2), dtype=torch.uint8), 2)
    result = cutlass_fused_moe(
        **arguments,
        output_dtype=torch.bfloat16,
        activation_type=ActivationType.Situ,
        tp_size=8,
        backend="cake",
        workspace_buffer=workspace,
        enable_pdl=True,
    )
    assert torch.equal(result, cake_moe.fused_moe(**arguments))


def test_signatures_are_flashinfers() -> None:
    """Names and order of the parameters that a positional caller relies on."""
    call = list(inspect.signature(cutlass_fused_moe).parameters.values())
    positional = [parameter.name for parameter in call if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    assert positional[:7] == [
        "input",
        "token_selected_experts",
        "token_final_scales",
        "fc1_expert_weights",
        "fc2_expert_weights",
        "output_dtype",
        "quant_scales",
    ]
    assert positional[13:20] == ["tp_size", "tp_rank", "ep_size", "ep_rank", "cluster_size", "cluster_rank", "output"]
    assert positional[-1] == "workspace_buffer"
    assert len(positional) == 34
    size = list(inspect.signature(cutlass_fused_moe_workspace_size).parameters)
    assert size[:5] == ["max_num_tokens", "hidden_size", "intermediate_size", "num_experts_total", "top_k"]
    assert ActivationType.Situ == 10
    assert repr(ActivationType.Situ) == "ActivationType.Situ"


def test_prepared_weights_have_a_global_scale_of_one() -> None:
    generator = torch.Generator().manual_seed(3)
    w13 = torch.randn(2, 768, 3584, generator=generator).mul(0.125).bfloat16()
    w2 = torch.randn(2, 3584, 384, generator=generator).mul(0.125).bfloat16()
    prepared = TrtllmFp4Config.prepare_weights(
        w13,
        w2,
        num_local_experts=2,
        hidden_size=3584,
        intermediate_size=384,
        activation=SiTU(gate_scale=3.0),
    )
    own = cake_moe.prepare_weights(w13, w2, global_scales=(1.0, 1.0))
    assert torch.equal(prepared["gemm1_weights"], own.fc1_weights)
    assert torch.equal(prepared["gemm2_weights"], own.fc2_weights)
    for name, scales in (("gemm1_weights_scale", own.fc1_scales), ("gemm2_weights_scale", own.fc2_scales)):
        assert prepared[name].dtype == torch.float8_e4m3fn
        assert torch.equal(prepared[name].view(torch.uint8), scales)
    constants: dict[str, Tensor] = {
        name: prepared[name] for name in prepared if "scalar" in name or name in ("gemm1_alpha", "gemm1_beta")
    }
    assert {name: value.tolist() for name, value in constants.items()} == {
        "gemm1_alpha": [3.0, 3.0],
        "gemm1_beta": [25.0, 25.0],
        "output1_scale_scalar": [1.0, 1.0],
        "output1_scale_gate_scalar": [1.0, 1.0],
        "output2_scale_scalar": [1.0, 1.0],
    }


def test_supported_architectures() -> None:
    built = [arch for arch in range(50, 130) if TrtllmFp4Config.supported(arch)]
    names = [f"sm_{arch}a" for arch in built]
    assert names == [arch for arch in cake_moe.build_info()["fused_moe_archs"] if arch != "cpu"]

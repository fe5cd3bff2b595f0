"""cake_moe.flashinfer: every option that is refused, by name, and nothing written."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import cake_moe
from cake_moe.flashinfer import (
    ActivationType,
    SiTU,
    TrtllmFp4Config,
    cake_fused_moe_prepare_workspace,
    cutlass_fused_moe,
    cutlass_fused_moe_workspace_size,
)

SUPPORTED = {"activation_type": ActivationType.Situ, "tp_size": 8, "backend": "cake"}

# Refused by the call and by the size query in the same words.
COMMON: dict[str, tuple[Any, str]] = {
    "backend": ("cutlass", "backend must be 'cake', got 'cutlass'"),
    "activation_type": (
        ActivationType.Swiglu,
        "activation_type must be ActivationType.Situ, got ActivationType.Swiglu",
    ),
    "output_dtype": (torch.float16, "output_dtype must be torch.bfloat16, got torch.float16"),
    "tp_size": (4, "tp_size must be 8, got 4"),
    "tp_rank": (8, "tp_rank must be in 0..7, got 8"),
    "ep_size": (2, "ep_size must be 1, got 2"),
    "ep_rank": (1, "ep_rank must be 0, got 1"),
    "use_fused_finalize": (False, "use_fused_finalize must be True, got False"),
    "min_latency_mode": (True, "min_latency_mode must be False, got True"),
    "use_deepseek_fp8_block_scale": (True, "use_deepseek_fp8_block_scale must be False, got True"),
    "use_w4_group_scaling": (True, "use_w4_group_scaling must be False, got True"),
    "use_mxfp8_act_scaling": (True, "use_mxfp8_act_scaling must be False, got True"),
    "use_packed_weights": (True, "use_packed_weights must be False, got True"),
    "use_wfp4afp8_humming": (True, "use_wfp4afp8_humming must be False, got True"),
}
BETA = torch.ones(896)
ONLY_CALL: dict[str, tuple[Any, str]] = {
    "cluster_size": (2, "cluster_size must be 1, got 2"),
    "cluster_rank": (1, "cluster_rank must be 0, got 1"),
    "enable_alltoall": (True, "enable_alltoall must be False, got True"),
    "enable_pdl": (False, "enable_pdl must be None or True, got False"),
    "profile_ids": ([-1, -1], "profile_ids must be None, got [-1, -1]"),
    "workspace_buffer": (None, "workspace_buffer must be a prepared workspace, got None"),
    **{
        name: (BETA, f"{name} must be None, got a tensor of shape [896]")
        for name in (
            "fc1_expert_biases",
            "fc2_expert_biases",
            "input_sf",
            "swiglu_alpha",
            "swiglu_beta",
            "swiglu_limit",
        )
    },
}
ONLY_SIZE: dict[str, tuple[Any, str]] = {
    "max_num_tokens": (16385, "max_num_tokens must be in 1..16384, got 16385"),
    "hidden_size": (7168, "hidden_size must be 3584, got 7168"),
    "intermediate_size": (3072, "intermediate_size must be 384, got 3072"),
    "num_experts_total": (384, "num_experts_total must be 896, got 384"),
    "top_k": (8, "top_k must be 16, got 8"),
    "x_dtype": (torch.float16, "x_dtype must be torch.bfloat16, got torch.float16"),
    "weight_dtype": (torch.int8, "weight_dtype must be torch.uint8, got torch.int8"),
}


class FlashInferCall:
    """The call of the edge fixtures under FlashInfer's argument names."""

    def __init__(self, call: Any) -> None:
        self.call = call
        arguments = dict(call.arguments)
        arguments["workspace_buffer"] = arguments.pop("workspace")
        self.options = arguments | SUPPORTED | {"output_dtype": torch.bfloat16}
        call.flashinfer = lambda: cutlass_fused_moe(**self.options)

    def refuses(self, error: type[Exception], text: str) -> None:
        self.call.refuses("flashinfer", error, text)


@pytest.fixture
def flashinfer_call(call: Any) -> FlashInferCall:
    return FlashInferCall(call)


@pytest.mark.parametrize("option", [*COMMON, *ONLY_CALL])
def test_call(flashinfer_call: FlashInferCall, option: str) -> None:
    value, text = (COMMON | ONLY_CALL)[option]
    flashinfer_call.options[option] = value
    flashinfer_call.refuses(ValueError, f"fused_moe: {text}")


def test_defaults_of_flashinfer_are_refused(flashinfer_call: FlashInferCall) -> None:
    for name, text in (
        ("backend", "backend must be 'cake', got 'cutlass'"),
        ("activation_type", "activation_type must be ActivationType.Situ, got ActivationType.Swiglu"),
        ("tp_size", "tp_size must be 8, got 1"),
    ):
        del flashinfer_call.options[name]
        flashinfer_call.refuses(ValueError, f"fused_moe: {text}")
        flashinfer_call.options |= SUPPORTED


# Values of another type are refused in the same words.
OTHER_TYPES: list[tuple[str, Any, str]] = [
    ("activation_type", 99, "activation_type must be ActivationType.Situ, got 99"),
    ("activation_type", [1], "activation_type must be ActivationType.Situ, got [1]"),
    ("activation_type", 10.0, "activation_type must be ActivationType.Situ, got 10.0"),
    ("activation_type", BETA, "activation_type must be ActivationType.Situ, got a tensor of shape [896]"),
    ("tp_rank", None, "tp_rank must be in 0..7, got None"),
    ("tp_rank", "0", "tp_rank must be in 0..7, got '0'"),
    ("tp_rank", True, "tp_rank must be in 0..7, got True"),
    ("tp_size", 8.0, "tp_size must be 8, got 8.0"),
    ("backend", None, "backend must be 'cake', got None"),
    ("output_dtype", None, "output_dtype must be torch.bfloat16, got None"),
]


@pytest.mark.parametrize(("option", "value", "text"), OTHER_TYPES)
def test_values_of_another_type(flashinfer_call: FlashInferCall, option: str, value: Any, text: str) -> None:
    flashinfer_call.options[option] = value
    flashinfer_call.refuses(ValueError, f"fused_moe: {text}")
    with pytest.raises(ValueError, match=f"^workspace_size: {re.escape(text)}$"):
        cutlass_fused_moe_workspace_size(**(size_options() | {option: value}))


def test_the_operators_own_rules_remain(flashinfer_call: FlashInferCall) -> None:
    flashinfer_call.options["input"] = flashinfer_call.options["input"].float()
    flashinfer_call.refuses(ValueError, "fused_moe: input must be bfloat16, got float32")


def size_options() -> dict[str, Any]:
    geometry = {"hidden_size": 3584, "intermediate_size": 384, "num_experts_total": 896, "top_k": 16}
    return geometry | SUPPORTED | {"max_num_tokens": 64, "x_dtype": torch.bfloat16, "weight_dtype": torch.uint8}


@pytest.mark.parametrize("option", [*COMMON, *ONLY_SIZE])
def test_size_query(option: str) -> None:
    value, text = (COMMON | ONLY_SIZE)[option]
    with pytest.raises(ValueError, match=f"^workspace_size: {re.escape(text)}$"):
        cutlass_fused_moe_workspace_size(**(size_options() | {option: value}))


def test_size_query_needs_an_int() -> None:
    with pytest.raises(TypeError, match=r"^workspace_size: max_num_tokens must be an int, got float$"):
        cutlass_fused_moe_workspace_size(**(size_options() | {"max_num_tokens": 64.0}))


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("backend", "trtllm", "backend must be 'cake', got 'trtllm'"),
        ("weight_layout", "linear", "weight_layout must be 'trtllm_shuffled_nvfp4_group16', got 'linear'"),
    ],
)
def test_prepare(option: str, value: str, text: str) -> None:
    workspace = torch.full((cake_moe.workspace_size(1),), 0xFF, dtype=torch.uint8)
    with pytest.raises(ValueError, match=f"^prepare_workspace: {re.escape(text)}$"):
        cake_fused_moe_prepare_workspace(workspace, 1, **{option: value})
    assert (workspace == 0xFF).all()


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("gate_scale", 0.0, "gate_scale must be finite and positive, got 0.0"),
        ("linear_scale", None, "linear_scale must be finite and positive, got None"),
        ("linear_scale", float("inf"), "linear_scale must be finite and positive, got inf"),
        ("clamp_limit", 7.0, "clamp_limit must be None, got 7.0"),
    ],
)
def test_situ(option: str, value: float | None, text: str) -> None:
    with pytest.raises(ValueError, match=f"^SiTU: {re.escape(text)}$"):
        SiTU(**{option: value})


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("quant", "MXFP4", "quant must be None or NVFP4, got 'MXFP4'"),
        ("activation", None, "activation must be SiTU(), got None"),
        ("num_local_experts", 896, "num_local_experts must be 1, got 896"),
        ("hidden_size", 4096, "hidden_size must be 3584, got 4096"),
        ("intermediate_size", 768, "intermediate_size must be 384, got 768"),
    ],
)
def test_prepare_weights(option: str, value: Any, text: str) -> None:
    w13 = torch.zeros(1, 768, 3584, dtype=torch.bfloat16)
    w2 = torch.zeros(1, 3584, 384, dtype=torch.bfloat16)
    options = {"num_local_experts": 1, "hidden_size": 3584, "intermediate_size": 384, "activation": SiTU()}
    with pytest.raises(ValueError, match=f"^prepare_weights: {re.escape(text)}$"):
        TrtllmFp4Config.prepare_weights(w13, w2, **(options | {option: value}))

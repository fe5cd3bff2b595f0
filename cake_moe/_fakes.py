"""Fake (meta) implementations: shapes and dtypes only, so that a number of tokens stays symbolic under tracing.

One meta tensor among real ones is enough for torch to come here instead of to a kernel, so they refuse devices that
differ.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

from . import layout
from ._native import _C

WORKSPACE_BYTES_PER_TOKEN: int = _C.workspace_bytes(2) - _C.workspace_bytes(1)
WORKSPACE_FIXED_BYTES: int = _C.workspace_bytes(1) - WORKSPACE_BYTES_PER_TOKEN

_FUSED_MOE = ("input", "token_selected_experts", "token_final_scales", "fc1_expert_weights", "fc2_expert_weights")


def _require_one_device(function: str, operands: Iterable[tuple[str, Tensor | None]]) -> None:
    """The rule of the kernels: every operand is where the first one is."""
    place: torch.device | None = None
    for name, tensor in operands:
        if tensor is None:
            continue
        place = place or tensor.device
        if tensor.device != place:
            raise ValueError(f"{function}: {name} must be on {place}, got {tensor.device}")


def _named(
    inputs: tuple[Tensor, ...], quant_scales: list[Tensor], **others: Tensor | None
) -> Iterable[tuple[str, Tensor | None]]:
    yield from zip(_FUSED_MOE, inputs, strict=True)
    yield from ((f"quant_scales[{index}]", scale) for index, scale in enumerate(quant_scales))
    yield from others.items()


@torch.library.register_fake("cake::fused_moe")
def _fused_moe(
    input: Tensor,
    token_selected_experts: Tensor,
    token_final_scales: Tensor,
    fc1_expert_weights: Tensor,
    fc2_expert_weights: Tensor,
    quant_scales: list[Tensor],
    workspace: Tensor,
    output: Tensor,
    situ_beta: Tensor | None = None,
    situ_linear_beta: Tensor | None = None,
) -> None:
    inputs = (input, token_selected_experts, token_final_scales, fc1_expert_weights, fc2_expert_weights)
    betas = {"situ_beta": situ_beta, "situ_linear_beta": situ_linear_beta}
    _require_one_device("fused_moe", _named(inputs, quant_scales, **betas, output=output, workspace=workspace))


@torch.library.register_fake("cake::fused_moe_functional")
def _fused_moe_functional(
    input: Tensor,
    token_selected_experts: Tensor,
    token_final_scales: Tensor,
    fc1_expert_weights: Tensor,
    fc2_expert_weights: Tensor,
    quant_scales: list[Tensor],
    situ_beta: Tensor | None = None,
    situ_linear_beta: Tensor | None = None,
) -> Tensor:
    inputs = (input, token_selected_experts, token_final_scales, fc1_expert_weights, fc2_expert_weights)
    betas = {"situ_beta": situ_beta, "situ_linear_beta": situ_linear_beta}
    _require_one_device("fused_moe", _named(inputs, quant_scales, **betas))
    return input.new_empty(input.shape)


@torch.library.register_fake("cake::prepare_workspace")
def _prepare_workspace(workspace: Tensor, num_tokens: int, up_to: bool = False) -> None:
    return None


@torch.library.register_fake("cake::forget_workspace")
def _forget_workspace(workspace: Tensor) -> None:
    return None


@torch.library.register_fake("cake::workspace_size")
def _workspace_size(max_num_tokens: int) -> int:
    return WORKSPACE_FIXED_BYTES + WORKSPACE_BYTES_PER_TOKEN * max_num_tokens


@torch.ops.cake.workspace_size.default.py_impl(ProxyTorchDispatchMode)
def _traced_workspace_size(mode: ProxyTorchDispatchMode, max_num_tokens: int) -> int:
    """Inductor cannot lower a call without any tensor: a graph holds the arithmetic instead."""
    return _workspace_size(max_num_tokens)


@torch.library.register_fake("cake::quantize_nvfp4")
def _quantize_nvfp4(input: Tensor, encode_scale: Tensor) -> tuple[Tensor, Tensor]:
    _require_one_device("quantize_nvfp4", (("input", input), ("encode_scale", encode_scale)))
    *rows, columns = input.shape
    packed = input.new_empty([*rows, columns // 2], dtype=torch.uint8)
    return packed, input.new_empty([*rows, columns // layout.GROUP], dtype=torch.uint8)

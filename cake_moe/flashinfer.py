"""FlashInfer's names and signatures for this operator, so that a caller changes import lines only.

``cutlass_fused_moe(..., backend="cake")`` and its two companions as in flashinfer-python 0.7.4, on every device that
:func:`cake_moe.fused_moe` runs on, the CPU included. Options that the operator does not have are refused by name. Of
FlashInfer's other functions, backends and activations nothing is here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import torch
from torch import Tensor

from . import layout, ops
from .weights import prepare_weights

__all__ = [
    "ActivationType",
    "SiTU",
    "TrtllmFp4Config",
    "cake_fused_moe_prepare_workspace",
    "cutlass_fused_moe",
    "cutlass_fused_moe_workspace_size",
]

BACKEND = "cake"
WEIGHT_LAYOUT = "trtllm_shuffled_nvfp4_group16"


class ActivationType(IntEnum):
    """FlashInfer's numbers of the activations. Only ``Situ`` is supported here."""

    Gelu = 0
    Relu = 1
    Silu = 2
    Swiglu = 3
    Geglu = 4
    SwigluBias = 5
    Relu2 = 6
    SwigluStep = 7
    GegluTanh = 8
    Identity = 9
    Situ = 10
    InvalidType = 11

    def __repr__(self) -> str:
        return f"ActivationType.{self.name}"


@dataclass(frozen=True)
class SiTU:
    """The activation ``(gate_scale * tanh(g / gate_scale) * sigmoid(g)) * (linear_scale * tanh(u / linear_scale))``.

    Attributes:
        gate_scale: smoothing of the gate g, positive.
        linear_scale: smoothing of the linear branch u, positive. FlashInfer's None (no smoothing) is not supported.
        clamp_limit: only None is supported.

    Raises:
        ValueError: a scale is not finite and positive, or an option is not supported.
    """

    type: ClassVar[ActivationType] = ActivationType.Situ
    gate_scale: float = layout.DEFAULT_BETA
    linear_scale: float | None = layout.DEFAULT_LINEAR_BETA
    clamp_limit: float | None = None

    def __post_init__(self) -> None:
        for name in ("gate_scale", "linear_scale"):
            value = getattr(self, name)
            valid = isinstance(value, (int, float)) and math.isfinite(value) and value > 0
            _require("SiTU", name, valid, "finite and positive", value)
        _require("SiTU", "clamp_limit", self.clamp_limit is None, "None", self.clamp_limit)


def _text(value: object) -> str:
    return f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else repr(value)


def _require(function: str, argument: str, holds: bool, rule: str, value: object) -> None:
    if not holds:
        raise ValueError(f"{function}: {argument} must be {rule}, got {_text(value)}")


def _require_equal(function: str, required: dict[str, tuple[object, object]]) -> None:
    """required: argument -> (the only supported value, the caller's)."""
    for argument, (supported, value) in required.items():
        same = value is supported or (type(value) is type(supported) and value == supported)
        _require(function, argument, same, repr(supported), value)


def _require_rank(function: str, argument: str, rank: object, size: int) -> None:
    valid = isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < size
    _require(function, argument, valid, f"in 0..{size - 1}", rank)


def _require_common(
    function: str,
    *,
    backend: str,
    activation_type: int,
    output_dtype: torch.dtype,
    tp_size: int,
    tp_rank: int,
    ep_size: int,
    ep_rank: int,
    use_fused_finalize: bool,
    **switches: bool,
) -> None:
    """Rules of the call and of the size query alike; `switches` must all be off."""
    known = isinstance(activation_type, int) and activation_type in ActivationType._value2member_map_
    activation = ActivationType(activation_type) if known else activation_type
    supported = known and activation == ActivationType.Situ
    _require_equal(function, {"backend": (BACKEND, backend)})
    _require(function, "activation_type", supported, "ActivationType.Situ", activation)
    _require_equal(
        function,
        {
            "output_dtype": (torch.bfloat16, output_dtype),
            "tp_size": (layout.TENSOR_PARALLEL, tp_size),
            "ep_size": (1, ep_size),
            "ep_rank": (0, ep_rank),
            "use_fused_finalize": (True, use_fused_finalize),
            **{name: (False, value) for name, value in switches.items()},
        },
    )
    _require_rank(function, "tp_rank", tp_rank, layout.TENSOR_PARALLEL)


def cutlass_fused_moe(
    input: Tensor,
    token_selected_experts: Tensor,
    token_final_scales: Tensor,
    fc1_expert_weights: Tensor,
    fc2_expert_weights: Tensor,
    output_dtype: torch.dtype,
    quant_scales: Sequence[Tensor],
    fc1_expert_biases: Tensor | None = None,
    fc2_expert_biases: Tensor | None = None,
    input_sf: Tensor | None = None,
    swiglu_alpha: Tensor | None = None,
    swiglu_beta: Tensor | None = None,
    swiglu_limit: Tensor | None = None,
    tp_size: int = 1,
    tp_rank: int = 0,
    ep_size: int = 1,
    ep_rank: int = 0,
    cluster_size: int = 1,
    cluster_rank: int = 0,
    output: Tensor | None = None,
    enable_alltoall: bool = False,
    use_deepseek_fp8_block_scale: bool = False,
    use_w4_group_scaling: bool = False,
    use_mxfp8_act_scaling: bool = False,
    min_latency_mode: bool = False,
    use_packed_weights: bool = False,
    use_wfp4afp8_humming: bool = False,
    tune_max_num_tokens: int = 8192,
    enable_pdl: bool | None = None,
    activation_type: int = ActivationType.Swiglu,
    swizzled_input_sf: bool = True,
    use_fused_finalize: bool = True,
    profile_ids: Sequence[int] | None = None,
    workspace_buffer: Tensor | None = None,
    *,
    situ_beta: Tensor | None = None,
    situ_linear_beta: Tensor | None = None,
    backend: str = "cutlass",
) -> Tensor:
    """:func:`cake_moe.fused_moe` under FlashInfer's signature.

    Args:
        input, token_selected_experts, token_final_scales, fc1_expert_weights, fc2_expert_weights, quant_scales,
            situ_beta, situ_linear_beta: as there.
        output_dtype: torch.bfloat16.
        tp_size, tp_rank: 8, and a rank in 0..7 (every rank computes alike).
        output: bfloat16 ``[M, 3584]``; None allocates it, which a captured stream does not allow.
        activation_type: ``ActivationType.Situ``.
        workspace_buffer: prepared by :func:`cake_fused_moe_prepare_workspace` for M tokens.
        enable_pdl: None or True; the stages are always chained with programmatic dependent launch.
        backend: "cake".
        tune_max_num_tokens, swizzled_input_sf: without effect; there is no tuning and no ``input_sf``.
        All others: FlashInfer's defaults, anything else is refused.

    Returns:
        ``output``.

    Raises:
        ValueError: an unsupported option, by its name, or what :func:`cake_moe.fused_moe` refuses.
        TypeError, RuntimeError, IndexError: as there.

    Source: flashinfer-python 0.7.4, ``flashinfer.fused_moe.cutlass_fused_moe``.
    """
    function = "fused_moe"
    _require_common(
        function,
        backend=backend,
        activation_type=activation_type,
        output_dtype=output_dtype,
        tp_size=tp_size,
        tp_rank=tp_rank,
        ep_size=ep_size,
        ep_rank=ep_rank,
        use_fused_finalize=use_fused_finalize,
        enable_alltoall=enable_alltoall,
        min_latency_mode=min_latency_mode,
        use_deepseek_fp8_block_scale=use_deepseek_fp8_block_scale,
        use_w4_group_scaling=use_w4_group_scaling,
        use_mxfp8_act_scaling=use_mxfp8_act_scaling,
        use_packed_weights=use_packed_weights,
        use_wfp4afp8_humming=use_wfp4afp8_humming,
    )
    _require_equal(
        function,
        {
            "cluster_size": (1, cluster_size),
            "cluster_rank": (0, cluster_rank),
            "fc1_expert_biases": (None, fc1_expert_biases),
            "fc2_expert_biases": (None, fc2_expert_biases),
            "input_sf": (None, input_sf),
            "swiglu_alpha": (None, swiglu_alpha),
            "swiglu_beta": (None, swiglu_beta),
            "swiglu_limit": (None, swiglu_limit),
            "profile_ids": (None, profile_ids),
        },
    )
    _require(function, "enable_pdl", enable_pdl is None or enable_pdl is True, "None or True", enable_pdl)
    _require(function, "workspace_buffer", workspace_buffer is not None, "a prepared workspace", workspace_buffer)
    return ops.fused_moe(
        input,
        token_selected_experts,
        token_final_scales,
        fc1_expert_weights,
        fc2_expert_weights,
        quant_scales,
        workspace=workspace_buffer,
        output=output,
        situ_beta=situ_beta,
        situ_linear_beta=situ_linear_beta,
    )


def cutlass_fused_moe_workspace_size(
    max_num_tokens: int,
    hidden_size: int,
    intermediate_size: int,
    num_experts_total: int,
    top_k: int,
    *,
    x_dtype: torch.dtype,
    weight_dtype: torch.dtype,
    output_dtype: torch.dtype = torch.bfloat16,
    activation_type: int = ActivationType.Swiglu,
    tp_size: int = 1,
    tp_rank: int = 0,
    ep_size: int = 1,
    ep_rank: int = 0,
    min_latency_mode: bool = False,
    use_deepseek_fp8_block_scale: bool = False,
    use_w4_group_scaling: bool = False,
    use_mxfp8_act_scaling: bool = False,
    use_fused_finalize: bool = True,
    use_packed_weights: bool = False,
    use_wfp4afp8_humming: bool = False,
    device: torch.device | str | None = None,
    backend: str = "cutlass",
) -> int:
    """:func:`cake_moe.workspace_size` under FlashInfer's signature. Host arithmetic only.

    Args:
        max_num_tokens: 1..16384.
        hidden_size, intermediate_size, num_experts_total, top_k: 3584, 384, 896 and 16.
        x_dtype, weight_dtype, output_dtype: torch.bfloat16, torch.uint8 and torch.bfloat16.
        device: without effect, the size is that of every device.
        All others: as in :func:`cutlass_fused_moe`.

    Returns:
        Bytes, growing with ``max_num_tokens``.

    Raises:
        ValueError: an unsupported option, by its name.
        TypeError: ``max_num_tokens`` is no int.

    Source: flashinfer-python 0.7.4, ``flashinfer.fused_moe.cutlass_fused_moe_workspace_size``.
    """
    function = "workspace_size"
    _require_common(
        function,
        backend=backend,
        activation_type=activation_type,
        output_dtype=output_dtype,
        tp_size=tp_size,
        tp_rank=tp_rank,
        ep_size=ep_size,
        ep_rank=ep_rank,
        use_fused_finalize=use_fused_finalize,
        min_latency_mode=min_latency_mode,
        use_deepseek_fp8_block_scale=use_deepseek_fp8_block_scale,
        use_w4_group_scaling=use_w4_group_scaling,
        use_mxfp8_act_scaling=use_mxfp8_act_scaling,
        use_packed_weights=use_packed_weights,
        use_wfp4afp8_humming=use_wfp4afp8_humming,
    )
    _require_equal(
        function,
        {
            "num_experts_total": (layout.EXPERTS, num_experts_total),
            "x_dtype": (torch.bfloat16, x_dtype),
            "weight_dtype": (torch.uint8, weight_dtype),
        },
    )
    return ops.workspace_size(max_num_tokens, hidden_size=hidden_size, intermediate_size=intermediate_size, top_k=top_k)


def cake_fused_moe_prepare_workspace(
    workspace_buffer: Tensor, num_tokens: int, *, backend: str = BACKEND, weight_layout: str = WEIGHT_LAYOUT
) -> Tensor:
    """:func:`cake_moe.prepare_workspace` under FlashInfer's signature.

    Args:
        workspace_buffer, num_tokens: as there.
        backend: "cake".
        weight_layout: "trtllm_shuffled_nvfp4_group16", the only layout of the weights.

    Returns:
        ``workspace_buffer``.

    Raises:
        ValueError: another backend or layout, or what :func:`cake_moe.prepare_workspace` refuses.
        TypeError, RuntimeError: as there.

    Source: flashinfer-python 0.7.4, ``flashinfer.fused_moe.cake_fused_moe_prepare_workspace``.
    """
    _require_equal(
        "prepare_workspace", {"backend": (BACKEND, backend), "weight_layout": (WEIGHT_LAYOUT, weight_layout)}
    )
    return ops.prepare_workspace(workspace_buffer, num_tokens)


@dataclass(frozen=True)
class TrtllmFp4Config:
    """Weight preparation under FlashInfer's name; it has no state."""

    @classmethod
    def supported(cls, arch: int) -> bool:
        """Whether :func:`cutlass_fused_moe` runs on a GPU of compute capability ``arch`` (major * 10 + minor)."""
        return f"sm_{arch}a" in ops.build_info()["fused_moe_archs"]

    @staticmethod
    def prepare_weights(
        w1_bf16: Tensor,
        w2_bf16: Tensor,
        *,
        quant: object = None,
        num_local_experts: int,
        hidden_size: int,
        intermediate_size: int,
        activation: SiTU | None = None,
        device: torch.device | str | None = None,
        permute_cache: object = None,
    ) -> dict[str, Tensor]:
        """Quantise BF16 weights with a global scale of 1, as FlashInfer does, and bring them into the prepared layout.

        :func:`cake_moe.prepare_weights` chooses a global scale for each expert and keeps more of small weights.

        Args:
            w1_bf16: bfloat16 ``[E, 768, 3584]``, rows ``[up; gate]``.
            w2_bf16: bfloat16 ``[E, 3584, 384]``.
            quant: None, or a FlashInfer QuantConfig with NVFP4 weights and activations.
            num_local_experts, hidden_size, intermediate_size: E, 3584 and 384.
            activation: ``SiTU()``; FlashInfer's default is another activation, so None is refused.
            device: where the result lies; None: with the weights.
            permute_cache: without effect.

        Returns:
            ``gemm1_weights``, ``gemm1_weights_scale``, ``gemm2_weights``, ``gemm2_weights_scale`` (weights uint8,
            scales float8_e4m3fn) and, float32 ``[E]``, ``gemm1_alpha`` and ``gemm1_beta`` (situ_beta and
            situ_linear_beta), ``output1_scale_scalar`` (qA), ``output1_scale_gate_scalar`` (dX*dW13) and
            ``output2_scale_scalar`` (dA*dW2), all ones.

        Raises:
            ValueError: another quantisation, activation or geometry, or what :func:`cake_moe.prepare_weights` refuses.

        Source: flashinfer-python 0.7.4, ``flashinfer.fused_moe.TrtllmFp4Config.prepare_weights``.
        """
        function = "prepare_weights"
        formats = [getattr(getattr(quant, side, None), "name", None) for side in ("weight", "activation")]
        _require(function, "quant", quant is None or formats == ["NVFP4", "NVFP4"], "None or NVFP4", quant)
        _require_equal(
            function,
            {
                "num_local_experts": (w1_bf16.shape[0], num_local_experts),
                "hidden_size": (layout.HIDDEN, hidden_size),
                "intermediate_size": (layout.INTERMEDIATE, intermediate_size),
            },
        )
        _require(function, "activation", getattr(activation, "type", None) == ActivationType.Situ, "SiTU()", activation)
        situ = activation if isinstance(activation, SiTU) else SiTU()
        target = w1_bf16.device if device is None else torch.device(device)
        weights = prepare_weights(w1_bf16.to(target), w2_bf16.to(target), global_scales=(1.0, 1.0))

        def per_expert(value: float) -> Tensor:
            return torch.full((num_local_experts,), value, dtype=torch.float32, device=target)

        return {
            "gemm1_weights": weights.fc1_weights,
            "gemm1_weights_scale": weights.fc1_scales.view(torch.float8_e4m3fn),
            "gemm1_alpha": per_expert(situ.gate_scale),
            "gemm1_beta": per_expert(situ.linear_scale or layout.DEFAULT_LINEAR_BETA),
            "gemm2_weights": weights.fc2_weights,
            "gemm2_weights_scale": weights.fc2_scales.view(torch.float8_e4m3fn),
            "output1_scale_scalar": per_expert(1.0),
            "output1_scale_gate_scalar": per_expert(1.0),
            "output2_scale_scalar": per_expert(1.0),
        }

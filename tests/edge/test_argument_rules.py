"""Every rule about the tensors of fused_moe: type and text of the error, on every path, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import cake_moe
from cake_moe.testing.inputs import lazy_zeros

Spoil = Callable[[dict[str, Any]], None]

M, H, E, K = 5, 3584, 896, 16


def put(name: str, value: Callable[[Any], Any]) -> Spoil:
    def spoil(arguments: dict[str, Any]) -> None:
        arguments[name] = value(arguments[name])

    return spoil


def put_scale(index: int, value: Callable[[Tensor], Any]) -> Spoil:
    def spoil(arguments: dict[str, Any]) -> None:
        scales = list(arguments["quant_scales"])
        scales[index] = value(scales[index])
        arguments["quant_scales"] = scales

    return spoil


def shifted(tensor: Tensor, count: int = 1) -> Tensor:
    """Equal values in memory that starts `count` elements later."""
    buffer = torch.empty(tensor.numel() + count, dtype=tensor.dtype)
    return buffer[count:].view(tensor.shape).copy_(tensor)


def off_by_a_byte(tensor: Tensor) -> Tensor:
    raw = bytearray(tensor.numel() * tensor.element_size() + 64)
    start = torch.frombuffer(raw, dtype=torch.uint8).data_ptr()
    offset = -start % 64 + 1
    return torch.frombuffer(raw, dtype=tensor.dtype, count=tensor.numel(), offset=offset).view(tensor.shape)


def spread(tensor: Tensor) -> Tensor:
    """Equal values with a gap after each row."""
    wide = torch.empty(*tensor.shape[:-1], tensor.shape[-1] + 8, dtype=tensor.dtype)
    return wide[..., : tensor.shape[-1]].copy_(tensor)


# Rules about what goes in: the same on the Python, the raw and the functional path.
INPUT_RULES: dict[str, tuple[Spoil, str]] = {
    "input dtype": (put("input", Tensor.float), "input must be bfloat16, got float32"),
    "input rank": (put("input", lambda x: x[0]), "input must be of shape [M, 3584], got [3584]"),
    "input width": (put("input", lambda x: x[:, :3568]), "input must be of shape [M, 3584], got [5, 3568]"),
    "input strides": (put("input", spread), "input must be contiguous, got strides [3592, 1]"),
    "input alignment": (
        put("input", off_by_a_byte),
        "input must be aligned to 2 bytes, got an address 1 bytes past a multiple",
    ),
    "input tokens": (
        put("input", lambda _: lazy_zeros((16385 * 2 * H,)).view(torch.bfloat16).view(16385, H)),
        "input must be of at most 16384 tokens, got 16385",
    ),
    "ids dtype": (put("token_selected_experts", Tensor.long), "token_selected_experts must be int32, got int64"),
    "ids count": (
        put("token_selected_experts", lambda x: x[:4]),
        "token_selected_experts must be of shape [5, 16], got [4, 16]",
    ),
    "ids top_k": (
        put("token_selected_experts", lambda x: x[:, :8].contiguous()),
        "token_selected_experts must be of shape [5, 16], got [5, 8]",
    ),
    "ids strides": (
        put("token_selected_experts", lambda x: x.t().contiguous().t()),
        "token_selected_experts must be contiguous, got strides [1, 5]",
    ),
    "route weights dtype": (
        put("token_final_scales", Tensor.half),
        "token_final_scales must be bfloat16 or float32, got float16",
    ),
    "route weights shape": (
        put("token_final_scales", lambda x: x[:, :1]),
        "token_final_scales must be of shape [5, 16], got [5, 1]",
    ),
    "fc1 dtype": (
        put("fc1_expert_weights", lambda w: w.view(torch.int8)),
        "fc1_expert_weights must be uint8, got int8",
    ),
    "fc1 experts": (
        put("fc1_expert_weights", lambda w: w[:895]),
        "fc1_expert_weights must be of shape [896, 768, 1792], got [895, 768, 1792]",
    ),
    "fc1 strides": (
        put("fc1_expert_weights", lambda w: w.view(E, 1792, 768).transpose(1, 2)),
        "fc1_expert_weights must be contiguous, got strides [1376256, 1, 768]",
    ),
    "fc2 dtype": (
        put("fc2_expert_weights", lambda w: w.view(torch.float8_e4m3fn)),
        "fc2_expert_weights must be uint8, got float8_e4m3fn",
    ),
    "fc2 shape": (
        put("fc2_expert_weights", lambda w: w.view(E, 192, 3584)),
        "fc2_expert_weights must be of shape [896, 3584, 192], got [896, 192, 3584]",
    ),
    "five scales": (put("quant_scales", lambda s: s[:5]), "quant_scales must be a list of 6 tensors, got 5"),
    "qX dtype": (put_scale(0, Tensor.double), "quant_scales[0] must be float32, got float64"),
    "qX elements": (put_scale(0, lambda s: s.expand(2)), "quant_scales[0] must be of one element, got [2]"),
    "FC1 scales dtype": (
        put_scale(1, lambda s: s.view(torch.float8_e5m2)),
        "quant_scales[1] must be uint8 or float8_e4m3fn, got float8_e5m2",
    ),
    "FC1 scales shape": (
        put_scale(1, lambda s: s.flatten(1)),
        "quant_scales[1] must be of shape [896, 768, 224], got [896, 172032]",
    ),
    "dX*dW13 shape": (put_scale(2, lambda s: s[:1]), "quant_scales[2] must be of shape [896], got [1]"),
    "qA dtype": (put_scale(3, Tensor.bfloat16), "quant_scales[3] must be float32, got bfloat16"),
    "qA strides": (
        put_scale(3, lambda s: s.repeat_interleave(2)[::2]),
        "quant_scales[3] must be contiguous, got strides [2]",
    ),
    "FC2 scales shape": (
        put_scale(4, lambda s: s[:, :768]),
        "quant_scales[4] must be of shape [896, 3584, 24], got [896, 768, 24]",
    ),
    "dA*dW2 dtype": (put_scale(5, Tensor.int), "quant_scales[5] must be float32, got int32"),
    "beta dtype": (put("situ_beta", Tensor.double), "situ_beta must be float32, got float64"),
    "beta shape": (put("situ_beta", lambda b: b[:1]), "situ_beta must be of shape [896], got [1]"),
    "linear beta shape": (
        put("situ_linear_beta", lambda b: b.view(1, E)),
        "situ_linear_beta must be of shape [896], got [1, 896]",
    ),
}

# Rules about the two buffers: on the paths that have them.
BUFFER_RULES: dict[str, tuple[Spoil, str]] = {
    "output dtype": (put("output", Tensor.float), "output must be bfloat16, got float32"),
    "output shape": (put("output", lambda y: y[:4]), "output must be of shape [5, 3584], got [4, 3584]"),
    "output strides": (put("output", spread), "output must be contiguous, got strides [3592, 1]"),
    "output alignment": (
        put("output", off_by_a_byte),
        "output must be aligned to 2 bytes, got an address 1 bytes past a multiple",
    ),
    "workspace dtype": (
        put("workspace", lambda w: w.view(torch.int32)),
        "workspace must be uint8 or int8, got int32",
    ),
    "workspace rank": (put("workspace", lambda w: w.view(2, -1)), "workspace must be 1-dimensional, got 2 dimensions"),
    "workspace strides": (
        put("workspace", lambda w: torch.empty(2 * len(w), dtype=torch.uint8)[::2]),
        "workspace must be contiguous, got strides [2]",
    ),
    "workspace alignment": (
        put("workspace", lambda w: shifted(w, 32)),
        "workspace must be aligned to 64 bytes, got an address 32 bytes past a multiple",
    ),
    "workspace size": (
        put("workspace", lambda w: w[:-1]),
        f"workspace must be of at least {cake_moe.workspace_size(M)} bytes for 5 tokens, "
        f"got {cake_moe.workspace_size(M) - 1} bytes",
    ),
    "workspace unprepared": (
        put("workspace", Tensor.clone),
        "workspace must be prepared for 5 tokens (prepare_workspace), got an unprepared buffer",
    ),
}


@pytest.mark.parametrize("path", ["python", "raw", "functional"])
@pytest.mark.parametrize("rule", INPUT_RULES)
def test_input_rules(call: Any, rule: str, path: str) -> None:
    spoil, text = INPUT_RULES[rule]
    spoil(call.arguments)
    call.refuses(path, ValueError, f"fused_moe: {text}")


@pytest.mark.parametrize("path", ["python", "raw"])
@pytest.mark.parametrize("rule", BUFFER_RULES)
def test_buffer_rules(call: Any, rule: str, path: str) -> None:
    spoil, text = BUFFER_RULES[rule]
    spoil(call.arguments)
    call.refuses(path, ValueError, f"fused_moe: {text}")


@pytest.mark.parametrize("rule", [rule for rule in BUFFER_RULES if rule.startswith("output")])
def test_output_rules_without_workspace(call: Any, rule: str) -> None:
    spoil, text = BUFFER_RULES[rule]
    spoil(call.arguments)
    call.arguments["workspace"] = None
    call.refuses("python", ValueError, f"fused_moe: {text}")


@pytest.mark.parametrize("path", ["python", "raw"])
def test_output_inside_the_workspace(call: Any, path: str) -> None:
    size = 2 * M * H
    call.arguments["output"] = call.arguments["workspace"][:size].view(torch.bfloat16).view(M, H)
    text = f"fused_moe: output must be disjoint from workspace, got an overlap of {size} bytes"
    call.refuses(path, ValueError, text)


@pytest.mark.parametrize("rule", ["input rank", "input tokens", "ids dtype", "five scales"])
def test_input_rules_without_workspace(call: Any, rule: str) -> None:
    spoil, text = INPUT_RULES[rule]
    spoil(call.arguments)
    call.arguments["workspace"] = None
    call.refuses("python", ValueError, f"fused_moe: {text}")


def test_output_over_the_input_without_workspace(call: Any) -> None:
    memory = torch.zeros(M + 1, H, dtype=torch.bfloat16)
    call.arguments |= {"input": memory[:M], "output": memory[1:], "workspace": None}
    text = f"fused_moe: output must be disjoint from input, got an overlap of {2 * (M - 1) * H} bytes"
    call.refuses("python", ValueError, text)
    assert (memory == 0).all()


META = ("input", "token_selected_experts", "token_final_scales", "fc1_expert_weights", "fc2_expert_weights")
META_BETAS = ("situ_beta", "situ_linear_beta")
META_BUFFERS = ("output", "workspace")


@pytest.mark.parametrize("path", ["python", "raw", "functional"])
@pytest.mark.parametrize("name", [*META, *META_BETAS, *META_BUFFERS])
def test_meta_among_real_tensors(call: Any, name: str, path: str) -> None:
    if name in META_BUFFERS and path == "functional":
        call.functional()  # it has no such argument, so nothing is refused
        return
    call.arguments[name] = torch.empty_like(call.arguments[name], device="meta")
    refused = (name, "cpu", "meta") if name != "input" else ("token_selected_experts", "meta", "cpu")
    call.refuses(path, ValueError, "fused_moe: {} must be on {}, got {}".format(*refused))


@pytest.mark.parametrize("path", ["python", "raw", "functional"])
@pytest.mark.parametrize("index", range(6))
def test_meta_scale_among_real_tensors(call: Any, index: int, path: str) -> None:
    put_scale(index, lambda scale: torch.empty_like(scale, device="meta"))(call.arguments)
    call.refuses(path, ValueError, f"fused_moe: quant_scales[{index}] must be on cpu, got meta")


@pytest.mark.parametrize("name", ["output", "fc2_expert_weights"])
def test_meta_among_real_tensors_without_workspace(call: Any, name: str) -> None:
    call.arguments |= {"workspace": None, name: torch.empty_like(call.arguments[name], device="meta")}
    call.refuses("python", ValueError, f"fused_moe: {name} must be on cpu, got meta")


@pytest.mark.parametrize("path", ["python", "raw"])
def test_output_over_the_input(call: Any, path: str) -> None:
    memory = torch.zeros(M + 1, H, dtype=torch.bfloat16)
    call.arguments |= {"input": memory[:M], "output": memory[1:]}
    text = f"fused_moe: output must be disjoint from input, got an overlap of {2 * (M - 1) * H} bytes"
    call.refuses(path, ValueError, text)


@pytest.mark.parametrize("path", ["python", "raw"])
def test_betas_inside_the_workspace(call: Any, path: str) -> None:
    call.arguments["situ_beta"] = call.arguments["workspace"][: 4 * E].view(torch.float32)
    text = f"fused_moe: workspace must be disjoint from situ_beta, got an overlap of {4 * E} bytes"
    call.refuses(path, ValueError, text)


def test_no_rule_is_broken_by_the_unspoilt_call(call: Any) -> None:
    output = call.python()
    assert output is call.arguments["output"]
    assert not output.isnan().any()

"""Type errors, gradients, CAKE_MOE_VALIDATE, and the counts at both ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import cake_moe
from cake_moe.testing.inputs import lazy_zeros

TENSORS = ("input", "token_selected_experts", "token_final_scales", "fc1_expert_weights", "fc2_expert_weights")
OPTIONAL = ("workspace", "output", "situ_beta", "situ_linear_beta")


@pytest.mark.parametrize("name", [*TENSORS, *OPTIONAL])
def test_not_a_tensor(call: Any, name: str) -> None:
    call.arguments[name] = 3
    call.refuses("python", TypeError, f"fused_moe: {name} must be a torch.Tensor, got int")


def test_scales_are_no_list(call: Any) -> None:
    call.arguments["quant_scales"] = call.arguments["quant_scales"][0]
    call.refuses("python", TypeError, "fused_moe: quant_scales must be a list of 6 tensors, got Tensor")


def test_a_scale_is_no_tensor(call: Any) -> None:
    call.arguments["quant_scales"] = [1.0, *call.arguments["quant_scales"][1:]]
    call.refuses("python", TypeError, "fused_moe: quant_scales[0] must be a torch.Tensor, got float")


@pytest.mark.parametrize("value", [True, 1.0, "1", None], ids=["bool", "float", "str", "None"])
def test_counts_are_ints(value: Any) -> None:
    kind = type(value).__name__
    with pytest.raises(TypeError, match=f"^prepare_workspace: num_tokens must be an int, got {kind}$"):
        cake_moe.prepare_workspace(torch.empty(1, dtype=torch.uint8), value)
    with pytest.raises(TypeError, match=f"^workspace_size: max_num_tokens must be an int, got {kind}$"):
        cake_moe.workspace_size(value)


GRADIENT_ARGUMENTS = ("input", "token_final_scales", "situ_beta", "situ_linear_beta", "output")


def refuses_gradient(call: Any, path: str, name: str) -> None:
    text = f"fused_moe: {name} must be without gradient (inference only), got requires_grad=True"
    call.refuses(path, RuntimeError, text)


@pytest.mark.parametrize("path", ["python", "raw", "functional"])
@pytest.mark.parametrize("name", GRADIENT_ARGUMENTS)
def test_a_leaf_that_requires_grad(call: Any, name: str, path: str) -> None:
    if name == "output" and path == "functional":
        call.functional()  # it has no output argument, so nothing is refused
        return
    call.arguments[name].requires_grad_()
    refuses_gradient(call, path, name)
    call.arguments[name].requires_grad_(False)


@pytest.mark.parametrize("path", ["python", "raw", "functional"])
@pytest.mark.parametrize("index", [0, 2, 3, 5])
def test_a_result_that_requires_grad(call: Any, index: int, path: str) -> None:
    scales = list(call.arguments["quant_scales"])
    scales[index] = torch.ones_like(scales[index], requires_grad=True) * scales[index]
    call.arguments["quant_scales"] = scales
    refuses_gradient(call, path, f"quant_scales[{index}]")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("path", ["python", "raw", "functional"])
def test_no_gradient_is_recorded_here(call: Any, path: str, mode: Callable[[], Any]) -> None:
    call.arguments["situ_beta"].requires_grad_()
    with mode():
        getattr(call, path)()


@pytest.mark.parametrize("path", ["python", "raw"])
def test_quantize_refuses_gradients(path: str) -> None:
    function = cake_moe.quantize_nvfp4 if path == "python" else torch.ops.cake.quantize_nvfp4
    x = torch.zeros(2, 16, dtype=torch.bfloat16, requires_grad=True)
    text = r"^quantize_nvfp4: input must be without gradient \(inference only\), got requires_grad=True$"
    with pytest.raises(RuntimeError, match=text):
        function(x, torch.ones(1))


@pytest.fixture
def validating(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAKE_MOE_VALIDATE", "1")


PATHS = pytest.mark.parametrize("path", ["python", "raw", "functional"])


@PATHS
@pytest.mark.parametrize("value", [896, -2, 2**31 - 1, -(2**31)])
@pytest.mark.usefixtures("validating")
def test_ids_are_checked_on_request(call: Any, value: int, path: str) -> None:
    call.arguments["token_selected_experts"][3, 7] = value
    text = f"fused_moe: token_selected_experts must be -1 or in 0..895, got {value} at token 3, slot 7"
    call.refuses(path, IndexError, text)


@PATHS
@pytest.mark.parametrize("value", [0.0, -1.5, float("inf"), float("nan")])
@pytest.mark.parametrize("name", [0, 2, 3, 5, "situ_beta", "situ_linear_beta"])
@pytest.mark.usefixtures("validating")
def test_scales_and_betas_are_checked_on_request(call: Any, name: int | str, value: float, path: str) -> None:
    tensor = call.arguments["quant_scales"][name] if isinstance(name, int) else call.arguments[name]
    expert = len(tensor) - 1
    tensor[expert] = value
    place = "" if name == 0 else f" at expert {expert}"
    argument = f"quant_scales[{name}]" if isinstance(name, int) else name
    text = f"fused_moe: {argument} must be finite and positive, got {value:g}{place}"
    call.refuses(path, ValueError, text)


@PATHS
@pytest.mark.parametrize("code", [0x7F, 0x80, 0xFF])
@pytest.mark.parametrize(("index", "shape"), [(1, (896, 768, 224)), (4, (896, 3584, 24))])
@pytest.mark.usefixtures("validating")
def test_block_scales_are_checked_on_request(
    call: Any, index: int, shape: tuple[int, ...], code: int, path: str
) -> None:
    scales = lazy_zeros(shape)
    scales[2, 100, 5] = code
    call.arguments["quant_scales"] = [*call.arguments["quant_scales"]]
    call.arguments["quant_scales"][index] = scales
    rule = "free of NaN and of negative scales"
    text = f"fused_moe: quant_scales[{index}] must be {rule}, got e4m3 code {code} at expert 2"
    call.refuses(path, ValueError, text)


@PATHS
@pytest.mark.usefixtures("validating")
def test_a_valid_call_passes_the_checks(call: Any, path: str) -> None:
    call.arguments["token_selected_experts"][2] = -1
    getattr(call, path)()


@PATHS
@pytest.mark.parametrize("setting", ["", "0"])
def test_values_are_not_checked_otherwise(call: Any, path: str, setting: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("CAKE_MOE_VALIDATE", setting)
    call.arguments["token_selected_experts"][3, 7] = 896
    result = getattr(call, path)()
    output = call.arguments["output"] if path == "raw" else result
    assert output[3].isnan().all()
    assert not output[[0, 1, 2, 4]].isnan().any()


def test_no_tokens_return_before_the_workspace_check(make_call: Callable[..., Any]) -> None:
    call = make_call()
    for name in ("input", "token_selected_experts", "token_final_scales", "output"):
        call.arguments[name] = call.arguments[name][:0]
    call.arguments["workspace"] = torch.empty(0, dtype=torch.uint8)
    assert call.python().shape == (0, 3584)
    call.raw()
    assert call.functional().shape == (0, 3584)


@pytest.mark.parametrize("path", ["python", "raw"])
def test_no_tokens_do_not_excuse_the_other_arguments(make_call: Callable[..., Any], path: str) -> None:
    call = make_call()
    call.arguments["input"] = call.arguments["input"][:0]
    text = "fused_moe: token_selected_experts must be of shape [0, 16], got [5, 16]"
    call.refuses(path, ValueError, text)

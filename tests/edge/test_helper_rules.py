"""Rules of prepare_workspace, workspace_size, quantize_nvfp4, dequantize_nvfp4, forget_workspace and warmup."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest
import torch

import cake_moe

ops = torch.ops.cake
PATHS = pytest.mark.parametrize("path", ["python", "raw"])


def refuses(function: Any, error: type[Exception], text: str, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        function(*args, **kwargs)


@PATHS
@pytest.mark.parametrize("count", [0, -1, 16385, 2**40])
def test_count_out_of_range(path: str, count: int) -> None:
    python = path == "python"
    size = cake_moe.workspace_size if python else ops.workspace_size
    refuses(size, ValueError, f"workspace_size: max_num_tokens must be in 1..16384, got {count}", count)
    prepare = cake_moe.prepare_workspace if python else ops.prepare_workspace
    workspace = torch.empty(cake_moe.workspace_size(1), dtype=torch.uint8)
    text = f"prepare_workspace: num_tokens must be in 1..16384, got {count}"
    refuses(prepare, ValueError, text, workspace, count)


@pytest.mark.parametrize("count", [2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**70])
def test_count_beyond_the_operators_integers(count: int) -> None:
    text = f"must be in 1..16384, got {count}"
    refuses(cake_moe.workspace_size, ValueError, f"workspace_size: max_num_tokens {text}", count)
    workspace = torch.empty(cake_moe.workspace_size(1), dtype=torch.uint8)
    refuses(cake_moe.prepare_workspace, ValueError, f"prepare_workspace: num_tokens {text}", workspace, count)


@pytest.mark.parametrize(
    ("name", "supported", "value"),
    [("hidden_size", 3584, 7168), ("intermediate_size", 384, 768), ("num_experts", 896, 384), ("top_k", 16, 8)],
)
def test_other_geometry(name: str, supported: int, value: int) -> None:
    text = f"workspace_size: {name} must be {supported}, got {value}"
    refuses(cake_moe.workspace_size, ValueError, text, 1, **{name: value})


@PATHS
def test_workspace_of_prepare(path: str) -> None:
    prepare = cake_moe.prepare_workspace if path == "python" else ops.prepare_workspace
    needed = cake_moe.workspace_size(7)
    workspace = torch.full((needed,), 0xFF, dtype=torch.uint8)

    def refused(text: str, buffer: torch.Tensor) -> None:
        refuses(prepare, ValueError, f"prepare_workspace: workspace must be {text}", buffer, 7)

    refused(f"of at least {needed} bytes for 7 tokens, got {needed - 1} bytes", workspace[:-1])
    refused("uint8 or int8, got bfloat16", workspace.view(torch.bfloat16))
    refused("1-dimensional, got 2 dimensions", workspace.view(1, -1))
    refused("contiguous, got strides [3]", torch.empty(3 * needed, dtype=torch.uint8)[::3])
    shifted = torch.empty(needed + 64, dtype=torch.uint8)[4:]
    refused("aligned to 64 bytes, got an address 4 bytes past a multiple", shifted)
    assert (workspace == 0xFF).all()


def test_prepare_type_errors() -> None:
    text = "prepare_workspace: workspace must be a torch.Tensor, got bytearray"
    refuses(cake_moe.prepare_workspace, TypeError, text, bytearray(8), 1)
    text = "forget_workspace: workspace must be a torch.Tensor, got NoneType"
    refuses(cake_moe.forget_workspace, TypeError, text, None)


def test_a_refused_preparation_leaves_no_state(call: Any) -> None:
    workspace = call.arguments["workspace"]
    cake_moe.forget_workspace(workspace)
    with pytest.raises(ValueError, match="of at least"):
        cake_moe.prepare_workspace(workspace, 6)
    text = "fused_moe: workspace must be prepared for 5 tokens (prepare_workspace), got an unprepared buffer"
    call.refuses("python", ValueError, text)


@PATHS
def test_rules_of_quantize(path: str) -> None:
    function = cake_moe.quantize_nvfp4 if path == "python" else ops.quantize_nvfp4
    x, one = torch.zeros(2, 32, dtype=torch.bfloat16), torch.ones(1)

    def refused(text: str, input: torch.Tensor, encode: torch.Tensor) -> None:
        refuses(function, ValueError, f"quantize_nvfp4: {text}", input, encode)

    refused("input must be bfloat16, got float16", x.half(), one)
    refused("input must be of a last dimension that is a multiple of 16, got 24", x[:, :24].contiguous(), one)
    refused("input must be of a last dimension that is a multiple of 16, got 0 dimensions", x[0, 0], one)
    refused("input must be contiguous, got strides [32, 1]", x[:, :16], one)
    refused("encode_scale must be float32, got float64", x, one.double())
    refused("encode_scale must be of one element, got [2]", x, one.expand(2))


@PATHS
@pytest.mark.parametrize("meta", ["input", "encode_scale"])
def test_quantize_refuses_meta_among_real_tensors(path: str, meta: str) -> None:
    function = cake_moe.quantize_nvfp4 if path == "python" else ops.quantize_nvfp4
    operands = {"input": torch.zeros(2, 32, dtype=torch.bfloat16), "encode_scale": torch.ones(1)}
    operands[meta] = operands[meta].to("meta")
    devices = ("cpu", "meta") if meta == "encode_scale" else ("meta", "cpu")
    text = "quantize_nvfp4: encode_scale must be on {}, got {}".format(*devices)
    refuses(function, ValueError, text, *operands.values())


@PATHS
@pytest.mark.parametrize("value", [0.0, -2.0, float("inf"), float("nan")])
def test_encode_scale_is_checked_on_request(path: str, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    function = cake_moe.quantize_nvfp4 if path == "python" else ops.quantize_nvfp4
    x, encode = torch.zeros(2, 32, dtype=torch.bfloat16), torch.tensor([value])
    function(x, encode)
    monkeypatch.setenv("CAKE_MOE_VALIDATE", "1")
    text = f"quantize_nvfp4: encode_scale must be finite and positive, got {value:g}"
    refuses(function, ValueError, text, x, encode)


def test_type_errors_of_quantize() -> None:
    x, one = torch.zeros(2, 32, dtype=torch.bfloat16), torch.ones(1)
    text = "quantize_nvfp4: input must be a torch.Tensor, got list"
    refuses(cake_moe.quantize_nvfp4, TypeError, text, x.tolist(), one)
    text = "quantize_nvfp4: encode_scale must be a torch.Tensor, got float"
    refuses(cake_moe.quantize_nvfp4, TypeError, text, x, 1.0)


def test_dequantize_refuses_shapes_that_do_not_belong_together() -> None:
    with pytest.raises(ValueError, match=r"^dequantize_nvfp4: "):
        cake_moe.dequantize_nvfp4(torch.zeros(2, 16, dtype=torch.uint8), torch.zeros(2, 3, dtype=torch.uint8))


@pytest.mark.parametrize("call", ["build_info", "warmup", "fused_moe"])
def test_a_bad_instruction_set_is_an_error_and_no_abort(call: str) -> None:
    """In a process of its own: the choice is made once."""
    calls = {
        "build_info": "cake_moe.build_info()",
        "warmup": "cake_moe.warmup('cpu')",
        "fused_moe": "cake_moe.fused_moe(**vars(make_inputs(1, experts=range(16))))",
    }
    code = f"import cake_moe; from cake_moe.testing.inputs import make_inputs; {calls[call]}"
    environment = os.environ | {"CAKE_MOE_CPU_ISA": "sse9"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 1, run.stderr
    last = run.stderr.strip().splitlines()[-1]
    assert last == "ValueError: CAKE_MOE_CPU_ISA must be portable, avx2 or avx512, got sse9"


def test_warmup() -> None:
    cake_moe.warmup("cpu")
    cake_moe.warmup()
    text = "warmup: device must be the CPU or a CUDA device, got meta"
    refuses(cake_moe.warmup, ValueError, text, "meta")

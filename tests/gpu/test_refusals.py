"""Errors that only a GPU can provoke: mixed devices, alignment, architectures without kernels, capture."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import cake_moe
from cake_moe.testing.inputs import make_inputs
from cake_moe.testing.routings import expert_pool
from cake_moe.testing.stages import POISON

M = 2


def arch() -> str:
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def has_kernels() -> bool:
    return f"{arch()}a" in cake_moe.build_info()["fused_moe_archs"]


@pytest.fixture(scope="module")
def on_gpu() -> dict[str, Any]:
    return dict(vars(make_inputs(M, experts=expert_pool(16)).to("cuda:0")))


@pytest.mark.parametrize("name", ["token_selected_experts", "fc1_expert_weights", "situ_beta"])
def test_mixed_devices(on_gpu: dict[str, Any], name: str) -> None:
    arguments = on_gpu | {name: on_gpu[name].cpu()}
    with pytest.raises(ValueError, match=f"^fused_moe: {name} must be on cuda:0, got cpu$"):
        cake_moe.fused_moe(**arguments)


def test_input_on_the_cpu_and_the_rest_on_the_gpu(on_gpu: dict[str, Any]) -> None:
    arguments = on_gpu | {"input": on_gpu["input"].cpu()}
    with pytest.raises(ValueError, match=r"^fused_moe: token_selected_experts must be on cpu, got cuda:0$"):
        cake_moe.fused_moe(**arguments)


def test_vector_loads_need_16_bytes(on_gpu: dict[str, Any]) -> None:
    memory = torch.zeros(M * 3584 + 4, dtype=torch.bfloat16, device="cuda")
    text = r"^fused_moe: input must be aligned to 16 bytes, got an address 8 bytes past a multiple$"
    with pytest.raises(ValueError, match=text):
        cake_moe.fused_moe(**(on_gpu | {"input": memory[4:].view(M, 3584)}))


def shifted(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """A copy whose address is `offset` bytes past a multiple of 512."""
    memory = torch.empty(tensor.nbytes + offset, dtype=torch.uint8, device="cuda")
    copy = memory[offset:].view(tensor.dtype).view(tensor.shape)
    return copy.copy_(tensor)


WEIGHTS = ("fc1_expert_weights", "fc2_expert_weights")


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_need_16_bytes(on_gpu: dict[str, Any], name: str) -> None:
    output = torch.full_like(on_gpu["input"], 7)
    workspace = torch.empty(cake_moe.workspace_size(M), dtype=torch.uint8, device="cuda")
    text = f"^fused_moe: {name} must be aligned to 16 bytes, got an address 8 bytes past a multiple$"
    with pytest.raises(ValueError, match=text):
        cake_moe.fused_moe(**(on_gpu | {name: shifted(on_gpu[name], 8)}), workspace=workspace, output=output)
    assert bool((output == 7).all())


@pytest.mark.parametrize("index", [1, 4])
def test_block_scales_need_16_bytes(on_gpu: dict[str, Any], index: int) -> None:
    scales = list(on_gpu["quant_scales"])
    scales[index] = shifted(scales[index], 4)
    text = (
        rf"^fused_moe: quant_scales\[{index}\].* must be aligned to 16 bytes, got an address 4 bytes past a multiple$"
    )
    with pytest.raises(ValueError, match=text):
        cake_moe.fused_moe(**(on_gpu | {"quant_scales": scales}))


def test_16_bytes_are_enough_for_every_operand(on_gpu: dict[str, Any]) -> None:
    if not has_kernels():
        pytest.skip(f"needs a GPU that fused_moe has kernels for, not {arch()}")
    moved = {name: shifted(value, 16) for name, value in on_gpu.items() if isinstance(value, torch.Tensor)}
    moved["quant_scales"] = [shifted(scale, 16) for scale in on_gpu["quant_scales"]]
    expected = cake_moe.fused_moe(**on_gpu)
    assert torch.equal(cake_moe.fused_moe(**moved).view(torch.int16), expected.view(torch.int16))


def test_workspace_needs_128_bytes() -> None:
    memory = torch.empty(cake_moe.workspace_size(M) + 64, dtype=torch.uint8, device="cuda")
    text = r"^prepare_workspace: workspace must be aligned to 128 bytes, got an address 64 bytes past a multiple$"
    with pytest.raises(ValueError, match=text):
        cake_moe.prepare_workspace(memory[64:], M)


def test_architecture_without_kernels(on_gpu: dict[str, Any]) -> None:
    if has_kernels():
        pytest.skip(f"needs a GPU that fused_moe has no kernels for; it has some for {arch()}")
    built = ", ".join(name for name in cake_moe.build_info()["fused_moe_archs"] if name != "cpu") or "none"
    rule = f"device must be of an architecture with kernels ({built}), got {arch()} at cuda:0"
    workspace = torch.full((cake_moe.workspace_size(M),), POISON, dtype=torch.uint8, device="cuda")
    output = torch.full_like(on_gpu["input"], 7)
    with pytest.raises(RuntimeError, match=f"^{re.escape('prepare_workspace: ' + rule)}$"):
        cake_moe.prepare_workspace(workspace, M)
    for options in ({"workspace": workspace, "output": output}, {}):
        with pytest.raises(RuntimeError, match=f"^{re.escape('fused_moe: ' + rule)}$"):
            cake_moe.fused_moe(**on_gpu, **options)
    with pytest.raises(RuntimeError, match=f"^{re.escape('warmup: ' + rule)}$"):
        cake_moe.warmup("cuda")
    assert (workspace == POISON).all()
    assert (output == 7).all()


def test_no_tokens_need_no_kernels(on_gpu: dict[str, Any]) -> None:
    rows = ("input", "token_selected_experts", "token_final_scales")
    empty = on_gpu | {name: on_gpu[name][:0] for name in rows}
    assert cake_moe.fused_moe(**empty).shape == (0, 3584)


def test_preparation_during_capture() -> None:
    if not has_kernels():
        pytest.skip(f"needs a GPU that fused_moe has kernels for, not {arch()}")
    workspace = torch.empty(cake_moe.workspace_size(M), dtype=torch.uint8, device="cuda")
    text = r"^prepare_workspace: workspace must be prepared before stream capture, got a capturing stream$"
    with torch.cuda.graph(torch.cuda.CUDAGraph()), pytest.raises(RuntimeError, match=text):
        cake_moe.prepare_workspace(workspace, M)


def test_nothing_is_allocated_during_capture(on_gpu: dict[str, Any]) -> None:
    text = r"^fused_moe: workspace must be given while a stream is captured, got None$"
    with torch.cuda.graph(torch.cuda.CUDAGraph()), pytest.raises(RuntimeError, match=text):
        cake_moe.fused_moe(**on_gpu)

"""Defaults and modes of torch change no table and no scale, neither for their own duration nor for good."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from cake_moe.testing.inputs import INPUT_KINDS, make_inputs

# Prints two digests of results: of those under the mode (none where it computes no values) and of those after it.
_SCRIPT = """
import hashlib
import torch
from torch._subclasses import FakeTensorMode
from cake_moe import layout, synthetic, weights

def calls():
    codes = torch.arange(256, dtype=torch.uint8, device="cpu")
    block = torch.ones(2, 8, dtype=torch.uint8, device="cpu")
    scale = torch.full((2, 1), 0x38, dtype=torch.uint8, device="cpu")
    values = torch.linspace(-500, 500, 999, dtype=torch.float32, device="cpu")
    yield from (layout.decode_e4m3(codes), layout.decode_e2m1(codes[:16]), layout.dequantize_nvfp4(block, scale))
    yield from (layout.encode_e4m3(values), layout.encode_e2m1(values / 80))
    yield from (layout.fc1_row_order(), layout.fc1_row_order_inverse())
    yield from (layout.fc2_row_order(), layout.fc2_row_order_inverse())
    yield from weights._row_orders(torch.device("cpu"))
    yield from synthetic.synthetic_expert(0).values()

def digest(tensors):
    state = hashlib.sha256()
    for t in tensors:
        state.update(f"{{t.dtype}} {{t.device}} {{list(t.shape)}}".encode())
        state.update(t.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()

def under(mode):
    with mode:
        if not isinstance(mode, FakeTensorMode):
            return list(calls())
        for function in (layout.fc1_row_order, lambda: weights._row_orders(torch.device("cpu"))):
            function()
        for function in (layout.decode_e2m1, layout.decode_e4m3, layout.encode_e2m1, layout.encode_e4m3):
            for dtype in (torch.uint8, torch.float32):
                try:
                    function(torch.ones(4, dtype=dtype))
                except Exception:
                    pass  # real tables do not mix with fake tensors
        try:
            synthetic.synthetic_expert(0)
        except Exception:
            pass

class Default:
    def __init__(self, dtype): self.dtype = dtype
    def __enter__(self): torch.set_default_dtype(self.dtype)
    def __exit__(self, *_): torch.set_default_dtype(torch.float32)

first = under({mode})
print(first and digest(first), digest(calls()))
"""


def _run(mode: str) -> list[str]:
    run = subprocess.run([sys.executable, "-c", _SCRIPT.format(mode=mode)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@pytest.fixture(scope="module")
def plain() -> str:
    first, second = _run("torch.no_grad()")
    assert first == second
    return first


@pytest.mark.parametrize("mode", ["torch.device('meta')", "Default(torch.bfloat16)", "Default(torch.float16)"])
def test_defaults_have_no_effect(plain: str, mode: str) -> None:
    assert _run(mode) == [plain, plain]


def test_fake_tensors_leave_nothing_behind(plain: str) -> None:
    assert _run("FakeTensorMode()") == ["None", plain]


@pytest.mark.parametrize("kind", INPUT_KINDS)
def test_default_dtype_does_not_reach_the_operands_of_tests(kind: str) -> None:
    def operands() -> list[Tensor]:
        problem = make_inputs(2, kind=kind, random_betas=False)
        small = [scale for scale in problem.quant_scales if scale.dtype != torch.uint8]
        return [problem.input, problem.token_final_scales, *problem.betas, *small]

    expected = operands()
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = operands()
    finally:
        torch.set_default_dtype(torch.float32)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))  # bits: one kind has a NaN

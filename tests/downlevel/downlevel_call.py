"""The operator by the sm_100a plan on an sm_90 GPU: the shipped launch code, down-level machine code."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from downlevel_driver import Driver
from downlevel_ptx import assemble, rewrite
from ptx_operator import check, operands
from ptx_program import MoeParams, program
from torch import Tensor

from cake_moe._native import _C
from cake_moe.layout import DEFAULT_BETA, DEFAULT_LINEAR_BETA, EXPERTS
from cake_moe.testing.inputs import MoeInputs
from cake_moe.testing.stages import POISON, Stages, stage_views

ARCH, CAPABILITY = "100a", 100
DEVICE = torch.device("cuda", 0)


@cache
def driver() -> Driver:
    torch.zeros(1, device=DEVICE)  # makes the context
    return Driver()


@cache
def machine_code(fat_binary: int) -> bytes:
    """Of one CUDA file of the project."""
    return assemble(rewrite(program(ARCH).modules[fat_binary, CAPABILITY]))


def sm_count() -> int:
    return torch.cuda.get_device_properties(DEVICE).multi_processor_count


def run_recorded() -> None:
    """What the launch code has launched since the last call, and the wait for its end."""
    stream = torch.cuda.Stream(DEVICE)
    stream.wait_stream(torch.cuda.current_stream(DEVICE))
    for launch in program(ARCH).take_launches():
        driver().launch(launch, machine_code(launch.fat_binary), stream.cuda_stream)
    stream.synchronize()


def quantize(x: Tensor, encode: Tensor) -> tuple[Tensor, Tensor]:
    """The standalone quantise kernel on bf16 [rows, columns] of the CPU: (packed, scales), there again."""
    rows, columns = x.shape
    source, scale = x.to(DEVICE), encode.to(DEVICE)
    packed = torch.full((rows, columns // 2), POISON, dtype=torch.uint8, device=DEVICE)
    scales = torch.full((rows, columns // 16), POISON, dtype=torch.uint8, device=DEVICE)
    words = [ctypes.c_uint64(value) for value in (source.data_ptr(), rows, columns, scale.data_ptr())]
    words += [ctypes.c_uint64(tensor.data_ptr()) for tensor in (packed, scales)]
    check(program(ARCH).library.cake_quantize(*words, ctypes.c_int(sm_count())))
    run_recorded()
    return packed.cpu(), scales.cpu()


class GpuCall:
    """One call of the operator on the GPU, for a problem on the CPU; output and workspace are poisoned first."""

    arch = ARCH

    def __init__(self, problem: MoeInputs) -> None:
        self.problem = problem
        self.plan: dict[str, Any] = _C.make_plan(problem.num_tokens, f"sm_{ARCH}", sm_count())
        self.workspace = torch.full((self.plan["workspace_total"],), POISON, dtype=torch.uint8, device=DEVICE)
        self.stages = stage_views(self.workspace, problem.num_tokens, self.plan)
        self.stages.beta.copy_(torch.full((EXPERTS,), DEFAULT_BETA))
        self.stages.linear_beta.copy_(torch.full((EXPERTS,), DEFAULT_LINEAR_BETA))
        self.output = torch.full_like(problem.input, float("nan"), device=DEVICE)
        betas = {"beta": self.stages.beta, "linear_beta": self.stages.linear_beta}
        self.operands: dict[str, Tensor] = {**betas, **operands(problem.to(DEVICE))}
        self.params = MoeParams(
            num_tokens=problem.num_tokens,
            route_weights_are_float=problem.token_final_scales.dtype == torch.float32,
            workspace=self.workspace.data_ptr(),
            output=self.output.data_ptr(),
            **{name: tensor.data_ptr() for name, tensor in self.operands.items()},
        )

    def run(self) -> None:
        """Every launch of the plan, and the wait for their end."""
        library = program(ARCH).library
        check(library.cake_load(CAPABILITY))
        for index in range(len(self.plan["launches"])):
            check(library.cake_launch(ctypes.byref(self.params), CAPABILITY, sm_count(), index))
        run_recorded()

    def result(self) -> tuple[Tensor, Stages]:
        """(output bf16 [M, H], the workspace's sections) on the CPU, where rows that do not exist are 0."""
        return self.output.cpu(), self.stages.fetch()

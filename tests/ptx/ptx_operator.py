"""The operator in the interpreter: the plan's launches, made by the shipped launch code, on interpreted memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ptx_program import SM_COUNT, MoeParams, program
from ptxrun import Buffer, Launch, Memory, Module, Report, run
from ptxrun.api import Schedule
from torch import Tensor

from cake_moe._native import _C
from cake_moe.layout import (
    DEFAULT_BETA,
    DEFAULT_LINEAR_BETA,
    EXPERTS,
    FC1_GROUPS,
    FC1_ROW_BYTES,
    FC2_GROUPS,
    FC2_ROW_BYTES,
    HIDDEN,
    TOP_K,
)
from cake_moe.testing.inputs import MoeInputs
from cake_moe.testing.stages import Stages

WORKSPACE_ALIGNMENT = 128  # plan/workspace.h, kSectionAlignment
# Each MMA that reads unused rows is a finding of its own before these are left out.
_MAX_FINDINGS = 10_000


@cache
def module(arch: str, fat_binary: int) -> Module:
    """The PTX of one CUDA file of the project."""
    return Module(program(arch).modules[fat_binary, int(arch.rstrip("a"))])


def modules(arch: str) -> list[Module]:
    """Those of all CUDA files that have PTX for the architecture."""
    return [module(arch, fat_binary) for fat_binary, number in program(arch).modules if f"{number}a" == arch]


def recorded_launches(arch: str) -> list[Launch]:
    """What the launch code has launched since the last call."""
    return [Launch.recorded(launch, module(arch, launch.fat_binary)) for launch in program(arch).take_launches()]


def check(error: bytes | None) -> None:
    """Raises for an error text of the launch code."""
    if error is not None:
        raise RuntimeError(error.decode())


def array(tensor: Tensor) -> NDArray[Any]:
    """The bytes of a contiguous tensor, shared."""
    return tensor.detach().view(torch.uint8).numpy()


def operands(problem: MoeInputs) -> dict[str, Tensor]:
    """The tensors of a problem under their names in MoeParams; the betas only where they are given."""
    tensors = {
        "input": problem.input,
        "expert_ids": problem.token_selected_experts,
        "route_weights": problem.token_final_scales,
        "fc1_weights": problem.fc1_expert_weights,
        "fc2_weights": problem.fc2_expert_weights,
    }
    scales = ("input_encode", "fc1_scales", "fc1_alpha", "hidden_encode", "fc2_scales", "fc2_alpha")
    tensors.update(zip(scales, problem.quant_scales, strict=True))
    betas = (("beta", problem.situ_beta), ("linear_beta", problem.situ_linear_beta))
    tensors.update((name, beta) for name, beta in betas if beta is not None)
    return tensors


class Call:
    """One call of the operator as launches on interpreted memory.

    Every section of the workspace is a buffer of its own, so that an access beside it is out of bounds and a finding
    names it. given: sections whose contents the caller provides, by name, as the CPU backend dumps them.
    """

    def __init__(
        self,
        problem: MoeInputs,
        arch: str = "90a",
        *,
        sm_count: int = SM_COUNT,
        given: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.problem, self.arch, self.sm_count = problem, arch, sm_count
        self.plan: dict[str, Any] = _C.make_plan(problem.num_tokens, f"sm_{arch}", sm_count)
        self.memory = Memory()
        self.workspace = self.memory.reserve(self.plan["workspace_total"], WORKSPACE_ALIGNMENT)
        # prepare_workspace() has written the constants before the call.
        constants = {
            "beta": torch.full((EXPERTS,), DEFAULT_BETA),
            "linear_beta": torch.full((EXPERTS,), DEFAULT_LINEAR_BETA),
        }
        contents = {**constants, **(given or {})}
        extents = self.plan["workspace"].items()
        self.sections = {name: self._section(name, offset, size, contents) for name, (offset, size) in extents if size}
        self.output = self.memory.add_empty(problem.input.nbytes, "output", alignment=16)
        self.params = self._params()

    def _section(self, name: str, offset: int, size: int, contents: Mapping[str, Tensor]) -> Buffer:
        if name not in contents:
            return self.memory.add_empty(size, name, address=self.workspace + offset)
        content = array(contents[name].contiguous().clone()).reshape(-1)
        if content.nbytes != size:
            raise ValueError(f"section {name} has {size} bytes, got {content.nbytes}")
        return self.memory.add(content, name, address=self.workspace + offset)

    def _params(self) -> MoeParams:
        problem = self.problem
        buffers = {name: self._input(name, tensor) for name, tensor in operands(problem).items()}
        for name in ("beta", "linear_beta"):
            buffers.setdefault(name, self.sections[name])
        return MoeParams(
            num_tokens=problem.num_tokens,
            route_weights_are_float=problem.token_final_scales.dtype == torch.float32,
            workspace=self.workspace,
            output=self.output.address,
            **{name: buffer.address for name, buffer in buffers.items()},
        )

    def _input(self, name: str, tensor: Tensor) -> Buffer:
        return self.memory.add(array(tensor), name, readonly=True, alignment=16)

    def stages(self) -> list[str]:
        """Names of the plan's launches."""
        return [launch["stage"] for launch in self.plan["launches"]]

    def launches(self, stages: Sequence[str] | None = None) -> list[Launch]:
        """The plan's launches, or those of the named stages, as the launch code makes them."""
        library, capability = program(self.arch).library, int(self.arch.rstrip("a"))
        check(library.cake_load(capability))
        for index, name in enumerate(self.stages()):
            if stages is None or name in stages:
                check(library.cake_launch(ctypes.byref(self.params), capability, self.sm_count, index))
        return recorded_launches(self.arch)

    def execute(
        self, launches: Sequence[Launch], schedule: Schedule = "early", seed: int = 0, *, max_instructions: int = 0
    ) -> Report:
        """Runs launches with every check. max_instructions: see `ptxrun.run`.

        FC1 and FC2 load whole token tiles, also the rows that an expert does not fill; sums of such rows are never
        stored. What these rows hold is the interpreter's poison, and the results are compared bit by bit.
        """
        report = run(
            launches,
            self.memory,
            schedule=schedule,
            seed=seed,
            sms=self.sm_count,
            max_findings=_MAX_FINDINGS,
            max_instructions=max_instructions,
        )
        if len(report.findings) >= _MAX_FINDINGS:
            raise RuntimeError(f"the run stopped after {_MAX_FINDINGS} findings, expected ones among them: {report}")
        for opcode in ("ldmatrix", "wgmma"):
            report = report.without("uninitialised_read", opcode)
        return report

    def run(self, schedule: Schedule = "early", seed: int = 0, stages: Sequence[str] | None = None) -> Report:
        """`launches` and `execute`."""
        return self.execute(self.launches(stages), schedule, seed)

    def result(self) -> tuple[Tensor, Stages]:
        """(output bf16 [M, H], views of the workspace) after a run."""
        tokens, rows = self.problem.num_tokens, TOP_K * self.problem.num_tokens

        def view(name: str, dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.from_numpy(self.sections[name].data).view(dtype).view(*shape)

        stages = Stages(
            beta=view("beta", torch.float32, EXPERTS),
            linear_beta=view("linear_beta", torch.float32, EXPERTS),
            expert_offsets=view("expert_offsets", torch.int32, EXPERTS + 1),
            row_route=view("row_route", torch.int32, rows),
            route_row=view("route_row", torch.int32, tokens, TOP_K),
            xq=view("xq", torch.uint8, tokens, FC1_ROW_BYTES),
            xs=view("xs", torch.uint8, tokens, FC1_GROUPS),
            hq=view("hq", torch.uint8, rows, FC2_ROW_BYTES),
            hs=view("hs", torch.uint8, rows, FC2_GROUPS),
            y=view("y", torch.bfloat16, rows, HIDDEN),
        )
        output = torch.from_numpy(self.output.numpy(np.int16, (tokens, HIDDEN))).view(torch.bfloat16)
        return output, stages


def run_quantize(x: Tensor, encode: Tensor, arch: str, schedule: Schedule = "early") -> tuple[Tensor, Tensor, Report]:
    """The standalone quantise kernel on bf16 [rows, columns]: (packed, scales, report)."""
    rows, columns = x.shape
    memory = Memory()
    source = memory.add(array(x), "x", readonly=True, alignment=16)
    scale = memory.add(array(encode), "encode", readonly=True, alignment=4)
    packed = memory.add_empty(rows * columns // 2, "packed", alignment=8)
    scales = memory.add_empty(rows * columns // 16, "scales", alignment=1)
    words = [ctypes.c_uint64(value) for value in (source.address, rows, columns, scale.address)]
    words += [ctypes.c_uint64(packed.address), ctypes.c_uint64(scales.address)]
    check(program(arch).library.cake_quantize(*words, ctypes.c_int(SM_COUNT)))
    report = run(recorded_launches(arch), memory, schedule=schedule, sms=SM_COUNT)
    return (
        torch.from_numpy(packed.numpy(np.uint8, (rows, columns // 2))),
        torch.from_numpy(scales.numpy(np.uint8, (rows, columns // 16))),
        report,
    )

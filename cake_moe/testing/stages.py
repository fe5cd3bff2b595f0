"""The intermediates of a call by name: views of the workspace, as the plan lays it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cake_moe._native import _C
from cake_moe.layout import EXPERTS, FC1_GROUPS, FC1_ROW_BYTES, FC2_GROUPS, FC2_ROW_BYTES, HIDDEN, TOP_K
from cake_moe.ops import prepare_workspace
from cake_moe.testing.inputs import MoeInputs

POISON = 0xFF  # NaN as bfloat16, as float32 and as e4m3; -1 as int32
_BY_ROW = ("row_route", "hq", "hs", "y")


@dataclass(frozen=True)
class Stages:
    """Views of one workspace after a call with M tokens; R <= 16 M rows are in use (R is the last expert offset)."""

    beta: Tensor  # float32 [E], default situ_beta
    linear_beta: Tensor  # float32 [E], default situ_linear_beta
    expert_offsets: Tensor  # int32 [E + 1], first row of each expert
    row_route: Tensor  # int32 [16 M], token * 16 + slot of a row
    route_row: Tensor  # int32 [M, 16], row of a route; -1 no route, -2 invalid id
    xq: Tensor  # uint8 [M, H / 2], quantised input
    xs: Tensor  # uint8 [M, H / 16], its e4m3 block scales
    hq: Tensor  # uint8 [16 M, I / 2], requantised SiTU output of a row
    hs: Tensor  # uint8 [16 M, I / 16], its e4m3 block scales
    y: Tensor  # bf16 [16 M, H], FC2 output of a row

    def clone(self) -> Stages:
        return Stages(**{name: view.clone() for name, view in vars(self).items()})

    def cpu(self) -> Stages:
        return Stages(**{name: view.cpu() for name, view in vars(self).items()})

    def fetch(self) -> Stages:
        """On the CPU. Of a section by row only the rows in use are read, the others are 0: compute-sanitizer's
        initcheck reports a copy of what no kernel has written."""
        rows = int(self.expert_offsets[-1])
        fetched = {name: view.cpu() for name, view in vars(self).items() if name not in _BY_ROW}
        for name in _BY_ROW:
            view = getattr(self, name)
            fetched[name] = torch.zeros_like(view, device="cpu")
            fetched[name][:rows] = view[:rows].cpu()
        return Stages(**fetched)


def plan_of(num_tokens: int, device: torch.device) -> dict[str, Any]:
    """The plan of a call with num_tokens tokens on `device`, as `_C.make_plan` gives it."""
    if device.type == "cpu":
        return _C.make_plan(num_tokens, "cpu", 0)
    properties = torch.cuda.get_device_properties(device)
    arch = f"sm_{properties.major}{properties.minor}a"
    return _C.make_plan(num_tokens, arch, properties.multi_processor_count)


def stage_views(workspace: Tensor, num_tokens: int, plan: Mapping[str, Any] | None = None) -> Stages:
    """The sections of `workspace` (uint8, 1-D) for a call with num_tokens tokens, without a copy.

    plan: of the call, as `_C.make_plan` gives it; by default that of the workspace's device.
    """
    sections = (plan_of(num_tokens, workspace.device) if plan is None else plan)["workspace"]
    rows = TOP_K * num_tokens

    def view(name: str, dtype: torch.dtype, *shape: int) -> Tensor:
        offset, size = sections[name]
        return workspace[offset : offset + size].view(dtype).view(*shape)

    return Stages(
        beta=view("beta", torch.float32, EXPERTS),
        linear_beta=view("linear_beta", torch.float32, EXPERTS),
        expert_offsets=view("expert_offsets", torch.int32, EXPERTS + 1),
        row_route=view("row_route", torch.int32, rows),
        route_row=view("route_row", torch.int32, num_tokens, TOP_K),
        xq=view("xq", torch.uint8, num_tokens, FC1_ROW_BYTES),
        xs=view("xs", torch.uint8, num_tokens, FC1_GROUPS),
        hq=view("hq", torch.uint8, rows, FC2_ROW_BYTES),
        hs=view("hs", torch.uint8, rows, FC2_GROUPS),
        y=view("y", torch.bfloat16, rows, HIDDEN),
    )


def run(problem: MoeInputs, workspace: Tensor | None = None) -> tuple[Tensor, Stages]:
    """One call of the operator on `problem`: (output bf16 [M, H], its stages).

    The output and every byte of the workspace are poisoned first, then the workspace is prepared. workspace: uint8 [>=
    workspace_size(M)], reused when given; otherwise a new one, which the stages keep alive.
    """
    tokens = problem.num_tokens
    if workspace is None:
        workspace = torch.empty(_C.workspace_bytes(tokens), dtype=torch.uint8, device=problem.input.device)
    workspace.fill_(POISON)
    prepare_workspace(workspace, tokens)
    output = torch.empty_like(problem.input)
    output.view(torch.uint8).fill_(POISON)
    call(problem, workspace, output)
    return output, stage_views(workspace, tokens)


def call(problem: MoeInputs, workspace: Tensor, output: Tensor) -> None:
    """`torch.ops.cake.fused_moe` with the operands of `problem`."""
    torch.ops.cake.fused_moe(
        problem.input,
        problem.token_selected_experts,
        problem.token_final_scales,
        problem.fc1_expert_weights,
        problem.fc2_expert_weights,
        problem.quant_scales,
        workspace,
        output,
        problem.situ_beta,
        problem.situ_linear_beta,
    )

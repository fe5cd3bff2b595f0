"""What is timed: the operator on any device and, on the CPU, a streaming read of its weights and a torch.mm loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from cake_moe import reference
from cake_moe.layout import EXPERTS
from cake_moe.ops import prepare_workspace, workspace_size
from cake_moe.testing import stages
from cake_moe.testing.inputs import MoeInputs, RandomWeights

from .cases import touched_experts
from .results import READ

PEER_NAMES = ("bf16", "humming")
"""Other implementations of the layer that a GPU may be asked to time."""


class Contender(Protocol):
    """Something that does the work of variant `index` of a case.

    `name` goes into the results, and so does `note`: which of several ways was chosen for the case, or nothing.
    """

    name: str
    note: str

    def call(self, index: int) -> Tensor:
        """Do it once; returns a result that depends on all of the work."""


class Operator:
    """The operator, eager, with a prepared workspace and a given output."""

    name = "cake_moe"
    note = ""

    def __init__(self, variants: Sequence[MoeInputs]) -> None:
        self._variants = variants
        first = variants[0]
        self._workspace = torch.empty(workspace_size(first.num_tokens), dtype=torch.uint8, device=first.input.device)
        prepare_workspace(self._workspace, first.num_tokens)
        self._output = torch.empty_like(first.input)

    def call(self, index: int) -> Tensor:
        stages.call(self._variants[index], self._workspace, self._output)
        return self._output


class StreamingRead:
    """Reads as many bytes of weights and block scales as the case touches, once, with all of torch's threads.

    The experts read are as many as those touched, but neighbours, so that each of the four tensors is one contiguous
    read; they move on with every call. The largest of int64 values is limited by memory alone and was the fastest of
    torch's reductions.
    """

    name = READ
    note = ""

    def __init__(self, weights: RandomWeights, variants: Sequence[MoeInputs]) -> None:
        self._tensors = (weights.fc1, weights.fc1_scales, weights.fc2, weights.fc2_scales)
        self._counts = [len(touched_experts(variant.token_selected_experts)) for variant in variants]
        self._next = 0

    def call(self, index: int) -> Tensor:
        count = self._counts[index]
        first = self._next if self._next + count <= EXPERTS else 0
        self._next = first + count
        parts = (tensor[first : first + count].view(torch.int64) for tensor in self._tensors)
        return torch.stack([part.amax() for part in parts])


class MatmulLoop:
    """torch.mm over the touched experts, whose weights are dequantised to float32 beforehand.

    Gather, [up; gate] product, SiTU, product, weighted scatter; the routes are grouped by expert beforehand, and the
    weights are stored in the orientation in which torch.mm is fastest for few rows. Memory does not hold hundreds of
    experts in float32 (16.5 MB each), so a pool of them is used in turn: the same work and traffic, since the pool is
    far larger than any cache. Where the pool holds all touched experts the result is that of the layer without
    quantised activations.
    """

    name = "torch.mm loop"
    note = ""

    def __init__(self, variants: Sequence[MoeInputs], pool_size: int, dtype: torch.dtype = torch.float32) -> None:
        """pool_size: experts to hold, at least 1; dtype: of weights, activations and products."""
        self._variants = variants
        self._inputs = [variant.input.to(dtype) for variant in variants]
        self._groups = [_group_by_expert(variant) for variant in variants]
        self._pool: list[tuple[Tensor, Tensor]] = []
        self._slot: list[dict[int, int]] = []
        first_owner: dict[int, int] = {}
        for variant in variants:
            slots = {}
            for position, expert in enumerate(touched_experts(variant.token_selected_experts)):
                if expert not in first_owner and len(self._pool) < pool_size:
                    first_owner[expert] = len(self._pool)
                    self._pool.append(_dequantised(variant, expert, dtype))
                slots[expert] = first_owner.get(expert, position % len(self._pool))
            self._slot.append(slots)

    def call(self, index: int) -> Tensor:
        x = self._inputs[index]
        beta, linear_beta = (betas.to(x.device) for betas in self._variants[index].betas)
        unit = torch.ones(1, dtype=torch.float32, device=x.device)
        output = torch.zeros_like(x)
        for expert, tokens, route_weights in self._groups[index]:
            w13, w2 = self._pool[self._slot[index][expert]]
            up, gate = torch.mm(w13, x[tokens].T).chunk(2)
            only = slice(expert, expert + 1)
            hidden = reference.situ(gate, up, unit, beta[only], linear_beta[only])
            output.index_add_(0, tokens, torch.mm(hidden.T, w2).mul_(route_weights))
        return output


def _group_by_expert(variant: MoeInputs) -> list[tuple[int, Tensor, Tensor]]:
    """(expert, its tokens, their route weights as float32 [n, 1]) of every touched expert."""
    routes = reference.route(variant.token_selected_experts)
    weights = variant.token_final_scales.float().view(-1, 1)
    tokens = routes.row_token.long()
    return [(expert, tokens[rows], weights[routes.row_route[rows].long()]) for expert, rows in routes.used_experts()]


def _dequantised(variant: MoeInputs, expert: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Weights of an expert with their global scales: FC1 [2I, H], FC2 transposed [I, H]."""
    encode, fc1_scales, fc1_alpha, hidden_encode, fc2_scales, fc2_alpha = variant.quant_scales
    w13 = reference.fc1_expert(variant.fc1_expert_weights, fc1_scales, expert, "prepared", dtype)
    w2 = reference.fc2_expert(variant.fc2_expert_weights, fc2_scales, expert, "prepared", dtype)
    return w13.mul_(encode * fc1_alpha[expert]), w2.mul_(hidden_encode[expert] * fc2_alpha[expert]).T.contiguous()

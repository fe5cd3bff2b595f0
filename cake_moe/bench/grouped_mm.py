"""The layer with bfloat16 weights and torch's own operators: what one would write without a quantised kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cake_moe import reference
from cake_moe.layout import EXPERTS, FC1_ROWS, HIDDEN, INTERMEDIATE, TOP_K
from cake_moe.testing.inputs import MoeInputs

from .contenders import Contender


class GroupedMatmul:
    """``torch._grouped_mm`` over all experts, dequantised to bfloat16 beforehand (7.4 GB). Needs a GPU."""

    name = "BF16 grouped_mm"

    def __init__(self, model: MoeInputs) -> None:
        """model: a problem on a GPU that has all experts' weights."""
        encode, s1, a1, hidden_encode, s2, a2 = model.quant_scales
        device = model.input.device
        self.fc1 = torch.empty(EXPERTS, FC1_ROWS, HIDDEN, dtype=torch.bfloat16, device=device)
        self.fc2 = torch.empty(EXPERTS, HIDDEN, INTERMEDIATE, dtype=torch.bfloat16, device=device)
        for expert in range(EXPERTS):
            w13 = reference.fc1_expert(model.fc1_expert_weights, s1, expert, "prepared", torch.float32)
            w2 = reference.fc2_expert(model.fc2_expert_weights, s2, expert, "prepared", torch.float32)
            self.fc1[expert] = w13 * (encode * a1[expert])
            self.fc2[expert] = w2 * (hidden_encode[expert] * a2[expert])

    def candidates(self, variants: Sequence[MoeInputs]) -> list[Contender]:
        return [_Calls(self, variants)]


class _Calls:
    name = GroupedMatmul.name
    note = ""

    def __init__(self, peer: GroupedMatmul, variants: Sequence[MoeInputs]) -> None:
        self._peer, self._variants = peer, variants
        self._betas = [tuple(float(beta[0]) for beta in variant.betas) for variant in variants]

    def call(self, index: int) -> Tensor:
        problem = self._variants[index]
        ids = problem.token_selected_experts.view(-1)
        by_expert = torch.argsort(ids)
        tokens = by_expert // TOP_K
        ones = torch.ones_like(ids)
        ends = torch.zeros(EXPERTS, dtype=torch.int32, device=ids.device).scatter_add_(0, ids.long(), ones).cumsum(0)
        offsets = ends.to(torch.int32)
        up, gate = torch._grouped_mm(problem.input[tokens], self._peer.fc1.mT, offs=offsets).float().chunk(2, dim=1)
        beta, linear_beta = self._betas[index]
        hidden = beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * (linear_beta * torch.tanh(up / linear_beta))
        rows = torch._grouped_mm(hidden.bfloat16(), self._peer.fc2.mT, offs=offsets)
        weights = problem.token_final_scales.view(-1)[by_expert].float()
        output = torch.zeros(problem.num_tokens, HIDDEN, dtype=torch.float32, device=ids.device)
        return output.index_add_(0, tokens, rows.float() * weights[:, None]).bfloat16()

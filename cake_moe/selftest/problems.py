"""Operands of the checks: a few experts, tokens made once and repeated, ids by a named routing."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch

from cake_moe.testing.inputs import MoeInputs, make_inputs, make_route_weights
from cake_moe.testing.routings import expert_pool, make_routing

NAN = "nan"
"""Beside the names of `cake_moe.testing.routings`: uniform ids and a NaN in the middle token's input."""

_SEED = 5


class Problems:
    """Problems on one device that share their weights. experts: how many of the 896 are used; tokens: how many
    differ, the others repeat them. Together they make the time that passes before the first check."""

    def __init__(self, device: torch.device, experts: int, tokens: int) -> None:
        self.device, self._tokens = device, tokens
        self.pool = expert_pool(experts)

    @cached_property
    def _exact(self) -> MoeInputs:
        return self._base("integer")

    @cached_property
    def _rounding(self) -> MoeInputs:
        return self._base("normal")

    def _base(self, kind: str) -> MoeInputs:
        base = make_inputs(self._tokens, routing="balanced", kind=kind, experts=self.pool, seed=_SEED)
        return base.to(self.device)

    def exact(self, num_tokens: int, routing: str = "uniform") -> MoeInputs:
        """Every sum of FC1 is exact in any order: hq and hs have the CPU backend's bits."""
        return self._problem(self._exact, num_tokens, routing)

    def rounding(self, num_tokens: int) -> MoeInputs:
        """Normal input, uniform ids; sums round."""
        return self._problem(self._rounding, num_tokens, "uniform")

    def _problem(self, base: MoeInputs, num_tokens: int, routing: str) -> MoeInputs:
        ids = make_routing("uniform" if routing == NAN else routing, num_tokens, seed=_SEED, experts=self.pool)
        problem = replace(
            base,
            input=base.input[torch.arange(num_tokens) % base.num_tokens].contiguous(),
            token_selected_experts=ids.to(self.device),
            token_final_scales=make_route_weights(num_tokens, seed=_SEED).to(self.device),
        )
        if routing == NAN:
            problem.input[num_tokens // 2, 77] = torch.nan
        return problem

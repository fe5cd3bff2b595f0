"""Small problems on weights that all tests of the process share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cake_moe.testing.inputs import MoeInputs, make_inputs
from cake_moe.testing.routings import expert_pool

Problems = Callable[[int], MoeInputs]


@pytest.fixture(scope="session")
def make_problem() -> Problems:
    def make(num_tokens: int) -> MoeInputs:
        return make_inputs(num_tokens, experts=expert_pool(32), seed=num_tokens)

    return make


def same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.fixture(name="same_bits", scope="session")
def _same_bits() -> Callable[[Tensor, Tensor], bool]:
    return same_bits

"""One valid call on poisoned memory, to be spoilt by each test in one point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

import cake_moe
from cake_moe.testing.inputs import make_inputs
from cake_moe.testing.routings import expert_pool
from cake_moe.testing.stages import POISON

TOKENS = 5


@dataclass
class Call:
    """Arguments by name. The memory of `output` and `workspace` is kept even where an argument is replaced."""

    arguments: dict[str, Any]
    guarded: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.guarded = [self.arguments["output"].view(torch.uint8), self.arguments["workspace"]]
        self.before = [tensor.clone() for tensor in self.guarded]

    def python(self) -> Tensor:
        return cake_moe.fused_moe(**self.arguments)

    def raw(self) -> None:
        torch.ops.cake.fused_moe(**self.arguments)

    def functional(self) -> Tensor:
        inputs = {name: value for name, value in self.arguments.items() if name not in ("workspace", "output")}
        result: Tensor = torch.ops.cake.fused_moe_functional(**inputs)
        return result

    def refuses(self, path: str, error: type[Exception], text: str) -> None:
        """The call by `path` raises exactly this and has written nothing."""
        with pytest.raises(Exception) as caught:  # noqa: PT011
            getattr(self, path)()
        assert (type(caught.value), str(caught.value)) == (error, text)
        for tensor, before in zip(self.guarded, self.before, strict=True):
            assert torch.equal(tensor, before), "something was written"


@pytest.fixture
def make_call() -> Callable[..., Call]:
    def make(num_tokens: int = TOKENS, prepared: bool = True) -> Call:
        problem = make_inputs(num_tokens, experts=expert_pool(32), seed=1)
        workspace = torch.full((cake_moe.workspace_size(num_tokens),), POISON, dtype=torch.uint8)
        if prepared:
            cake_moe.prepare_workspace(workspace, num_tokens)
        output = torch.empty_like(problem.input)
        output.view(torch.uint8).fill_(POISON)
        arguments = {name: value for name, value in vars(problem).items()}
        return Call(arguments | {"workspace": workspace, "output": output})

    return make


@pytest.fixture
def call(make_call: Callable[..., Call]) -> Call:
    return make_call()

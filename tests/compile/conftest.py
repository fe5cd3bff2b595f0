"""Operands of calls whose weights nobody may copy: 2.1 GB, of which only 32 experts are in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor

import cake_moe
from cake_moe.testing.inputs import MoeInputs, make_inputs
from cake_moe.testing.routings import expert_pool

EXPERTS = expert_pool(32)


@pytest.fixture(scope="session", autouse=True)
def _fresh_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that another build of this library left in torch's compile caches: they do not know its constants."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()


@pytest.fixture(scope="session")
def make_problem() -> Callable[[int], MoeInputs]:
    def make(num_tokens: int) -> MoeInputs:
        return make_inputs(num_tokens, experts=EXPERTS, seed=num_tokens)

    return make


@pytest.fixture(scope="session")
def problem(make_problem: Callable[[int], MoeInputs]) -> MoeInputs:
    return make_problem(5)


def is_weight(value: object) -> bool:
    return isinstance(value, Tensor) and value.numel() > 16 << 20


@pytest.fixture
def opcheck(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """torch.library.opcheck, kept from cloning and comparing the weights.

    Instead, the experts that hold data are compared with a copy of theirs.
    """
    from torch._subclasses import schema_check_mode
    from torch.testing._internal.optests import generate_tests

    def sparing(copy: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda value: value if is_weight(value) else copy(value)

    def clone_inputs(values: Any) -> list[Any]:
        def clone(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [clone(item) for item in value]
            return sparing(lambda tensor: tensor.detach().clone())(value) if isinstance(value, Tensor) else value

        return [clone(value) for value in values]

    allclose = torch.allclose
    monkeypatch.setattr(generate_tests, "clone_input", sparing(generate_tests.clone_input))
    monkeypatch.setattr(torch, "clone", sparing(torch.clone))
    monkeypatch.setattr(schema_check_mode, "clone_inputs", clone_inputs)
    monkeypatch.setattr(torch, "allclose", lambda a, b, **kwargs: a is b or allclose(a, b, **kwargs))

    def run(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        flat = [*args, *(args[5] if len(args) > 5 else ())]
        weights = [value for value in flat if is_weight(value)]
        before = [weight[EXPERTS] for weight in weights]
        torch.library.opcheck(operator, args, kwargs)
        for weight, copy in zip(weights, before, strict=True):
            assert torch.equal(weight[EXPERTS], copy)

    return run


@pytest.fixture
def new_workspace() -> Callable[[int], Tensor]:
    """A prepared workspace for this many tokens."""

    def make(num_tokens: int) -> Tensor:
        workspace = torch.empty(cake_moe.workspace_size(num_tokens), dtype=torch.uint8)
        return cake_moe.prepare_workspace(workspace, num_tokens)

    return make

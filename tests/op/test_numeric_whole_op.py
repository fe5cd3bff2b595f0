"""The whole operator against the numeric contract: every stage from its own dump, every row of the output.

`compare` holds no tolerance: see cake_moe/testing/compare.py. Up to 64 tokens the ids come from all 896 experts. Larger
counts take ids in 32 experts here and in all of them under the marker `full`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cake_moe.testing.compare import Report, compare
from cake_moe.testing.inputs import make_inputs
from cake_moe.testing.routings import expert_pool
from cake_moe.testing.stages import run

SMALL = (1, 2, 3, 7, 8, 16, 17, 33, 64)
LARGE = (128, 1000, 4096)
POOL = expert_pool(32)

# Global scales are random for every expert in all cases, betas in all that do not ask for the defaults.
CASES: dict[str, dict[str, Any]] = {
    "uniform": {"routing": "uniform"},
    "balanced": {"routing": "balanced", "route_weight_dtype": torch.float32},
    "skew": {"routing": "skew"},
    "one_group": {"routing": "one_group", "random_betas": False},
    "zipf": {"routing": "zipf", "route_weight_dtype": torch.float32, "random_betas": False},
    "duplicates": {"routing": "duplicates"},
    "no_route": {"routing": "no_route"},
    "out_of_range": {"routing": "out_of_range", "route_weight_dtype": torch.float32},
    "zero_weights": {"routing": "skew", "zero_weights": True},
    "nan_row": {"routing": "skew", "kind": "nan_row"},
}
KINDS = ("integer", "wide", "subnormal", "inf")


def check(num_tokens: int, seed: int, **options: Any) -> Report:
    problem = make_inputs(num_tokens, seed=seed, **options)
    output, stages = run(problem)
    report = compare(problem, output, stages)
    given = {name: value for name, value in options.items() if name != "experts"}
    print(f"M={num_tokens} in {len(problem.active_experts)} experts, {given}: {report}")
    return report


@pytest.mark.parametrize("num_tokens", SMALL)
@pytest.mark.parametrize("case", CASES)
def test_up_to_64_tokens_over_all_experts(case: str, num_tokens: int) -> None:
    check(num_tokens, num_tokens, **CASES[case])


@pytest.mark.parametrize("num_tokens", [3, 17, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_input(kind: str, num_tokens: int) -> None:
    report = check(num_tokens, 1, kind=kind, experts=POOL)
    assert report.nan_rows == 0
    if kind == "integer":
        assert report.stages["fc1"].differing == 0  # every sum is exact


@pytest.mark.parametrize("case", CASES)
def test_128_tokens_in_32_experts(case: str) -> None:
    check(128, 5, experts=POOL, **CASES[case])


@pytest.mark.parametrize("case", ["uniform", "zipf", "out_of_range", "nan_row"])
def test_1000_tokens_in_32_experts(case: str) -> None:
    check(1000, 6, experts=POOL, **CASES[case])


def test_4096_tokens_in_32_experts() -> None:
    check(4096, 7, experts=POOL, **CASES["no_route"])


@pytest.mark.full
@pytest.mark.parametrize("num_tokens", LARGE)
@pytest.mark.parametrize("case", CASES)
def test_large_counts_over_all_experts(case: str, num_tokens: int) -> None:
    check(num_tokens, num_tokens, **CASES[case])


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_input_at_1000_tokens(kind: str) -> None:
    check(1000, 2, kind=kind, experts=expert_pool(256))


@pytest.mark.full
def test_16384_tokens_over_all_experts() -> None:
    check(16384, 8, routing="uniform")


@pytest.mark.parametrize("routing", ["no_route", "out_of_range"])
def test_which_rows_are_nan_or_zero(routing: str) -> None:
    """Precedence of a token: an invalid id, then no route at all, then NaN in its input."""
    problem = make_inputs(40, routing=routing, experts=POOL, seed=3)
    problem.input[::4, 100] = torch.nan
    output, stages = run(problem)
    compare(problem, output, stages)
    ids = problem.token_selected_experts
    invalid = ((ids < -1) | (ids >= 896)).any(dim=1)
    empty = ~invalid & (ids == -1).all(dim=1)
    nan = invalid | (~empty & problem.input.isnan().any(dim=1))
    assert invalid.any() == (routing == "out_of_range")
    assert (empty & problem.input.isnan().any(dim=1)).any()
    assert torch.equal(output.isnan().all(dim=1), nan)
    assert torch.equal(output.isnan().any(dim=1), nan)
    assert torch.equal((output.view(torch.int16) == 0).all(dim=1), empty)

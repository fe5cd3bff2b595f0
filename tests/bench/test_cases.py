"""Token counts, variants and byte counts of the benchmark."""

import pytest
import torch

from cake_moe._native import _C
from cake_moe.bench import cases
from cake_moe.bench.cases import (
    CacheEviction,
    Case,
    make_variants,
    padded_rows,
    parse_counts,
    route_count,
    touched_experts,
)
from cake_moe.testing.inputs import RandomWeights


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("8", [8]),
        ("1-4", [1, 2, 3, 4]),
        ("16-64:16", [16, 32, 48, 64]),
        ("16-63:16", [16, 32, 48]),
        ("1-16384x2", [2**i for i in range(15)]),
        ("3-3", [3]),
    ],
)
def test_counts(text: str, counts: list[int]) -> None:
    assert parse_counts(text) == counts


@pytest.mark.parametrize(
    "text", ["", "a", "1-", "-1", "0", "16385", "4-2", "1-8x1", "1-8:0", "1,2", "1-8x2 ", "0-64:16"]
)
def test_counts_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"token counts must (look like|ascend within 1\.\.16384)"):
        parse_counts(text)


def test_expert_bytes_are_those_of_the_tensors() -> None:
    weights = RandomWeights()
    tensors = (weights.fc1, weights.fc1_scales, weights.fc2, weights.fc2_scales)
    assert sum(tensor[0].numel() for tensor in tensors) == cases.EXPERT_BYTES == 2_322_432
    assert _C.geometry()["experts"] == len(weights.fc1)


def test_touched_experts_and_routes_ignore_invalid_ids() -> None:
    ids = torch.tensor([[5, 5, -1, 896, 895, 0] + [7] * 10], dtype=torch.int32)
    assert touched_experts(ids) == [0, 5, 7, 895]
    assert route_count(ids) == 14


@pytest.mark.parametrize(("unit", "rows"), [(1, 14), (8, 8 + 16 + 8 + 8), (16, 64)])
def test_padded_rows(unit: int, rows: int) -> None:
    ids = torch.tensor([[5, 5, -1, 896, 895, 0] + [7] * 10], dtype=torch.int32)
    assert padded_rows(ids, unit) == rows


def test_variants_of_one_model_share_its_scales() -> None:
    weights = RandomWeights()
    scales = make_variants(Case(1, "uniform", "warm"), weights, seed=9, count=1)[0].quant_scales
    for variant in make_variants(Case(2, "uniform", "cold"), weights, 3, 2, scales):
        assert variant.quant_scales is scales


def test_cold_variants_differ_and_warm_has_one() -> None:
    weights = RandomWeights()
    cold = make_variants(Case(1, "uniform", "cold"), weights, seed=3, count=3)
    assert len({tuple(touched_experts(variant.token_selected_experts)) for variant in cold}) == 3
    assert not torch.equal(cold[0].input, cold[1].input)
    again = make_variants(Case(1, "uniform", "warm"), weights, seed=3, count=3)
    assert len(again) == 1
    assert torch.equal(again[0].input, cold[0].input)


def test_eviction_writes_all_of_its_memory() -> None:
    evict = CacheEviction(1 << 20)
    evict()
    evict()
    assert torch.equal(evict._memory, torch.full((1 << 17,), 2))

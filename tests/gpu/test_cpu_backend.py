"""The CPU backend's bits in every section, where sums are exact: a sample of a call's tokens computed by both."""

from __future__ import annotations

import pytest
from gpu_support.plans import has_kernels, plan_rows
from gpu_support.problems import problem_of

from cake_moe.testing.cpu_bits import check_cpu_bits

pytestmark = pytest.mark.skipif(not has_kernels(), reason="needs a GPU that fused_moe has kernels for")

EDGES = sorted({count for row in plan_rows() for count in (row.first, row.last)})


@pytest.mark.parametrize(
    ("num_tokens", "routing"),
    [*((count, "uniform") for count in EDGES), *((row.first, "out_of_range") for row in plan_rows())],
)
def test_bits_of_the_cpu_backend(num_tokens: int, routing: str) -> None:
    compared = check_cpu_bits(problem_of(num_tokens, routing, "integer"))
    print(f"M={num_tokens}, {routing}: {compared.rows} rows, y differs in {compared.differing} of {compared.elements}")

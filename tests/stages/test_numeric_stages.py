"""Each stage of the CPU backend at its seam: bit for bit, from its own dumped input."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cake_moe import reference
from cake_moe.layout import dequantize_nvfp4
from cake_moe.testing.accumulate import CPU, Sm90HalvesSum, Sm90Sum, StepSum
from cake_moe.testing.compare import check_routes, compare
from cake_moe.testing.inputs import INPUT_KINDS, MoeInputs, make_inputs
from cake_moe.testing.routings import ROUTING_NAMES, expert_pool
from cake_moe.testing.stages import Stages, run

POOL = expert_pool(32)


@pytest.mark.parametrize("kind", INPUT_KINDS)
def test_every_bit_of_every_stage(kind: str) -> None:
    """The documented order of additions, emulated, leaves nothing to a bound."""
    problem = make_inputs(9, kind=kind, experts=POOL, seed=11)
    output, stages = run(problem)
    report = compare(problem, output, stages, bitwise=True)
    assert all(stage.differing == 0 for stage in report.stages.values())


@pytest.mark.parametrize("num_tokens", [1, 7, 70])
def test_every_bit_for_one_group(num_tokens: int) -> None:
    """Up to 70 rows an expert: full and ragged token tiles."""
    problem = make_inputs(num_tokens, routing="one_group", kind="wide", experts=POOL, seed=12)
    output, stages = run(problem)
    compare(problem, output, stages, bitwise=True)


@pytest.mark.parametrize("routing", ROUTING_NAMES)
@pytest.mark.parametrize("num_tokens", [1, 5, 100])
def test_route_tables(routing: str, num_tokens: int) -> None:
    """Besides being a valid set, the CPU's rows ascend by route inside an expert: they equal the reference's."""
    problem = make_inputs(num_tokens, routing=routing, experts=POOL, seed=13)
    _, stages = run(problem)
    check_routes(problem, stages)
    expected = reference.route(problem.token_selected_experts)
    assert torch.equal(stages.row_route[: len(expected.row_route)], expected.row_route)
    assert torch.equal(stages.route_row, expected.route_row)
    assert torch.equal(stages.expert_offsets, expected.expert_offsets)


def test_default_betas_are_written_by_prepare() -> None:
    problem = make_inputs(4, experts=POOL, seed=14, random_betas=False)
    output, stages = run(problem)
    assert (stages.beta == 4).all()
    assert (stages.linear_beta == 25).all()
    beta, linear_beta = problem.betas
    explicit = MoeInputs(**{**vars(problem), "situ_beta": beta, "situ_linear_beta": linear_beta})
    assert torch.equal(run(explicit)[0], output)


def test_what_the_inputs_reach() -> None:
    """The random problems are no easy ones: zero, subnormal and largest scales, every code, zeros of both signs."""
    seen_xs, seen_hs, seen_codes = set(), set(), set()
    for kind in ("wide", "subnormal", "normal", "inf"):
        _, stages = run(make_inputs(9, kind=kind, experts=POOL, seed=15))
        rows = int(stages.expert_offsets[-1])
        seen_xs |= set(stages.xs.unique().tolist())
        seen_hs |= set(stages.hs[:rows].unique().tolist())
        seen_codes |= set((stages.hq[:rows] & 15).unique().tolist())
    assert {0, 1, 7, 8, 0x7E} <= seen_xs
    assert {0, 1, 7, 8, 0x7E} <= seen_hs
    assert len(seen_hs) > 60
    assert seen_codes == set(range(16))


def test_gate_is_seen_from_shallow_to_saturated() -> None:
    """a*g spans the linear part of tanh, its bend and its cap, on both sides of zero."""
    problem = make_inputs(9, experts=POOL, seed=16)
    _, stages = run(problem)
    routes = reference.route(problem.token_selected_experts)
    gate, _ = reference.fc1(
        stages.xq, stages.xs, problem.fc1_expert_weights, problem.quant_scales[1], routes, dtype=torch.float64
    )
    gate = gate * problem.quant_scales[2].double()[routes.row_expert, None]
    for sign in (1, -1):
        assert ((sign * gate > 0) & (gate.abs() < 0.1)).float().mean() > 0.01
        assert ((sign * gate > 1) & (gate.abs() < 3)).float().mean() > 0.05
        assert (sign * gate > 4).float().mean() > 1e-3


def _operands(problem: MoeInputs, stages: Stages, expert: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = slice(int(stages.expert_offsets[expert]), int(stages.expert_offsets[expert + 1]))
    tokens = stages.row_route[rows].long() // 16
    x = dequantize_nvfp4(stages.xq[tokens], stages.xs[tokens])
    w = reference.fc1_expert(problem.fc1_expert_weights, problem.quant_scales[1], expert, "prepared", torch.float32)
    return x, w


@pytest.mark.parametrize("kind", ["wide", "normal"])
def test_bounds_hold_and_are_sharp(kind: str) -> None:
    """|emulated sum - exact sum| stays below the sharp bound, that below the coarse one; both for real operands."""
    problem = make_inputs(6, routing="one_group", kind=kind, experts=POOL, seed=17)
    _, stages = run(problem)
    x, w = _operands(problem, stages, problem.active_experts[3])
    w = w[::3]
    terms = (x.double()[:, None] * w.double()).flatten(0, 1)
    error = (CPU.emulate(x, w).double().flatten() - terms.sum(dim=1)).abs()
    sharp, coarse = CPU.sharp(terms), CPU.coarse(terms.abs().sum(dim=1), terms.shape[1])
    assert (error <= sharp).all()
    assert (sharp <= coarse).all()
    if kind == "wide":
        assert error.max() > 0
        assert (error / sharp).max() > 0.02  # within two decimal orders of the worst case
    for mma in (StepSum(step=64, group=16), StepSum(step=16, group=1), Sm90Sum(), Sm90HalvesSum()):
        assert (mma.sharp(terms) <= mma.coarse(terms.abs().sum(dim=1), terms.shape[1])).all()


def _truncating_mma(terms: Tensor) -> Tensor:
    """The steps of one chain (float64 [n, K]): a running sum and 16 terms, aligned to the largest, rounded to zero."""
    total = torch.zeros(len(terms), dtype=torch.float64)
    for step in terms.view(len(terms), -1, 16).unbind(1):
        parts = torch.cat([total[:, None], step], dim=1)
        _, exponent = torch.frexp(parts.abs().amax(dim=1, keepdim=True))
        quantum = torch.ldexp(torch.ones_like(exponent, dtype=torch.float64), exponent - 26)
        total = ((parts / quantum).trunc() * quantum).sum(dim=1)
        _, exponent = torch.frexp(total)
        quantum = torch.ldexp(torch.ones_like(total), exponent - 24)
        total = (total / quantum).trunc() * quantum
    return total


@pytest.mark.parametrize("length", [3584, 384])
def test_the_sm90_bound_follows_the_kernels_order(length: int) -> None:
    """A tensor core of the numeric contract stays within the bound in the fragments' order, not in that of K."""
    lane = 64 if length == 3584 else 32
    step = [lane * t + k for t in range(4) for k in (0, 1, 4, 5)]  # two pairs of a word of each lane
    index = torch.arange(length, dtype=torch.float64)[None]
    accumulation = Sm90Sum()
    chain = accumulation._chain(index)
    assert chain[0, :16].int().tolist() == step
    assert chain[0, 16:32].int().tolist() == [k + 2 for k in step]
    assert torch.equal(chain.sort().values, index)

    # Large terms that cancel inside a step of the fragments, but not inside 16 neighbours in K.
    generator = torch.Generator().manual_seed(4)
    terms = torch.randint(-127, 128, (200, length), generator=generator).double() * 2.0**-12
    first = chain[0, :64].long().view(-1, 16)
    for members in first:
        terms[:, members[0]], terms[:, members[-1]] = 2.0**20, -(2.0**20)
    sums = _truncating_mma(accumulation._chain(terms))
    error = (sums - terms.sum(dim=1)).abs()
    assert (error <= accumulation.sharp(terms)).all()
    assert error.max() > 0
    assert (accumulation.sharp(terms) < StepSum(step=16, group=1).sharp(terms)).all()


def test_the_bound_of_the_fused_path_follows_its_order() -> None:
    """FC1's halves of K, each a chain of its own, stay within the bound, but not within that of one chain. FC2 has no
    halves."""
    accumulation, one_chain = Sm90HalvesSum(), Sm90Sum()
    length = 3584
    generator = torch.Generator().manual_seed(5)
    terms = torch.randint(-127, 128, (300, length), generator=generator).double() * 2.0**-12
    chain = one_chain._chain(torch.arange(length, dtype=torch.float64)[None])[0].long()
    # Large terms that cancel where the halves meet: one chain forgets them at once, the second half carries its own on.
    terms[:, chain[length // 2 - 1]], terms[:, chain[length // 2]] = -(2.0**20), 2.0**20
    first, second = (_truncating_mma(one_chain._chain(half)).float() for half in terms.chunk(2, dim=1))
    error = ((first + second).double() - terms.sum(dim=1)).abs()
    assert (error <= accumulation.sharp(terms)).all()
    assert (error > one_chain.sharp(terms)).any()
    assert torch.equal(accumulation.sharp(terms[:, :384]), one_chain.sharp(terms[:, :384]))
    assert (accumulation.sharp(terms) <= accumulation.coarse(terms.abs().sum(dim=1), length)).all()

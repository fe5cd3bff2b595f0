"""Faults planted in the dumps of a right call: the comparator must name the stage, and no right call may trip it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cake_moe import reference
from cake_moe.layout import FC1_ROW_BYTES, FC1_ROWS, dequantize_nvfp4
from cake_moe.testing.accumulate import StepSum
from cake_moe.testing.compare import (
    MAX_DIFFERING,
    Mismatch,
    StageReport,
    TooManyDiffer,
    check_fc2,
    check_finalize,
    check_rows,
    compare,
    situ_float32,
)
from cake_moe.testing.inputs import MoeInputs, RandomWeights, make_inputs
from cake_moe.testing.rounding import bf16_bits
from cake_moe.testing.routings import expert_pool
from cake_moe.testing.stages import Stages, run

POOL = expert_pool(32)
Case = tuple[MoeInputs, Tensor, Stages]


@pytest.fixture(scope="module")
def right_call() -> Case:
    problem = make_inputs(6, routing="no_route", experts=POOL[::2], seed=21, route_weight_dtype=torch.float32)
    output, stages = run(problem)
    compare(problem, output, stages)
    return problem, output, stages


@pytest.fixture
def case(right_call: Case) -> Case:
    """A right call, free to be spoilt."""
    problem, output, stages = right_call
    return problem, output.clone(), stages.clone()


def caught(case: Case, stage: str) -> Mismatch:
    with pytest.raises(Mismatch, match=f"^{stage}") as info:
        compare(*case)
    return info.value


def test_message_names_everything(case: Case) -> None:
    stages = case[2]
    stages.hq[5, 7] ^= 0x10  # the odd element of byte 7
    error = caught(case, "fc1, code")
    assert (error.row, error.column) == (5, 15)
    expected = int(stages.hq[5, 7] >> 4) ^ 1
    assert str(error).startswith(f"fc1, code: row 5, column 15: expected {expected}, got {expected ^ 1}, bound ")


@pytest.mark.parametrize("bit", [0, 3, 6, 7])
def test_one_wrong_nibble(case: Case, bit: int) -> None:
    case[2].xq[3, 1000] ^= 1 << bit
    caught(case, "quantize, byte")
    case[2].xq[3, 1000] ^= 1 << bit
    case[2].hq[11, 100] ^= 1 << bit
    caught(case, "fc1, code")


@pytest.mark.parametrize("step", [-1, 1])
def test_scale_off_by_one_code(case: Case, step: int) -> None:
    case[2].xs[1, 200] += step
    caught(case, "quantize, scale")
    case[2].xs[1, 200] -= step
    case[2].hs[8, 23] += step
    caught(case, "fc1, scale")


def test_negative_or_nan_scale(case: Case) -> None:
    for code in (0x80, 0x7F, 0xFF):
        right = case[2].hs[8, 23].clone()
        case[2].hs[8, 23] = right ^ 0x80 if code == 0x80 else code
        caught(case, "fc1, scale")
        case[2].hs[8, 23] = right


def test_swapped_gate_and_up() -> None:
    """A backend that reads the 8-row groups of up and gate the other way round; the betas are asymmetric."""
    right, swapped = RandomWeights(5), RandomWeights(5)
    problem = make_inputs(3, experts=POOL, seed=22, weights=right)
    other = make_inputs(3, experts=POOL, seed=22, weights=swapped)
    for expert in other.active_experts:
        groups = swapped.fc1[expert].view(FC1_ROWS // 16, 2, 8, FC1_ROW_BYTES)
        groups.copy_(groups.flip(1).clone())
    output, stages = run(other)
    caught((problem, output, stages), "fc1")


def test_one_broken_tile_of_rows(case: Case) -> None:
    """128 stored FC2 rows of one expert left out, for one token: 128 of 344,064 values of y and of the output."""
    problem, output, stages = case
    rows = torch.arange(128, 256)
    stages.y[7, rows] = 0
    error = caught(case, "fc2")
    assert error.row == 7
    assert 128 <= error.column < 256
    # The same tile missing in the output only, where a mean over everything would hide it.
    token = 2
    exact, bound = check_fc2(problem, run(problem)[1])[1:]
    output[token, rows] = 0
    with pytest.raises(Mismatch, match=r"^rows: row 2"):
        check_rows(output, exact, bound)


def test_missing_route(case: Case) -> None:
    """One slot's route left out of the tables, consistently, as if it had been -1."""
    problem, _, stages = case
    rows = int(stages.expert_offsets[-1])
    lost = int(stages.row_route[rows - 1])
    stages.route_row.view(-1)[lost] = -1
    caught(case, "route, route_row")
    stages.route_row.view(-1)[lost] = rows - 1
    expert = int(problem.token_selected_experts.view(-1)[lost])
    stages.expert_offsets[expert + 1 :] -= 1
    caught(case, "route, expert_offsets")


def test_route_counted_twice(case: Case) -> None:
    stages = case[2]
    offsets = stages.expert_offsets
    expert = int((offsets.diff() >= 2).nonzero()[0])
    first = int(offsets[expert])
    stages.row_route[first + 1] = stages.row_route[first]
    caught(case, "route")


def test_route_of_another_expert(case: Case) -> None:
    stages = case[2]
    offsets = stages.expert_offsets
    used = (offsets.diff() > 0).nonzero().squeeze(1)
    a, b = int(offsets[used[0]]), int(offsets[used[1]])
    stages.row_route[[a, b]] = stages.row_route[[b, a]]
    caught(case, "route, expert of row")


@pytest.mark.parametrize("value", [-1, -7, 6 * 16, 2**31 - 1])
def test_route_outside_the_call(case: Case, value: int) -> None:
    case[2].row_route[0] = value
    caught(case, "route, row_route")


def test_order_inside_an_expert_is_free() -> None:
    """A GPU may place an expert's rows in any order: the same call with two rows of an expert exchanged is right."""
    problem = make_inputs(6, routing="one_group", experts=POOL, seed=23)
    output, stages = run(problem)
    first = int(stages.expert_offsets[problem.active_experts[4]])
    rows = torch.tensor([first, first + 3])
    for table in (stages.row_route, stages.hq, stages.hs, stages.y):
        table[rows] = table[rows.flip(0)].clone()
    stages.route_row.view(-1)[stages.row_route[rows].long()] = rows.int()
    compare(problem, output, stages)


def test_wrong_order_of_routes_in_the_sum() -> None:
    """Slots added from the last to the first: within every bound, but not the bits of the contract."""
    problem = make_inputs(64, experts=POOL, seed=26, route_weight_dtype=torch.float32)
    output, stages = run(problem)
    total = torch.zeros_like(output, dtype=torch.float32)
    weights = problem.token_final_scales
    for slot in range(15, -1, -1):
        y = stages.y[stages.route_row[:, slot].long()]
        total = (total.double() + y.double() * weights[:, slot, None].double()).float()
    reverse = total.bfloat16()
    assert 0 < (reverse != output).sum() < 1e-3 * output.numel()
    check_finalize(problem, output, stages)
    with pytest.raises(Mismatch, match=r"^finalize"):
        check_finalize(problem, reverse, stages)
    exact, bound = check_fc2(problem, stages)[1:]
    check_rows(reverse, exact, bound)


@pytest.mark.parametrize("step", [-1, 1])
def test_y_off_by_one_step(case: Case, step: int) -> None:
    problem, _, stages = case
    rows = int(stages.expert_offsets[-1])
    bits = stages.y.view(torch.int16)[:rows]
    # Wherever it happens, the neighbour is beyond the bound.
    for place in torch.randint(rows * 3584, (6,), generator=torch.Generator().manual_seed(1)).tolist():
        bits.view(-1)[place] += step
        with pytest.raises(Mismatch, match=r"^fc2") as info:
            check_fc2(problem, stages)
        assert (info.value.row, info.value.column) == divmod(place, 3584)
        bits.view(-1)[place] -= step


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda out: out[4].fill_(torch.nan), id="a NaN row"),
        pytest.param(lambda out: out[4, 17:18].fill_(torch.nan), id="one NaN"),
        pytest.param(lambda out: out[0].view(torch.uint8).fill_(0xFF), id="a row not written"),
        pytest.param(lambda out: out[3].neg_(), id="a zero row with the wrong sign"),
        pytest.param(lambda out: out[1].copy_(out[2].clone()), id="another token's row"),
        pytest.param(lambda out: out[5, 0].copy_(torch.inf), id="an infinity"),
    ],
)
def test_spoilt_output(case: Case, spoil: Callable[[Tensor], Tensor]) -> None:
    assert (case[1][3] == 0).all()  # no_route leaves token 3 without routes
    spoil(case[1])
    caught(case, "finalize")


def test_number_of_boundary_cases_is_limited() -> None:
    StageReport("fc1", 10_000, int(MAX_DIFFERING * 10_000)).finish()
    with pytest.raises(TooManyDiffer, match="fc1: 11 of 10000"):
        StageReport("fc1", 10_000, 11).finish()


def _tensor_core(x: Tensor, w: Tensor, step: int, bits: int) -> Tensor:
    """A model of an MMA: products and running sum aligned to the largest, truncated to `bits` fraction bits, added, and
    the result truncated to float32. x [R, K], w [N, K] -> float32 [R, N]."""
    total = torch.zeros(len(x), len(w), dtype=torch.float64)
    for start in range(0, x.shape[1], step):
        part = slice(start, start + step)
        products = x[:, None, part].double() * w[None, :, part].double()
        largest = torch.maximum(products.abs().amax(dim=2), total.abs())
        unit = torch.ldexp(torch.ones_like(total), torch.frexp(largest).exponent - 1 - bits)
        total = ((products / unit[:, :, None]).trunc().sum(dim=2) + (total / unit).trunc()) * unit
        nearest = total.float()
        away = nearest.double().abs() > total.abs()
        total = (nearest.view(torch.int32) - away.int()).view(torch.float32).double()
    return total.float()


def _redo_gemms(problem: MoeInputs, stages: Stages, step: int, bits: int) -> None:
    """Replaces hq, hs and y by what a backend with this arithmetic gives."""
    _, s1, alpha, encode, s2, alpha2 = problem.quant_scales
    beta, linear_beta = problem.betas
    for e, rows in reference.route(problem.token_selected_experts).used_experts():
        tokens = stages.row_route[rows].long() // 16
        x = dequantize_nvfp4(stages.xq[tokens], stages.xs[tokens])
        w = reference.fc1_expert(problem.fc1_expert_weights, s1, e, "prepared", torch.float32)
        up, gate = _tensor_core(x, w, step, bits).chunk(2, dim=1)
        v = situ_float32(gate, up, alpha[e], beta[e], linear_beta[e])
        stages.hq[rows], stages.hs[rows] = reference.requantize(v, encode[e].expand(len(v)))
        h = dequantize_nvfp4(stages.hq[rows], stages.hs[rows])
        w = reference.fc2_expert(problem.fc2_expert_weights, s2, e, "prepared", torch.float32)
        stages.y[rows] = bf16_bits(_tensor_core(h, w, step, bits) * alpha2[e]).view(torch.bfloat16)


def test_a_tensor_core_passes_its_own_bound_and_a_worse_one_does_not() -> None:
    """Another backend's arithmetic on operands of wide range: its last bits differ, within the bound of its own model.

    25 fraction bits at the alignment are the contract's worst MMA. A lossy one (13 bits, as an FP16 or a narrow
    accumulator would give) is caught.
    """
    problem = make_inputs(1, routing="one_group", kind="wide", experts=POOL[:16], seed=24)
    _, stages = run(problem)
    model = StepSum(step=16, group=1)
    for bits, right in ((25, True), (13, False)):
        _redo_gemms(problem, stages, 16, bits)
        output = reference.finalize(
            stages.y, problem.token_final_scales, reference.route(problem.token_selected_experts), dtype=torch.float32
        ).bfloat16()
        if right:
            report = compare(problem, output, stages, model)
            assert report.stages["fc2"].differing > 0  # the case is a real one
        else:
            with pytest.raises((Mismatch, TooManyDiffer)):
                compare(problem, output, stages, model)


def test_exact_sums_leave_no_room() -> None:
    """Where all sums are exact, not even a tensor core's bound excuses a bit next to a boundary."""
    problem = make_inputs(2, kind="integer", experts=POOL, seed=25)
    output, stages = run(problem)
    generous = StepSum(step=16, group=1, per_step=1e-2)
    compare(problem, output, stages, generous)
    stages.hq[0, 0] ^= 1
    with pytest.raises(Mismatch, match=r"fc1, code.*bound exact"):
        compare(problem, output, stages, generous)

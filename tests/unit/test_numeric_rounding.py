"""The comparator's own arithmetic against exact rational numbers, and the test data's promises."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from cake_moe.layout import decode_e2m1, decode_e4m3, encode_e2m1, encode_e4m3
from cake_moe.testing.accumulate import LaneSum, StepSum, sum_is_exact
from cake_moe.testing.inputs import INPUT_KINDS, RandomWeights, make_input, make_inputs
from cake_moe.testing.rounding import bf16_bits, bf16_cell, e2m1_cells, e4m3_cells, fma_float32
from cake_moe.testing.routings import INVALID_IDS, ROUTING_NAMES, expert_pool, make_routing


def nearest_float32(value: Fraction) -> float:
    """Correctly rounded, ties to even, by comparing the neighbours of a first guess."""
    guess = torch.tensor(float(value), dtype=torch.float64).float()
    up, down = (torch.nextafter(guess, guess.new_tensor(end)) for end in (torch.inf, -torch.inf))
    best = min((guess, up, down), key=lambda c: (abs(Fraction(float(c)) - value), int(c.view(torch.int32)) & 1))
    return float(best)


def test_fma_is_correctly_rounded() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b, c = (torch.randn(3000, generator=generator) for _ in range(3))
    c = c * 2.0 ** torch.randint(-60, 60, (3000,), generator=generator)
    tiny = torch.tensor([2.0**-149, -(2.0**-140)])
    a, b, c = torch.cat([a, tiny]), torch.cat([b, torch.tensor([0.5, 0.75])]), torch.cat([c, tiny])
    got = fma_float32(a, b, c)
    for i in range(len(a)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        assert float(got[i]) == nearest_float32(exact), i


def test_fma_avoids_the_false_tie() -> None:
    """a * b = 2^-24 * (1 - 2^-46) is just below half of the last place of 1 + 2^-23; float64 rounds to the tie."""
    a = torch.tensor([2.0**-12 * (1 + 2.0**-23)])
    b = torch.tensor([2.0**-12 * (1 - 2.0**-23)])
    odd = torch.tensor([1 + 2.0**-23])
    assert float((a.double() * b.double() + odd.double()).float()) == 1 + 2.0**-22  # what double rounding gives
    assert float(fma_float32(a, b, odd)) == 1 + 2.0**-23


def test_fma_special_values() -> None:
    inf, nan = torch.inf, torch.nan
    a = torch.tensor([inf, 0.0, nan, 0.0, -0.0, 3e38])
    b = torch.tensor([2.0, inf, 1.0, -1.0, 1.0, 3e38])
    c = torch.tensor([1.0, 1.0, 1.0, 0.0, -0.0, 0.0])
    got = fma_float32(a, b, c)
    assert got.isnan().tolist() == [False, True, True, False, False, False]
    assert got[0] == inf
    assert got[5] == inf
    assert torch.signbit(got[3:5]).tolist() == [False, True]


def test_bf16_cells_are_those_of_the_rounding() -> None:
    codes = torch.arange(-(2**15), 2**15).to(torch.int16)
    values = codes.view(torch.bfloat16)
    values = values[~values.isnan()]
    lower, upper = bf16_cell(values)
    assert (lower <= upper).all()
    # float32 holds every end exactly and the float next to it rounds into the neighbouring cell.
    for end, outward in ((upper, torch.inf), (lower, -torch.inf)):
        finite = end.isfinite() & (end != 0) & (end.abs() < 2.0**128)
        inside = torch.nextafter(end[finite].float(), -torch.tensor(outward))
        outside = torch.nextafter(end[finite].float(), torch.tensor(outward))
        assert (bf16_bits(inside) == values[finite].view(torch.int16)).all()
        assert (bf16_bits(outside) != values[finite].view(torch.int16)).all()
    assert [float(end) for end in bf16_cell(torch.tensor(0.0).bfloat16())] == [0.0, 2.0**-134]
    assert [float(end) for end in bf16_cell(torch.tensor(-0.0).bfloat16())] == [-(2.0**-134), 0.0]
    assert float(bf16_cell(torch.tensor(torch.inf).bfloat16())[0]) == 2.0**128 - 2.0**119


@pytest.mark.parametrize(
    ("cells", "decode", "encode", "codes"),
    [(e2m1_cells, decode_e2m1, encode_e2m1, 16), (e4m3_cells, decode_e4m3, encode_e4m3, 256)],
)
def test_cells_of_codes_are_those_of_the_codecs(cells, decode, encode, codes) -> None:  # type: ignore[no-untyped-def]
    lower, upper = cells()
    every = torch.arange(codes, dtype=torch.uint8)
    usable = ~decode(every).isnan()
    for end, outward in ((upper, torch.inf), (lower, -torch.inf)):
        finite = usable & end.isfinite() & (end != 0)
        inside = torch.nextafter(end[finite], torch.tensor(-outward, dtype=torch.float64))
        outside = torch.nextafter(end[finite], torch.tensor(outward, dtype=torch.float64))
        assert torch.equal(encode(inside), every[finite])
        assert (encode(outside) != every[finite]).all()


def test_sum_is_exact() -> None:
    terms = torch.zeros(6, 128, dtype=torch.float64)
    terms[0, :2] = torch.tensor([1.0, 2.0**-23])  # exact: 24 bits
    terms[1, :2] = torch.tensor([1.0, 2.0**-24])  # one bit too many
    terms[2] = 131071.0  # 128 * (2^17 - 1) < 2^24
    terms[3] = 131073.0
    terms[4, 5] = torch.nan
    assert sum_is_exact(terms).tolist() == [True, False, True, False, True, True]


@pytest.mark.parametrize("model", [LaneSum(), StepSum(step=64, group=16), StepSum(step=16, group=1)])
def test_bounds_follow_from_the_running_sums(model: LaneSum | StepSum) -> None:
    """Zero for no terms, linear in a common factor, below the bound that needs only sum|t|."""
    terms = torch.randn(50, 3584, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    bound = model.sharp(terms)
    torch.testing.assert_close(model.sharp(8 * terms), 8 * bound, rtol=1e-12, atol=0)
    assert float(model.sharp(torch.zeros(1, 3584, dtype=torch.float64))) == 0
    assert (bound <= model.coarse(terms.abs().sum(dim=1), 3584)).all()


def test_lane_sum_in_rational_numbers() -> None:
    """The emulated order, written out for one sum with exact rationals and one rounding an addition."""
    generator = torch.Generator().manual_seed(4)
    codes = torch.randint(16, (2, 384), generator=generator)
    scales = 2.0 ** torch.randint(-9, 9, (2, 24), generator=generator)
    x, w = (decode_e2m1(codes) * scales.repeat_interleave(16, dim=1)).split(1)
    lanes = [0.0] * 16
    for h in range(48):
        part = sum(Fraction(float(x[0, k])) * Fraction(float(w[0, k])) for k in range(8 * h, 8 * h + 8))
        lanes[h % 16] = nearest_float32(Fraction(lanes[h % 16]) + part)
    for distance in (8, 4, 2, 1):
        lanes = [nearest_float32(Fraction(lanes[j]) + Fraction(lanes[j + distance])) for j in range(distance)]
    assert float(LaneSum().emulate(x, w)) == lanes[0]


@pytest.mark.parametrize("name", ROUTING_NAMES)
@pytest.mark.parametrize("num_tokens", [1, 2, 64, 500])
def test_routings(name: str, num_tokens: int) -> None:
    ids = make_routing(name, num_tokens, seed=7)
    assert ids.shape == (num_tokens, 16)
    assert ids.dtype == torch.int32
    assert torch.equal(ids, make_routing(name, num_tokens, seed=7))
    if name != "balanced" and num_tokens > 1:
        assert not torch.equal(ids, make_routing(name, num_tokens, seed=8))
    valid = ids[(ids >= 0) & (ids < 896)]
    restricted = make_routing(name, num_tokens, experts=expert_pool(32))
    assert set(restricted.unique().tolist()) <= {*expert_pool(32), -1, *INVALID_IDS}
    distinct = torch.tensor([len(row.unique()) for row in ids])
    counts = torch.bincount(valid, minlength=896)
    if name in ("uniform", "balanced", "skew", "one_group", "zipf"):
        assert (distinct == 16).all()
        assert len(valid) == ids.numel()
    if name == "duplicates":
        assert (distinct == 1).all()
    if name == "balanced":
        assert counts.max() - counts.min() <= 1
    if name == "one_group":
        assert (counts > 0).sum() == 16
    if name == "skew":
        assert (counts > 0).sum() <= 64
    if name == "zipf" and num_tokens == 500:
        assert counts.max() > 10 * counts.float().mean()
    if name == "no_route":
        assert (ids == -1).any()
        assert ((ids >= -1) & (ids < 896)).all()
        if num_tokens > 3:
            assert (ids[3] == -1).all()
    if name == "out_of_range":
        assert (((ids < -1) | (ids >= 896)).any(dim=1)).tolist() == [t % 3 == 0 for t in range(num_tokens)]
        if num_tokens == 500:
            assert set(INVALID_IDS) <= set(ids.unique().tolist())


def test_weights_do_not_depend_on_what_was_touched_before() -> None:
    one, two = RandomWeights(9), RandomWeights(9)
    one.touch([895])
    two.touch([3, 895, 4])
    assert torch.equal(one.fc1[895], two.fc1[895])
    assert torch.equal(one.fc2_scales[895], two.fc2_scales[895])
    assert not torch.equal(two.fc1[3], two.fc1[4])
    assert (one.fc1[3, :4] == 0).all()
    assert one.fc1_scales[895].max() < 0x7F


def test_inputs_are_what_they_are_called() -> None:
    x = {kind: make_input(kind, 5) for kind in INPUT_KINDS}
    assert all(t.shape == (5, 3584) and t.dtype == torch.bfloat16 for t in x.values())
    assert x["inf"].isinf().any()
    assert x["nan_row"].isnan().any(dim=1).tolist() == [False, False, True, False, False]
    tiny = x["subnormal"].float().abs()
    assert ((tiny > 0) & (tiny < 2.0**-126)).any()
    zero = x["subnormal"][x["subnormal"] == 0]
    assert torch.signbit(zero).any()
    assert not torch.signbit(zero).all()
    problem = make_inputs(5, kind="integer", experts=expert_pool(32))
    assert float(problem.quant_scales[0]) == 1
    blocks = problem.input.float().view(5, -1, 16)
    scale = blocks.abs().amax(dim=2, keepdim=True) / 6
    assert (decode_e2m1(encode_e2m1(blocks / scale)) * scale == blocks).all()

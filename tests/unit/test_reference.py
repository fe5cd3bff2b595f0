"""The oracle itself: against a naive evaluation in Python floats and the consequences that the contract lists."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cake_moe import layout, reference

NAN, INF = math.nan, math.inf
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def tokens(values: list[float]) -> Tensor:
    return torch.tensor(values).bfloat16().view(1, -1)


def quantize(x: Tensor, encode: float = 1.0) -> tuple[list[int], list[int]]:
    """Codes and scale codes of one row."""
    packed, scales = reference.quantize_input(x, torch.tensor([encode]))
    return layout.unpack_nibbles(packed)[0].tolist(), scales[0].tolist()


def nearest_e2m1(x: float) -> int:
    magnitude = min(abs(x), 6.0)
    code = min(range(8), key=lambda c: (abs(magnitude - E2M1[c]), c % 2))
    return code + 8 * (math.copysign(1, x) < 0)


def quantize_block_naively(block: np.ndarray, encode: np.float32) -> tuple[list[int], int]:
    """One block, one float32 operation at a time."""
    one, sixth = np.float32(1), np.float32(0.16666667163372040)
    amax = np.max(np.abs(block))
    with np.errstate(all="ignore"):
        scaled = min(amax * (encode * sixth), np.float32(448))
        sf8 = torch.tensor(scaled).to(torch.float8_e4m3fn)
        factor = min(one / (np.float32(sf8.float().item()) * (one / encode)), np.finfo(np.float32).max)
        factor = np.float32(0) if amax == 0 else factor
        return [nearest_e2m1(float(x * factor)) for x in block], int(sf8.view(torch.uint8))


class TestQuantizeInput:
    @given(
        block=st.lists(st.floats(allow_nan=False, width=32), min_size=16, max_size=16),
        encode=st.floats(2.0**-20, 2.0**20, width=32),
    )
    def test_any_block(self, block: list[float], encode: float) -> None:
        x = tokens(block)
        codes, scale = quantize_block_naively(x[0].float().numpy(), np.float32(encode))
        assert quantize(x, encode) == (codes, [scale])

    def test_zero_block_keeps_signs(self) -> None:
        assert quantize(tokens([0.0, -0.0] * 8)) == ([0, 8] * 8, [0])

    def test_small_block_has_scale_zero_and_saturated_codes(self) -> None:
        """sf32 = 2^-10 is the tie between 0 and the smallest scale, and goes to the even code 0."""
        amax = 6 * 2.0**-10
        assert quantize(tokens([amax, -amax] + [0.0] * 14)) == ([7, 15] + [0] * 14, [0])
        assert quantize(tokens([amax * (1 + 2**-7)] + [0.0] * 15))[1] == [1]

    def test_infinity_saturates(self) -> None:
        assert quantize(tokens([INF, -INF, 1.0, -1.0] + [0.0] * 12)) == ([7, 15, 0, 8] + [0] * 12, [0x7E])

    def test_nan_marks_its_block_only(self) -> None:
        codes, scales = quantize(tokens([6.0] * 15 + [NAN] + [6.0] * 16))
        assert (codes, scales) == ([0] * 16 + [7] * 16, [layout.E4M3_NAN, 0x38])

    def test_exact_values(self) -> None:
        block = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -1.5, -2, -3, -4, -6, 0]
        codes, scales = quantize(tokens([2 * v for v in block]))
        assert (codes, scales) == ([nearest_e2m1(v) for v in block], [0x40])

    def test_scale_multiplies_in_the_order_of_the_contract(self) -> None:
        """amax * (qX * (1/6)); (amax * qX) * (1/6) and amax * (qX / 6) both round to 0x2C here."""
        assert quantize(tokens([1.6796875] + [0.0] * 15), float.fromhex("0x1.653596p+0"))[1] == [0x2D]

    def test_factor_divides_as_the_contract_says(self) -> None:
        """x * (1 / (s * (1/qX))); x * (qX / s) and x / (s / qX) both reach the next code here."""
        assert quantize(tokens([2.3125, 1.328125] + [0.0] * 14), float.fromhex("0x1.cfcfdp-1"))[0][1] == 5

    def test_no_tokens(self) -> None:
        packed, scales = reference.quantize_input(torch.empty(0, 64, dtype=torch.bfloat16), torch.ones(1))
        assert packed.shape == (0, 32)
        assert scales.shape == (0, 4)


class TestRequantize:
    def test_float32_rule(self) -> None:
        generator = torch.Generator().manual_seed(0)
        v = torch.randn(40, 64, generator=generator) * torch.logspace(-6, 3, 40)[:, None]
        q_a = torch.rand(40, generator=generator) + 0.5
        packed, scales = reference.requantize(v, q_a)
        codes = layout.unpack_nibbles(packed).view(40, 4, 16)
        for row in range(40):
            for block, x in enumerate(v[row].view(4, 16).numpy()):
                amax, q = np.max(np.abs(x)), q_a[row].numpy()
                sf8 = torch.tensor(min(amax * q * np.float32(0.16666667163372040), np.float32(448))).to(
                    torch.float8_e4m3fn
                )
                r = q / np.float32(sf8.float().item()) if sf8.float() > 0 else np.float32(0)
                assert scales[row, block] == sf8.view(torch.uint8)
                assert codes[row, block].tolist() == [nearest_e2m1(float(e * r)) for e in x]

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_nan_and_zero_blocks(self, dtype: torch.dtype) -> None:
        v = torch.zeros(1, 48, dtype=dtype)
        v[0, 5] = NAN
        v[0, 16:32] = 2.0**-12
        packed, scales = reference.requantize(v, torch.ones(1))
        assert scales.tolist() == [[layout.E4M3_NAN, 0, 0]]
        assert packed.count_nonzero() == 0


class TestRoute:
    def test_tables(self) -> None:
        ids = torch.tensor([[2, 0, -1], [2, 2, 9], [-5, 1, 0]], dtype=torch.int32)
        routes = reference.route(ids, experts=3)
        assert routes.expert_offsets.tolist() == [0, 2, 3, 6]
        assert routes.row_route.tolist() == [1, 8, 7, 0, 3, 4]
        assert routes.route_row.tolist() == [[3, 0, -1], [4, 5, -2], [-2, 2, 1]]
        assert routes.row_expert.tolist() == [0, 0, 1, 2, 2, 2]
        assert routes.row_token.tolist() == [0, 2, 2, 0, 1, 1]
        assert routes.used_experts() == [(0, slice(0, 2)), (1, slice(2, 3)), (2, slice(3, 6))]
        assert {t.dtype for t in routes} == {torch.int32}

    @given(st.lists(st.lists(st.integers(-3, 9), min_size=4, max_size=4), max_size=12))
    def test_every_valid_route_has_its_row(self, ids: list[list[int]]) -> None:
        routes = reference.route(torch.tensor(ids, dtype=torch.int32).view(-1, 4), experts=7)
        flat = [i for row in ids for i in row]
        order = sorted((r for r, i in enumerate(flat) if 0 <= i < 7), key=lambda r: (flat[r], r))
        assert routes.row_route.tolist() == order
        rows = {r: row for row, r in enumerate(order)}
        assert routes.route_row.flatten().tolist() == [rows.get(r, -1 if i == -1 else -2) for r, i in enumerate(flat)]


class Layer:
    """A tiny layer (H=32, I=16, E=5, K=3) in canonical order, with scales and betas that differ for every expert."""

    H, INTER, E, K, M = 32, 16, 5, 3, 4

    def __init__(self, seed: int = 0) -> None:
        g = torch.Generator().manual_seed(seed)
        self.w13 = torch.randint(0, 256, (self.E, 2 * self.INTER, self.H // 2), generator=g, dtype=torch.uint8)
        self.w2 = torch.randint(0, 256, (self.E, self.H, self.INTER // 2), generator=g, dtype=torch.uint8)
        self.s13 = torch.randint(0x28, 0x48, (self.E, 2 * self.INTER, self.H // 16), generator=g, dtype=torch.uint8)
        self.s2 = torch.randint(0x28, 0x48, (self.E, self.H, self.INTER // 16), generator=g, dtype=torch.uint8)
        uniform = lambda: torch.rand(self.E, generator=g) + 0.5  # noqa: E731
        self.alpha1, self.q_a, self.alpha2 = uniform() * 0.05, uniform() * 3, uniform() * 0.2
        self.beta, self.linear_beta = uniform() * 2, uniform() * 9
        self.q_x = torch.tensor([0.75])
        self.x = torch.randn(self.M, self.H, generator=g).bfloat16()
        self.ids = torch.tensor([[0, 1, 2], [4, 4, 4], [-1, 3, 0], [2, -1, -1]], dtype=torch.int32)
        self.weights = torch.rand(self.M, self.K, generator=g).bfloat16()

    def run(self, **changes: Tensor | torch.dtype | None) -> Tensor:
        a = vars(self) | {"dtype": torch.float64} | changes
        return reference.fused_moe(
            a["x"],
            a["ids"],
            a["weights"],
            a["w13"],
            a["w2"],
            [a["q_x"], a["s13"], a["alpha1"], a["q_a"], a["s2"], a["alpha2"]],
            situ_beta=a["beta"],
            situ_linear_beta=a["linear_beta"],
            dtype=a["dtype"],
            layout="canonical",
        )


def values(packed: Tensor, scales: Tensor) -> list[list[float]]:
    """Rows of plain numbers, looked up code by code."""
    rows = []
    for row, row_scales in zip(packed.tolist(), scales.tolist(), strict=True):
        codes = [code for byte in row for code in (byte % 16, byte // 16)]
        e4m3 = torch.tensor(row_scales, dtype=torch.uint8).view(torch.float8_e4m3fn).double().tolist()
        rows.append([E2M1[c % 8] * (-1) ** (c // 8) * e4m3[k // 16] for k, c in enumerate(codes)])
    return rows


def naive_fused_moe(layer: Layer) -> Tensor:
    """The contract with Python floats, token by token; the halves, betas and scales are used where it says so."""
    x = values(*reference.quantize_input(layer.x, layer.q_x))
    out = []
    for m in range(layer.M):
        total = [0.0] * layer.H
        for slot in range(layer.K):
            e = int(layer.ids[m, slot])
            if e == -1:
                continue
            w13, w2 = values(layer.w13[e], layer.s13[e]), values(layer.w2[e], layer.s2[e])
            a, b, lb = float(layer.alpha1[e]), float(layer.beta[e]), float(layer.linear_beta[e])
            h = []
            for f in range(layer.INTER):
                u = a * sum(p * q for p, q in zip(x[m], w13[f], strict=True))
                g = a * sum(p * q for p, q in zip(x[m], w13[layer.INTER + f], strict=True))
                h.append(b * math.tanh(g / b) / (1 + math.exp(-g)) * (lb * math.tanh(u / lb)))
            q_a = float(layer.q_a[e])
            amax = max(map(abs, h))
            scale = float(torch.tensor(amax * q_a / 6).to(torch.float8_e4m3fn).double())
            hq = [E2M1[c % 8] * (-1) ** (c // 8) * scale for c in (nearest_e2m1(v * q_a / scale) for v in h)]
            for column in range(layer.H):
                y = float(layer.alpha2[e]) * sum(p * q for p, q in zip(hq, w2[column], strict=True))
                total[column] += float(layer.weights[m, slot]) * float(torch.tensor(y).bfloat16())
        out.append(total)
    return torch.tensor(out, dtype=torch.float64)


class TestFusedMoe:
    @pytest.mark.parametrize("seed", range(4))
    def test_equals_the_naive_evaluation(self, seed: int) -> None:
        """Sums of a few exact products: float64 agrees to its own rounding."""
        layer = Layer(seed)
        torch.testing.assert_close(layer.run(), naive_fused_moe(layer), rtol=1e-13, atol=1e-13)

    def test_float32_agrees_to_a_code(self) -> None:
        """Where no code changes, float32 differs from float64 by its roundings only."""
        layer = Layer()
        exact, single = layer.run(), layer.run(dtype=torch.float32)
        assert single.dtype == torch.float32
        y_rounding = 2.0**-8  # y may fall to the neighbouring bfloat16
        bound = y_rounding * naive_magnitude(layer)
        assert ((single - exact).abs() <= bound).all()

    def test_gate_and_up_are_not_symmetric(self) -> None:
        layer = Layer()
        swapped = layer.w13.roll(layer.INTER, 1), layer.s13.roll(layer.INTER, 1)
        exchanged = layer.run(w13=swapped[0], s13=swapped[1])
        assert ((exchanged - layer.run()).norm(dim=1) > 0.1 * layer.run().norm(dim=1)).all()

    def test_default_betas(self) -> None:
        layer = Layer()
        four, twenty_five = torch.full((layer.E,), 4.0), torch.full((layer.E,), 25.0)
        assert torch.equal(layer.run(beta=None, linear_beta=None), layer.run(beta=four, linear_beta=twenty_five))
        assert not torch.equal(layer.run(beta=None), layer.run())

    def test_power_of_two_scales_move_between_operands(self) -> None:
        """dW13 twice as large with block scales half as large is the same layer; so is every other pairing."""
        layer = Layer()
        expected = layer.run()
        assert torch.equal(layer.run(alpha1=layer.alpha1 * 2, s13=layer.s13 - 8), expected)
        assert torch.equal(layer.run(alpha2=layer.alpha2 * 4, s2=layer.s2 - 16), expected)
        assert torch.equal(layer.run(q_x=layer.q_x / 2, alpha1=layer.alpha1 * 2), expected)
        assert torch.equal(layer.run(q_a=layer.q_a / 2, alpha2=layer.alpha2 * 2), expected)

    def test_duplicates_add_and_zero_weights_are_computed(self) -> None:
        layer = Layer()
        ids, zero = torch.full_like(layer.ids, 4), torch.zeros_like(layer.weights)
        once = zero.clone()
        once[:, 1] = 0.5
        parts = zero.clone()
        parts[:, 0], parts[:, 2] = 0.25, 0.25
        assert torch.equal(layer.run(ids=ids, weights=once), layer.run(ids=ids, weights=parts))
        assert (layer.run(ids=ids, weights=zero) == 0).all()
        nan_scale = layer.alpha2.clone()
        nan_scale[4] = NAN
        assert layer.run(ids=ids, weights=zero, alpha2=nan_scale).isnan().all()

    def test_precedence_of_invalid_empty_and_nan(self) -> None:
        layer = Layer()
        clean = layer.run()
        layer.x[0, 7] = NAN
        layer.x[3, 0] = NAN
        layer.ids[1] = torch.tensor([1, 5, -1])
        layer.ids[3] = -1
        out = layer.run()
        assert out[0].isnan().all(), "a NaN input"
        assert out[1].isnan().all(), "an invalid id"
        assert torch.equal(out[2], clean[2]), "no other row changes"
        assert (out[3] == 0).all(), "no routes, whatever the input"
        assert not out[3].signbit().any()
        layer.ids[3, 1] = -7
        assert layer.run()[3].isnan().all(), "an invalid id, and no other route"

    def test_infinite_input_stays_finite(self) -> None:
        layer = Layer()
        layer.x[0, 3] = INF
        assert layer.run()[0].isfinite().all()

    def test_no_tokens(self) -> None:
        layer = Layer()
        out = layer.run(x=layer.x[:0], ids=layer.ids[:0], weights=layer.weights[:0])
        assert out.shape == (0, layer.H)

    def test_untouched_experts_are_not_read(self) -> None:
        layer = Layer()
        ids = layer.ids.clamp(max=2)
        expected = layer.run(ids=ids)
        layer.s13[3:], layer.s2[3:], layer.alpha1[3:], layer.alpha2[3:] = 0x7F, 0x7F, NAN, NAN
        assert torch.equal(layer.run(ids=ids), expected)


def naive_magnitude(layer: Layer) -> Tensor:
    """Sum of |weight * y| over the slots, the scale of the rounding errors of a row."""
    routes = reference.route(layer.ids, layer.E)
    expert = routes.row_expert
    xq, xs = reference.quantize_input(layer.x, layer.q_x)
    gate, up = reference.fc1(xq, xs, layer.w13, layer.s13, routes, layout="canonical")
    v = reference.situ(gate, up, layer.alpha1[expert], layer.beta[expert], layer.linear_beta[expert])
    hq, hs = reference.requantize(v, layer.q_a[expert])
    y = reference.fc2(hq, hs, layer.w2, layer.s2, layer.alpha2, routes, layout="canonical")
    return reference.finalize(y.abs(), layer.weights.abs(), routes)


def test_prepared_and_canonical_order_agree() -> None:
    """The smallest geometry that the interleave takes: H=128, I=64."""
    g = torch.Generator().manual_seed(5)
    experts, hidden, inter = 3, 128, 64
    w13 = torch.randint(0, 256, (experts, 2 * inter, hidden // 2), generator=g, dtype=torch.uint8)
    w2 = torch.randint(0, 256, (experts, hidden, inter // 2), generator=g, dtype=torch.uint8)
    s13 = torch.randint(0x28, 0x48, (experts, 2 * inter, hidden // 16), generator=g, dtype=torch.uint8)
    s2 = torch.randint(0x28, 0x48, (experts, hidden, inter // 16), generator=g, dtype=torch.uint8)
    fc1, fc2 = layout.fc1_row_order(inter), layout.fc2_row_order(hidden)
    x = torch.randn(6, hidden, generator=g).bfloat16()
    ids = torch.randint(0, experts, (6, 4), generator=g, dtype=torch.int32)
    weights = torch.rand(6, 4, generator=g).bfloat16()
    one, ones = torch.ones(1), torch.full((experts,), 0.05)

    canonical = [one, s13, ones, ones.reciprocal(), s2, ones]
    prepared = list(canonical)
    prepared[1] = layout.interleave_scales(s13[:, fc1])
    prepared[4] = layout.interleave_scales(s2[:, fc2])
    expected = reference.fused_moe(x, ids, weights, w13, w2, canonical, layout="canonical")
    assert torch.equal(reference.fused_moe(x, ids, weights, w13[:, fc1], w2[:, fc2], prepared), expected)
    assert expected.abs().sum() > 0


class TestRounding:
    def test_to_bf16_rounds_once(self) -> None:
        """1 + 2^-8 is a tie of bfloat16; what float32 cannot hold decides."""
        tie, tiny = 1 + 2.0**-8, 2.0**-40
        x = torch.tensor([tie, tie + tiny, tie - tiny, -tie, -tie - tiny, -tie + tiny], dtype=torch.float64)
        above, below = 1 + 2.0**-7, 1.0
        assert reference.to_bf16(x).tolist() == [below, above, below, -below, -above, -below]
        special = torch.tensor([INF, -INF, NAN, 0.0, -0.0, 1e300, 1e-300], dtype=torch.float64)
        assert str(reference.to_bf16(special).tolist()) == str([INF, -INF, NAN, 0.0, -0.0, INF, 0.0])

    @given(st.floats(width=32, allow_nan=False))
    def test_to_bf16_of_a_float32_is_torchs(self, value: float) -> None:
        x = torch.tensor([value])
        assert torch.equal(reference.to_bf16(x.double()), x.bfloat16())
        assert torch.equal(reference.to_bf16(x), x.bfloat16())

    def test_finalize_adds_in_slot_order(self) -> None:
        """In float32 2^24 swallows a following 1, but not a 1 that comes after -2^24."""
        y = torch.tensor([[2.0**24], [1.0], [-(2.0**24)]])
        ones = torch.ones(1, 3)
        in_order = reference.route(torch.tensor([[0, 1, 2]], dtype=torch.int32), experts=3)
        one_last = reference.route(torch.tensor([[0, 2, 1]], dtype=torch.int32), experts=3)
        assert reference.finalize(y, ones, in_order, dtype=torch.float32).item() == 0.0
        assert reference.finalize(y, ones, one_last, dtype=torch.float32).item() == 1.0
        assert reference.finalize(y, ones, in_order).item() == 1.0

    def test_finalize_fuses_multiply_and_add(self) -> None:
        """(1 + 2^-12)^2 - (1 + 2^-11) = 2^-24; a rounded product would leave nothing."""
        routes = reference.route(torch.tensor([[0, 1]], dtype=torch.int32), experts=2)
        w = torch.tensor([[1.0, 1 + 2.0**-12]])
        y = torch.tensor([[-(1 + 2.0**-11)], [1 + 2.0**-12]])
        assert reference.finalize(y, w, routes, dtype=torch.float32).item() == 2.0**-24

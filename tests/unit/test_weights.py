"""Preparing, packing and unpacking weights: bits, scales and refusals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from cake_moe import layout, reference
from cake_moe.weights import CanonicalWeights, PreparedWeights, pack_weights, prepare_weights, unpack_weights

EXPERTS = 3


@pytest.fixture(scope="module")
def canonical() -> CanonicalWeights:
    """Random bytes, every legal block scale, and global scales of every expert's own, powers of two and others."""
    g = torch.Generator().manual_seed(1)
    weights = CanonicalWeights.empty(EXPERTS, layout.INTERMEDIATE)
    for tensor in (weights.w13, weights.w2):
        tensor.random_(0, 256, generator=g)
    for tensor in (weights.w13_scales, weights.w2_scales):
        tensor.random_(0, 0x7F, generator=g)
    weights.w13_global.copy_(torch.tensor([2.0**-12, 3.1e-4, 1.0]))
    weights.w2_global.copy_(torch.tensor([7.7e-5, 2.0**-11, 0.1]))
    return weights


@pytest.fixture(scope="module")
def dense() -> tuple[Tensor, Tensor]:
    """bf16 w13 and w2 whose magnitudes differ from expert to expert and from block to block."""
    g = torch.Generator().manual_seed(2)
    w13 = torch.randn(EXPERTS, layout.FC1_ROWS, layout.HIDDEN, generator=g)
    w2 = torch.randn(EXPERTS, layout.FC2_ROWS, layout.INTERMEDIATE, generator=g)
    for w in (w13, w2):
        w *= torch.tensor([0.02, 1.0, 300.0])[:, None, None]
        w *= 2.0 ** torch.randint(-3, 1, w.shape[:2], generator=g)[..., None]
    return w13.bfloat16(), w2.bfloat16()


def equal(a: CanonicalWeights | PreparedWeights, b: CanonicalWeights | PreparedWeights) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.tensors(), b.tensors(), strict=True))


def test_unpack_inverts_pack(canonical: CanonicalWeights) -> None:
    prepared = pack_weights(*canonical.tensors())
    assert not torch.equal(prepared.fc1_weights, canonical.w13)
    assert equal(unpack_weights(prepared), canonical)
    assert equal(pack_weights(*unpack_weights(prepared).tensors()), prepared)


def test_pack_puts_every_byte_where_the_contract_says(canonical: CanonicalWeights) -> None:
    prepared = pack_weights(*canonical.tensors())
    for s in (0, 1, 8, 17, 31, 32, 500, 767):
        block, j, t = s // 32, s % 8, (s % 32) // 8
        row = 16 * block + 2 * j + t // 2 + 384 * (t % 2)
        assert torch.equal(prepared.fc1_weights[:, s], canonical.w13[:, row])
        for c in (0, 3, 4, 130, 223):
            offset = (s // 128) * 56 * 512 + (c // 4) * 512 + (s % 32) * 16 + ((s % 128) // 32) * 4 + c % 4
            assert torch.equal(prepared.fc1_scales.view(EXPERTS, -1)[:, offset], canonical.w13_scales[:, row, c])
    for s in (0, 1, 8, 33, 2049, 3583):
        row = 32 * (s // 32) + 4 * (s % 8) + (s % 32) // 8
        assert torch.equal(prepared.fc2_weights[:, s], canonical.w2[:, row])
        for c in (0, 5, 23):
            offset = (s // 128) * 6 * 512 + (c // 4) * 512 + (s % 32) * 16 + ((s % 128) // 32) * 4 + c % 4
            assert torch.equal(prepared.fc2_scales.view(EXPERTS, -1)[:, offset], canonical.w2_scales[:, row, c])


def test_pack_takes_float8_scales(canonical: CanonicalWeights) -> None:
    w13, s13, g13, w2, s2, g2 = canonical.tensors()
    float8 = torch.float8_e4m3fn
    assert equal(pack_weights(w13, s13.view(float8), g13, w2, s2.view(float8), g2), pack_weights(*canonical.tensors()))


@pytest.mark.parametrize("given", [None, (1.0, 1.0), (torch.tensor([2.0**-9, 0.013, 1.7]), 0.02)])
def test_prepare_is_quantisation_and_pack(
    dense: tuple[Tensor, Tensor], given: tuple[float | Tensor, float | Tensor] | None
) -> None:
    prepared = prepare_weights(*dense, global_scales=given)
    columns = []
    for w, scale in zip(dense, given or (None, None), strict=True):
        if scale is None:
            scale = w.abs().amax((1, 2)).float() / (6 * 448)
        scale = torch.as_tensor(scale, dtype=torch.float32).expand(EXPERTS)
        quantised = [reference.quantize_input(w[e], 1 / scale[e]) for e in range(EXPERTS)]
        columns += [torch.stack([q[0] for q in quantised]), torch.stack([q[1] for q in quantised]), scale]
    assert equal(unpack_weights(prepared), CanonicalWeights(*columns))


def test_prepared_values_are_near_the_given_weights(dense: tuple[Tensor, Tensor]) -> None:
    """The global scale is carried: each value is off by at most half the widest gap of e2m1, or by saturation."""
    weights = unpack_weights(prepare_weights(*dense))
    for w, packed, scales, global_scale in (
        (dense[0], weights.w13, weights.w13_scales, weights.w13_global),
        (dense[1], weights.w2, weights.w2_scales, weights.w2_global),
    ):
        for e in range(EXPERTS):
            step = layout.decode_e4m3(scales[e]) * global_scale[e]
            blocks = w[e].float().unflatten(-1, (-1, 16))
            error = (layout.dequantize_nvfp4(packed[e], scales[e], global_scale[e]).view_as(blocks) - blocks).abs()
            saturation = blocks.abs().amax(-1) - 6 * step
            assert (error <= torch.maximum(step, saturation)[..., None] * (1 + 2**-20)).all()
            assert scales[e].max() == 0x7E, "the largest block scale is 448"


def test_zero_and_tiny_experts() -> None:
    w13 = torch.zeros(2, layout.FC1_ROWS, layout.HIDDEN, dtype=torch.bfloat16)
    w2 = torch.zeros(2, layout.FC2_ROWS, layout.INTERMEDIATE, dtype=torch.bfloat16)
    w13[1, 0, 0] = 1e-38
    prepared = prepare_weights(w13, w2)
    assert prepared.fc1_global.tolist() == [1.0, 1.0]
    assert prepared.fc2_global.tolist() == [1.0, 1.0]
    assert all(t.count_nonzero() == 0 for t in (prepared.fc1_scales, prepared.fc2_scales, prepared.fc2_weights))


def test_prepare_takes_strided_experts(dense: tuple[Tensor, Tensor]) -> None:
    w13, w2 = dense
    transposed = w13.transpose(1, 2).contiguous().transpose(1, 2)
    assert equal(prepare_weights(transposed, w2), prepare_weights(w13, w2))


def test_power_of_two_global_scales_leave_the_layer_unchanged(dense: tuple[Tensor, Tensor]) -> None:
    """A global scale that preparation ignored, or that entered twice, would scale the result by it."""
    g = torch.Generator().manual_seed(3)
    x = torch.randn(4, layout.HIDDEN, generator=g).bfloat16()
    ids = torch.randint(0, EXPERTS, (4, 16), generator=g, dtype=torch.int32)
    route_weights = torch.rand(4, 16, generator=g).bfloat16()

    def run(factor13: Tensor, factor2: Tensor) -> Tensor:
        w13_global, w2_global = (w.abs().amax((1, 2)).float() / 2688 for w in dense)
        weights = prepare_weights(*dense, global_scales=(w13_global * factor13, w2_global * factor2))
        scales = weights.quant_scales(0.5, torch.tensor([0.25, 3.0, 0.01]))
        return reference.fused_moe(x, ids, route_weights, weights.fc1_weights, weights.fc2_weights, scales)

    one = torch.ones(EXPERTS)
    expected = run(one, one)
    assert expected.isfinite().all()
    assert torch.equal(run(torch.tensor([2.0, 4.0, 1.0]), torch.tensor([1.0, 8.0, 2.0])), expected)


def test_quant_scales_order_and_values(canonical: CanonicalWeights) -> None:
    prepared = pack_weights(*canonical.tensors())
    d_x, d_a = 0.3, torch.tensor([0.7, 0.2, 5.0])
    q_x, s13, alpha13, q_a, s2, alpha2 = prepared.quant_scales(d_x, d_a)
    d_x32 = torch.tensor(d_x)
    assert torch.equal(q_x, 1 / d_x32[None])
    assert s13 is prepared.fc1_scales
    assert torch.equal(alpha13, d_x32 * canonical.w13_global)
    assert torch.equal(q_a, 1 / d_a)
    assert s2 is prepared.fc2_scales
    assert torch.equal(alpha2, canonical.w2_global / q_a)
    shared = prepared.quant_scales(d_x, 0.25)
    assert shared[3].tolist() == [4.0] * EXPERTS
    assert shared[3].is_contiguous()
    assert all(t.dtype == torch.float32 for t in (q_x, alpha13, q_a, alpha2))


@pytest.mark.parametrize(
    ("input_scale", "hidden_scale", "text"),
    [
        (0.0, 1.0, "input_scale must be positive and finite, got 0.0 at 0"),
        (math.nan, 1.0, "input_scale must be positive and finite, got nan at 0"),
        (1.0, torch.tensor([1.0, -1.0, 1.0]), "hidden_scale must be positive and finite, got -1.0 at 1"),
        (1e-39, 1.0, r"input_scale must be at least 1.18e-38, the smallest normal float32, got 1.00\d*e-39 at 0"),
        (
            1.0,
            2.0**127,
            r"hidden_scale must be at most 8.51e\+37, where its .*, got 1.7\d*e\+38 at 0",
        ),
        (1e-37, 1.0, r"input_scale \* w13_global must be a finite normal float32, got 2.4\d*e-41 at 0"),
        (1.0, 1e-36, r"hidden_scale \* w2_global must be a finite normal float32, got 7.\d*e-41 at 0"),
        (1.0, math.inf, "hidden_scale must be positive and finite, got inf at 0"),
        (torch.ones(2), 1.0, r"input_scale must be one number, got \[2\]"),
        (1.0, torch.ones(2), r"hidden_scale must be one number or \[3\], got \[2\]"),
    ],
)
def test_quant_scales_refusals(
    canonical: CanonicalWeights, input_scale: float | Tensor, hidden_scale: float | Tensor, text: str
) -> None:
    with pytest.raises(ValueError, match=f"^quant_scales: {text}$"):
        canonical.quant_scales(input_scale, hidden_scale)


def _put(tensor: Tensor, position: tuple[int, ...], value: float) -> Tensor:
    changed = tensor.clone()
    changed[position] = value
    return changed


@pytest.mark.parametrize(
    ("argument", "change", "text"),
    [
        (0, lambda t: t[0], r"w13 must be of shape \[E, rows, columns\] with E in 1..896, got \[768, 1792\]"),
        (0, lambda t: t[:0], r"w13 must be of shape .*, got \[0, 768, 1792\]"),
        (0, lambda t: t[:, :-1], r"w13 must be uint8 \[3, 768, 1792\], got uint8 \[3, 767, 1792\]"),
        (0, lambda t: t.view(torch.int8), r"w13 must be uint8 \[3, 768, 1792\], got int8 \[3, 768, 1792\]"),
        (1, lambda t: t[..., :-4], r"w13_scales must be uint8 or float8_e4m3fn \[3, 768, 224\], got uint8 .*"),
        (1, lambda t: t.view(torch.float8_e5m2), r"w13_scales must be .*, got float8_e5m2 \[3, 768, 224\]"),
        (1, lambda t: _put(t, (2, 7, 5), 0x7F), r"w13_scales\[2\] must hold no negative .*, got nan at \[7, 5\]"),
        (1, lambda t: _put(t, (0, 7, 5), 0xB8), r"w13_scales\[0\] must hold no negative .*, got -1.0 at \[7, 5\]"),
        (2, lambda t: t[:2], r"w13_global must be float32 \[3\], got float32 \[2\]"),
        (2, lambda t: t.double(), r"w13_global must be float32 \[3\], got float64 \[3\]"),
        (2, lambda t: _put(t, (1,), 0.0), "w13_global must be positive and finite, got 0.0 at 1"),
        (
            2,
            lambda t: _put(t, (1,), 1e-39),
            "w13_global must be at least 1.18e-38, .*, got 1.0.*e-39 at 1",
        ),
        (3, lambda t: t[..., 1:], r"w2 must be uint8 \[3, 3584, 192\], got uint8 \[3, 3584, 191\]"),
        (4, lambda t: t[1:], r"w2_scales must be .*, got uint8 \[2, 3584, 24\]"),
        (4, lambda t: _put(t, (1, 0, 0), 0xFF), r"w2_scales\[1\] must hold no negative .*, got nan at \[0, 0\]"),
        (4, lambda t: _put(t, (1, 0, 0), 0x80), r"w2_scales\[1\] must hold no negative .*, got -0.0 at \[0, 0\]"),
        (5, lambda t: _put(t, (2,), math.nan), "w2_global must be positive and finite, got nan at 2"),
        (5, lambda t: _put(t, (2,), math.inf), "w2_global must be positive and finite, got inf at 2"),
    ],
)
def test_pack_refusals(
    canonical: CanonicalWeights, argument: int, change: Callable[[Tensor], Tensor], text: str
) -> None:
    arguments = list(canonical.tensors())
    arguments[argument] = change(arguments[argument])
    with pytest.raises(ValueError, match=f"^pack_weights: {text}$"):
        pack_weights(*arguments)


def test_unpack_refuses_other_shapes(canonical: CanonicalWeights) -> None:
    prepared = pack_weights(*canonical.tensors())
    with pytest.raises(
        ValueError, match=r"^unpack_weights: fc2_scales must be uint8 \[3, 3584, 24\], got uint8 \[3, 1\]$"
    ):
        unpack_weights(replace(prepared, fc2_scales=torch.zeros(3, 1, dtype=torch.uint8)))


@pytest.mark.parametrize(
    ("change13", "change2", "scales", "text"),
    [
        (lambda t: t.float(), None, None, r"w13 must be bfloat16 \[3, 768, 3584\], got float32 \[3, 768, 3584\]"),
        (lambda t: t[:, :700], None, None, r"w13 must be bfloat16 .*, got bfloat16 \[3, 700, 3584\]"),
        (lambda t: t.flatten(), None, None, r"w13 must be of shape .*"),
        (None, lambda t: t[:2], None, r"w2 must be bfloat16 \[3, 3584, 384\], got bfloat16 \[2, 3584, 384\]"),
        (None, lambda t: t.transpose(1, 2), None, r"w2 must be bfloat16 .*, got bfloat16 \[3, 384, 3584\]"),
        (
            lambda t: _put(t, (1, 5, 6), math.nan),
            None,
            None,
            r"w13\[1\] must be finite, got a largest magnitude of nan",
        ),
        (
            None,
            lambda t: _put(t, (2, 0, 0), -math.inf),
            None,
            r"w2\[2\] must be finite, got a largest magnitude of inf",
        ),
        (None, None, (0.0, 1.0), "global_scales dW13 must be positive and finite, got 0.0 at 0"),
        (
            None,
            None,
            (1.0, torch.tensor([1.0, math.nan, 1.0])),
            "global_scales dW2 must be positive and finite, got nan at 1",
        ),
        (None, None, (1e-39, 1.0), "global_scales dW13 must be at least 1.18e-38, the smallest .*, got 1.0.*e-39 at 0"),
        (None, None, (1.0, 2.0**127), r"global_scales dW2 must be at most 8.51e\+37, .*, got 1.7\d*e\+38 at 0"),
        (None, None, (1.0,), r"global_scales must be a pair \(dW13, dW2\) or None, got 1 values"),
        (None, None, (torch.ones(2), 1.0), r"global_scales dW13 must be one number or \[3\], got \[2\]"),
    ],
)
def test_prepare_refusals(
    dense: tuple[Tensor, Tensor],
    change13: Callable[[Tensor], Tensor] | None,
    change2: Callable[[Tensor], Tensor] | None,
    scales: tuple[float | Tensor, float | Tensor] | None,
    text: str,
) -> None:
    w13, w2 = dense
    w13 = w13 if change13 is None else change13(w13)
    w2 = w2 if change2 is None else change2(w2)
    with pytest.raises(ValueError, match=f"^prepare_weights: {text}$"):
        prepare_weights(w13, w2, global_scales=scales)


@pytest.mark.parametrize(
    ("scales", "text"),
    [
        (1.0, "global_scales must be a pair (dW13, dW2) or None, got float"),
        (("a", 1.0), "global_scales dW13 must be a number or a torch.Tensor, got str"),
    ],
)
def test_prepare_refuses_other_types_of_scales(dense: tuple[Tensor, Tensor], scales: Any, text: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(f'prepare_weights: {text}')}$"):
        prepare_weights(*dense, global_scales=scales)


def test_other_types_than_tensors(canonical: CanonicalWeights, dense: tuple[Tensor, Tensor]) -> None:
    nothing: Any = None
    with pytest.raises(TypeError, match=r"^prepare_weights: w13 must be a torch.Tensor, got NoneType$"):
        prepare_weights(nothing, dense[1])
    with pytest.raises(TypeError, match=r"^prepare_weights: w2 must be a torch.Tensor, got NoneType$"):
        prepare_weights(dense[0], nothing)
    with pytest.raises(TypeError, match=r"^unpack_weights: prepared must be a PreparedWeights, got NoneType$"):
        unpack_weights(nothing)
    with pytest.raises(TypeError, match=r"^quant_scales: input_scale must be a number or a torch.Tensor, got str$"):
        canonical.quant_scales("a")  # type: ignore[arg-type]
    for index, argument in enumerate(vars(canonical)):
        arguments = [*canonical.tensors()]
        arguments[index] = nothing
        with pytest.raises(TypeError, match=rf"^pack_weights: {argument} must be a torch.Tensor, got NoneType$"):
            pack_weights(*arguments)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_prepare_takes_parameters_in_every_mode(
    dense: tuple[Tensor, Tensor], mode: Callable[[], Any], threads: int
) -> None:
    expected, before = prepare_weights(*dense), torch.get_num_threads()
    w13, w2 = (torch.nn.Parameter(w) for w in dense)
    torch.set_num_threads(threads)
    try:
        with mode():
            found = prepare_weights(w13, w2)
    finally:
        torch.set_num_threads(before)
    assert equal(found, expected)
    assert not any(t.requires_grad for t in found.tensors())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_default_dtype_has_no_effect(
    canonical: CanonicalWeights, dense: tuple[Tensor, Tensor], dtype: torch.dtype
) -> None:
    def results() -> list[Tensor]:
        prepared = prepare_weights(*dense, global_scales=(0.3, 0.7))
        return [*prepared.tensors(), *canonical.quant_scales(0.3, 0.7), *pack_weights(*canonical.tensors()).tensors()]

    expected = results()
    torch.set_default_dtype(dtype)
    try:
        found = results()
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(found, expected, strict=True))

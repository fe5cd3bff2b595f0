"""The operator's contract in plain PyTorch: slow, readable, the oracle of the tests.

:func:`fused_moe` composes six public stages, so that a test can feed each of them another backend's intermediate::

    xq, xs   = quantize_input(x, qX)             bit-exact, always float32
    routes   = route(ids)                        compact rows sorted by expert
    gate, up = fc1(xq, xs, w13, s13, routes)     accumulators, in dtype
    v        = situ(gate, up, alpha, b, l)       in dtype
    hq, hs   = requantize(v, qA)                 bit-exact for a float32 v
    y        = fc2(hq, hs, w2, s2, alpha, routes)
    out      = finalize(y, weights, routes)      in dtype, not yet rounded to bfloat16

A row is one (token, slot) route. Shapes: M tokens, R rows, H hidden, I intermediate, E experts, K slots a token. Any E
and K, and any H and I that the blocks divide, will do, so an unsharded layer can be evaluated too. ``layout`` says in
which order weights and block scales come: ``"prepared"`` as the operator takes them, ``"canonical"`` as the model has
them (FC1 rows ``[up; gate]``, scales linear). Only experts that have rows are read, one at a time.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from . import layout as _layout
from .layout import GROUP, decode_e4m3, dequantize_nvfp4, encode_e2m1, encode_e4m3, pack_nibbles

Layout = Literal["prepared", "canonical"]

ONE_SIXTH = 0.16666667163372040  # the float32 nearest to 1/6
FLOAT_MAX = torch.finfo(torch.float32).max
NO_ROUTE = -1
INVALID_ROUTE = -2


class Routes(NamedTuple):
    """Route tables, int32, equal to the sections of the workspace."""

    expert_offsets: Tensor
    """[E + 1], first row of each expert; the last entry is R."""
    row_route: Tensor
    """[R], route (token * K + slot) of each row; rows are sorted by expert, then by route."""
    route_row: Tensor
    """[M, K], row of each route; -1 where the id is -1, -2 where it is any other id outside [0, E)."""

    @property
    def row_token(self) -> Tensor:
        """[R], token of each row."""
        return self.row_route // self.route_row.shape[1]

    @property
    def row_expert(self) -> Tensor:
        """[R], expert of each row."""
        counts = self.expert_offsets.diff()
        return torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)

    def used_experts(self) -> list[tuple[int, slice]]:
        """Experts that have rows, with their rows."""
        bounds = pairwise(self.expert_offsets.tolist())
        return [(expert, slice(first, last)) for expert, (first, last) in enumerate(bounds) if first < last]


def quantize_input(x: Tensor, input_encode: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise activations to NVFP4; every operation is a float32 operation rounded to nearest.

    Args:
        x: bfloat16 ``[..., K]``, K a multiple of 16.
        input_encode: qX = 1/dX, float32, 1 element.

    Returns:
        packed uint8 ``[..., K/2]`` and e4m3 scales uint8 ``[..., K/16]``. A block with a NaN has scale 0x7F, codes 0.
    """
    blocks = x.float().unflatten(-1, (-1, GROUP))
    amax = blocks.abs().amax(-1, keepdim=True)
    encode = input_encode.float().reshape(())
    scale = encode_e4m3(amax * (encode * ONE_SIXTH))
    factor = torch.ones_like(amax) / (decode_e4m3(scale) * (torch.ones_like(encode) / encode))
    factor = torch.where(amax == 0, 0.0, factor.clamp(max=FLOAT_MAX))
    return _packed(blocks * factor, scale)


def requantize(v: Tensor, hidden_encode: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise the SiTU output to NVFP4, in the dtype of v (bit-exact for float32).

    Args:
        v: float32 or float64 ``[R, I]``.
        hidden_encode: qA = 1/dA of each row's expert, ``[R]``.

    Returns:
        packed uint8 ``[R, I/2]`` and e4m3 scales uint8 ``[R, I/16]``. A block with a NaN has scale 0x7F, codes 0.
    """
    blocks = v.unflatten(-1, (-1, GROUP))
    encode = hidden_encode.to(v.dtype)[:, None, None]
    scale = encode_e4m3((blocks.abs().amax(-1, keepdim=True) * encode) * ONE_SIXTH)
    factor = torch.where(scale == 0, 0.0, encode / decode_e4m3(scale, v.dtype))
    return _packed(blocks * factor, scale)


def _packed(scaled: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    codes = torch.where(scale == _layout.E4M3_NAN, 0, encode_e2m1(scaled)).to(torch.uint8)
    return pack_nibbles(codes.flatten(-2)), scale.squeeze(-1)


def route(token_selected_experts: Tensor, experts: int = _layout.EXPERTS) -> Routes:
    """Route tables of int32 ids ``[M, K]``: -1 is no route, any other id outside [0, experts) is invalid."""
    ids = token_selected_experts.reshape(-1).long()
    valid = (ids >= 0) & (ids < experts)
    routes = valid.nonzero().squeeze(1)
    row_route = routes[torch.argsort(ids[routes], stable=True)]
    route_row = torch.where(ids == -1, NO_ROUTE, INVALID_ROUTE)
    route_row[row_route] = torch.arange(len(row_route), device=ids.device)
    counts = torch.bincount(ids[routes], minlength=experts)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Routes(offsets.int(), row_route.int(), route_row.int().view(token_selected_experts.shape))


def fc1_expert(weights: Tensor, scales: Tensor, expert: int, layout: Layout, dtype: torch.dtype) -> Tensor:
    """Dequantised FC1 weights of one expert without the global scale, ``[2I, H]`` as ``[up; gate]``."""
    order = _layout.fc1_row_order_inverse(weights.shape[1] // 2).to(weights.device)
    return _expert(weights[expert], scales[expert], order, layout, dtype)


def fc2_expert(weights: Tensor, scales: Tensor, expert: int, layout: Layout, dtype: torch.dtype) -> Tensor:
    """Dequantised FC2 weights of one expert without the global scale, ``[H, I]``."""
    order = _layout.fc2_row_order_inverse(weights.shape[1]).to(weights.device)
    return _expert(weights[expert], scales[expert], order, layout, dtype)


def _expert(packed: Tensor, scales: Tensor, order: Tensor, layout: Layout, dtype: torch.dtype) -> Tensor:
    scales = scales.view(torch.uint8)
    if layout == "prepared":
        packed, scales = packed[order], _layout.deinterleave_scales(scales)[order]
    return dequantize_nvfp4(packed, scales, dtype=dtype)


def fc1(
    xq: Tensor,
    xs: Tensor,
    weights: Tensor,
    scales: Tensor,
    routes: Routes,
    *,
    dtype: torch.dtype = torch.float64,
    layout: Layout = "prepared",
) -> tuple[Tensor, Tensor]:
    """Accumulators of the gate and up rows, each ``[R, I]`` in dtype, before any global scale.

    Args:
        xq, xs: quantised tokens, uint8 ``[M, H/2]`` and e4m3 ``[M, H/16]``.
        weights, scales: uint8 ``[E, 2I, H/2]`` and e4m3 ``[E, 2I, H/16]``.
    """
    up_gate = torch.empty(len(routes.row_route), weights.shape[1], dtype=dtype, device=xq.device)
    for expert, rows in routes.used_experts():
        tokens = routes.row_token[rows]
        x = dequantize_nvfp4(xq[tokens], xs[tokens], dtype=dtype)
        up_gate[rows] = x @ fc1_expert(weights, scales, expert, layout, dtype).T
    up, gate = up_gate.chunk(2, dim=1)
    return gate, up


def situ(gate: Tensor, up: Tensor, alpha: Tensor, beta: Tensor, linear_beta: Tensor) -> Tensor:
    """``(b * tanh(a*g/b) * sigmoid(a*g)) * (l * tanh(a*u/l))`` of accumulators ``[R, I]``, in their dtype.

    alpha (dX*dW13), beta and linear_beta are those of each row's expert, ``[R]``. The sigmoid reads the uncapped gate.
    """
    a, b, l = (t.to(gate.dtype)[:, None] for t in (alpha, beta, linear_beta))  # noqa: E741
    g, u = gate * a, up * a
    return (b * torch.tanh(g / b) * torch.sigmoid(g)) * (l * torch.tanh(u / l))


def fc2(
    hq: Tensor,
    hs: Tensor,
    weights: Tensor,
    scales: Tensor,
    alpha: Tensor,
    routes: Routes,
    *,
    dtype: torch.dtype = torch.float64,
    layout: Layout = "prepared",
    round_to_bf16: bool = False,
) -> Tensor:
    """FC2 output of every row times alpha, ``[R, H]``.

    Args:
        hq, hs: quantised SiTU output, uint8 ``[R, I/2]`` and e4m3 ``[R, I/16]``.
        weights, scales: uint8 ``[E, H, I/2]`` and e4m3 ``[E, H, I/16]``.
        alpha: dA*dW2, float32 ``[E]``.
        round_to_bf16: return bfloat16, as the operator keeps y, instead of the unrounded values in dtype.
    """
    y_dtype = torch.bfloat16 if round_to_bf16 else dtype
    y = torch.empty(len(routes.row_route), weights.shape[1], dtype=y_dtype, device=hq.device)
    for expert, rows in routes.used_experts():
        h = dequantize_nvfp4(hq[rows], hs[rows], dtype=dtype)
        acc = h @ fc2_expert(weights, scales, expert, layout, dtype).T * alpha[expert].to(dtype)
        y[rows] = to_bf16(acc) if round_to_bf16 else acc
    return y


def to_bf16(x: Tensor) -> Tensor:
    """Nearest bfloat16, ties to even. torch rounds float64 to float32 first; here only one rounding counts."""
    if x.dtype != torch.float64:
        return x.bfloat16()
    nearest = x.float()
    inexact = nearest.double() != x
    toward_zero = nearest.view(torch.int32) - (nearest.double().abs() > x.abs()).int()
    return (toward_zero | inexact.int()).view(torch.float32).bfloat16()  # rounded to odd, then to nearest


def finalize(y: Tensor, token_final_scales: Tensor, routes: Routes, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """Weighted sum over the slots in order, ``[M, H]`` in dtype, before the rounding to bfloat16.

    Every step is a multiply-add rounded to dtype once (for float32; the float64 sum rounds the product too). Slots
    with id -1 are skipped; a token without routes is +0; a token with an invalid id is NaN.

    Args:
        y: ``[R, H]``, any float dtype.
        token_final_scales: bfloat16 or float32 ``[M, K]``.
    """
    out = torch.zeros(len(routes.route_row), y.shape[1], dtype=dtype, device=y.device)
    for slot in range(routes.route_row.shape[1]):
        tokens = (routes.route_row[:, slot] >= 0).nonzero().squeeze(1)
        product = y[routes.route_row[tokens, slot]].double() * token_final_scales[tokens, slot, None].double()
        out[tokens] = (out[tokens].double() + product).to(dtype)
    out[(routes.route_row == INVALID_ROUTE).any(1)] = torch.nan
    return out


def fused_moe(
    input: Tensor,
    token_selected_experts: Tensor,
    token_final_scales: Tensor,
    fc1_expert_weights: Tensor,
    fc2_expert_weights: Tensor,
    quant_scales: list[Tensor],
    *,
    situ_beta: Tensor | None = None,
    situ_linear_beta: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
    layout: Layout = "prepared",
) -> Tensor:
    """The whole operator, every real-valued step in dtype; the roundings of the contract (NVFP4, y) are made.

    Args:
        input: bfloat16 ``[M, H]``.
        token_selected_experts: int32 ``[M, K]``.
        token_final_scales: bfloat16 or float32 ``[M, K]``.
        fc1_expert_weights, fc2_expert_weights: uint8 ``[E, 2I, H/2]`` and ``[E, H, I/2]``.
        quant_scales: qX; FC1 block scales; dX*dW13 ``[E]``; qA ``[E]``; FC2 block scales; dA*dW2 ``[E]``.
        situ_beta, situ_linear_beta: float32 ``[E]``; 4 and 25 where not given.
        dtype: torch.float64 or torch.float32.
        layout: order of the weights and block scales.

    Returns:
        ``[M, H]`` in dtype, before the rounding to bfloat16 (:func:`to_bf16` gives the operator's output).
    """
    input_encode, fc1_scales, fc1_alpha, hidden_encode, fc2_scales, fc2_alpha = quant_scales
    experts = len(fc1_expert_weights)
    beta, linear_beta = (
        torch.full((experts,), default, dtype=torch.float32) if given is None else given
        for default, given in ((_layout.DEFAULT_BETA, situ_beta), (_layout.DEFAULT_LINEAR_BETA, situ_linear_beta))
    )

    routes = route(token_selected_experts, experts)
    expert = routes.row_expert
    xq, xs = quantize_input(input, input_encode)
    gate, up = fc1(xq, xs, fc1_expert_weights, fc1_scales, routes, dtype=dtype, layout=layout)
    v = situ(gate, up, fc1_alpha[expert], beta[expert], linear_beta[expert])
    hq, hs = requantize(v, hidden_encode[expert])
    y = fc2(hq, hs, fc2_expert_weights, fc2_scales, fc2_alpha, routes, dtype=dtype, layout=layout, round_to_bf16=True)
    return finalize(y, token_final_scales, routes, dtype=dtype)

"""Weights in the order of the model and in the order of the operator, and the ways between them.

``prepare_weights`` quantises BF16 weights, ``pack_weights`` reorders weights that are NVFP4 already,
``unpack_weights`` is its exact inverse. Global scales are carried beside the bytes and enter ``quant_scales``; they are
never multiplied into the block scales.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from . import layout
from ._progress import for_each, track
from .ops import quantize_nvfp4

LARGEST_BLOCK_SCALE = 0x7E  # above lie the NaN and every negative code
AMAX_OF_UNIT_SCALE = layout.E4M3_MAX * layout.E2M1_MAX
SMALLEST_NORMAL = torch.finfo(torch.float32).tiny
SMALLEST_AMAX = AMAX_OF_UNIT_SCALE * SMALLEST_NORMAL  # below, 1 / scale may overflow
_FC1_ORDER = layout.fc1_row_order()
_FC2_ORDER = layout.fc2_row_order()


class _ExpertWeights(ABC):
    """What both orders have in common: six tensors, for FC1 and FC2 each the bytes, block scales and global scales."""

    def tensors(self) -> tuple[Tensor, ...]:
        """FC1 bytes, block scales, global scales; FC2 bytes, block scales, global scales."""
        return tuple(vars(self).values())

    @abstractmethod
    def set_expert(self, expert: int, w13: Tensor, w13_scales: Tensor, w2: Tensor, w2_scales: Tensor) -> None:
        """Write one expert's canonical bytes and block scales (uint8, no leading E); global scales are not touched."""

    def copy_expert(self, target: int, source: int) -> None:
        """Make expert ``target`` equal to expert ``source``."""
        for tensor in self.tensors():
            tensor[target] = tensor[source]

    def quant_scales(self, input_scale: float | Tensor = 1.0, hidden_scale: float | Tensor = 1.0) -> list[Tensor]:
        """The ``quant_scales`` list of the operator; its block scales are those of these weights, not copies.

        Args:
            input_scale: dX, decode scale of the quantised input, a positive number (1 as in Kimi-K3's own export).
            hidden_scale: dA, decode scale of the quantised SiTU output, one number or float32 ``[E]``.

        Returns:
            qX = 1/dX ``[1]``; FC1 block scales; dX*dW13 ``[E]``; qA = 1/dA ``[E]``; FC2 block scales; dA*dW2 ``[E]``.

        Raises:
            TypeError: a scale is neither a number nor a tensor.
            ValueError: a scale, its inverse or its product with a global scale is not a positive, finite, normal
                float32, or hidden_scale has another shape.

        Source: the ``quant_scales`` of FlashInfer's ``cutlass_fused_moe`` for NVFP4.
        """
        name = "quant_scales"
        _, w13_scales, w13_global, _, w2_scales, w2_global = self.tensors()
        experts = len(w13_global)
        d_x = _as_scale(name, "input_scale", input_scale, w13_global.device).reshape(-1)
        d_a = _as_scale(name, "hidden_scale", hidden_scale, w13_global.device).reshape(-1)
        _check(name, "input_scale", len(d_x) == 1, "one number", list(d_x.shape))
        _check(name, "hidden_scale", len(d_a) in (1, experts), f"one number or [{experts}]", list(d_a.shape))
        _check_decode_scales(name, "input_scale", d_x)
        _check_decode_scales(name, "hidden_scale", d_a)
        w13_global, w2_global = w13_global.detach(), w2_global.detach()
        q_a = d_a.reciprocal().expand(experts).contiguous()
        fc1_alpha, fc2_alpha = d_x * w13_global, w2_global / q_a
        for product, alpha in (("input_scale * w13_global", fc1_alpha), ("hidden_scale * w2_global", fc2_alpha)):
            usable = (alpha >= SMALLEST_NORMAL) & (alpha < torch.inf)
            if not bool(usable.all()):
                index = int((~usable).nonzero()[0])
                _check(name, product, False, "a finite normal float32", f"{alpha[index].item()} at {index}")
        return [d_x.reciprocal(), w13_scales, fc1_alpha, q_a, w2_scales, fc2_alpha]


@dataclass(frozen=True)
class CanonicalWeights(_ExpertWeights):
    """NVFP4 weights in the order of the model. E experts, H hidden, I intermediate."""

    w13: Tensor
    """uint8 ``[E, 2I, H/2]``, rows ``[up; gate]``."""
    w13_scales: Tensor
    """e4m3 block scales as uint8 ``[E, 2I, H/16]``."""
    w13_global: Tensor
    """float32 ``[E]``, factor on every value of w13."""
    w2: Tensor
    """uint8 ``[E, H, I/2]``."""
    w2_scales: Tensor
    """e4m3 block scales as uint8 ``[E, H, I/16]``."""
    w2_global: Tensor
    """float32 ``[E]``, factor on every value of w2."""

    @classmethod
    def empty(cls, experts: int, intermediate: int, device: torch.device | str = "cpu") -> CanonicalWeights:
        """Uninitialised weights of this size."""
        return cls(*_empty(experts, intermediate, device))

    def set_expert(self, expert: int, w13: Tensor, w13_scales: Tensor, w2: Tensor, w2_scales: Tensor) -> None:
        self.w13[expert] = w13
        self.w13_scales[expert] = w13_scales
        self.w2[expert] = w2
        self.w2_scales[expert] = w2_scales


@dataclass(frozen=True)
class PreparedWeights(_ExpertWeights):
    """NVFP4 weights as the operator takes them: rows permuted, block scales in the 128x4 interleave."""

    fc1_weights: Tensor
    """uint8 ``[E, 768, 1792]``."""
    fc1_scales: Tensor
    """e4m3 block scales as uint8 ``[E, 768, 224]``, a byte container."""
    fc1_global: Tensor
    """float32 ``[E]``, dW13."""
    fc2_weights: Tensor
    """uint8 ``[E, 3584, 192]``."""
    fc2_scales: Tensor
    """e4m3 block scales as uint8 ``[E, 3584, 24]``, a byte container."""
    fc2_global: Tensor
    """float32 ``[E]``, dW2."""

    @classmethod
    def empty(cls, experts: int, device: torch.device | str = "cpu") -> PreparedWeights:
        """Uninitialised weights of this many experts."""
        return cls(*_empty(experts, layout.INTERMEDIATE, device))

    def set_expert(self, expert: int, w13: Tensor, w13_scales: Tensor, w2: Tensor, w2_scales: Tensor) -> None:
        fc1_order, fc2_order = _row_orders(w13.device)
        torch.index_select(w13, 0, fc1_order, out=self.fc1_weights[expert])
        torch.index_select(w2, 0, fc2_order, out=self.fc2_weights[expert])
        self.fc1_scales[expert] = layout.interleave_scales(w13_scales.index_select(0, fc1_order))
        self.fc2_scales[expert] = layout.interleave_scales(w2_scales.index_select(0, fc2_order))


def _empty(experts: int, intermediate: int, device: torch.device | str) -> list[Tensor]:
    def byte_tensor(rows: int, columns: int) -> Tensor:
        return torch.empty(experts, rows, columns, dtype=torch.uint8, device=device)

    def scalars() -> Tensor:
        return torch.empty(experts, dtype=torch.float32, device=device)

    hidden, group = layout.HIDDEN, layout.GROUP
    fc1 = [byte_tensor(2 * intermediate, hidden // 2), byte_tensor(2 * intermediate, hidden // group), scalars()]
    fc2 = [byte_tensor(hidden, intermediate // 2), byte_tensor(hidden, intermediate // group), scalars()]
    return fc1 + fc2


def _row_orders(device: torch.device) -> tuple[Tensor, Tensor]:
    return _FC1_ORDER.to(device), _FC2_ORDER.to(device)


def _check(function: str, argument: str, condition: bool, rule: str, value: object) -> None:
    if not condition:
        raise ValueError(f"{function}: {argument} must be {rule}, got {value}")


def _require_tensor(function: str, argument: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{function}: {argument} must be a torch.Tensor, got {type(value).__name__}")


def _as_scale(function: str, argument: str, value: float | Tensor, device: torch.device) -> Tensor:
    try:
        return torch.as_tensor(value, dtype=torch.float32, device=device).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        found = type(value).__name__
        raise TypeError(f"{function}: {argument} must be a number or a torch.Tensor, got {found}") from error


def _check_tensor(function: str, argument: str, value: Tensor, shape: tuple[int, ...], *dtypes: torch.dtype) -> None:
    _require_tensor(function, argument, value)
    names = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    found = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    _check(function, argument, value.dtype in dtypes and value.shape == shape, f"{names} {list(shape)}", found)


def scale_rule(scale: float) -> str | None:
    """The rule that a decode scale breaks: it and its inverse enter products, so both must be normal float32 values."""
    if not 0 < scale < torch.inf:
        return "positive and finite"
    if scale < SMALLEST_NORMAL:
        return f"at least {SMALLEST_NORMAL:.3g}, the smallest normal float32"
    if 1 / scale < SMALLEST_NORMAL:
        return f"at most {1 / SMALLEST_NORMAL:.3g}, where its inverse is a normal float32"
    return None


def _check_decode_scales(function: str, argument: str, scales: Tensor) -> None:
    usable = (scales >= SMALLEST_NORMAL) & (scales <= 1 / SMALLEST_NORMAL)
    if not bool(usable.all()):
        index = int((~usable).nonzero()[0])
        value = scales[index].item()
        _check(function, argument, False, str(scale_rule(value)), f"{value} at {index}")


def _check_experts(function: str, argument: str, value: Tensor) -> int:
    _require_tensor(function, argument, value)
    experts = value.shape[0] if value.dim() == 3 else 0
    rule = f"of shape [E, rows, columns] with E in 1..{layout.EXPERTS}"
    _check(function, argument, 1 <= experts <= layout.EXPERTS, rule, list(value.shape))
    return experts


def check_block_scales(scales: Tensor, what: str) -> None:
    """Refuse negative and NaN block scales.

    Args:
        scales: uint8 e4m3 codes of any shape.
        what: start of the error text, naming the tensor.

    Raises:
        ValueError: a scale has its sign bit set or is NaN (the tensor cores would ignore the sign).

    Source: block scales of NVIDIA Model-Optimizer's NVFP4 export, which are never negative.
    """
    if bool((scales > LARGEST_BLOCK_SCALE).any()):
        position = (scales > LARGEST_BLOCK_SCALE).nonzero()[0].tolist()
        value = layout.decode_e4m3(scales[tuple(position)]).item()
        raise ValueError(f"{what} must hold no negative or NaN block scales, got {value} at {position}")


def prepare_weights(
    w13: Tensor,
    w2: Tensor,
    *,
    global_scales: tuple[float | Tensor, float | Tensor] | None = None,
    progress: bool | None = None,
) -> PreparedWeights:
    """Quantise BF16 weights to NVFP4 and bring them into the order of the operator.

    Works expert by expert, on the CPU on as many threads as torch uses; needs the outputs and about 10 MB a thread.

    Args:
        w13: bfloat16 ``[E, 768, 3584]``, rows ``[up; gate]`` (a ``[gate; up]`` tensor must be swapped by the caller).
        w2: bfloat16 ``[E, 3584, 384]``. 1 <= E <= 896.
        global_scales: decode scales dW13 and dW2, each a number or float32 ``[E]``. Without them each expert and
            matrix takes amax / (6 * 448), so that its largest block scale is 448 (1 where all values are zero
            or below 1e-34).
        progress: show a progress bar; None: where stderr is a terminal.

    Returns:
        The prepared weights; their ``quant_scales`` carries the global scales.

    Raises:
        TypeError: w13 or w2 is no tensor, or global_scales no pair of numbers or tensors.
        ValueError: wrong shape or dtype, a NaN or infinite weight, or a global scale that is not positive and finite,
            or that is subnormal or has a subnormal inverse.

    Source: the scales of NVIDIA Model-Optimizer's NVFP4 export; the row order and the scale interleave of FlashInfer's
    TRTLLM weight preparation.
    """
    name = "prepare_weights"
    experts = _check_experts(name, "w13", w13)
    _check_tensor(name, "w13", w13, (experts, layout.FC1_ROWS, layout.HIDDEN), torch.bfloat16)
    _check_tensor(name, "w2", w2, (experts, layout.FC2_ROWS, layout.INTERMEDIATE), torch.bfloat16)
    _check(name, "w2", w2.device == w13.device, f"on {w13.device}", w2.device)
    w13, w2 = w13.detach(), w2.detach()  # no gradient passes, and the quantiser refuses parameters
    if global_scales is not None and not isinstance(global_scales, tuple | list):
        found = type(global_scales).__name__
        raise TypeError(f"{name}: global_scales must be a pair (dW13, dW2) or None, got {found}")
    if global_scales is not None and len(global_scales) != 2:
        _check(name, "global_scales", False, "a pair (dW13, dW2) or None", f"{len(global_scales)} values")
    out = PreparedWeights.empty(experts, w13.device)
    given = (None, None) if global_scales is None else global_scales
    _set_global_scale(out.fc1_global, given[0], "global_scales dW13")
    _set_global_scale(out.fc2_global, given[1], "global_scales dW2")

    def prepare_expert(expert: int) -> None:
        fc1 = _quantize_matrix(w13[expert], out.fc1_global, expert, given[0] is None, "w13")
        fc2 = _quantize_matrix(w2[expert], out.fc2_global, expert, given[1] is None, "w2")
        out.set_expert(expert, *fc1, *fc2)

    if w13.is_cpu:
        for_each(prepare_expert, range(experts), name, enabled=progress)
    else:
        for expert in track(range(experts), name, enabled=progress):
            prepare_expert(expert)
    return out


def _set_global_scale(target: Tensor, given: float | Tensor | None, argument: str) -> None:
    if given is None:
        return
    scale = _as_scale("prepare_weights", argument, given, target.device)
    rule = f"one number or [{len(target)}]"
    _check("prepare_weights", argument, scale.shape in ((), target.shape), rule, list(scale.shape))
    _check_decode_scales("prepare_weights", argument, scale.reshape(-1))
    target.copy_(scale)


def _quantize_matrix(
    matrix: Tensor, global_scales: Tensor, expert: int, choose_scale: bool, argument: str
) -> tuple[Tensor, Tensor]:
    smallest, largest = torch.aminmax(matrix)  # NaN where any value is
    amax = torch.maximum(-smallest, largest).float()
    finite = bool(amax < torch.inf)
    _check("prepare_weights", f"{argument}[{expert}]", finite, "finite", f"a largest magnitude of {amax.item()}")
    if choose_scale:
        global_scales[expert] = amax / AMAX_OF_UNIT_SCALE if amax >= SMALLEST_AMAX else 1.0
    packed, block_scales = quantize_nvfp4(matrix.contiguous(), global_scales[expert].reciprocal().reshape(1))
    return packed, block_scales.view(torch.uint8)


def pack_weights(
    w13: Tensor,
    w13_scales: Tensor,
    w13_global: Tensor,
    w2: Tensor,
    w2_scales: Tensor,
    w2_global: Tensor,
    *,
    progress: bool | None = None,
) -> PreparedWeights:
    """Bring NVFP4 weights from the order of the model into the order of the operator, bit by bit.

    Args:
        w13: uint8 ``[E, 768, 1792]``, rows ``[up; gate]``, the even column in the low nibble.
        w13_scales: e4m3 block scales, uint8 or float8_e4m3fn ``[E, 768, 224]``, not interleaved.
        w13_global: float32 ``[E]``, factor on every value (Model-Optimizer's weight_scale_2).
        w2, w2_scales, w2_global: the same of ``[E, 3584, 192]``, ``[E, 3584, 24]`` and ``[E]``.
        progress: show a progress bar; None: where stderr is a terminal.

    Raises:
        TypeError: an argument is no tensor.
        ValueError: wrong shape or dtype, a negative or NaN block scale, or a global scale that is not positive and
            finite, or that is subnormal or has a subnormal inverse.

    Source: from the layout of NVIDIA Model-Optimizer's export to that of FlashInfer's TRTLLM weight preparation.
    """
    name = "pack_weights"
    experts = _check_experts(name, "w13", w13)
    e4m3 = (torch.uint8, torch.float8_e4m3fn)
    _check_tensor(name, "w13", w13, (experts, layout.FC1_ROWS, layout.FC1_ROW_BYTES), torch.uint8)
    _check_tensor(name, "w13_scales", w13_scales, (experts, layout.FC1_ROWS, layout.FC1_GROUPS), *e4m3)
    _check_tensor(name, "w2", w2, (experts, layout.FC2_ROWS, layout.FC2_ROW_BYTES), torch.uint8)
    _check_tensor(name, "w2_scales", w2_scales, (experts, layout.FC2_ROWS, layout.FC2_GROUPS), *e4m3)
    for argument, scale in (("w13_global", w13_global), ("w2_global", w2_global)):
        _check_tensor(name, argument, scale, (experts,), torch.float32)
        _check_decode_scales(name, argument, scale)
    w13_scales, w2_scales = w13_scales.view(torch.uint8), w2_scales.view(torch.uint8)
    out = PreparedWeights.empty(experts, w13.device)
    out.fc1_global.copy_(w13_global.detach())
    out.fc2_global.copy_(w2_global.detach())
    for expert in track(range(experts), name, enabled=progress):
        check_block_scales(w13_scales[expert], f"{name}: w13_scales[{expert}]")
        check_block_scales(w2_scales[expert], f"{name}: w2_scales[{expert}]")
        out.set_expert(expert, w13[expert], w13_scales[expert], w2[expert], w2_scales[expert])
    return out


def unpack_weights(prepared: PreparedWeights) -> CanonicalWeights:
    """Exact inverse of :func:`pack_weights`.

    Raises:
        TypeError: prepared is no :class:`PreparedWeights`.
        ValueError: wrong shape or dtype.

    Source: from the layout of FlashInfer's TRTLLM weight preparation to that of NVIDIA Model-Optimizer's export.
    """
    name = "unpack_weights"
    if not isinstance(prepared, PreparedWeights):
        raise TypeError(f"{name}: prepared must be a PreparedWeights, got {type(prepared).__name__}")
    experts = _check_experts(name, "fc1_weights", prepared.fc1_weights)
    out = CanonicalWeights.empty(experts, layout.INTERMEDIATE, prepared.fc1_weights.device)
    for (argument, value), like in zip(vars(prepared).items(), out.tensors(), strict=True):
        _check_tensor(name, argument, value, tuple(like.shape), like.dtype)
    out.w13_global.copy_(prepared.fc1_global)
    out.w2_global.copy_(prepared.fc2_global)
    fc1_order, fc2_order = _row_orders(out.w13.device)
    for expert in range(experts):
        out.w13[expert, fc1_order] = prepared.fc1_weights[expert]
        out.w2[expert, fc2_order] = prepared.fc2_weights[expert]
        out.w13_scales[expert, fc1_order] = layout.deinterleave_scales(prepared.fc1_scales[expert])
        out.w2_scales[expert, fc2_order] = layout.deinterleave_scales(prepared.fc2_scales[expert])
    return out

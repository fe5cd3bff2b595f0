"""One MoE layer out of a safetensors checkpoint: NVFP4 bytes, sliced for a tensor-parallel rank, with its scales.

Reads NVIDIA Model-Optimizer's export and the compressed-tensors variant. Names are matched on their end,
``layers.{L}.block_sparse_moe.experts.{E}.{w1|w2|w3}.{field}``, where w1 is the gate, w3 the up and w2 the down
projection, all of the full intermediate width 3072. Only the slices of the rank are read, expert by expert.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, SupportsIndex

import torch
from torch import Tensor

from . import layout as _layout
from ._progress import track
from ._shards import LayerTensors
from .weights import CanonicalWeights, PreparedWeights, check_block_scales, scale_rule

FULL_INTERMEDIATE = _layout.TENSOR_PARALLEL * _layout.INTERMEDIATE
# 64 MB above the result are allowed. An expert of full width maps 18.6 MB, a rank's slices fewer of its pages.
_EXPERTS_PER_MAPPING, _WHOLE_EXPERTS_PER_MAPPING = 2, 1


class Convention(NamedTuple):
    """Field names of an exporter, and whether it stores global scales as reciprocals."""

    weight: str
    weight_scale: str
    weight_global: str
    input_global: str
    reciprocal: bool


CONVENTIONS = {
    "modelopt": Convention("weight", "weight_scale", "weight_scale_2", "input_scale", False),
    "compressed-tensors": Convention(
        "weight_packed", "weight_scale", "weight_global_scale", "input_global_scale", True
    ),
}


@dataclass(frozen=True)
class CheckpointReport:
    """What was read, and what was noticed."""

    path: Path
    layer: int
    tp_rank: int | None
    experts: int
    """Experts of the result; one checkpoint expert may fill several."""
    distinct_experts: int
    """Experts read."""
    bytes_read: int
    seconds: float
    input_scale_range: tuple[float, float]
    """Smallest and largest input scale of any w1 and w3; the largest is used for all."""
    unequal_input_scales: int
    """Experts whose w1 and w3 have different input scales."""
    hidden_scale_range: tuple[float, float]
    """Smallest and largest input scale of any w2."""
    rescaled_experts: tuple[int, ...]
    """Experts whose w1 and w3 had different global scales, unified by changing block scales exactly."""
    lossy_experts: tuple[int, ...]
    """The same, with rounded block scales (only with allow_lossy)."""

    def __str__(self) -> str:
        rank = "unsharded" if self.tp_rank is None else f"rank {self.tp_rank} of {_layout.TENSOR_PARALLEL}"
        low, high = self.input_scale_range
        hidden_low, hidden_high = self.hidden_scale_range
        return (
            f"layer {self.layer} of {self.path}, {rank}\n"
            f"{self.experts} experts from {self.distinct_experts} of the checkpoint, "
            f"{self.bytes_read / 1e9:.2f} GB in {self.seconds:.1f} s\n"
            f"input scales of w1 and w3: {low:g} to {high:g}, unequal in {self.unequal_input_scales} experts\n"
            f"input scales of w2: {hidden_low:g} to {hidden_high:g}\n"
            f"unequal global scales of w1 and w3: {len(self.rescaled_experts)} experts unified exactly, "
            f"{len(self.lossy_experts)} with rounding"
        )


@dataclass(frozen=True)
class CheckpointLayer:
    """A loaded layer."""

    weights: PreparedWeights | CanonicalWeights
    """In the order that the ``layout`` argument asked for."""
    quant_scales: list[Tensor]
    """The operator's six scales; the block scales are those of ``weights``."""
    report: CheckpointReport


class _ExpertScalars(NamedTuple):
    """Decode scales of one expert, float32 values."""

    w1_global: float
    w3_global: float
    w2_global: float
    w1_input: float
    w3_input: float
    w2_input: float


def load_checkpoint_layer(
    path: str | Path,
    layer: int,
    *,
    tp_rank: int | None,
    experts: Sequence[int] | None = None,
    layout: Literal["prepared", "canonical"] = "prepared",
    hidden_scale_policy: Literal["max", "per_expert"] = "max",
    convention: Literal["modelopt", "compressed-tensors"] = "modelopt",
    allow_lossy: bool = False,
    progress: bool | None = None,
) -> CheckpointLayer:
    """Read the experts of one layer for one rank of an 8-way tensor-parallel group.

    Needs the result and at most 64 MB of memory. With X = input_scale and W = weight_scale_2, all float32:
    qX = 1/dX, where dX is the largest X of any w1 and w3; dX*dW13 = dX * W(w13); qA = 1/X(w2); dA*dW2 = W(w2)/qA. Where
    W(w1) and W(w3) of an expert differ, the larger one is kept and the other half's block scales are multiplied by the
    ratio. That must be exact: the ratio a power of two, and no block scale rounded below the normal range of e4m3.

    Args:
        path: a folder with safetensors files (with an index or without), an index JSON, or one safetensors file.
        layer: number of the layer.
        tp_rank: 0..7, takes 384 of the 3072 features of every expert; None for all (layout "canonical" only).
        experts: checkpoint expert of each expert of the result; repeated numbers are read once and copied.
            None: 0..895.
        layout: "prepared" gives :class:`PreparedWeights`, "canonical" :class:`CanonicalWeights`.
        hidden_scale_policy: qA from the largest input scale of any w2 ("max"), or each expert its own ("per_expert").
        convention: "modelopt", or "compressed-tensors" (weight_packed, global scales stored as reciprocals).
        allow_lossy: round block scales where the global scales of w1 and w3 cannot be unified exactly.
        progress: show a progress bar; None: where stderr is a terminal.

    Raises:
        TypeError: layer, tp_rank or a number in experts is no integer.
        ValueError: an argument is out of range; a file is malformed; a tensor is missing, ambiguous, or of another
            dtype or shape; a scalar is zero, negative, NaN, infinite, subnormal (it, its inverse or a product of two)
            or implausible for the convention; a block scale is negative or NaN; global scales cannot be unified. The
            text names the file, the tensor or the expert.
        FileNotFoundError: there is no checkpoint at path, or a file that the index names is missing.

    Source: the layouts of NVIDIA Model-Optimizer's and compressed-tensors' NVFP4 exports.
    """
    started = time.monotonic()
    layer = _integer("layer", layer)
    tp_rank = None if tp_rank is None else _integer("tp_rank", tp_rank)
    slots = list(range(_layout.EXPERTS)) if experts is None else [_integer("experts", expert) for expert in experts]
    _check_arguments(slots, tp_rank, layout, hidden_scale_policy, convention)
    names = CONVENTIONS[convention]
    tensors = LayerTensors(Path(path), layer)
    distinct = list(dict.fromkeys(slots))
    _check_complete(tensors, distinct, names)
    visits = track(distinct, "checking scales", enabled=progress)
    scalars = {e: _read_scalars(tensors, e, names) for e in tensors.released(visits, _EXPERTS_PER_MAPPING)}

    features, every = slice(0, FULL_INTERMEDIATE), _WHOLE_EXPERTS_PER_MAPPING
    if tp_rank is not None:
        every = _EXPERTS_PER_MAPPING
        features = slice(tp_rank * _layout.INTERMEDIATE, (tp_rank + 1) * _layout.INTERMEDIATE)
    weights: PreparedWeights | CanonicalWeights
    if layout == "prepared":
        weights = PreparedWeights.empty(len(slots))
    else:
        weights = CanonicalWeights.empty(len(slots), features.stop - features.start)

    rescaled: list[int] = []
    lossy: list[int] = []
    visits = track(distinct, "reading experts", enabled=progress)
    for expert in tensors.released(visits, every):
        first, *copies = [slot for slot, source in enumerate(slots) if source == expert]
        s = scalars[expert]
        exact = _load_expert(weights, first, tensors, expert, names, features, s, allow_lossy)
        if s.w1_global != s.w3_global:
            (rescaled if exact else lossy).append(expert)
        for slot in copies:
            weights.copy_expert(slot, first)

    input_scales = [x for s in scalars.values() for x in (s.w1_input, s.w3_input)]
    hidden_scales = _float32([scalars[expert].w2_input for expert in slots])
    report = CheckpointReport(
        path=Path(path),
        layer=layer,
        tp_rank=tp_rank,
        experts=len(slots),
        distinct_experts=len(distinct),
        bytes_read=tensors.bytes_read,
        seconds=time.monotonic() - started,
        input_scale_range=(min(input_scales), max(input_scales)),
        unequal_input_scales=sum(s.w1_input != s.w3_input for s in scalars.values()),
        hidden_scale_range=(float(hidden_scales.min()), float(hidden_scales.max())),
        rescaled_experts=tuple(rescaled),
        lossy_experts=tuple(lossy),
    )
    hidden_scale = hidden_scales.max() if hidden_scale_policy == "max" else hidden_scales
    return CheckpointLayer(weights, weights.quant_scales(max(input_scales), hidden_scale), report)


def _integer(argument: str, value: object) -> int:
    if not isinstance(value, bool) and isinstance(value, SupportsIndex):
        try:
            return operator.index(value)
        except TypeError:  # a tensor that is no integer
            pass
    raise TypeError(f"load_checkpoint_layer: {argument} must be an integer, got {value!r}")


def _check_arguments(
    slots: list[int], tp_rank: int | None, layout: str, hidden_scale_policy: str, convention: str
) -> None:
    def require(condition: bool, argument: str, rule: str, value: object) -> None:
        if not condition:
            raise ValueError(f"load_checkpoint_layer: {argument} must be {rule}, got {value!r}")

    ranks = _layout.TENSOR_PARALLEL
    require(1 <= len(slots) <= _layout.EXPERTS, "experts", f"a list of 1..{_layout.EXPERTS}", len(slots))
    require(min(slots) >= 0, "experts", "non-negative numbers", min(slots))
    require(layout in ("prepared", "canonical"), "layout", "'prepared' or 'canonical'", layout)
    require(tp_rank is None or tp_rank in range(ranks), "tp_rank", f"in 0..{ranks - 1} or None", tp_rank)
    require(tp_rank is not None or layout == "canonical", "layout", "'canonical' where tp_rank is None", layout)
    require(
        hidden_scale_policy in ("max", "per_expert"),
        "hidden_scale_policy",
        "'max' or 'per_expert'",
        hidden_scale_policy,
    )
    require(convention in CONVENTIONS, "convention", " or ".join(map(repr, CONVENTIONS)), convention)


def _check_complete(tensors: LayerTensors, experts: list[int], names: Convention) -> None:
    wanted = [(e, matrix, field) for e in experts for matrix in ("w1", "w2", "w3") for field in names[:4]]
    missing = [key for key in wanted if key not in tensors]
    if not missing:
        return
    hint = ""
    for convention, other in CONVENTIONS.items():
        if other != names and (missing[0][0], missing[0][1], other.weight) in tensors:
            hint = f"; the checkpoint looks like convention={convention!r}"
    raise ValueError(
        f"load_checkpoint_layer: {tensors.name(missing[0])} is missing from {tensors.path} "
        f"({len(missing)} of {len(wanted)} tensors are missing){hint}"
    )


def _read_scalars(tensors: LayerTensors, expert: int, names: Convention) -> _ExpertScalars:
    """Check the headers of an expert and read its scalars."""
    hidden, width, group = _layout.HIDDEN, FULL_INTERMEDIATE, _layout.GROUP
    for matrix, rows, columns in (("w1", width, hidden), ("w3", width, hidden), ("w2", hidden, width)):
        tensors.check((expert, matrix, names.weight), torch.uint8, (rows, columns // 2))
        tensors.check((expert, matrix, names.weight_scale), torch.float8_e4m3fn, (rows, columns // group))
    global_scales = [_read_scalar(tensors, (expert, m, names.weight_global), names) for m in ("w1", "w3", "w2")]
    for matrix, scale in zip(("w1", "w3", "w2"), global_scales, strict=True):
        if scale > 1:
            name = tensors.name((expert, matrix, names.weight_global))
            raise ValueError(
                f"load_checkpoint_layer: {name} means a factor of {scale:g} on the weights, but such a factor is at "
                f"most 1; convention={'modelopt' if names.reciprocal else 'compressed-tensors'!r} is more likely"
            )
    input_scales = [_read_scalar(tensors, (expert, m, names.input_global), names) for m in ("w1", "w3", "w2")]
    return _ExpertScalars(*global_scales, *input_scales)


def _read_scalar(tensors: LayerTensors, key: tuple[int, str, str], names: Convention) -> float:
    """A global scale as the factor that decodes, rounded to float32."""
    tensors.check(key, torch.float32, (), (1,))
    stored = tensors.read_scalar(key)
    scale = stored
    if names.reciprocal and stored > 0:
        scale = float(_float32(stored).reciprocal())
    rule = scale_rule(stored)
    if rule is not None:
        raise ValueError(f"load_checkpoint_layer: {tensors.name(key)} must be {rule}, got {stored:g}")
    return scale


def _float32(values: float | list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device="cpu")


def _load_expert(
    weights: PreparedWeights | CanonicalWeights,
    slot: int,
    tensors: LayerTensors,
    expert: int,
    names: Convention,
    features: slice,
    scalars: _ExpertScalars,
    allow_lossy: bool,
) -> bool:
    """Read the slice of an expert into a slot; returns whether no block scale was rounded."""

    def block_scales(matrix: str, rows: slice = slice(None), columns: slice = slice(None)) -> Tensor:
        key = (expert, matrix, names.weight_scale)
        scales = tensors.read(key, rows, columns).view(torch.uint8)
        check_block_scales(scales, f"load_checkpoint_layer: {tensors.name(key)}")
        return scales

    packed = slice(features.start // 2, features.stop // 2)
    groups = slice(features.start // _layout.GROUP, features.stop // _layout.GROUP)
    w13 = torch.cat([tensors.read((expert, matrix, names.weight), features) for matrix in ("w3", "w1")])
    w13_scales = torch.cat([block_scales(matrix, features) for matrix in ("w3", "w1")])
    w2 = tensors.read((expert, "w2", names.weight), columns=packed)
    w2_scales = block_scales("w2", columns=groups)
    exact = _unify_global_scales(w13_scales, scalars)
    if not exact and not allow_lossy:
        raise ValueError(
            f"load_checkpoint_layer: the global scales of w1 and w3 of expert {expert} ({scalars.w1_global:g} and "
            f"{scalars.w3_global:g}) cannot be unified without rounding block scales; allow_lossy=True rounds them"
        )
    weights.set_expert(slot, w13, w13_scales, w2, w2_scales)
    _, _, w13_global, _, _, w2_global = weights.tensors()
    w13_global[slot] = max(scalars.w1_global, scalars.w3_global)
    w2_global[slot] = scalars.w2_global
    return exact


def _unify_global_scales(w13_scales: Tensor, scalars: _ExpertScalars) -> bool:
    """Multiply the block scales of the half with the smaller global scale by the ratio, in place.

    SiTU is nonlinear in both halves, so no factor after it can do this. Returns whether nothing was rounded.
    """
    smaller, larger = sorted((scalars.w1_global, scalars.w3_global))
    if smaller == larger:
        return True
    up, gate = w13_scales.chunk(2)
    half = up if scalars.w3_global == smaller else gate
    target = _layout.decode_e4m3(half, torch.float64) * (smaller / larger)
    half.copy_(_layout.encode_e4m3(target))
    power_of_two = math.frexp(smaller)[0] == math.frexp(larger)[0]
    return power_of_two and torch.equal(_layout.decode_e4m3(half, torch.float64), target)

"""How far a backend's float32 sum may lie from the exact one: error bounds from the order of its additions.

A GEMM of this operator sums terms t_k = x_k * w_k of dequantised NVFP4 values. Each term is exact in float32 and in
float64: e2m1 * e4m3 has 6 significant bits, a product of two has 12. All terms are multiples of 2^-20 and below 2^24 in
magnitude, so that nothing overflows or becomes subnormal, and the float64 sum that the bounds are measured from is
itself off by no more than K * 2^-53 * sum|t_k|, which every bound below includes.

An `Accumulation` gives two bounds. `sharp` follows the running sums of a few elements whose terms are at hand, `coarse`
needs only A = sum|t_k| and serves whole matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

UNIT = 2.0**-24  # unit roundoff of float32, round to nearest
_FLOAT64 = 2.0**-53
# Bounds below are first order in quantities that do not exceed 2^-11; this factor covers the higher orders.
_SLACK = 1 + 2.0**-9


class Accumulation(Protocol):
    """Error bound of one backend's sums."""

    def sharp(self, terms: Tensor) -> Tensor:
        """terms float64 [n, K] in the order of K -> bound float64 [n] on |float32 sum - exact sum|."""

    def coarse(self, magnitude: Tensor, length: int) -> Tensor:
        """magnitude = sum|t_k| of sums of `length` terms -> bound, same shape and dtype."""


def _chains_and_tree(steps: Tensor) -> Tensor:
    """Bound for chains of FMAs, then a binary tree over them, rounding to nearest: the sum of u * |every result|.

    steps float64 [n, steps, chains], what each chain adds in turn; level by level the tree adds the second half of the
    chains to the first one.
    """
    running = steps.cumsum(dim=1)
    bound = UNIT * running[:, 1:].abs().sum(dim=(1, 2))
    level = running[:, -1]
    while level.shape[1] > 1:
        half = level.shape[1] // 2
        level = level[:, :half] + level[:, half:]
        bound += UNIT * level.abs().sum(dim=1)
    return _SLACK * bound


@dataclass(frozen=True)
class LaneSum:
    """The CPU backend: `lanes` round-to-nearest chains of FMAs, then a binary tree over the lanes.

    Lane j takes the exact sums s_h of `run` consecutive terms for h = j, j + lanes, ... (at most 1152 * 15 * 15 units
    of one quantum, so exact in float32) and adds them one FMA each. The first FMA adds to zero and is exact. Every
    other one rounds its result once: error at most u * |rounded result|, u = 2^-24. With S_i the exact running sum of a
    lane after i additions and E_i the error, E_i <= E_(i-1) + u * (|S_i| + E_i), hence E <= sum_i u * |S_i| up to a
    factor of (1 - u)^-n < 1 + 2^-9. The tree adds log2(lanes) levels of one rounding each: at every level the errors of
    the two halves add, plus u * |sum of the halves|. `sharp` sums exactly that. The final multiplication by 1/4 is
    exact.

    `coarse`: each term passes through at most d = K / (run * lanes) - 1 + log2(lanes) roundings, hence the classical
    |error| <= ((1 + u)^d - 1) * A (d = 31 for FC1, 6 for FC2).
    """

    lanes: int = 16
    run: int = 8

    def sharp(self, terms: Tensor) -> Tensor:
        halves = terms.view(len(terms), -1, self.lanes, self.run).sum(dim=3)
        return _chains_and_tree(halves) + _FLOAT64 * terms.shape[1] * terms.abs().sum(dim=1)

    def coarse(self, magnitude: Tensor, length: int) -> Tensor:
        depth = length // (self.run * self.lanes) - 1 + (self.lanes - 1).bit_length()
        return (_SLACK * UNIT * depth + _FLOAT64 * length) * magnitude

    def emulate(self, x: Tensor, w: Tensor) -> Tensor:
        """The backend's own result, bit for bit: float32 x [R, K] and w [N, K], dequantised -> float32 [R, N].

        Float32 addition of an exact product is the FMA; scaling all terms by 1/4 beforehand commutes with rounding,
        since no sum becomes subnormal.
        """
        steps = x.shape[1] // (self.lanes * self.run)
        xs = x.view(len(x), steps, self.lanes, self.run).permute(1, 2, 0, 3)
        ws = w.view(len(w), steps, self.lanes, self.run).permute(1, 2, 3, 0)
        lanes = torch.zeros(self.lanes, len(x), len(w), dtype=torch.float32)
        for step in range(steps):
            lanes += xs[step] @ ws[step]
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = lanes[:half] + lanes[half:]
        return lanes[0]


@dataclass(frozen=True)
class StepSum:
    """A tensor core: one fused addition of `step` exact products to the running sum at a time.

    The products are first summed exactly in groups of `group`; these terms and the running sum are aligned to the
    largest of them and truncated, and the result is rounded toward zero: an error of at most per_step * max(|running
    sum|, |term|) each step, per_step = 17 * 2^-25 + 2^-23 for the MMAs of the numeric contract. `sharp` takes both from
    the exact evaluation; `coarse` bounds either by A.
    """

    step: int
    group: int
    per_step: float = 17 * 2.0**-25 + 2.0**-23

    def sharp(self, terms: Tensor) -> Tensor:
        groups = terms.view(len(terms), -1, self.step // self.group, self.group).sum(dim=3)
        after = groups.sum(dim=2).cumsum(dim=1).abs()
        before = torch.nn.functional.pad(after[:, :-1], (1, 0))
        largest = torch.stack([before, after, groups.abs().amax(dim=2)]).amax(dim=0)
        return _SLACK * self.per_step * largest.sum(dim=1) + _FLOAT64 * terms.shape[1] * terms.abs().sum(dim=1)

    def coarse(self, magnitude: Tensor, length: int) -> Tensor:
        return (_SLACK * self.per_step * (length // self.step) + _FLOAT64 * length) * magnitude


@dataclass(frozen=True)
class Sm90Sum:
    """The sm_90a kernels: fp16 MMAs with K = 16, in the K order of their fragments (src/kernels/sm90/dequant.cuh).

    The four lanes of a fragment row take neighbouring 16-byte pieces of packed weights, two pieces each in FC1 (K =
    3584, 256 elements at a time) and one in FC2 (K = 384, 128 at a time). A piece has two segments, a segment two words
    of eight elements; a step takes elements {0, 1, 4, 5} or {2, 3, 6, 7} of one word of every lane.
    """

    _STEPS = StepSum(step=16, group=1)

    def _chain(self, terms: Tensor) -> Tensor:
        """terms [n, K] in the order in which they are added."""
        pieces = 2 if terms.shape[1] % 256 == 0 else 1
        # chunk, lane, piece, segment, word, high or low pair, step, element of the pair
        split = terms.view(len(terms), -1, 4, pieces, 2, 2, 2, 2, 2)
        return split.permute(0, 1, 3, 4, 5, 7, 2, 6, 8).flatten(1)

    def sharp(self, terms: Tensor) -> Tensor:
        return self._STEPS.sharp(self._chain(terms))

    def coarse(self, magnitude: Tensor, length: int) -> Tensor:
        return self._STEPS.coarse(magnitude, length)


@dataclass(frozen=True)
class Sm90HalvesSum:
    """The fused path of sm_90a: as Sm90Sum, but FC1 sums each half of K by itself and adds the two sums last."""

    _HALF = Sm90Sum()

    @staticmethod
    def _has_halves(length: int) -> bool:
        return length % 512 == 0

    def sharp(self, terms: Tensor) -> Tensor:
        if not self._has_halves(terms.shape[1]):
            return self._HALF.sharp(terms)
        first, second = terms.chunk(2, dim=1)
        return self._HALF.sharp(first) + self._HALF.sharp(second) + _SLACK * UNIT * terms.sum(dim=1).abs()

    def coarse(self, magnitude: Tensor, length: int) -> Tensor:
        # A = A1 + A2, and each half's bound is the same multiple of its own A.
        if not self._has_halves(length):
            return self._HALF.coarse(magnitude, length)
        return self._HALF.coarse(magnitude, length // 2) + _SLACK * UNIT * magnitude


CPU = LaneSum()
SM100 = StepSum(step=64, group=16)  # tcgen05.mma of kind mxf4nvf4
FUSED_TOKENS = 4  # the plan's path decode of sm_90a


def accumulation_of(num_tokens: int, device: torch.device) -> Accumulation:
    """How a call with num_tokens tokens sums on `device`. Raises ValueError for a GPU without kernels."""
    if device.type == "cpu":
        return CPU
    major, minor = torch.cuda.get_device_capability(device)
    return gpu_accumulation(10 * major + minor, num_tokens)


def gpu_accumulation(capability: int, num_tokens: int) -> Accumulation:
    """The same for a GPU of compute capability 90, 100 or 103 (major * 10 + minor). Raises ValueError for another."""
    if capability == 90:
        return Sm90HalvesSum() if num_tokens <= FUSED_TOKENS else Sm90Sum()
    if capability in (100, 103):
        return SM100
    raise ValueError(f"gpu_accumulation: capability must be 90, 100 or 103, got {capability}")


def sum_is_exact(terms: Tensor) -> Tensor:
    """Whether every order of adding terms (float64 [n, K]) is free of rounding in float32: bool [n].

    True where all terms are multiples of a quantum q and sum|t_k| <= 2^24 q, for then every partial sum is a multiple
    of q that 24 bits can hold. NaN counts as exact: the sum is NaN in any order.
    """
    _, exponent = torch.frexp(terms)
    mantissa = torch.ldexp(terms, 53 - exponent).nan_to_num(0).long()
    lowest = (mantissa & -mantissa).double()
    quantum = torch.where(terms == 0, torch.inf, torch.ldexp(lowest, exponent - 53)).amin(dim=1)
    return (terms.abs().sum(dim=1) <= 2.0**24 * quantum) | terms.isnan().any(dim=1)

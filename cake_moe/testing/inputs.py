"""Seeded operands for tests: random prepared weights that cost memory only where touched, inputs of named kinds.

Shapes and meanings are those of `torch.ops.cake.fused_moe`; E = 896, H = 3584, I = 384, M = number of tokens.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from cake_moe.layout import (
    DEFAULT_BETA,
    DEFAULT_LINEAR_BETA,
    E2M1_MAX,
    E4M3_MAX,
    E4M3_NAN,
    EXPERTS,
    FC1_GROUPS,
    FC1_ROW_BYTES,
    FC1_ROWS,
    FC2_GROUPS,
    FC2_ROW_BYTES,
    FC2_ROWS,
    GROUP,
    HIDDEN,
    TOP_K,
    decode_e4m3,
)
from cake_moe.testing.routings import make_routing

# e4m3 codes of the weights' block scales, by name.
_SCALE_CODES = {
    "ordinary": range(0x30, 0x48),  # 0.5 .. 3.75, every mantissa
    "wide": range(E4M3_NAN),  # zero, subnormals, up to 448
    "unit": (0x38, 0x40),  # 1 and 2: sums of integers stay exact
}
_E2M1_MEAN_SQUARE = 8.5625  # of uniformly distributed codes

INPUT_KINDS = ("normal", "integer", "wide", "subnormal", "inf", "nan_row")


def lazy_zeros(shape: Sequence[int]) -> Tensor:
    """uint8 zeros of a private mapping of their own: no memory is used before a page is written."""
    size = int(np.prod(shape))
    return torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8).view(*shape)


class RandomWeights:
    """Random prepared weights of 896 experts, generated expert by expert on first use (2.3 MB each).

    An expert's bytes depend only on (seed, expert, scales), not on what else was touched. scales names the range of the
    block scales: `ordinary` (0.5..3.75), `wide` (all of e4m3, zero and subnormals included), `unit` (1 and 2).
    """

    def __init__(self, seed: int = 0, scales: str = "ordinary") -> None:
        self.seed = seed
        self.scales = scales
        self.fc1 = lazy_zeros((EXPERTS, FC1_ROWS, FC1_ROW_BYTES))
        self.fc1_scales = lazy_zeros((EXPERTS, FC1_ROWS, FC1_GROUPS))
        self.fc2 = lazy_zeros((EXPERTS, FC2_ROWS, FC2_ROW_BYTES))
        self.fc2_scales = lazy_zeros((EXPERTS, FC2_ROWS, FC2_GROUPS))
        self._codes = np.array(_SCALE_CODES[scales], dtype=np.uint8)
        self._touched: set[int] = set()

    @property
    def scale_rms(self) -> float:
        """Root mean square of the block scales."""
        return float(decode_e4m3(torch.from_numpy(self._codes)).double().square().mean().sqrt())

    def touch(self, experts: Iterable[int]) -> RandomWeights:
        """Generates the named experts that do not exist yet; returns self."""
        table = self._codes[np.arange(256) * len(self._codes) // 256]
        for expert in set(experts) - self._touched:
            raw = np.random.SFC64([self.seed, expert])
            for packed, scale in ((self.fc1, self.fc1_scales), (self.fc2, self.fc2_scales)):
                packed[expert].view(-1).copy_(_random_bytes(raw, packed[expert].numel()))
                scale[expert].view(-1).copy_(torch.from_numpy(table[_random_bytes(raw, scale[expert].numel()).numpy()]))
            self._touched.add(expert)
        return self


def _random_bytes(raw: np.random.SFC64, count: int) -> Tensor:
    words: np.ndarray = raw.random_raw(count // 8)
    return torch.from_numpy(words.view(np.uint8))


@cache
def shared_weights(scales: str = "ordinary") -> RandomWeights:
    """One set for the whole process, so that tests share what they touched (2.08 GB at most)."""
    return RandomWeights(0, scales)


# Copies of prepared weights on devices, with the experts that were copied. They live as long as the original.
_COPIES: MutableMapping[Tensor, dict[torch.device, tuple[Tensor, set[int]]]] = WeakTensorKeyDictionary()


def _device_copy(weights: Tensor, experts: Iterable[int], device: torch.device | str) -> Tensor:
    """Experts not named may be zero. Bytes of an expert never change once it was touched."""
    copies = _COPIES.setdefault(weights, {})
    copy, done = copies.setdefault(torch.device(device), (torch.zeros_like(weights, device=device), set()))
    for expert in sorted(set(experts) - done):
        copy[expert].copy_(weights[expert])
    done.update(experts)
    return copy


@dataclass(frozen=True)
class MoeInputs:
    """Operands of one call, under the operator's argument names, and what they were made from."""

    input: Tensor  # bf16 [M, H]
    token_selected_experts: Tensor  # int32 [M, 16]
    token_final_scales: Tensor  # bf16 or float32 [M, 16]
    fc1_expert_weights: Tensor  # uint8 [E, 768, 1792]
    fc2_expert_weights: Tensor  # uint8 [E, 3584, 192]
    quant_scales: list[Tensor]  # the six entries of the contract
    situ_beta: Tensor | None  # float32 [E]; None: the default
    situ_linear_beta: Tensor | None

    @property
    def num_tokens(self) -> int:
        return self.input.shape[0]

    @property
    def betas(self) -> tuple[Tensor, Tensor]:
        """situ_beta and situ_linear_beta with the defaults filled in, float32 [E] each."""

        def given_or(default: float, beta: Tensor | None) -> Tensor:
            return self.input.new_full((EXPERTS,), default, dtype=torch.float32) if beta is None else beta

        return given_or(DEFAULT_BETA, self.situ_beta), given_or(DEFAULT_LINEAR_BETA, self.situ_linear_beta)

    @property
    def active_experts(self) -> list[int]:
        ids = self.token_selected_experts
        return ids[(ids >= 0) & (ids < EXPERTS)].unique().tolist()

    def to(self, device: torch.device | str) -> MoeInputs:
        """The same problem on a device. Prepared weights are copied there once, and only experts that are chosen."""
        experts = self.active_experts
        beta, linear = self.situ_beta, self.situ_linear_beta
        scales = self.quant_scales
        return MoeInputs(
            self.input.to(device),
            self.token_selected_experts.to(device),
            self.token_final_scales.to(device),
            _device_copy(self.fc1_expert_weights, experts, device),
            _device_copy(self.fc2_expert_weights, experts, device),
            [_device_copy(s, experts, device) if s.dtype == torch.uint8 else s.to(device) for s in scales],
            None if beta is None else beta.to(device),
            None if linear is None else linear.to(device),
        )

    def take(self, tokens: Tensor | slice) -> MoeInputs:
        """The same problem for some of its tokens."""
        return MoeInputs(
            self.input[tokens].contiguous(),
            self.token_selected_experts[tokens].contiguous(),
            self.token_final_scales[tokens].contiguous(),
            self.fc1_expert_weights,
            self.fc2_expert_weights,
            self.quant_scales,
            self.situ_beta,
            self.situ_linear_beta,
        )


def make_input(kind: str, num_tokens: int, *, seed: int = 0) -> Tensor:
    """bf16 [num_tokens, 3584].

    kind: `normal` (standard normal, every token with a power of two of its own), `integer` (values that quantise
    without error at input scale 1: block scale 1 or 2), `wide` (block magnitudes 2^-24..2^8: scales from zero to the
    largest), `subnormal` (blocks of bf16 subnormals, of zeros of both signs and of values whose block scale is
    subnormal, between ordinary ones), `inf` (some infinities), `nan_row` (one NaN in the middle token). Raises
    ValueError for another kind.
    """
    if kind not in INPUT_KINDS:
        raise ValueError(f"make_input: kind must be one of {', '.join(INPUT_KINDS)}, got {kind!r}")
    generator = torch.Generator().manual_seed(seed * 1000 + INPUT_KINDS.index(kind))
    blocks = (num_tokens, HIDDEN // GROUP, GROUP)
    if kind == "integer":
        grid = torch.tensor([0, 1, 2, 3, 4, 6, -1, -2, -3, -4, -6, 0.5, -1.5], dtype=torch.float32)
        x = grid[torch.randint(len(grid), blocks, generator=generator)]
        x[..., 0] = E2M1_MAX
        x *= torch.randint(1, 3, (*blocks[:2], 1), generator=generator)
        return x.view(num_tokens, HIDDEN).bfloat16()
    x = torch.randn(blocks, generator=generator, dtype=torch.float32) * 2.0 ** torch.randint(
        -1, 2, (num_tokens, 1, 1), generator=generator
    )
    choice = torch.randint(8, (*blocks[:2], 1), generator=generator)
    if kind == "wide":
        x *= 2.0 ** torch.randint(-24, 9, (*blocks[:2], 1), generator=generator)
    elif kind == "subnormal":
        x = torch.where(choice == 0, x * 2.0**-130, x)
        x = torch.where(choice == 1, x * 0.0, x)
        x = torch.where(choice == 2, x * 2.0**-13, x)
    elif kind == "inf":
        spread = torch.rand(blocks, generator=generator, dtype=torch.float32) < 1 / 256
        x = torch.where(spread & (choice == 0), torch.inf * x.sign(), x)
    elif kind == "nan_row":
        x[num_tokens // 2, 7, 3] = torch.nan
    return x.view(num_tokens, HIDDEN).bfloat16()


def make_route_weights(
    num_tokens: int, *, seed: int = 0, dtype: torch.dtype = torch.bfloat16, zeros: bool = False
) -> Tensor:
    """[num_tokens, 16] router weights, positive and summing to about 1 a token; with `zeros`, every third slot is 0."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.softmax(2 * torch.randn(num_tokens, TOP_K, generator=generator, dtype=torch.float32), dim=1)
    if zeros:
        weights.view(-1)[::3] = 0
    return weights.to(dtype)


def make_inputs(
    num_tokens: int,
    *,
    routing: str = "uniform",
    kind: str = "normal",
    experts: Sequence[int] | None = None,
    seed: int = 0,
    random_betas: bool = True,
    route_weight_dtype: torch.dtype = torch.bfloat16,
    zero_weights: bool = False,
    weights: RandomWeights | None = None,
) -> MoeInputs:
    """A problem on the CPU with random weights in the experts that its tokens choose.

    routing, experts: see `make_routing`. kind: see `make_input`; `integer` takes weights with unit block scales, `wide`
    with all of e4m3, unless `weights` is given. Global scales differ from expert to expert and are no powers of two,
    sized so that the gate argument a*g has a standard deviation of about 0.7 to 2.8 and the hidden values fill e4m3;
    for `subnormal`, the encode scales of half of the experts make hidden block scales subnormal or zero.
    random_betas: situ_beta in 1..8 and situ_linear_beta in 5..50 by expert; otherwise None, the operator's default.
    """
    scales = {"integer": "unit", "wide": "wide"}.get(kind, "ordinary")
    weights = shared_weights(scales) if weights is None else weights
    generator = torch.Generator().manual_seed(7777 + seed)

    def spread(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(EXPERTS, generator=generator, dtype=torch.float32)

    x = make_input(kind, num_tokens, seed=seed)
    finite = x.float().nan_to_num(0, 0, 0)
    encode = 1.0 if kind == "integer" else E2M1_MAX * E4M3_MAX / float(finite.abs().max())
    quantised_rms = encode * float(finite.double().square().mean().sqrt())
    gate = HIDDEN**0.5 * quantised_rms * _E2M1_MEAN_SQUARE**0.5 * weights.scale_rms
    hidden_encode = E2M1_MAX * E4M3_MAX / spread(4, 40)
    if kind == "subnormal":
        hidden_encode *= torch.tensor([1, 2.0**-12, 2.0**-16, 1], dtype=torch.float32).repeat(EXPERTS // 4)
    problem = MoeInputs(
        input=x,
        token_selected_experts=make_routing(routing, num_tokens, seed=seed, experts=experts),
        token_final_scales=make_route_weights(num_tokens, seed=seed, dtype=route_weight_dtype, zeros=zero_weights),
        fc1_expert_weights=weights.fc1,
        fc2_expert_weights=weights.fc2,
        quant_scales=[
            torch.tensor([encode], dtype=torch.float32),
            weights.fc1_scales,
            spread(0.7, 2.8) / gate,
            hidden_encode,
            weights.fc2_scales,
            spread(0.5, 2) * 2.0**-10,
        ],
        situ_beta=spread(1, 8) if random_betas else None,
        situ_linear_beta=spread(5, 50) if random_betas else None,
    )
    weights.touch(problem.active_experts)
    return problem

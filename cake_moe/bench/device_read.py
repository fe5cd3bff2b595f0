# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="no-untyped-call, name-defined"
"""A streaming read of a GPU's memory: the floor of everything that is bound by its weights.

Triton gives the annotations of a kernel's parameters a meaning of its own, so kernels have none of Python's.
"""

from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor

from .contenders import Contender
from .results import READ

SHAPES = tuple((warps, ctas) for warps in (4, 8, 16) for ctas in (1, 2, 4, 8))
"""Warps of a CTA and CTAs an SM to try; which is fastest depends on the number of bytes."""
_WORDS = 32
"""Words of a thread at a time: eight independent 16-byte loads."""

if find_spec("triton") is not None:
    triton = import_module("triton")
    tl = import_module("triton.language")

    @triton.jit
    def _xor(a, b):
        return a ^ b

    @triton.jit
    def _read(memory, words, results, BLOCK: tl.constexpr):
        lane = tl.arange(0, BLOCK)
        total = tl.zeros([BLOCK], dtype=tl.int32)
        for start in range(tl.program_id(0) * BLOCK, words, tl.num_programs(0) * BLOCK):
            place = start + lane
            total ^= tl.load(memory + place, mask=place < words, other=0, eviction_policy="evict_first")
        tl.store(results + tl.program_id(0), tl.reduce(total, 0, _xor))


class DeviceRead:
    """Reads the first `size` bytes of a buffer once, in one launch of a Triton kernel."""

    name = READ

    def __init__(self, memory: Tensor, sizes: list[int], warps: int, ctas: int) -> None:
        """memory: int32 [n] on a GPU; sizes: bytes of each variant, multiples of 4; warps of a CTA, CTAs an SM."""
        self.note = f"Triton, {warps} warps, {ctas} CTAs an SM"
        self._memory, self._sizes, self._warps = memory, sizes, warps
        self._grid = ctas * torch.cuda.get_device_properties(memory.device).multi_processor_count
        self._results = torch.empty(self._grid, dtype=torch.int32, device=memory.device)

    def call(self, index: int) -> Tensor:
        block = _WORDS * 32 * self._warps
        _read[(self._grid,)](
            self._memory, self._sizes[index] // 4, self._results, BLOCK=block, num_warps=self._warps, num_stages=1
        )
        return self._results


class DeviceAmax:
    """The same with torch alone, where Triton is missing: the largest of int64 values."""

    name = READ
    note = "torch.amax, no Triton"

    def __init__(self, memory: Tensor, sizes: list[int]) -> None:
        self._parts = [memory[: size // 8 * 2].view(torch.int64) for size in sizes]

    def call(self, index: int) -> Tensor:
        return self._parts[index].amax()


def candidates(memory: Tensor, sizes: list[int]) -> list[Contender]:
    """Reads of the same bytes in several ways, of which the fastest is the floor."""
    reads: list[Contender] = [DeviceAmax(memory, sizes)]
    if find_spec("triton") is not None:
        reads += [DeviceRead(memory, sizes, warps, ctas) for warps, ctas in SHAPES]
    return reads

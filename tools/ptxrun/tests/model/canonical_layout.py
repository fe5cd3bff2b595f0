"""The canonical shared-memory layouts of wgmma and tcgen05 operands, defined by shape, stride and swizzle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SWIZZLE_BITS = {0: 0, 32: 1, 64: 2, 128: 3}
WGMMA_MODES = {0: 0, 128: 1, 64: 2, 32: 3}
TCGEN05_MODES = {0: 0, 128: 2, 64: 4, 32: 6}


def swizzle(address: NDArray[np.int64], span: int) -> NDArray[np.int64]:
    """Bits 4.. of the address XOR bits 7.., as many as the span has."""
    mask = (1 << SWIZZLE_BITS[span]) - 1
    return address ^ ((address >> 7 & mask) << 4)


@dataclass(frozen=True)
class Layout:
    """An operand of `rows` (along M or N) by `k` elements of `bits` from byte `start` on.

    T elements in 16 bytes, W = span / 16 such units in a swizzled line:
    K-major   ((8, m), (T, 2)) : ((W T, SBO), (1, LBO or T))
    MN-major  ((T, W, m), (8, k)) : ((1, T, LBO), (W T, SBO)), without swizzle SBO and LBO change places
    """

    rows: int
    k: int
    bits: int = 16
    span: int = 128
    major: str = "k"
    start: int = 1024

    @property
    def line(self) -> int:
        return max(self.span, 16)

    @property
    def offsets(self) -> tuple[int, int]:
        """(LBO, SBO) of a tile without gaps."""
        core = 8 * self.line
        if self.major == "k":
            return (core * (self.rows // 8), core) if self.span == 0 else (16, core)
        if self.span == 0:
            return core * -(-self.rows * self.bits // 128), core
        return core * (self.k // 8), core

    def addresses(self) -> NDArray[np.int64]:
        """Byte of every element, [rows, k]."""
        row, column = np.meshgrid(np.arange(self.rows), np.arange(self.k), indexing="ij")
        leading, stride = self.offsets
        t, w, bits, line = 128 // self.bits, max(self.span // 16, 1), self.bits, self.line
        if self.major == "k":
            unit = leading if self.span == 0 else 16
            offset = row % 8 * line + row // 8 * stride + column % t * bits // 8 + column // t * unit
        else:
            outer, inner = (stride, leading) if self.span == 0 else (leading, stride)
            offset = row % (t * w) * bits // 8 + row // (t * w) * outer + column % 8 * line + column // 8 * inner
        return swizzle(self.start + offset, self.span)

    def store(self, image: NDArray[np.uint8], elements: NDArray[np.unsignedinteger]) -> None:
        """Puts element patterns [rows, k] into a picture of shared memory; image[i] is byte i."""
        at = self.addresses()
        if self.bits == 4:
            np.bitwise_or.at(image, at, (elements << (4 * (np.arange(self.k) % 2))[None]).astype(np.uint8))
            return
        for byte in range(self.bits // 8):
            image[at + byte] = (elements >> elements.dtype.type(8 * byte)) & 0xFF

    def descriptor(self, tcgen05: bool) -> int:
        leading, stride = self.offsets
        fields = self.start >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32
        if tcgen05:
            return fields | 1 << 46 | TCGEN05_MODES[self.span] << 61
        return fields | WGMMA_MODES[self.span] << 62

"""Tensor maps: the parameters of cuTensorMapEncodeTiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptxrun.build import core
from ptxrun.memory import Buffer

# Names for the driver's enumerations, by value.
DTYPES = {
    **{"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9},
    **{"f32_ftz": 10, "tf32": 11, "tf32_ftz": 12, "u4_align8": 13, "u4_align16": 14, "u6_align16": 15},
}
BITS = (8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6)  # of an element, by value
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3, "128_atom_32": 4, "128_atom_32_flip_8": 5, "128_atom_64": 6}
INTERLEAVES = {0: 0, 16: 1, 32: 2}


def _value(names: Mapping[Any, int], field: str, name: Any) -> int:
    if name not in names:
        raise ValueError(f"TensorMap: {field} must be one of {', '.join(map(str, names))}, not {name!r}")
    return names[name]


@dataclass(frozen=True)
class TensorMap:
    """A tensor in global memory, and the box of it that one copy moves. A kernel argument of 128 bytes.

    base: Buffer or address. dtype: a name of DTYPES. dims: sizes in elements, the contiguous one first. strides: bytes
    between neighbours along dims[1:]; default: dense. box, element_strides: as in the driver. swizzle: bytes of the
    span, or a name of SWIZZLES. nan_fill: elements outside of the tensor are NaN instead of 0.
    """

    base: Buffer | int
    dtype: str
    dims: tuple[int, ...]
    box: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    element_strides: tuple[int, ...] | None = None
    swizzle: int | str = 0
    interleave: int = 0
    nan_fill: bool = False

    def dense_strides(self) -> list[int]:
        """Strides of a tensor without padding."""
        bits = BITS[DTYPES[self.dtype]]
        strides, size = [], self.dims[0] * bits // 8
        for extent in self.dims[1:]:
            strides.append(size)
            size *= extent
        return strides

    def __bytes__(self) -> bytes:
        """The handle. Raises ValueError naming the rule of the driver that is broken."""
        if not self.dims:
            raise ValueError("TensorMap: dims must have at least one entry")
        if min(*self.dims, *self.box, *(self.strides or ()), *(self.element_strides or ()), 0) < 0:
            raise ValueError("TensorMap: a size or stride is negative")
        handle = core().encode_tensor_map(
            dtype=_value(DTYPES, "dtype", self.dtype),
            address=self.base.address if isinstance(self.base, Buffer) else self.base,
            dims=list(self.dims),
            strides=self.dense_strides() if self.strides is None else list(self.strides),
            box=list(self.box),
            element_strides=[1] * len(self.dims) if self.element_strides is None else list(self.element_strides),
            interleave=_value(INTERLEAVES, "interleave", self.interleave),
            swizzle=_value(SWIZZLES, "swizzle", self.swizzle),
            l2_promotion=0,
            oob_fill=int(self.nan_fill),
        )
        return bytes(handle)

"""Global memory of the interpreter: numpy arrays at addresses of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

BASE = 0x7000_0000_0000
ALIGNMENT = 512
GAP = 1 << 20  # between buffers, so that a small overrun meets no neighbour
POISON = 0xFB  # what an uninitialised byte holds


@dataclass(frozen=True)
class Buffer:
    """One allocation. It stands for its address as a kernel argument; `buffer + n` is the address n bytes on."""

    name: str
    address: int
    data: NDArray[np.uint8]  # flat, shared with the array that was added
    readonly: bool
    initialised: bool

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def __add__(self, offset: int) -> int:
        return self.address + offset

    def numpy(self, dtype: DTypeLike = np.uint8, shape: tuple[int, ...] = (-1,)) -> NDArray[Any]:
        """The contents, without a copy."""
        return self.data.view(dtype).reshape(shape)


class Memory:
    """The allocations that launches may touch. Anything else is out of bounds."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self._end = BASE

    def reserve(self, nbytes: int, alignment: int = ALIGNMENT) -> int:
        """An address with that alignment (a power of two) and no more, for `nbytes` of buffers at given addresses."""
        address = -(-(self._end + GAP) // (2 * alignment)) * 2 * alignment + alignment
        self._end = address + nbytes
        return address

    def add(
        self,
        array: NDArray[Any],
        name: str,
        *,
        readonly: bool = False,
        initialised: bool = True,
        alignment: int = ALIGNMENT,
        address: int | None = None,
    ) -> Buffer:
        """A buffer over the bytes of a contiguous array, which is not copied: results are seen in it.

        readonly: a write is a finding. initialised: False makes a read before the first write a finding. alignment: see
        `reserve`. address: inside a reserved range, for parts of an allocation that are told apart. Raises ValueError
        for an array that is empty, not contiguous, or read-only without `readonly`, and for overlapping buffers.
        """
        if not array.flags.c_contiguous or array.nbytes == 0:
            raise ValueError(f"Memory.add: {name} must be a contiguous array with at least one element")
        if not (array.flags.writeable or readonly):
            raise ValueError(f"Memory.add: {name} is a read-only array: pass readonly=True or a copy")
        if address is None:
            address = self.reserve(array.nbytes, alignment)
        for other in self.buffers:
            if address < other.address + other.nbytes and other.address < address + array.nbytes:
                raise ValueError(f"Memory.add: {name} overlaps {other.name}")
        buffer = Buffer(name, address, array.reshape(-1).view(np.uint8), readonly, initialised)
        self.buffers.append(buffer)
        self.buffers.sort(key=lambda known: known.address)
        return buffer

    def add_empty(
        self,
        nbytes: int,
        name: str,
        *,
        readonly: bool = False,
        alignment: int = ALIGNMENT,
        address: int | None = None,
    ) -> Buffer:
        """An uninitialised buffer, filled with a poison byte."""
        poison = np.full(nbytes, POISON, np.uint8)
        return self.add(poison, name, readonly=readonly, initialised=False, alignment=alignment, address=address)

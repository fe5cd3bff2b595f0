# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="no-untyped-call, name-defined"
"""What a library of expert GEMMs leaves to its caller, as Triton kernels: grouping routes, gather, SiTU, weighted sum.

All work on the current stream, without allocation and without reading results on the host, so that they can be
captured. Triton gives the annotations of a kernel's parameters a meaning of its own, so kernels have none of Python's.
Importing this needs Triton.
"""

from importlib import import_module

import torch
from torch import Tensor

from cake_moe.layout import DEFAULT_BETA, DEFAULT_LINEAR_BETA, EXPERTS, HIDDEN, INTERMEDIATE, TOP_K

triton = import_module("triton")
tl = import_module("triton.language")

_LANES = 1024  # the power of two above the number of experts
_ONE_CTA_ROUTES = 4096  # up to here one CTA counts, scans and places
_CHUNK = 512
_COLUMNS = 512  # of a row that a CTA moves; divides H


@triton.jit
def _count(ids, amounts, routes, CHUNK: tl.constexpr):
    route = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    there = route < routes
    tl.atomic_add(amounts + tl.load(ids + route, mask=there, other=0), 1, mask=there)


@triton.jit
def _place_chunk(ids, cursor, slot_route, route_slot, unit_expert, first, routes, UNIT: tl.constexpr, N: tl.constexpr):
    route = first + tl.arange(0, N)
    there = route < routes
    expert = tl.load(ids + route, mask=there, other=0)
    slot = tl.atomic_add(cursor + expert, 1, mask=there)
    tl.store(slot_route + slot, route, mask=there)
    tl.store(route_slot + route, slot, mask=there)
    tl.store(unit_expert + slot // UNIT, expert, mask=there & (slot % UNIT == 0))


@triton.jit
def _scan(
    ids, amounts, starts, cursor, total, slot_route, route_slot, unit_expert, routes,
    COUNT: tl.constexpr, LANES: tl.constexpr, UNIT: tl.constexpr, ALONE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One CTA. First slot of every expert, each expert's slots padded to UNIT; with ALONE also everything else."""
    lane = tl.arange(0, LANES)
    if ALONE:
        amount = tl.zeros([LANES], dtype=tl.int32)
        for first in range(0, routes, CHUNK):
            route = first + tl.arange(0, CHUNK)
            amount += tl.histogram(tl.load(ids + route, mask=route < routes, other=LANES - 1), LANES)
        amount = tl.where(lane < COUNT, amount, 0)
    else:
        amount = tl.load(amounts + lane)
    padded = (amount + UNIT - 1) // UNIT * UNIT
    start = tl.cumsum(padded, 0) - padded
    tl.store(starts + lane, start)
    tl.store(cursor + lane, start)
    tl.store(total, tl.sum(padded, 0))
    if ALONE:
        for pad in range(UNIT - 1):
            slot = start + amount + pad
            tl.store(slot_route + slot, tl.zeros([LANES], tl.int32) + routes, mask=slot < start + padded)
        tl.debug_barrier()
        for first in range(0, routes, CHUNK):
            _place_chunk(ids, cursor, slot_route, route_slot, unit_expert, first, routes, UNIT, CHUNK)


@triton.jit
def _place(
    ids, amounts, starts, cursor, slot_route, route_slot, unit_expert, routes, chunks,
    UNIT: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The first `chunks` CTAs place routes, the others each fill one expert's padding and clear its count."""
    program = tl.program_id(0)
    if program < chunks:
        _place_chunk(ids, cursor, slot_route, route_slot, unit_expert, program * CHUNK, routes, UNIT, CHUNK)
    else:
        expert = program - chunks
        slot = tl.load(starts + expert) + tl.load(amounts + expert) + tl.arange(0, WIDTH)
        tl.store(slot_route + slot, tl.zeros([WIDTH], tl.int32) + routes, mask=slot < tl.load(starts + expert + 1))
        tl.store(amounts + expert, 0)


@triton.jit
def _gather(source, route_slot, rows, TOP: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    token, column = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(source + token.to(tl.int64) * WIDTH + column)
    for slot in tl.static_range(TOP):
        row = tl.load(route_slot + token * TOP + slot).to(tl.int64)
        tl.store(rows + row * WIDTH + column, values)


@triton.jit
def _situ(sums, hidden, elements, beta, linear_beta, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """sums [rows, 2 WIDTH]: the up half, then the gate half."""
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = element < elements
    up_at = sums + element // WIDTH * (2 * WIDTH) + element % WIDTH
    up = tl.load(up_at, mask=there, other=0).to(tl.float32)
    gate = tl.load(up_at + WIDTH, mask=there, other=0).to(tl.float32)
    smooth_gate = beta * (2 * tl.sigmoid(2 * gate / beta) - 1)
    smooth_up = linear_beta * (2 * tl.sigmoid(2 * up / linear_beta) - 1)
    tl.store(hidden + element, (smooth_gate * tl.sigmoid(gate) * smooth_up).to(hidden.dtype.element_ty), mask=there)


@triton.jit
def _weighted_sum(
    rows, weights, route_row, output, TOP: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, PLACED: tl.constexpr
):
    """PLACED: a route's row is route_row[route]; otherwise it has the route's own number."""
    token, column = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for slot in tl.static_range(TOP):
        route = token * TOP + slot
        row = tl.load(route_row + route) if PLACED else route
        weight = tl.load(weights + route).to(tl.float32)
        total += weight * tl.load(rows + row.to(tl.int64) * WIDTH + column).to(tl.float32)
    tl.store(output + token.to(tl.int64) * WIDTH + column, total.to(output.dtype.element_ty))


class Groups:
    """Slots of routes, grouped by expert, each expert's padded to a multiple of `unit` (1: no padding).

    Attributes, int32 on the GPU: starts [1024], first slot of each expert, starts[896] = total; slot_route, the route
    in each slot (16 M in padding); route_slot [16 M]; unit_expert, the expert of every `unit` slots; total [1].
    """

    def __init__(self, ids: Tensor, unit: int) -> None:
        """ids: int32 [M, 16] on the GPU, all in 0..895."""
        self.ids, self.unit, self.routes = ids.view(-1), unit, ids.numel()
        slots = self.routes + min(self.routes, EXPERTS) * (unit - 1)

        def zeros(count: int) -> Tensor:
            return torch.zeros(count, dtype=torch.int32, device=ids.device)

        self.starts, self._cursor, self._amounts, self.total = zeros(_LANES), zeros(_LANES), zeros(_LANES), zeros(1)
        # A GEMM's last tile may read past the slots that are in use.
        self.slot_route = zeros(slots + _LANES).fill_(self.routes)
        self.route_slot = zeros(self.routes)
        self.unit_expert = zeros(slots // unit + _LANES)

    def find(self) -> None:
        alone = self.routes <= _ONE_CTA_ROUTES
        chunks = triton.cdiv(self.routes, _CHUNK)
        tables = (self.slot_route, self.route_slot, self.unit_expert, self.routes)
        if not alone:
            _count[(chunks,)](self.ids, self._amounts, self.routes, CHUNK=_CHUNK)
        _scan[(1,)](
            self.ids, self._amounts, self.starts, self._cursor, self.total, *tables,
            COUNT=EXPERTS, LANES=_LANES, UNIT=self.unit, ALONE=alone, CHUNK=_CHUNK, num_warps=8,
        )  # fmt: skip
        if not alone:
            width = triton.next_power_of_2(self.unit)
            _place[(chunks + EXPERTS,)](
                self.ids, self._amounts, self.starts, self._cursor, *tables, chunks,
                UNIT=self.unit, WIDTH=width, CHUNK=_CHUNK,
            )  # fmt: skip


def gather(source: Tensor, groups: Groups, rows: Tensor) -> None:
    """rows[slot] = source[token of the slot], bf16 [16 M, 3584]; without padding."""
    grid = (len(source), HIDDEN // _COLUMNS)
    _gather[grid](source, groups.route_slot, rows, TOP=TOP_K, WIDTH=HIDDEN, BLOCK=_COLUMNS)


def situ(sums: Tensor, hidden: Tensor) -> None:
    """SiTU with the default betas of sums [rows, up | gate] into hidden [rows, 384]."""
    elements = len(sums) * INTERMEDIATE
    _situ[(triton.cdiv(elements, 1024),)](
        sums, hidden, elements, DEFAULT_BETA, DEFAULT_LINEAR_BETA, WIDTH=INTERMEDIATE, BLOCK=1024
    )


def weighted_sum(rows: Tensor, weights: Tensor, groups: Groups | None, output: Tensor) -> None:
    """Sum of a token's 16 rows; `groups` says where they lie, None: in the order of routes."""
    placed = groups is not None
    route_row = groups.route_slot if groups is not None else weights
    _weighted_sum[(len(output), HIDDEN // _COLUMNS)](
        rows, weights, route_row, output, TOP=TOP_K, WIDTH=HIDDEN, BLOCK=_COLUMNS, PLACED=placed
    )

"""Modules, launches and `run`."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ptxrun.build import core
from ptxrun.host_shim import RecordedLaunch
from ptxrun.memory import Buffer, Memory
from ptxrun.report import BufferCounters, Finding, LaunchCounters, Place, Report
from ptxrun.tensor_map import TensorMap

Argument = Buffer | TensorMap | int | float | bytes | np.generic
Extent = int | tuple[int, ...] | list[int]
Schedule = Literal["early", "late", "random"]
Checks = Literal["none", "memory", "full"]


@dataclass(frozen=True)
class CensusLine:
    """A spelling of a module; problem says why it cannot be executed, or is empty."""

    spelling: str
    count: int
    problem: str


@dataclass(frozen=True)
class Parameter:
    """A kernel parameter; offset in the parameter block, in bytes like the rest. type: as declared (u32, f32, b8)."""

    name: str
    offset: int
    nbytes: int
    alignment: int
    type: str


class Module:
    """A PTX text. Raises PtxError (a ValueError) naming line and text for what is not PTX."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.program = core().Program(text)

    @cached_property
    def kernels(self) -> dict[str, Any]:
        """Kernel name -> its parameters, limits and static shared memory (`_core.KernelInfo`)."""
        return {kernel.name: kernel for kernel in self.program.kernels}

    def parameters(self, kernel: str) -> list[Parameter]:
        """Raises ValueError for a kernel that the module does not have."""
        if kernel not in self.kernels:
            raise ValueError(f"no kernel {kernel!r}; the module has {', '.join(self.kernels) or 'none'}")
        return [Parameter(*slot) for slot in self.kernels[kernel].params]

    def census(self) -> list[CensusLine]:
        """Every spelling of the text, how often it occurs and whether it is modelled."""
        return [CensusLine(*line) for line in self.program.census()]


UINT32, UINT64 = (1 << 32) - 1, (1 << 64) - 1
MAX_SMS, MAX_REGISTERS = 4096, 255  # no GPU has so many; of a thread
FLOAT_FORMATS = {"f16": "<e", "f32": "<f", "f64": "<d"}  # struct's, by parameter type


def _in_range(value: int, what: str, least: int, most: int) -> int:
    if not isinstance(value, (int, np.integer)) or not least <= value <= most:
        raise ValueError(f"{what} must be an integer from {least} to {most}, not {value!r}")
    return int(value)


def _extent(value: Extent, what: str) -> tuple[int, int, int]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(values) <= 3:
        raise ValueError(f"{what} must be an integer or up to three, not {value!r}")
    x, y, z = (_in_range(entry, what, 1, UINT32) for entry in (*values, 1, 1)[:3])
    return x, y, z


def _number_bytes(value: int | float, parameter: Parameter) -> bytes:
    """A number in the parameter's type; one without a type (.b32, .b64) takes an int's or a float's bits."""
    form = FLOAT_FORMATS.get(parameter.type)
    if form is None and isinstance(value, float):
        form = {"b32": "<f", "b64": "<d"}.get(parameter.type)
        if form is None:
            raise ValueError(f"parameter {parameter.name} is a .{parameter.type}: {value} is no integer")
    try:
        if form is not None:
            return struct.pack(form, value)
        return int(value).to_bytes(parameter.nbytes, "little", signed=value < 0)
    except OverflowError:
        raise ValueError(f"parameter {parameter.name} has {parameter.nbytes} bytes: {value} is too big") from None


def _argument_bytes(value: Argument, parameter: Parameter) -> bytes:
    size = parameter.nbytes
    if isinstance(value, Buffer):
        packed = value.address.to_bytes(8, "little")
    elif isinstance(value, (TensorMap, bytes)):
        packed = bytes(value)
    elif isinstance(value, np.generic):
        if (value.dtype.kind == "f") != (parameter.type in FLOAT_FORMATS) and not parameter.type.startswith("b"):
            raise ValueError(f"parameter {parameter.name} is a .{parameter.type}, its argument {value!r}")
        packed = value.tobytes()
    else:
        packed = _number_bytes(value, parameter)
    if len(packed) != size:
        raise ValueError(f"parameter {parameter.name} has {size} bytes, its argument {value!r} {len(packed)}")
    return packed


@dataclass(frozen=True)
class Launch:
    """A kernel launch. args: one value a parameter; a number takes the parameter's type, bytes are a struct.

    grid, block, cluster: an int or up to three. smem: dynamic shared memory in bytes. pdl: may start before its
    predecessor has ended. cooperative: every CTA must fit at once. non_portable_cluster: more than 8 CTAs in a cluster.
    """

    module: Module
    kernel: str
    grid: Extent
    block: Extent
    args: Sequence[Argument] = ()
    cluster: Extent = 1
    smem: int = 0
    pdl: bool = False
    cooperative: bool = False
    non_portable_cluster: bool = False

    @classmethod
    def recorded(cls, launch: RecordedLaunch, module: Module) -> Launch:
        """One that launch code made through the host shim."""
        fields = {name: value for name, value in vars(launch).items() if name != "fat_binary"}
        return cls(module=module, non_portable_cluster=True, **fields)  # the shim asks for the attribute

    def parameter_block(self) -> bytes:
        """The bytes that the kernel sees. Raises ValueError for wrong arguments."""
        parameters = self.module.parameters(self.kernel)
        if len(parameters) != len(self.args):
            raise ValueError(f"{self.kernel} has {len(parameters)} parameters, got {len(self.args)} arguments")
        block = bytearray(self.module.kernels[self.kernel].param_bytes)
        for parameter, value in zip(parameters, self.args, strict=True):
            packed = _argument_bytes(value, parameter)
            block[parameter.offset : parameter.offset + parameter.nbytes] = packed
        return bytes(block)


def finding_codes() -> dict[str, str]:
    """Every code that a finding may have, with its meaning."""
    return dict(core().FINDING_CODES)


def _place(place: Any) -> Place:
    return Place(*(getattr(place, name) for name in Place.__dataclass_fields__))


def _finding(finding: Any) -> Finding:
    return Finding(
        code=finding.code,
        message=finding.message,
        place=_place(finding.place),
        other=None if finding.other is None else _place(finding.other),
        buffer=finding.buffer,
        offset=finding.offset,
        count=finding.count,
    )


def run(
    launches: Sequence[Launch],
    memory: Memory,
    *,
    schedule: Schedule = "early",
    seed: int = 0,
    sms: int = 132,
    checks: Checks = "full",
    registers: Mapping[str, int] | None = None,
    max_findings: int = 100,
    max_instructions: int = 0,
) -> Report:
    """Executes the launches in order, as on one stream, and returns what was found; memory changes in place.

    schedule: when asynchronous operations complete: as early as possible, as late as possible, or at random (`seed`),
    which also changes the order of warps. checks: `memory` leaves out races, `none` everything. registers: a thread's,
    by kernel, as ptxas reports them: limits residency and makes setmaxnreg's pool. The run stops after max_findings
    different findings, or with a finding after max_instructions warp instructions (0: no limit; an interrupt from the
    keyboard ends it too).
    Raises PtxError for a spelling that is not modelled, and ValueError for arguments or shapes that do not fit.
    """
    machine = core().Machine(
        schedule=schedule,
        seed=_in_range(seed, "seed", 0, UINT64),
        sms=_in_range(sms, "sms", 1, MAX_SMS),
        checks=checks,
        max_findings=_in_range(max_findings, "max_findings", 1, UINT32),
        max_instructions=_in_range(max_instructions, "max_instructions", 0, UINT64),
    )
    for buffer in memory.buffers:
        machine.add_buffer(buffer.address, buffer.data, buffer.name, buffer.readonly, buffer.initialised)
    for launch in launches:
        machine.launch(
            launch.module.program,
            launch.kernel,
            grid=_extent(launch.grid, "grid"),
            block=_extent(launch.block, "block"),
            cluster=_extent(launch.cluster, "cluster"),
            dynamic_shared=_in_range(launch.smem, "smem", 0, UINT32),
            params=launch.parameter_block(),
            pdl=launch.pdl,
            cooperative=launch.cooperative,
            non_portable_cluster=launch.non_portable_cluster,
            registers=_in_range((registers or {}).get(launch.kernel, 0), "registers", 0, MAX_REGISTERS),
        )
    machine.run()
    counters = [machine.counters(index) for index in range(len(launches))]
    return Report(
        findings=[_finding(finding) for finding in machine.findings],
        launches=[
            LaunchCounters(**{name: getattr(counter, name) for name in LaunchCounters.__dataclass_fields__})
            for counter in counters
        ],
        buffers={
            counter.name: BufferCounters(counter.bytes_read, counter.bytes_written, dict(counter.read_histogram))
            for counter in machine.buffer_counters()
        },
        trace=machine.trace,
    )

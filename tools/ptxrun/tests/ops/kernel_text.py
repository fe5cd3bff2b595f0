"""Small kernels for tests: a body in PTX becomes a module, and is run under every schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import ptxrun
from ptxrun.api import Schedule

SCHEDULES: list[tuple[Schedule, int]] = [("early", 0), ("late", 0), ("random", 1), ("random", 2)]

HEADER = """
.version 8.8
.target sm_100a
.address_size 64
"""

ENTRY = """
.visible .entry {name}({params})
{{
  .reg .pred %p<8>;
  .reg .b16 %h<8>;
  .reg .b32 %r<32>, %t, %warp, %lane, %cta;
  .reg .f32 %f<8>;
  .reg .b64 %rd<16>;
  .shared .align 1024 .b8 tile[{tile}];
  .shared .align 8 .b64 bars[8];
  mov.u32 %t, %tid.x;
  mov.u32 %cta, %ctaid.x;
  shr.u32 %warp, %t, 5;
  and.b32 %lane, %t, 31;
{body}
  ret;
}}
"""


def entry(body: str, params: str = "", name: str = "kernel", tile: int = 8192) -> str:
    """One kernel. Registers: %t %warp %lane %cta are set, %r %rd %f %h %p are free; shared memory: tile, bars.

    params: `name:type` words; pointers are read by the body with ld.param.u64.
    """
    slots = [word.split(":") for word in params.split()]
    declared = ",\n  ".join(
        f".param .align 64 .b8 {slot}[128]" if kind == "map" else f".param .{kind} {slot}" for slot, kind in slots
    )
    return ENTRY.format(name=name, params=declared, body=body, tile=tile)


def module(*entries: str) -> ptxrun.Module:
    return ptxrun.Module(HEADER + "".join(entries))


# Thread 0 initialises bars[0..], then everybody may use them.
def init_barriers(*counts: int, fence: str = "fence.mbarrier_init.release.cluster;", sync: str = "bar.sync 0;") -> str:
    inits = "\n".join(
        f"  @!%p7 mbarrier.init.shared::cta.b64 [bars+{8 * index}], {count};" for index, count in enumerate(counts)
    )
    return f"  setp.ne.u32 %p7, %t, 0;\n{inits}\n  @!%p7 {fence or 'bra INIT_DONE;'}\nINIT_DONE:\n  {sync}\n"


def wait(barrier: str, parity: int | str, label: str) -> str:
    return f"{label}:\n  mbarrier.try_wait.parity.shared::cta.b64 %p6, [{barrier}], {parity};\n  @!%p6 bra {label};\n"


@dataclass(frozen=True)
class Run:
    """How a body is launched. buffers: name -> array, or byte count for an uninitialised one, in parameter order."""

    buffers: Mapping[str, Any] = field(default_factory=dict)
    params: str = ""
    grid: int | tuple[int, ...] = 1
    block: int = 64
    cluster: int | tuple[int, ...] = 1
    smem: int = 0
    maps: Any = None  # (buffers) -> arguments, instead of the buffers themselves
    tile: int = 8192


def launch(
    body: str, setup: Run, schedule: Schedule = "early", seed: int = 0, **options: Any
) -> tuple[ptxrun.Report, dict[str, ptxrun.Buffer]]:
    memory = ptxrun.Memory()
    buffers = {
        name: memory.add_empty(value, name) if isinstance(value, int) else memory.add(np.array(value), name)
        for name, value in setup.buffers.items()
    }
    params = setup.params or " ".join(f"{name}:u64" for name in buffers)
    args = list(buffers.values()) if setup.maps is None else setup.maps(buffers)
    program = module(entry(body, params, tile=setup.tile))
    single = ptxrun.Launch(
        program, "kernel", setup.grid, setup.block, args=args, cluster=setup.cluster, smem=setup.smem
    )
    return ptxrun.run([single], memory, schedule=schedule, seed=seed, **options), buffers


def every_schedule(body: str, setup: Run, **options: Any) -> Iterator[tuple[ptxrun.Report, dict[str, ptxrun.Buffer]]]:
    for schedule, seed in SCHEDULES:
        yield launch(body, setup, schedule, seed, **options)


def clean(report: ptxrun.Report) -> None:
    """No findings at all; shows them otherwise."""
    assert not report.findings, "\n".join(map(str, report.findings)) + "\n" + report.trace

"""``python -m cake_moe.env``: what is installed and what would run here, to paste into a bug ticket.

Works without a GPU, a driver or a CUDA build of torch.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from . import _C
from .ops import build_facts, cpu_isa, workspace_size

_PLAN_ARCHS = {"cpu": 0, "sm_90a": 132, "sm_100a": 148, "sm_103a": 160}
"""Architectures of the plan and the SM count of a whole chip (H200, B200, B300)."""

_CPU_EXTENSIONS = ("avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "amx_int8", "asimd", "sve")

_SWITCHES = ("CAKE_MOE_CPU_ISA", "CAKE_MOE_VALIDATE", "CAKE_MOE_SYNC")


def report() -> dict[str, str]:
    """Facts about the library, the machine and torch, as printable strings."""
    info = build_facts()
    facts = {
        "cake_moe": info["version"],
        "built with": f"compiler {info['compiler']}, CUDA {info['cuda_version'] or 'none'}",
        "fat binary": info["cuda_archs"] or "no CUDA code",
        "fused_moe runs on": ", ".join(info["fused_moe_archs"]),
        "CPU": _processor(),
        "CPU instruction set": _instruction_set(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.1f} GB",
        "python": f"{platform.python_version()} on {platform.platform()}",
        "glibc": "-".join(platform.libc_ver()),
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}, {torch.get_num_threads()} threads",
        "GPUs": ", ".join(_gpus()) or "none",
    }
    facts |= {name: os.environ[name] for name in _SWITCHES if name in os.environ}
    return facts


def _instruction_set() -> str:
    """What a ticket about a bad CAKE_MOE_CPU_ISA needs is the reason, not a report that stops."""
    try:
        return cpu_isa()
    except (RuntimeError, ValueError) as error:
        return str(error)


def _processor() -> str:
    """Model, cores that this process may use, and the vector extensions that matter here."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    present = facts.get("flags", facts.get("Features", "")).split()
    extensions = [name for name in _CPU_EXTENSIONS if name in present]
    model = facts.get("model name", platform.machine())
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {' '.join(extensions) or 'no vector extensions known'}"


def _gpus() -> Iterable[str]:
    if torch.version.cuda is None or torch.cuda.device_count() == 0:
        return
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        yield f"{torch.cuda.get_device_name(index)} (sm_{major}{minor})"


def _fact_table() -> Table:
    table = Table(show_header=False, box=None)
    for name, value in report().items():
        table.add_row(name, value)
    return table


def plan_table(arch: str, counts: Iterable[int], sm_count: int) -> Table:
    """One row a launch of the plan for each token count.

    Args:
        arch: ``cpu``, ``sm_90a``, ``sm_100a`` or ``sm_103a``.
        counts: token counts, each in 1..16384.
        sm_count: SMs that the kernels may use; ignored for ``cpu``.
    """
    title = f"plan for {arch}" + (f", {sm_count} SMs" if sm_count else "")
    table = Table(title=title)
    for heading in ("M", "path", "stage", "tile", "grid", "threads", "PDL", "workspace"):
        table.add_column(heading, justify="left" if heading in ("path", "stage") else "right")
    reasons: dict[str, None] = {}
    for count in counts:
        plan = _C.make_plan(count, arch, sm_count)
        reasons[f"{plan['path']}: {plan['why']}"] = None
        for position, launch in enumerate(plan["launches"]):
            head = [str(count), plan["path"]] if position == 0 else ["", ""]
            tile = f"{launch['tile_rows']}x{launch['tile_tokens']}" if launch["tile_rows"] else "-"
            size = f"{workspace_size(count):,} B" if position == 0 else ""
            shape = (tile, str(launch["grid"]), str(launch["threads"] or "-"), "yes" if launch["pdl"] else "-")
            table.add_row(*head, launch["stage"], *shape, size)
        table.add_section()
    table.caption = "\n".join(reasons)
    table.caption_justify = "left"
    return table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m cake_moe.env", description="Report for bug tickets.")
    parser.add_argument("--plan", action="store_true", help="print the plan as a table instead")
    parser.add_argument("--arch", choices=list(_PLAN_ARCHS), help="plan of this architecture only")
    parser.add_argument("--sms", type=int, help="SM count for the GPU plans (default: the whole chip)")
    parser.add_argument("-M", "--tokens", type=int, nargs="+", default=[1, 16, 64, 256, 1024, 4096, 16384])
    options = parser.parse_args(arguments)
    console = Console()
    if not options.plan:
        console.print(_fact_table())
        return 0
    try:
        for arch in [options.arch] if options.arch else _PLAN_ARCHS:
            sm_count = 0 if arch == "cpu" else (options.sms or _PLAN_ARCHS[arch])
            console.print(plan_table(arch, options.tokens, sm_count))
    except ValueError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())

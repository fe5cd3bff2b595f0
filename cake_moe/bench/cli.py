"""The command line of the benchmark."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain, product
from pathlib import Path

import torch
from rich.console import Console
from rich.live import Live

from cake_moe import env
from cake_moe.testing.compare import Mismatch, TooManyDiffer
from cake_moe.testing.routings import ROUTING_NAMES

from . import host, plot, report, targets
from .cases import CACHE_STATES, Case, make_weights, parse_counts
from .contenders import PEER_NAMES
from .cpu import CpuBackend
from .measure import Backend, Settings, measure_case
from .results import Session

LOG_WIDTH = 200
"""Columns of the tables where the output is no terminal."""
_GPU_ONLY = ("peers", "launch", "host", "launches")


def _counts(text: str) -> list[int]:
    try:
        return parse_counts(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    defaults = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m cake_moe.bench",
        description="Time of the operator against the floor (reading its bytes, or its arithmetic) and other "
        "implementations of the layer, in one run. Each case is verified against float64 before it is timed.",
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where to run")
    parser.add_argument(
        "-M",
        "--tokens",
        type=_counts,
        nargs="*",
        default=[[1, 16, 64]],
        metavar="COUNTS",
        help="token counts: 8, 1-4, 16-64:16 or 1-64x2 (default 1 16 64; none for --host alone)",
    )
    parser.add_argument("--routing", choices=ROUTING_NAMES, nargs="+", default=["uniform"])
    parser.add_argument(
        "--other-tokens",
        type=_counts,
        nargs="+",
        metavar="COUNTS",
        help="token counts of every routing but the first (default: the same)",
    )
    parser.add_argument("--caches", choices=CACHE_STATES, nargs="+", default=["cold"], help="before each call")
    parser.add_argument("--rounds", type=int, default=defaults.rounds, help="samples of each contender")
    parser.add_argument("--budget", type=float, default=defaults.budget, help="seconds a case, after five samples")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    cpu = parser.add_argument_group("on the CPU")
    cpu.add_argument(
        "--pool", type=int, default=defaults.pool, help="experts the torch.mm loop holds, 16.5 MB each; 0: without it"
    )
    cpu.add_argument("--threads", type=int, help="torch's threads (default: as torch chooses)")
    gpu = parser.add_argument_group("on a GPU")
    gpu.add_argument("--launch", choices=["graph", "eager"], help="how calls are made (default graph)")
    gpu.add_argument("--peers", choices=PEER_NAMES, nargs="*", help="other implementations to time (default: all)")
    gpu.add_argument(
        "--verify-tokens", type=int, default=defaults.verify_tokens, help="tokens of a case compared with float64"
    )
    gpu.add_argument(
        "--host",
        type=int,
        nargs="?",
        const=host.CALLS,
        metavar="CALLS",
        help=f"also time the caller's thread, median of so many calls (default {host.CALLS})",
    )
    gpu.add_argument("--launches", action="store_true", help="also count launches and time the gaps between them")
    show = parser.add_argument_group("results")
    show.add_argument("--targets", action="store_true", help="compare with this project's own targets for the H200")
    show.add_argument("--json", type=Path, metavar="FILE", help="write all samples")
    show.add_argument("--plot", type=Path, metavar="FILE", help="write a picture (svg, png, pdf); needs matplotlib")
    show.add_argument("--load", type=Path, metavar="FILE", help="show the results of a JSON file, measure nothing")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {options.rounds}")
    if options.host is not None and options.host < 10:
        parser.error(f"--host must be at least 10, got {options.host}")
    if options.device == "cpu":
        for name in _GPU_ONLY:
            if getattr(options, name) not in (None, False):
                parser.error(f"--{name} needs --device cuda")
        if options.targets and options.load is None:
            parser.error("--targets needs --device cuda")
    return options


def measure_session(options: argparse.Namespace, console: Console) -> Session:
    """Measure all cases of the command line; the table grows on the console."""
    settings = Settings(options.rounds, options.budget, options.pool, options.seed, options.verify_tokens)
    session = Session(env.report() | {"load before": _load()}, asdict(settings) | {"device": options.device})
    counts = _flat(options.tokens)
    others = counts if options.other_tokens is None else _flat(options.other_tokens)
    with console.status("random weights of 896 experts"):
        weights = make_weights(settings.seed)
    gpu = None
    backend: Backend
    if options.device == "cuda":
        from .gpu_session import GpuSession  # Triton comes with it

        with console.status("the GPU's weights, rates and peers"):
            gpu = GpuSession(weights, settings, options.launch or "graph", options.peers, sorted({*counts, *others}))
        backend = gpu.backend
        session.facts |= gpu.facts
    else:
        backend = CpuBackend(weights, settings)
    session.facts["clock"] = backend.clock.name
    with Live(report.result_table([]), console=console, auto_refresh=False) as live:
        for routing, state in product(options.routing, options.caches):
            for tokens in counts if routing == options.routing[0] else others:
                session.cases.append(measure_case(Case(tokens, routing, state), backend, settings))
                if options.json is not None:
                    session.save(options.json)  # a long run may be cut off
                live.update(report.result_table(session.cases), refresh=console.is_terminal)
        live.refresh()
    if gpu is not None:
        session.facts |= gpu.backend.left_out
    if gpu is not None and options.host is not None:
        session.host = gpu.host(options.host)
        session.facts |= gpu.facts
    if gpu is not None and options.launches:  # last: launches stay slower once the profiler has been at work
        session.launches = gpu.launches(counts)
    session.facts["load after"] = _load()
    return session


def _flat(groups: list[list[int]]) -> list[int]:
    return sorted({count for group in groups for count in group})


def _load() -> str:
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def show_extras(session: Session, console: Console, with_targets: bool) -> None:
    """Everything but the table of cases."""
    if session.launches:
        console.print(report.launch_table(session.launches))
    if session.host:
        console.print(report.host_table(session.host))
    if with_targets:
        standings: Iterable[targets.Standing] = chain(
            targets.of_cases(session.cases),
            targets.of_launches(session.launches),
            targets.of_host(session.host),
        )
        console.print(report.standing_table(standings))
    for line in targets.falling(session.cases):
        console.print(f"warning: {line}", style="bold", markup=False, soft_wrap=True)
    console.print()
    for case in session.cases:
        for contender, note in case.notes.items():
            line = f"M = {case.tokens}, {case.routing}, {case.state}: {contender}: {note}"
            console.print(line, style="dim", markup=False, soft_wrap=True)
    for name, value in session.facts.items():
        console.print(f"{name}: {value}", style="dim", markup=False, soft_wrap=True)


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else LOG_WIDTH)
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    threads = torch.get_num_threads()
    try:
        if options.plot is not None:
            plot.check_available()
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        if options.load is not None:
            session = Session.load(options.load)
            console.print(report.result_table(session.cases))
        else:
            session = measure_session(options, console)
        if options.json is not None:
            session.save(options.json)
        if options.plot is not None:
            plot.plot(session, options.plot)
        show_extras(session, console, options.targets)
    except (Mismatch, TooManyDiffer) as error:
        errors.print(f"not timed, the operator is wrong: {error}")
        return 1
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        errors.print(f"error: {error}")
        return 2
    finally:
        torch.set_num_threads(threads)
    return 0

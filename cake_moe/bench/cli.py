"""The command line of the benchmark."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from itertools import product
from pathlib import Path

import torch
from rich.console import Console
from rich.live import Live

from cake_moe import env
from cake_moe.testing.compare import Mismatch, TooManyDiffer
from cake_moe.testing.routings import ROUTING_NAMES

from . import plot
from .cases import CACHE_STATES, CacheEviction, Case, make_weights, parse_counts
from .clock import WallClock
from .measure import Settings, measure_case
from .report import result_table
from .results import Session

LOG_WIDTH = 120
"""Columns of the table where the output is no terminal."""


def _counts(text: str) -> list[int]:
    try:
        return parse_counts(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    defaults = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m cake_moe.bench",
        description="Time of the operator against the streaming read of its weights and a torch.mm loop, in one run. "
        "Each case is verified against float64 before it is timed.",
    )
    parser.add_argument("--device", choices=["cpu"], default="cpu", help="where to run")
    parser.add_argument(
        "-M",
        "--tokens",
        type=_counts,
        nargs="+",
        default=[[1, 16, 64]],
        metavar="COUNTS",
        help="token counts: 8, 1-4, 16-64:16 or 1-64x2 (default 1 16 64)",
    )
    parser.add_argument("--routing", choices=ROUTING_NAMES, nargs="+", default=["uniform"])
    parser.add_argument("--caches", choices=CACHE_STATES, nargs="+", default=["cold"], help="before each call")
    parser.add_argument("--rounds", type=int, default=defaults.rounds, help="samples of each contender")
    parser.add_argument("--budget", type=float, default=defaults.budget, help="seconds a case, after five samples")
    parser.add_argument(
        "--pool", type=int, default=defaults.pool, help="experts the torch.mm loop holds, 16.5 MB each; 0: without it"
    )
    parser.add_argument("--threads", type=int, help="torch's threads (default: as torch chooses)")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a picture (svg, png, pdf); needs matplotlib")
    parser.add_argument("--load", type=Path, metavar="FILE", help="show the results of a JSON file, measure nothing")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {options.rounds}")
    return options


def measure_session(options: argparse.Namespace, console: Console) -> Session:
    """Measure all cases of the command line; the table grows on the console."""
    settings = Settings(options.rounds, options.budget, options.pool, options.seed)
    session = Session(env.report() | {"load before": _load()}, asdict(settings) | {"device": options.device})
    counts = sorted({count for group in options.tokens for count in group})
    with console.status("random weights of 896 experts"):
        weights = make_weights(settings.seed)
        evict = CacheEviction()
    clock = WallClock()
    session.facts["clock"] = clock.name
    with Live(result_table([]), console=console, auto_refresh=False) as live:
        for routing, state, tokens in product(options.routing, options.caches, counts):
            session.cases.append(measure_case(Case(tokens, routing, state), weights, settings, clock, evict))
            live.update(result_table(session.cases), refresh=True)
    session.facts["load after"] = _load()
    return session


def _load() -> str:
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


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
            console.print(result_table(session.cases))
        else:
            session = measure_session(options, console)
        if options.json is not None:
            session.save(options.json)
        if options.plot is not None:
            plot.plot(session, options.plot)
        console.print()
        for name, value in session.facts.items():
            console.print(f"{name}: {value}", style="dim", markup=False, soft_wrap=True)
    except (Mismatch, TooManyDiffer) as error:
        errors.print(f"not timed, the operator is wrong: {error}")
        return 1
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        errors.print(f"error: {error}")
        return 2
    finally:
        torch.set_num_threads(threads)
    return 0

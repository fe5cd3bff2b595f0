"""python -m ptxrun run FILE.json | program FILE.so [ARGUMENT...] | census FILE.ptx... | codes

run executes the launches that a JSON file describes (ptxrun/description.py) and prints findings and counters. program
calls main() of a CUDA program that ptxrun.host_shim.link_program made, with the interpreter for a GPU. census lists the
spellings of PTX files and says which are not modelled. codes lists what a finding can be. The exit status is 1 for a
finding or a spelling that is not modelled, 2 for a wrong input.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections import Counter
from pathlib import Path

from ptxrun.api import Module, finding_codes, run
from ptxrun.description import read_description
from ptxrun.report import Report
from ptxrun.whole_program import WholeProgram


def _print_counters(report: Report) -> None:
    for index, launch in enumerate(report.launches):
        classes = ", ".join(f"{name} {count}" for name, count in sorted(launch.by_class.items()))
        print(f"launch {index}: {launch.instructions} warp instructions ({classes})")
        for kind, steps in sorted(launch.mma_steps.items()):
            print(f"  {kind}: {steps} steps")
        in_flight = f"{launch.max_bytes_in_flight_cta} in a CTA, {launch.max_bytes_in_flight_sm} on an SM"
        print(f"  most bytes in flight: {in_flight}")
    for name, buffer in report.buffers.items():
        print(f"buffer {name}: {buffer.bytes_read} bytes read, {buffer.bytes_written} written")


def _print_report(report: Report) -> None:
    _print_counters(report)
    print(report, flush=True)


def _run(arguments: argparse.Namespace) -> int:
    description = read_description(arguments.file)
    report = run(
        description.launches,
        description.memory,
        schedule=arguments.schedule,
        seed=arguments.seed,
        sms=arguments.sms,
        checks=arguments.checks,
        max_findings=arguments.max_findings,
    )
    description.write_results()
    _print_report(report)
    return 1 if report.codes.keys() - set(arguments.accept) else 0


def _program(arguments: argparse.Namespace) -> int:
    major, _, minor = arguments.capability.partition(".")
    program = WholeProgram(
        arguments.file,
        (int(major), int(minor)),
        sms=arguments.sms,
        schedule=arguments.schedule,
        seed=arguments.seed,
        checks=arguments.checks,
        max_findings=arguments.max_findings,
        on_report=_print_report,
    )
    status = program.main(arguments.arguments)
    ctypes.CDLL(None).fflush(None)
    accepted = set(arguments.accept)
    return 1 if any(report.codes.keys() - accepted for report in program.reports) else status


def _census(arguments: argparse.Namespace) -> int:
    counts: Counter[str] = Counter()
    problems: dict[str, str] = {}
    for path in arguments.files:
        for line in Module(path.read_text()).census():
            counts[line.spelling] += line.count
            if line.problem:
                problems[line.spelling] = line.problem
    for spelling, count in sorted(counts.items()):
        print(f"{count:8} {spelling}{'   NOT MODELLED: ' if spelling in problems else ''}{problems.get(spelling, '')}")
    print(f"{len(counts)} spellings, {len(problems)} not modelled")
    return 1 if problems else 0


def _codes(_: argparse.Namespace) -> int:
    for code, meaning in finding_codes().items():
        print(f"{code:24} {meaning}")
    return 0


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="ptxrun", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--schedule", choices=["early", "late", "random"], default="early")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--sms", type=int, default=132)
    options.add_argument("--checks", choices=["none", "memory", "full"], default="full")
    options.add_argument("--max-findings", type=int, default=100, help="the run stops after so many")
    options.add_argument("--accept", action="append", default=[], metavar="CODE", help="findings that are no failure")
    runner = commands.add_parser("run", help="execute the launches of a JSON file", parents=[options])
    runner.add_argument("file", type=Path)
    runner.set_defaults(command=_run)
    program = commands.add_parser("program", help="call main() of a program", parents=[options])
    program.add_argument("file", type=Path)
    program.add_argument("arguments", nargs="*", help="of main(); after -- if they begin with a dash")
    program.add_argument("--capability", default="9.0", help="compute capability that the program sees")
    program.set_defaults(command=_program)
    census = commands.add_parser("census", help="list the spellings of PTX files")
    census.add_argument("files", type=Path, nargs="+")
    census.set_defaults(command=_census)
    commands.add_parser("codes", help="list the codes of findings").set_defaults(command=_codes)
    arguments = parser.parse_args(words)
    try:
        status: int = arguments.command(arguments)
    except (KeyError, OSError, TypeError, ValueError) as error:
        print(f"ptxrun: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())

"""python -m ptxrun run FILE.json | program FILE.so [ARGUMENT...] | census FILE.ptx... | codes

run executes the launches that a JSON file describes (ptxrun/description.py) and prints findings and counters. program
calls main() of a CUDA program that ptxrun.host_shim.link_program made, with the interpreter for a GPU. census lists the
spellings of PTX files and says which are not modelled. codes lists what a finding can be. The exit status is 1 for a
finding or a spelling that is not modelled, 2 for a wrong input or a core that cannot be built; else that of program's
main() or exit().
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from ptxrun.api import Module, finding_codes, run
from ptxrun.build import BuildError
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


def _not_accepted(report: Report, accepted: list[str]) -> Report:
    for word in accepted:
        report = report.without(*word.split("@", 1))
    return report


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
        max_instructions=arguments.max_instructions,
    )
    description.write_results()
    _print_report(report)
    return 1 if _not_accepted(report, arguments.accept).findings else 0


def _report_error(error: BaseException) -> int:
    print(f"ptxrun: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    return 2


def _program(arguments: argparse.Namespace) -> int:
    def is_faulty() -> bool:
        return any(_not_accepted(report, arguments.accept).findings for report in program.reports)

    def on_exit(error: BaseException | None) -> None:
        ctypes.CDLL(None).fflush(None)
        if error is not None or is_faulty():
            os._exit(1 if error is None else _report_error(error))

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # inside main() nobody would ask for Python's handler
    major, _, minor = arguments.capability.partition(".")
    program = WholeProgram(
        arguments.file,
        (int(major), int(minor)),
        sms=arguments.sms,
        schedule=arguments.schedule,
        seed=arguments.seed,
        checks=arguments.checks,
        max_findings=arguments.max_findings,
        max_instructions=arguments.max_instructions,
        on_report=_print_report,
        on_exit=on_exit,
    )
    status = program.main(arguments.arguments)
    ctypes.CDLL(None).fflush(None)
    return 1 if is_faulty() else status


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


def _parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Arguments of a program stand behind --, or before it if they do not begin with a dash."""
    own, rest = words, []
    if "--" in words:
        at = words.index("--")
        own, rest = words[:at], words[at + 1 :]
    arguments, unknown = parser.parse_known_args(own)
    is_program = arguments.command is _program
    if (rest and not is_program) or any(not is_program or word.startswith("-") for word in unknown):
        parser.error(f"unrecognized arguments: {' '.join(unknown or rest)}")
    if is_program:
        arguments.arguments = [*arguments.arguments, *unknown, *rest]
    return arguments


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
    options.add_argument("--max-instructions", type=int, default=0, help="or so many instructions; 0: never")
    options.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="CODE[@OPCODE]",
        help="findings that are no failure: of a code, at instructions that begin with OPCODE",
    )
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
    arguments = _parse(parser, sys.argv[1:] if words is None else words)
    try:
        status: int = arguments.command(arguments)
    except (BuildError, KeyError, OSError, TypeError, ValueError) as error:
        return _report_error(error)
    except KeyboardInterrupt:
        print("ptxrun: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return status


if __name__ == "__main__":
    sys.exit(main())

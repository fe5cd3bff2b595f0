"""Command line and report of the self-test."""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from cake_moe import env
from cake_moe.layout import MAX_TOKENS
from cake_moe.selftest.checks import Check, checks_of, default_counts, paths_of
from cake_moe.selftest.machine import device_facts, is_lost, missing

LONGEST_CHECK_S = 120.0
"""A check that takes longer hangs: the report ends with it, and so does the process."""

_ENDED, _FAILED, _MISSING = 0, 1, 2


@dataclass(frozen=True)
class Result:
    """One check. status: ok, FAILED, HANGS or not run; detail: a remark, or what was wrong."""

    name: str
    tokens: int
    path: str
    status: str
    seconds: float = 0.0
    detail: str = ""

    def __str__(self) -> str:
        head = f"{self.status:7} M={self.tokens:<6}{self.path:20} {self.name:28}{self.seconds:6.2f} s"
        return f"{head}  {self.detail}".rstrip()


@dataclass
class Report:
    """What a ticket needs. facts: of library and machine, and of the device; plan: its paths; running and complete: a
    report that a crash has left names the check under way."""

    facts: dict[str, str]
    plan: list[dict[str, object]]
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    running: str = ""
    complete: bool = False

    @property
    def passed(self) -> bool:
        return self.complete and bool(self.results) and all(result.status == "ok" for result in self.results)

    @property
    def summary(self) -> str:
        count = sum(result.status == "ok" for result in self.results)
        verdict = "passed" if self.passed else "FAILED"
        return f"selftest {verdict}: {count} of {len(self.results)} checks in {self.seconds:.0f} s"

    def write(self, path: Path | None) -> None:
        """As JSON; nowhere without a path."""
        if path is None:
            return
        path.write_text(json.dumps({**asdict(self), "passed": self.passed}, indent=1) + "\n")


class _Watch:
    """Ends the process with a report where a check does not end: a GPU that hangs cannot be asked again."""

    def __init__(self, check: Check, report: Report, json_path: Path | None) -> None:
        self._check, self._report, self._json_path = check, report, json_path
        self._timer = threading.Timer(LONGEST_CHECK_S, self._give_up)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _give_up(self) -> None:
        result = Result(self._check.name, self._check.tokens, self._check.path, "HANGS", LONGEST_CHECK_S)
        self._report.results.append(result)
        print(result, self._report.summary, sep="\n", flush=True)
        self._report.write(self._json_path)
        os._exit(_FAILED)


def _checked(check: Check, device: torch.device) -> tuple[Result, bool]:
    """The result, and whether the device is lost."""
    started, lost = time.perf_counter(), False
    try:
        detail, status = check.run(), "ok"
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except Exception as error:
        detail, status = f"{type(error).__name__}: {error}", "FAILED"
        lost = is_lost(error, device)
    seconds = round(time.perf_counter() - started, 3)
    return Result(check.name, check.tokens, check.path, status, seconds, detail), lost


def run_checks(checks: Iterable[Check], report: Report, device: torch.device, json_path: Path | None = None) -> None:
    """Each check into the report, its file and onto the screen. After a CUDA error that stays no other check runs."""
    started, lost = time.perf_counter(), False
    for check in checks:
        if lost:
            result = Result(check.name, check.tokens, check.path, "not run")
        else:
            report.running = f"{check.name}, M={check.tokens}"
            report.write(json_path)
            with _Watch(check, report, json_path):
                result, lost = _checked(check, device)
        report.running = ""
        report.results.append(result)
        report.seconds = time.perf_counter() - started
        report.write(json_path)
        print(result, flush=True)
    report.complete = True
    report.write(json_path)


def _device(text: str) -> torch.device:
    try:
        device = torch.device(text)
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"must be cpu or cuda, got {text}") from error
    if device.type not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"must be cpu or cuda, got {text}")
    return device


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m cake_moe.selftest",
        description="Checks the operator on this machine. Exit status: 0 right, 1 wrong, 2 nothing to check.",
    )
    parser.add_argument("--device", type=_device, help="cpu or cuda[:N] (default: the GPU, else the CPU)")
    parser.add_argument("-M", "--tokens", type=int, nargs="+", help="token counts (default: every path of the plan)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there, too")
    options = parser.parse_args(arguments)
    if options.tokens and not all(1 <= tokens <= MAX_TOKENS for tokens in options.tokens):
        parser.error(f"token counts must be in 1..{MAX_TOKENS}, got {' '.join(map(str, options.tokens))}")
    if options.json is not None and not options.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no folder {options.json.absolute().parent}")
    if options.device is None:
        options.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if options.device.type == "cpu":
            print("torch sees no GPU: this checks the CPU")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    device: torch.device = options.device
    if (reason := missing(device)) is not None:
        print(reason)
        return _MISSING
    report = Report({**env.report(), **device_facts(device)}, [row._asdict() for row in paths_of(device)])
    for name, value in report.facts.items():
        print(f"{name}: {value}")
    with torch.no_grad():
        run_checks(checks_of(device, options.tokens or default_counts(device)), report, device, options.json)
    print(report.summary)
    if not report.passed:
        print("Please attach this report to a ticket; CAKE_MOE_SYNC=1 makes an error on a GPU name its stage.")
    return _ENDED if report.passed else _FAILED

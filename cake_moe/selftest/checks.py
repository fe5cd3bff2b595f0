"""What is checked, at which token counts: every path of the device's plan, every kind of routing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from cake_moe.selftest.problems import NAN, Problems
from cake_moe.testing.accumulate import accumulation_of
from cake_moe.testing.calls import check_guards, check_repeats, check_replay
from cake_moe.testing.compare import compare
from cake_moe.testing.cpu_bits import check_cpu_bits
from cake_moe.testing.plans import PlanRow, plan_rows
from cake_moe.testing.stages import plan_of, run

REPEATS = 20
_ALL_ROWS = 1100  # tokens up to which every row of every stage is evaluated in float64; above, a sample of tokens
_ROUTINGS = ("uniform", "no_route", "duplicates", "out_of_range", "one_group", "zipf", NAN)
_SMALL = (1, 8, 33)
_ON_A_GPU, _ON_THE_CPU = (128, 1024), (32, 64)  # experts and different tokens


@dataclass(frozen=True)
class Check:
    """name; tokens and path of the plan; run() gives a remark or raises AssertionError."""

    name: str
    tokens: int
    path: str
    run: Callable[[], str]


def target(device: torch.device) -> tuple[str, int]:
    """Architecture and SM count of the device's plan."""
    if device.type == "cpu":
        return "cpu", 0
    properties = torch.cuda.get_device_properties(device)
    return f"sm_{properties.major}{properties.minor}a", properties.multi_processor_count


def paths_of(device: torch.device) -> list[PlanRow]:
    """The device's plan."""
    return plan_rows(*target(device))


def default_counts(device: torch.device) -> list[int]:
    """A few small ones, and on a GPU the largest count of every path of its plan; the CPU's plan has one path."""
    return sorted({*_SMALL, *(row.last for row in paths_of(device) if device.type == "cuda")})


def _routing_counts(device: torch.device, counts: list[int]) -> list[int]:
    """A small count for each sequence of launches among the paths of `counts`."""
    chosen: dict[tuple[str, ...], int] = {}
    for count in counts:
        row = next(row for row in paths_of(device) if row.first <= count <= row.last)
        small = min(max(row.first, 3), row.last)
        chosen.setdefault(tuple(launch["stage"] for launch in plan_of(small, device)["launches"]), small)
    return list(chosen.values())


def _every_stage(problems: Problems, tokens: int, routing: str | None = None) -> str:
    """routing: of a problem whose sums are exact; None: normal input."""
    problem = problems.rounding(tokens) if routing is None else problems.exact(tokens, routing)
    output, stages = run(problem)
    return str(compare(problem, output, stages, accumulation_of(tokens, problems.device)))


def _cpu_bits(problems: Problems, tokens: int) -> str:
    compared = check_cpu_bits(problems.exact(tokens))
    return f"{compared.rows} rows; y differs in {compared.differing} of {compared.elements}, within the bounds"


def _guards(problems: Problems, tokens: int) -> str:
    check_guards(problems.exact(tokens))
    return ""


def _repeats(problems: Problems, tokens: int) -> str:
    check_repeats(problems.exact(tokens), REPEATS)
    return f"{REPEATS} calls"


def _replay(problems: Problems, tokens: int) -> str:
    captured = [problems.exact(tokens, routing) for routing in ("uniform", "out_of_range", "duplicates")]
    check_replay(captured)
    return f"{len(captured)} replays"


def checks_of(device: torch.device, counts: list[int]) -> Iterator[Check]:
    """Everything for `counts`, in the order in which a fault is best understood."""
    problems = Problems(device, *(_ON_THE_CPU if device.type == "cpu" else _ON_A_GPU))
    few = _routing_counts(device, counts)

    def check(name: str, tokens: int, body: Callable[[], str]) -> Check:
        return Check(name, tokens, plan_of(tokens, device)["path"], body)

    for tokens in counts:
        yield check("bits of the CPU backend", tokens, partial(_cpu_bits, problems, tokens))
        if tokens <= _ALL_ROWS:
            yield check("every stage", tokens, partial(_every_stage, problems, tokens))
    for tokens in few:
        for routing in _ROUTINGS:
            yield check(f"every stage, {routing}", tokens, partial(_every_stage, problems, tokens, routing))
    for tokens in counts:
        yield check("memory beside the call", tokens, partial(_guards, problems, tokens))
        yield check("repeats on poisoned memory", tokens, partial(_repeats, problems, tokens))
    if device.type == "cuda":
        for tokens in few:
            yield check("capture and replay", tokens, partial(_replay, problems, tokens))

"""What is checked, at which token counts: every path of the device's plan, every kind of routing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch

from cake_moe.bench.sampled import compare_sample, sample_tokens
from cake_moe.selftest.problems import NAN, Problems
from cake_moe.testing.accumulate import accumulation_of
from cake_moe.testing.calls import check_guards, check_repeats, check_replay, check_streams, check_turns
from cake_moe.testing.compare import compare
from cake_moe.testing.cpu_bits import check_cpu_bits
from cake_moe.testing.plans import PlanRow, plan_rows
from cake_moe.testing.routings import ROUTING_NAMES
from cake_moe.testing.stages import plan_of, run

REPEATS = 20
ROUNDS = 10  # of calls in turns, and of calls on two streams
# Tokens up to which every row of every stage is evaluated in float64, and SiTU on the CPU, 0.1 us an element; above,
# all rows of a sample of tokens. The routings, nine at each of their counts, change sooner.
_ALL_ROWS = {"cpu": 1024, "cuda": 4096}
_ALL_ROUTED_ROWS = 400
_SAMPLE = 128
_ROUTINGS = (*ROUTING_NAMES, NAN)
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


def _small_counts(device: torch.device, counts: list[int]) -> list[int]:
    """A small count for each sequence of launches and tiles among the paths of `counts`, ascending."""
    chosen: dict[tuple[tuple[str, int], ...], int] = {}
    for row in paths_of(device):
        if any(row.first <= count <= row.last for count in counts):
            small = min(max(row.first, 3), row.last)
            launches = plan_of(small, device)["launches"]
            chosen.setdefault(tuple((launch["stage"], launch["tile_tokens"]) for launch in launches), small)
    return list(chosen.values())


def _every_stage(problems: Problems, tokens: int, routing: str | None = None) -> str:
    """routing: of a problem whose sums are exact; None: normal input, whose sums round."""
    problem = problems.rounding(tokens) if routing is None else problems.exact(tokens, routing)
    output, stages = run(problem)
    accumulation = accumulation_of(tokens, problems.device)
    if tokens <= (_ALL_ROWS[problems.device.type] if routing is None else _ALL_ROUTED_ROWS):
        return str(compare(problem, output, stages, accumulation))
    sample = sample_tokens(tokens, _SAMPLE, seed=tokens)
    return f"{len(sample)} tokens, {compare_sample(problem, output, stages, accumulation, sample)}"


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


def _turns(problems: Problems, counts: tuple[int, int]) -> str:
    check_turns([problems.exact(counts[0], "uniform"), problems.exact(counts[1], "zipf")], ROUNDS)
    return f"{ROUNDS} rounds"


def _streams(problems: Problems, counts: tuple[int, int]) -> str:
    check_streams([problems.exact(counts[0], "uniform"), problems.exact(counts[1], "zipf")], ROUNDS)
    return f"{ROUNDS} rounds"


def checks_of(device: torch.device, counts: list[int]) -> Iterator[Check]:
    """Everything for `counts`, in the order in which a fault is best understood."""
    problems = Problems(device, *(_ON_THE_CPU if device.type == "cpu" else _ON_A_GPU))
    few = _small_counts(device, counts)
    pairs = list(pairwise(few)) or [(few[0], few[0])]

    def check(name: str, tokens: int, body: Callable[[], str]) -> Check:
        return Check(name, tokens, plan_of(tokens, device)["path"], body)

    for tokens in counts:
        yield check("bits of the CPU backend", tokens, partial(_cpu_bits, problems, tokens))
        yield check("every stage", tokens, partial(_every_stage, problems, tokens))
    for tokens in few:
        for routing in _ROUTINGS:
            yield check(f"every stage, {routing}", tokens, partial(_every_stage, problems, tokens, routing))
    for tokens in counts:
        yield check("memory beside the call", tokens, partial(_guards, problems, tokens))
        yield check("repeats on poisoned memory", tokens, partial(_repeats, problems, tokens))
    for pair in pairs:
        yield check(f"in turns with M={pair[0]}", pair[1], partial(_turns, problems, pair))
    if device.type == "cuda":
        for pair in pairs:
            yield check(f"streams, beside M={pair[0]}", pair[1], partial(_streams, problems, pair))
        for tokens in few:
            yield check("capture and replay", tokens, partial(_replay, problems, tokens))

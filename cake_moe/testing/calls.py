"""Checks of whole calls that the GPU tests and `python -m cake_moe.selftest` share, on any device.

Each raises AssertionError in words where a correct backend cannot give what it saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from cake_moe.layout import HIDDEN
from cake_moe.ops import prepare_workspace, workspace_size
from cake_moe.testing import stages
from cake_moe.testing.inputs import MoeInputs
from cake_moe.testing.stages import POISON

GUARD_BYTES = 1 << 20


def bits(tensor: Tensor) -> Tensor:
    """The bytes of a tensor: NaN equals itself."""
    return tensor.contiguous().view(torch.uint8)


def prepared(num_tokens: int, device: torch.device, *, up_to: bool = False) -> Tensor:
    """A workspace, prepared for num_tokens (up_to: and every smaller count), whose other bytes are poison."""
    workspace = torch.full((workspace_size(num_tokens),), POISON, dtype=torch.uint8, device=device)
    return prepare_workspace(workspace, num_tokens, up_to=up_to)


def _end_of_constants(num_tokens: int, device: torch.device) -> int:
    """Bytes at the front of a workspace that prepare_workspace() has written for the calls to read."""
    sections = stages.plan_of(num_tokens, device)["workspace"]
    return max(offset + size for offset, size in (sections["beta"], sections["linear_beta"]))


def count_differing(problem: MoeInputs, workspace: Tensor, repeats: int) -> Tensor:
    """Bytes of the output that differ from a first call's, over repeats on poisoned memory: int64, one element."""
    scratch = workspace[_end_of_constants(problem.num_tokens, workspace.device) :]
    first = torch.empty_like(problem.input)
    stages.call(problem, workspace, first)
    output = torch.empty_like(first)
    differing = torch.zeros((), dtype=torch.int64, device=first.device)
    for _ in range(repeats):
        scratch.fill_(POISON)
        bits(output).fill_(POISON)
        stages.call(problem, workspace, output)
        differing += (bits(output) != bits(first)).sum()
    return differing


def check_repeats(problem: MoeInputs, repeats: int) -> None:
    """The same bits in every call."""
    differing = int(count_differing(problem, prepared(problem.num_tokens, problem.input.device), repeats))
    if differing:
        raise AssertionError(f"repeats: {differing} bytes of {repeats} outputs differ from the first call's")


def _empty_outputs(problems: Sequence[MoeInputs], rounds: int) -> list[list[Tensor]]:
    return [[torch.full_like(problem.input, torch.nan) for problem in problems] for _ in range(rounds)]


def _require_same(what: str, problems: Sequence[MoeInputs], outputs: list[list[Tensor]]) -> None:
    """Every output of problem i has the bits of a call alone."""
    for index, problem in enumerate(problems):
        expected = bits(stages.run(problem)[0])
        wrong = sum(not torch.equal(bits(of_round[index]), expected) for of_round in outputs)
        if wrong:
            count = f"{wrong} of {len(outputs)} outputs"
            raise AssertionError(f"{what}: {count} of M={problem.num_tokens} have other bits than by a call alone")


def check_turns(problems: Sequence[MoeInputs], rounds: int) -> None:
    """Problems of several counts in turns on one workspace, with nothing between one call's last kernel and the next
    one's first."""
    most = max(problem.num_tokens for problem in problems)
    workspace = prepared(most, problems[0].input.device, up_to=True)
    outputs = _empty_outputs(problems, rounds)
    for of_round in outputs:
        for problem, output in zip(problems, of_round, strict=True):
            stages.call(problem, workspace, output)
    _require_same("turns", problems, outputs)


def check_streams(problems: Sequence[MoeInputs], rounds: int) -> None:
    """Each problem on a stream and a workspace of its own, at the same time; on a GPU."""
    device = problems[0].input.device
    workspaces = [prepared(problem.num_tokens, device) for problem in problems]
    outputs = _empty_outputs(problems, rounds)
    streams = [torch.cuda.Stream(device) for _ in problems]
    torch.cuda.synchronize(device)
    for of_round in outputs:
        for problem, workspace, output, stream in zip(problems, workspaces, of_round, streams, strict=True):
            with torch.cuda.stream(stream):
                stages.call(problem, workspace, output)
    torch.cuda.synchronize(device)
    _require_same("streams", problems, outputs)


def check_guards(problem: MoeInputs) -> None:
    """Nothing beside the workspace's planned bytes and the output is written, every element of the output is, and none
    becomes NaN: the problem has no NaN."""
    tokens, device = problem.num_tokens, problem.input.device
    size = workspace_size(tokens)
    memory = torch.full((GUARD_BYTES + size + GUARD_BYTES,), POISON, dtype=torch.uint8, device=device)
    workspace = prepare_workspace(memory[GUARD_BYTES : GUARD_BYTES + size], tokens)
    outputs = torch.full((tokens + 2, HIDDEN), torch.nan, dtype=torch.bfloat16, device=device)
    before = bits(outputs)[[0, -1]].clone()
    stages.call(problem, workspace, outputs[1:-1])
    planned = stages.plan_of(tokens, device)["workspace_total"]
    untouched = {
        "memory below the workspace": memory[:GUARD_BYTES],
        "the workspace beyond the plan's total": workspace[planned:],
        "memory above the workspace": memory[GUARD_BYTES + size :],
    }
    for name, part in untouched.items():
        if not bool((part == POISON).all()):
            raise AssertionError(f"guards: {name} was written")
    if not torch.equal(bits(outputs)[[0, -1]], before):
        raise AssertionError("guards: memory beside the output was written")
    if bool(outputs[1:-1].isnan().any()):
        raise AssertionError("guards: elements of the output are NaN or were not written")


def own_memory(problem: MoeInputs) -> MoeInputs:
    """A copy of every operand."""
    return replace(
        problem,
        **{name: t.clone() for name, t in vars(problem).items() if isinstance(t, Tensor)},
        quant_scales=[scale.clone() for scale in problem.quant_scales],
    )


def check_replay(problems: Sequence[MoeInputs]) -> None:
    """The first problem's call is captured; replays follow operands that change in place, with a direct call's bits.

    All have the same number of tokens and dtypes, and give their betas; on a GPU.
    """
    static = own_memory(problems[0])
    workspace = prepared(static.num_tokens, static.input.device)
    output = torch.empty_like(static.input)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stages.call(static, workspace, output)
    for index in (*range(1, len(problems)), 0):
        problem = problems[index]
        for name, value in vars(problem).items():
            if isinstance(value, Tensor):
                getattr(static, name).copy_(value)
        for mine, scale in zip(static.quant_scales, problem.quant_scales, strict=True):
            mine.copy_(scale)
        bits(output).fill_(POISON)
        graph.replay()
        if not torch.equal(bits(output), bits(stages.run(problem)[0])):
            raise AssertionError(f"replay: problem {index} has other bits than by a direct call")

"""The same bits in every call: repeated, chained without a gap, beside other work, on several streams."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from gpu_support.plans import DEVICE, has_kernels, plan_rows
from gpu_support.problems import problem_of

from cake_moe.testing.calls import bits, check_repeats, count_differing, prepared
from cake_moe.testing.inputs import make_inputs
from cake_moe.testing.routings import expert_pool
from cake_moe.testing.stages import call, run

pytestmark = pytest.mark.skipif(not has_kernels(), reason="needs a GPU that fused_moe has kernels for")

LAST = [row.last for row in plan_rows()]


@pytest.mark.parametrize("num_tokens", LAST)
def test_100_repeats_on_poisoned_memory(num_tokens: int) -> None:
    check_repeats(problem_of(num_tokens, "skew"), 100)


@pytest.mark.parametrize("num_tokens", [1, 4, 16, 64, 65, 320, 1024, 4096])
def test_100_repeats_beside_matrix_products(num_tokens: int) -> None:
    problem = problem_of(num_tokens)
    workspace = prepared(num_tokens, DEVICE)
    operand = torch.randn(4096, 4096, device=DEVICE, dtype=torch.bfloat16)
    load = torch.cuda.Stream()
    load.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(load):
        for _ in range(300):
            operand @ operand
    differing = count_differing(problem, workspace, 100)
    beside = not load.query()
    torch.cuda.synchronize()
    print(f"M={num_tokens}: the load outlasted the calls: {beside}")
    assert int(differing) == 0


@pytest.mark.parametrize("num_tokens", [1, 65])
def test_a_thread_that_has_not_used_the_gpu(num_tokens: int) -> None:
    """Its first CUDA call is the operator's."""
    problem = problem_of(num_tokens)
    expected, _ = run(problem)
    workspace = prepared(num_tokens, DEVICE)
    output = torch.full_like(expected, torch.nan)
    torch.cuda.synchronize()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(call, problem, workspace, output).result()
    torch.cuda.synchronize()
    assert torch.equal(bits(output), bits(expected))


def chains() -> list[tuple[int, int]]:
    """Counts of tokens, and how many calls of either problem: 500 while their outputs need little memory."""
    return [(count, 500 if count <= 65 else 20) for count in sorted({1, 4, 16, 17, 64, 65, *LAST})]


@pytest.mark.parametrize(("num_tokens", "calls"), chains())
def test_chained_calls_on_one_workspace(num_tokens: int, calls: int) -> None:
    """Two problems in turns, with nothing between one call's last kernel and the next one's first."""
    problems = [problem_of(num_tokens, "uniform"), problem_of(num_tokens, "skew", "wide")]
    expected = [run(problem)[0] for problem in problems]
    workspace = prepared(num_tokens, DEVICE)
    outputs = torch.full((calls, 2, *expected[0].shape), torch.nan, dtype=torch.bfloat16, device=DEVICE)
    torch.cuda.synchronize()
    for pair in outputs.unbind():
        for problem, output in zip(problems, pair.unbind(), strict=True):
            call(problem, workspace, output)
    wanted = bits(torch.stack(expected))
    assert int(sum((bits(pair) != wanted).sum() for pair in outputs.unbind())) == 0


@pytest.mark.parametrize("counts", [(1, 64), (17, 300), (64, 64), (65, 1024), (2048, 4096)])
def test_two_streams_with_their_own_workspaces(counts: tuple[int, int]) -> None:
    """500 calls each, on two sets of weights."""
    problems = [problem_of(counts[0], "uniform"), problem_of(counts[1], "uniform", "wide")]
    expected = [run(problem)[0] for problem in problems]
    workspaces = [prepared(count, DEVICE) for count in counts]
    outputs = [torch.empty_like(problem.input) for problem in problems]
    streams = [torch.cuda.Stream() for _ in counts]
    differing = [torch.zeros((), dtype=torch.int64, device=DEVICE) for _ in counts]
    torch.cuda.synchronize()
    for _ in range(500):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                call(problems[i], workspaces[i], outputs[i])
                differing[i] += (bits(outputs[i]) != bits(expected[i])).sum()
    torch.cuda.synchronize()
    assert [int(count) for count in differing] == [0, 0]


@pytest.mark.parametrize("num_tokens", [3, 100])
def test_weight_sets_in_turns_on_two_streams(num_tokens: int) -> None:
    """Nothing that a call leaves behind, tensor maps above all, may serve the next one."""
    kinds = ("normal", "wide")
    problems = {kind: problem_of(num_tokens, "skew", kind) for kind in kinds}
    expected = {kind: run(problem)[0] for kind, problem in problems.items()}
    streams = [torch.cuda.Stream() for _ in range(2)]
    workspaces, outputs = (
        [prepared(num_tokens, DEVICE) for _ in streams],
        [torch.empty_like(expected["wide"]) for _ in streams],
    )
    differing = torch.zeros(2, dtype=torch.int64, device=DEVICE)
    torch.cuda.synchronize()
    for turn in range(100):
        for i, stream in enumerate(streams):
            kind = kinds[(turn + i) % 2]
            with torch.cuda.stream(stream):
                call(problems[kind], workspaces[i], outputs[i])
                differing[i] += (bits(outputs[i]) != bits(expected[kind])).sum()
    torch.cuda.synchronize()
    assert differing.tolist() == [0, 0]


def test_two_devices() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    problem = make_inputs(40, experts=expert_pool(32), seed=4)
    expected = run(problem.to(DEVICE))[0].cpu()
    second = torch.device("cuda", 1)
    assert torch.equal(bits(run(problem.to(second))[0].cpu()), bits(expected))
    with torch.cuda.device(second):
        assert torch.equal(bits(run(problem.to(DEVICE))[0].cpu()), bits(expected))

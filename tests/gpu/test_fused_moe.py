"""The whole operator on a GPU: every stage against float64 and, where sums are exact, the CPU backend's bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import cake_moe
from cake_moe.layout import dequantize_nvfp4
from cake_moe.testing.accumulate import CPU, accumulation_of
from cake_moe.testing.compare import Report, compare
from cake_moe.testing.inputs import MoeInputs, make_inputs
from cake_moe.testing.routings import expert_pool
from cake_moe.testing.stages import POISON, Stages, call, plan_of, run

DEVICE = torch.device("cuda", 0)
SMALL = (1, 2, 3, 4, 5, 8, 16, 17, 33, 64, 100, 300, 1000)
POOL = expert_pool(32)
CASES: dict[str, dict[str, Any]] = {
    "uniform": {"routing": "uniform"},
    "one_group": {"routing": "one_group", "random_betas": False},
    "duplicates": {"routing": "duplicates", "route_weight_dtype": torch.float32},
    "no_route": {"routing": "no_route"},
    "out_of_range": {"routing": "out_of_range", "route_weight_dtype": torch.float32},
    "nan_row": {"routing": "zipf", "kind": "nan_row"},
}
# Both sides of every limit of the sm_90a table, and a few more.
BIG = (128, 320, 321, 512, 577, 1088, 1089, 1217, 2048, 2305, 2753, 3521, 4096, 4353, 5313, 6657, 8449, 9473, 11265)
LARGEST = (13001, 16384)


def has_kernels() -> bool:
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}a" in cake_moe.build_info()["fused_moe_archs"]


pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or not has_kernels(), reason="needs a GPU that fused_moe has kernels for"
)


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)


def check(num_tokens: int, seed: int, **options: Any) -> Report:
    """Runs a problem on poisoned memory of the GPU and judges every stage on the CPU."""
    problem = make_inputs(num_tokens, seed=seed, **options)
    output, stages = run(problem.to(DEVICE))
    report = compare(problem, output.cpu(), stages.cpu(), accumulation_of(num_tokens, DEVICE))
    print(f"M={num_tokens} in {len(problem.active_experts)} experts, {options.get('routing', 'uniform')}: {report}")
    return report


@pytest.mark.parametrize("num_tokens", SMALL)
@pytest.mark.parametrize("case", CASES)
def test_stages_in_32_experts(case: str, num_tokens: int) -> None:
    check(num_tokens, num_tokens, experts=POOL, **CASES[case])


@pytest.mark.parametrize("num_tokens", [1, 16, 64])
def test_stages_over_all_experts(num_tokens: int) -> None:
    check(num_tokens, num_tokens, routing="uniform")


@pytest.mark.parametrize("num_tokens", [3, 17, 200])
@pytest.mark.parametrize("kind", ["integer", "wide", "subnormal", "inf"])
def test_kinds_of_input(kind: str, num_tokens: int) -> None:
    report = check(num_tokens, 1, kind=kind, experts=POOL)
    if kind == "integer":
        assert report.stages["fc1"].differing == 0  # every sum is exact


@pytest.mark.parametrize("num_tokens", [pytest.param(3, id="few"), pytest.param(100, id="many")])
def test_stages_under_the_sanitizer(num_tokens: int) -> None:
    """No result of another library's kernel is read: inputs come from the host by copies, results go there."""
    check(num_tokens, 2, routing="uniform", experts=POOL)


def check_y(problem: MoeInputs, got: Stages, expected: Stages, rows: int) -> Tensor:
    """y of the same hq and hs by two backends: bool [M, H], the elements of the output that a difference may reach.

    FC2's sums may round. Each backend's is within its bound of the exact one, a multiple of sum|h_k * w_k| <= 12 *
    sum|h_k| (e2m1 is at most 6, unit block scales at most 2); then both round to bfloat16.
    """
    relative = accumulation_of(problem.num_tokens, DEVICE).coarse(torch.tensor(1.0), 384) + CPU.coarse(
        torch.tensor(1.0), 384
    )
    alphas = problem.quant_scales[5]
    experts = torch.bucketize(torch.arange(rows), expected.expert_offsets[1:].long(), right=True)
    reached = torch.zeros(problem.num_tokens, 3584, dtype=torch.bool)
    differing = 0
    for start in range(0, rows, 16384):
        part = slice(start, min(start + 16384, rows))
        y, wanted = got.y[part].cpu(), expected.y[part]
        row, column = (y.view(torch.int16) != wanted.view(torch.int16)).nonzero().unbind(1)
        if len(row) == 0:
            continue
        differing += len(row)
        h = dequantize_nvfp4(expected.hq[part][row], expected.hs[part][row]).abs().sum(dim=1)
        bound = relative * 12 * h * alphas[experts[part][row]]
        a, b = y[row, column].float(), wanted[row, column].float()
        assert bool(((a - b).abs() <= bound + 2.0**-8 * (a.abs() + b.abs())).all()), "y: outside its bound"
        reached[expected.row_route[part][row].long() // 16, column] = True
    print(f"M={problem.num_tokens}: {rows} rows, y differs in {differing} of {rows * 3584}")
    assert differing <= 1e-3 * rows * 3584
    return reached


def same_as_cpu(num_tokens: int, routing: str) -> None:
    """Every section of the workspace that holds results, and the output, where no sum of FC1 rounds in any order."""
    problem = make_inputs(num_tokens, routing=routing, kind="integer", seed=num_tokens)
    output, stages = run(problem.to(DEVICE))
    expected_output, expected = run(problem)
    rows = int(expected.expert_offsets[-1])
    assert torch.equal(stages.expert_offsets.cpu(), expected.expert_offsets)
    for name in ("route_row", "xq", "xs"):
        assert torch.equal(getattr(stages, name).cpu(), getattr(expected, name)), name
    for name in ("row_route", "hq", "hs"):
        assert torch.equal(getattr(stages, name)[:rows].cpu(), getattr(expected, name)[:rows]), name
    reached = check_y(problem, stages, expected, rows)
    same = output.cpu().view(torch.int16) == expected_output.view(torch.int16)
    assert bool((same | reached).all())


@pytest.mark.parametrize("num_tokens", BIG)
def test_bits_of_the_cpu_backend(num_tokens: int) -> None:
    same_as_cpu(num_tokens, "uniform")


@pytest.mark.parametrize("num_tokens", LARGEST)
def test_bits_of_the_cpu_backend_for_the_largest_calls(num_tokens: int) -> None:
    same_as_cpu(num_tokens, "out_of_range")


@pytest.mark.parametrize("routing", ["one_group", "zipf", "duplicates"])
def test_bits_of_the_cpu_backend_under_skew(routing: str) -> None:
    """Experts with many token tiles beside experts without rows."""
    same_as_cpu(3000, routing)


def prepared(num_tokens: int) -> Tensor:
    workspace = torch.full((cake_moe.workspace_size(num_tokens),), POISON, dtype=torch.uint8, device=DEVICE)
    return cake_moe.prepare_workspace(workspace, num_tokens)


@pytest.mark.parametrize("num_tokens", [1, 17, 64, 300, 4096])
def test_repeats_give_the_same_bits(num_tokens: int) -> None:
    """100 calls, each on a poisoned output and workspace (betas are given, so no constant is lost)."""
    problem = make_inputs(num_tokens, experts=POOL, seed=5).to(DEVICE)
    workspace = prepared(num_tokens)
    first = torch.empty_like(problem.input)
    call(problem, workspace, first)
    output = torch.empty_like(first)
    differing = torch.zeros((), dtype=torch.int64, device=DEVICE)
    for _ in range(100):
        workspace.fill_(POISON)
        bits(output).fill_(POISON)
        call(problem, workspace, output)
        differing += (bits(output) != bits(first)).sum()
    assert int(differing) == 0


@pytest.mark.parametrize("num_tokens", [3, 300])
def test_memory_around_a_call_is_untouched(num_tokens: int) -> None:
    problem = make_inputs(num_tokens, experts=POOL, seed=6).to(DEVICE)
    size, guard = cake_moe.workspace_size(num_tokens), 1 << 20
    memory = torch.full((guard + size + guard,), POISON, dtype=torch.uint8, device=DEVICE)
    workspace = cake_moe.prepare_workspace(memory[guard : guard + size], num_tokens)
    outputs = torch.full((num_tokens + 2, 3584), torch.nan, dtype=torch.bfloat16, device=DEVICE)
    before = bits(outputs).clone()
    call(problem, workspace, outputs[1:-1])
    assert bool((memory[:guard] == POISON).all())
    assert bool((memory[guard + size :] == POISON).all())
    used = plan_of(num_tokens, DEVICE)["workspace_total"]
    assert bool((workspace[used:] == POISON).all())
    assert torch.equal(bits(outputs)[[0, -1]], before[[0, -1]])
    assert not outputs[1:-1].isnan().any()


@pytest.mark.parametrize("num_tokens", [4, 64, 1000])
def test_capture_of_the_first_call_and_replay_with_changed_inputs(num_tokens: int) -> None:
    problem = make_inputs(num_tokens, routing="no_route", experts=POOL, seed=7, random_betas=False)
    static = problem.to(DEVICE)
    workspace = prepared(num_tokens)
    output = torch.empty_like(static.input)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(static, workspace, output)
    for seed in (7, 8, 9):
        other = make_inputs(num_tokens, routing="no_route", experts=POOL, seed=seed, random_betas=False)
        moved = other.to(DEVICE)
        for name in ("input", "token_selected_experts", "token_final_scales"):
            getattr(static, name).copy_(getattr(moved, name))
        static.quant_scales[0].copy_(moved.quant_scales[0])
        for index in (2, 3, 5):
            static.quant_scales[index].copy_(moved.quant_scales[index])
        bits(output).fill_(POISON)
        graph.replay()
        assert torch.equal(bits(output), bits(run(moved)[0]))


def test_a_call_allocates_nothing() -> None:
    problem = make_inputs(64, experts=POOL, seed=8).to(DEVICE)
    workspace, output = prepared(64), torch.empty_like(problem.input)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()
    for _ in range(10):
        call(problem, workspace, output)
    torch.cuda.synchronize()
    after = torch.cuda.memory_stats()
    for name in ("allocation.all.allocated", "segment.all.allocated", "reserved_bytes.all.allocated"):
        assert after[name] == before[name]


def test_two_streams_with_their_own_workspaces() -> None:
    counts = (17, 300)
    problems: list[MoeInputs] = [make_inputs(count, experts=POOL, seed=count).to(DEVICE) for count in counts]
    expected = [run(problem)[0] for problem in problems]
    workspaces = [prepared(count) for count in counts]
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


@pytest.mark.parametrize("num_tokens", [2, 128])
def test_functional_call(num_tokens: int) -> None:
    problem = make_inputs(num_tokens, experts=POOL, seed=9, random_betas=False).to(DEVICE)
    arguments = vars(problem)
    assert torch.equal(bits(torch.ops.cake.fused_moe_functional(**arguments)), bits(run(problem)[0]))


def test_warmup() -> None:
    cake_moe.warmup(DEVICE)

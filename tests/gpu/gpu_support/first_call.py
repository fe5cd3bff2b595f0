"""A process whose first call is a captured one. Prints how long the first call and the preparation took."""

from __future__ import annotations

import time

import torch

import cake_moe
from cake_moe.testing.inputs import make_inputs
from cake_moe.testing.routings import expert_pool
from cake_moe.testing.stages import call, run

LONGEST_FIRST_CALL_S = 2.0  # there is nothing to compile


def main() -> None:
    problems = [make_inputs(tokens, experts=expert_pool(16), seed=tokens).to("cuda") for tokens in (5, 70)]
    torch.cuda.synchronize()
    start = time.perf_counter()
    graphs = []
    for problem in problems:
        workspace = torch.empty(cake_moe.workspace_size(problem.num_tokens), dtype=torch.uint8, device="cuda")
        cake_moe.prepare_workspace(workspace, problem.num_tokens)
        output = torch.full_like(problem.input, torch.nan)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call(problem, workspace, output)
        graph.replay()
        graphs.append((graph, workspace, output))
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    for problem, (_, _, output) in zip(problems, graphs, strict=True):
        assert torch.equal(output.view(torch.int16), run(problem)[0].view(torch.int16))
        assert not output.isnan().any()
    print(f"preparation, capture and first replays of two counts: {seconds:.3f} s")
    assert seconds < LONGEST_FIRST_CALL_S


if __name__ == "__main__":
    main()

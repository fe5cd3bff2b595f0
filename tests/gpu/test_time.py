"""Time of the host and of the GPU, as far as it shows a fault."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from gpu_support.plans import DEVICE, has_kernels
from gpu_support.problems import problem_of

import cake_moe
from cake_moe.bench.host import COUNTS
from cake_moe.testing.stages import call

pytestmark = pytest.mark.skipif(not has_kernels(), reason="needs a GPU that fused_moe has kernels for")

SUBMISSION_US = 15.0


def test_submission(tmp_path: Path) -> None:
    """Median time until a call returns, above an operator of the same schema that does nothing, in a process that has
    run nothing else; inference mode."""
    file = tmp_path / "host.json"
    command = [sys.executable, "-m", "cake_moe.bench", "--device", "cuda", "--host", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    above = {r["tokens"]: 1e6 * (r["operator"] - r["empty"]) for r in json.loads(file.read_text())["host"]}
    print("us above an empty operator:", {tokens: f"{us:.1f}" for tokens, us in above.items()})
    assert set(above) == set(COUNTS)
    assert all(us <= SUBMISSION_US for us in above.values()), above


def test_more_tokens_never_take_less_time() -> None:
    medians: dict[int, float] = {}
    for num_tokens in (256, 1024, 4096, 8192, 16384):
        problem = problem_of(num_tokens)
        workspace = torch.empty(cake_moe.workspace_size(num_tokens), dtype=torch.uint8, device=DEVICE)
        cake_moe.prepare_workspace(workspace, num_tokens)
        output = torch.empty_like(problem.input)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(12)]
        for event in events:
            call(problem, workspace, output)
            event.record()
        torch.cuda.synchronize()
        medians[num_tokens] = statistics.median(a.elapsed_time(b) for a, b in pairwise(events))
    print({count: f"{1e3 * ms:.0f} us" for count, ms in medians.items()})
    assert all(after > 0.97 * before for before, after in pairwise(medians.values()))

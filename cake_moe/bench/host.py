"""What a call costs the caller's thread: time until the call returns, with the GPU still at work.

The yardstick is an operator of the same schema that does nothing. It is registered through the same stable interface
and with the same boxing as the operator itself, so it has the same way through the dispatcher and the same conversion
of arguments; hence it is compiled, with the machine's C++ compiler, against the torch that runs.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

import cake_moe
from cake_moe.testing.inputs import MoeInputs

from .results import HostResult

COUNTS = (1, 16, 64, 128, 1024)
CALLS = 10_000
_BATCH = 100
"""Calls between two synchronisations: their launches fit into the stream's queue, so that no call waits for the GPU."""

_SOURCE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <vector>

using torch::stable::Tensor;
using Optional = std::optional<Tensor>;

void empty(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const std::vector<Tensor>&,
           const Tensor&, const Tensor&, const Optional&, const Optional&) {}

STABLE_TORCH_LIBRARY(cake_moe_bench, m) { m.def("SCHEMA"); }
STABLE_TORCH_LIBRARY_IMPL(cake_moe_bench, CPU, m) { m.impl("empty", TORCH_BOX(&empty)); }
STABLE_TORCH_LIBRARY_IMPL(cake_moe_bench, CUDA, m) { m.impl("empty", TORCH_BOX(&empty)); }
"""


_built: dict[str, Callable[..., object]] = {}


def empty_operator() -> Callable[..., object]:
    """``torch.ops.cake_moe_bench.empty``, built on first use; takes some seconds.

    Raises:
        OSError, RuntimeError: there is no C++ compiler, or it fails.
    """
    if "empty" in _built:
        return _built["empty"]
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        raise OSError("no C++ compiler for the empty operator")
    schema = str(torch.ops.cake.fused_moe.default._schema).replace("cake::fused_moe", "empty")
    torch_lib = Path(torch.__file__).parent / "lib"
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "empty.cpp"), Path(folder, "empty.so")
        source.write_text(_SOURCE.replace("SCHEMA", schema))
        includes = [f"-I{path}" for path in cpp_extension.include_paths()]
        command = [compiler, "-std=c++20", "-O2", "-shared", "-fPIC", "-DTORCH_TARGET_VERSION=0x020a000000000000"]
        command += [*includes, str(source), "-o", str(library), f"-L{torch_lib}", "-ltorch_cpu"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the empty operator does not compile: {done.stderr[-500:]}")
        torch.ops.load_library(library)
    _built["empty"] = torch.ops.cake_moe_bench.empty
    return _built["empty"]


def median_seconds(
    calls: dict[str, tuple[Callable[[], object], int]], synchronize: Callable[[], object]
) -> dict[str, float]:
    """Median seconds of some calls, each made so many times, in turns of 100 with a synchronisation before each."""
    times: dict[str, list[int]] = {name: [] for name in calls}
    for call, _ in calls.values():
        call()
    while any(len(times[name]) < count for name, (_, count) in calls.items()):
        for name, (call, count) in calls.items():
            kept = times[name]
            if len(kept) >= count:
                continue
            synchronize()
            for _ in range(_BATCH):
                start = time.perf_counter_ns()
                call()
                kept.append(time.perf_counter_ns() - start)
    synchronize()
    return {name: 1e-9 * statistics.median(kept) for name, kept in times.items()}


def measure_host(
    problem: MoeInputs, empty: Callable[..., object] | None, count: int, synchronize: Callable[[], object]
) -> HostResult:
    """Eager calls with a prepared workspace and a given output, under inference mode, as engines run it.

    A tenth as many calls go through `cake_moe.fused_moe`, and another tenth record gradients.

    empty: what :func:`empty_operator` gives; count: calls, at least 10; synchronize: waits for the device.
    """
    tokens = problem.num_tokens
    workspace = torch.empty(cake_moe.workspace_size(tokens), dtype=torch.uint8, device=problem.input.device)
    cake_moe.prepare_workspace(workspace, tokens)
    output = torch.empty_like(problem.input)
    operands: list[Any] = [
        problem.input,
        problem.token_selected_experts,
        problem.token_final_scales,
        problem.fc1_expert_weights,
        problem.fc2_expert_weights,
        problem.quant_scales,
    ]
    calls: dict[str, tuple[Callable[[], object], int]] = {
        "operator": (partial(torch.ops.cake.fused_moe, *operands, workspace, output, None, None), count),
        "function": (partial(cake_moe.fused_moe, *operands, workspace=workspace, output=output), count // 10),
    }
    if empty is not None:
        calls["empty"] = (partial(empty, *operands, workspace, output, None, None), count)
    with torch.inference_mode():
        medians = median_seconds(calls, synchronize)
    with torch.enable_grad():
        recording = median_seconds({"operator": (calls["operator"][0], count // 10)}, synchronize)
    return HostResult(
        tokens, count, medians["operator"], medians["function"], medians.get("empty"), recording["operator"]
    )

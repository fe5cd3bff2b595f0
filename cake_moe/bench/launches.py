"""How many launches one call takes, and how long the GPU idles between them."""

from __future__ import annotations

import ctypes
import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from .results import LaunchResult

_NODE_KINDS = {0: "kernel", 1: "memcpy", 2: "memset", 3: "host", 4: "child graph", 5: "empty"}  # CUgraphNodeType
_TIMED = ("kernel", "gpu_memset", "gpu_memcpy")  # categories of the profiler's trace
_REPLAYS = 20


def capture(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """The graph of one call, which was made before; its nodes can be looked at."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        call()
    graph.instantiate()
    return graph


def count_nodes(graph: torch.cuda.CUDAGraph) -> dict[str, int]:
    """Count of each kind of node.

    Raises:
        RuntimeError: the driver refuses.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    handle, count = ctypes.c_void_p(graph.raw_cuda_graph()), ctypes.c_size_t(0)
    _require(driver.cuGraphGetNodes(handle, None, ctypes.byref(count)))
    nodes = (ctypes.c_void_p * count.value)()
    _require(driver.cuGraphGetNodes(handle, nodes, ctypes.byref(count)))
    kinds: Counter[str] = Counter()
    for node in nodes:
        kind = ctypes.c_int()
        _require(driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)))
        kinds[_NODE_KINDS.get(kind.value, f"type {kind.value}")] += 1
    return dict(kinds)


def _require(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"CUDA driver: error {status} while a graph was looked at")


def trace_replays(graph: torch.cuda.CUDAGraph) -> list[dict[str, Any]]:
    """The profiler's records of GPU work in some replays of a graph, each alone on the GPU."""
    graph.replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        for _ in range(_REPLAYS):
            graph.replay()
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(file))
        events: list[dict[str, Any]] = json.loads(file.read_text())["traceEvents"]
    return events


def time_line(events: list[dict[str, Any]], launches: int) -> tuple[list[str], list[float], list[float]]:
    """Names and seconds of a call's launches, and idle seconds between neighbours: medians over whole replays.

    events: of a Chrome trace, microseconds. All empty where their number is no multiple of `launches`, so that replays
    cannot be told apart.
    """
    timed = sorted((event for event in events if event.get("cat") in _TIMED), key=lambda event: event["ts"])
    if launches == 0 or not timed or len(timed) % launches:
        return [], [], []
    replays = [timed[start : start + launches] for start in range(0, len(timed), launches)]
    names = [event["name"] for event in replays[0]]
    seconds = [1e-6 * statistics.median(replay[i]["dur"] for replay in replays) for i in range(launches)]
    gaps = [1e-6 * statistics.median(_gap(replay[i], replay[i + 1]) for replay in replays) for i in range(launches - 1)]
    return names, seconds, gaps


def _gap(before: dict[str, Any], after: dict[str, Any]) -> float:
    gap: float = after["ts"] - before["ts"] - before["dur"]
    return max(gap, 0.0)


def measure_launches(tokens: int, call: Callable[[], object]) -> LaunchResult:
    """Capture a call that has run before, count its nodes and time them."""
    graph = capture(call)
    result = LaunchResult(tokens, count_nodes(graph), [], [], [])
    return LaunchResult(tokens, result.nodes, *time_line(trace_replays(graph), result.launches))

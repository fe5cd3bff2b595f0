"""The nodes of a captured call, through the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import torch

KERNEL, MEMCPY, MEMSET = 0, 1, 2  # CUgraphNodeType
_RELAXED = 2


@dataclass(frozen=True)
class Node:
    """kind: CUgraphNodeType; grid and threads (x only) of a kernel."""

    kind: int
    grid: int = 0
    threads: int = 0


class _KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("func", ctypes.c_void_p),
        *((name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "smem")),
        ("params", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _require(status: int, what: str) -> None:
    if status != 0:
        raise RuntimeError(f"{what}: CUDA driver error {status}")


def captured_nodes(call: Callable[[], object]) -> list[Node]:
    """What one call puts into a graph. Nothing runs."""
    driver = _driver()
    stream, graph = torch.cuda.Stream(), ctypes.c_void_p()
    handle = ctypes.c_void_p(stream.cuda_stream)
    with torch.cuda.stream(stream):
        _require(driver.cuStreamBeginCapture_v2(handle, _RELAXED), "begin")
        try:
            call()
        finally:
            _require(driver.cuStreamEndCapture(handle, ctypes.byref(graph)), "end")
    try:
        return _nodes(driver, graph)
    finally:
        _require(driver.cuGraphDestroy(graph), "destroy")


def _nodes(driver: ctypes.CDLL, graph: ctypes.c_void_p) -> list[Node]:
    count = ctypes.c_size_t(0)
    _require(driver.cuGraphGetNodes(graph, None, ctypes.byref(count)), "count")
    handles = (ctypes.c_void_p * count.value)()
    if count.value:
        _require(driver.cuGraphGetNodes(graph, handles, ctypes.byref(count)), "nodes")
    nodes = []
    for handle in map(ctypes.c_void_p, handles):
        kind = ctypes.c_int()
        _require(driver.cuGraphNodeGetType(handle, ctypes.byref(kind)), "type")
        if kind.value != KERNEL:
            nodes.append(Node(kind.value))
            continue
        params = _KernelParams()
        _require(driver.cuGraphKernelNodeGetParams_v2(handle, ctypes.byref(params)), "parameters")
        nodes.append(Node(KERNEL, params.gx, params.bx))
    return nodes

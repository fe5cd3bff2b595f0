"""failing_stage.py TOKENS ARGUMENT: a call in which ARGUMENT's memory was freed. Prints the error that it raises."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace

import torch
from torch import Tensor

import cake_moe
from cake_moe.testing.inputs import make_inputs
from cake_moe.testing.routings import expert_pool


class _Memory:
    """Bytes of the driver's own, seen by torch, which cannot know when they are freed."""

    def __init__(self, size: int) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.address = ctypes.c_uint64()
        if self.driver.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(size)):
            raise MemoryError(f"{size} bytes")
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (self.address.value, False),
            "version": 3,
        }

    def free(self) -> None:
        if self.driver.cuMemFree_v2(self.address):
            raise RuntimeError("cuMemFree")


def freed_like(weights: Tensor) -> Tensor:
    memory = _Memory(weights.numel())
    dangling = torch.as_tensor(memory, device="cuda").view(weights.shape)
    torch.cuda.synchronize()
    memory.free()
    return dangling


def main(num_tokens: int, name: str) -> None:
    problem = make_inputs(num_tokens, experts=expert_pool(16), seed=1).to("cuda")
    workspace = torch.empty(cake_moe.workspace_size(num_tokens), dtype=torch.uint8, device="cuda")
    cake_moe.prepare_workspace(workspace, num_tokens)
    broken = replace(problem, **{name: freed_like(getattr(problem, name))})
    output = torch.empty_like(problem.input)
    try:
        cake_moe.fused_moe(**vars(broken), workspace=workspace, output=output)
    except RuntimeError as error:
        print(f"RuntimeError: {error}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

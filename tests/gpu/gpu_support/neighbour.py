"""A kernel of somebody else's that keeps SMs for itself until it is told to end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from .waiting import require_finished, within

_KERNEL = """
extern "C" __global__ void occupy(volatile int* stop, volatile int* started, int milliseconds) {
  extern __shared__ int memory[];
  if (threadIdx.x != 0) return;
  memory[0] = 1;
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  started[blockIdx.x] = 1;
  __threadfence_system();
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (*stop == 0 && now - begin < milliseconds * 1000000ull);
}
"""
LONGEST_MS = 20_000  # it ends by itself, whatever becomes of the test


@cache
def _kernel(smem_bytes: int) -> Any:
    kernel = torch.cuda._compile_kernel(_KERNEL, "occupy")
    kernel.set_shared_memory_config(smem_bytes)
    return kernel


@contextmanager
def occupied(sms: int) -> Iterator[None]:
    """Inside, `sms` SMs have a CTA each that takes all of their shared memory."""
    smem_bytes = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
    kernel, stream = _kernel(smem_bytes), torch.cuda.Stream()
    stop = torch.zeros(1, dtype=torch.int32).pin_memory()
    started = torch.zeros(sms, dtype=torch.int32).pin_memory()
    torch.cuda.synchronize()
    kernel(grid=(sms, 1, 1), block=(64, 1, 1), args=[stop, started, LONGEST_MS], shared_mem=smem_bytes, stream=stream)
    ended = torch.cuda.Event()
    ended.record(stream)
    try:
        assert within(10, lambda: int(started.sum()) == sms), f"the neighbour has {int(started.sum())} of {sms} SMs"
        yield
    finally:
        stop.fill_(1)
        require_finished(ended, 10, "the neighbour")

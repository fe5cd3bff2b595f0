"""The largest call needs no memory beyond its workspace and 512 MB."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import ctypes
import torch
from cake_moe._native import _C
from cake_moe.testing.inputs import make_inputs
from cake_moe.testing.routings import expert_pool
from cake_moe.testing.stages import call

def resident(name):
    fields = dict(line.split(":") for line in open("/proc/self/status"))
    return 1024 * int(fields[name].split()[0])

tokens = 16384
small, problem = (make_inputs(count, experts=expert_pool(32), seed=1) for count in (1, tokens))
output = torch.zeros_like(problem.input)
workspace = torch.full((_C.workspace_bytes(tokens),), 0xFF, dtype=torch.uint8)
for count in (1, tokens):
    torch.ops.cake.prepare_workspace(workspace, count)
call(small, workspace, output[:1])  # loads code, starts threads
ctypes.CDLL(None).malloc_trim(0)  # freed heap would hide what the call allocates
open("/proc/self/clear_refs", "w").write("5")  # resets the peak
before = resident("VmRSS")
call(problem, workspace, output)
print(resident("VmHWM") - before, workspace.numel())
assert not output.isnan().any()
"""


@pytest.mark.full
def test_peak_memory_of_the_largest_call() -> None:
    """Peak resident memory during the call, workspace, operands and output being resident before."""
    result = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=1800)
    assert result.returncode == 0, result.stderr
    extra, workspace = map(int, result.stdout.split())
    print(f"M=16384: {extra / 1e6:.1f} MB beyond the operands, the output and a workspace of {workspace / 1e9:.3f} GB")
    assert extra <= 512e6

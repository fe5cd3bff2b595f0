"""What needs a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_support.plans import expert_stages, has_kernels

pytestmark = pytest.mark.skipif(not has_kernels(), reason="needs a GPU that fused_moe has kernels for")

FAILING = Path(__file__).parent / "gpu_support" / "failing_stage.py"
FAULTS = [(tokens, name) for tokens in (3, 100) for name in ("fc1_expert_weights", "fc2_expert_weights")]


def test_cake_moe_sync_names_the_stage() -> None:
    """Weights whose memory was freed: the error must name the stage that read them. A process each, all at once."""
    environment = os.environ | {"CAKE_MOE_SYNC": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, FAILING, str(tokens), name],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for tokens, name in FAULTS
    ]
    for (tokens, name), process in zip(FAULTS, running, strict=True):
        printed, errors = process.communicate(timeout=170)
        stage = expert_stages(tokens)[name == "fc2_expert_weights"]
        assert f"RuntimeError: fused_moe: {stage}: " in printed, f"{name}: {printed}\n{errors[-2000:]}"


def test_demo() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cake_moe.demo", "--device", "cuda", "-M", "1", "64"],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-2000:]

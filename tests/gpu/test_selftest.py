"""`python -m cake_moe.selftest` on this GPU: everything right, in less than a minute."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpu_support.plans import has_kernels, plan_rows

pytestmark = pytest.mark.skipif(not has_kernels(), reason="needs a GPU that fused_moe has kernels for")

LONGEST_S = 60.0


def test_selftest(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "cake_moe.selftest", "--device", "cuda:0", "--json", str(file)]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    seconds = time.perf_counter() - started
    print(done.stdout[-6000:], f"{seconds:.0f} s with the start of Python")
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(file.read_text())
    assert report["passed"]
    assert {result["path"] for result in report["results"]} == {row.path for row in plan_rows()}
    kinds = {result["name"].split(" M=")[0] for result in report["results"]}
    assert {"every stage", "in turns with", "streams, beside", "capture and replay"} <= kinds
    assert "MIG" in report["facts"].get("nvidia-smi", "MIG")
    assert seconds < LONGEST_S

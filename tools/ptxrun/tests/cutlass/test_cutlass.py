"""Kernels that others wrote and ran on silicon: CUTLASS's NVFP4 examples, whose main() judges its own product."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from examples import build, package

PROJECT = Path(__file__).resolve().parents[2]
SCHEDULES = ["early", "late", "random"]
# Where CUTLASS 4.2 does less than the PTX ISA's text asks for.
ACCEPTED = [
    "missing_tcgen05_fence",  # there is no tcgen05.fence around handovers of tensor memory
    "register_in_flight",  # results of tcgen05.ld are used without tcgen05.wait::ld (ptxas orders registers),
    "overwrite_in_flight@tcgen05.dealloc",  # tensor memory is freed without it,
    "pending_at_exit@tcgen05.ld",  # and warps exit without it
    "race@mbarrier.arrive.shared::cluster",  # one mbarrier is initialised after the last fence.mbarrier_init
    "cluster@ret",  # last arrivals on a peer's barriers are not awaited before it exits
]
SIZES = {
    "plain_1sm": [(256, 256, 512), (384, 128, 1280)],
    "plain_2sm": [(256, 256, 512), (512, 256, 1280)],
    "grouped": [(256, 256, 512), (384, 512, 768)],
}

pytestmark = [
    pytest.mark.full,
    pytest.mark.toolkit,
    pytest.mark.skipif(package() is None, reason="needs the CUTLASS sources of the package nvidia-cutlass"),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("name", "size"), [pytest.param(n, s, id=f"{n}-{'x'.join(map(str, s))}") for n in SIZES for s in SIZES[n]]
)
def test_the_example_passes(name: str, size: tuple[int, int, int], schedule: str) -> None:
    m, n, k = size
    words = [f"--m={m}", f"--n={n}", f"--k={k}", "--iterations=0", "--alpha=1", "--beta=0.5"]
    if name == "grouped":
        words += ["--groups=3"]
    options = ["--capability", "10.0", "--sms", "148", "--schedule", schedule, "--max-findings", "5000"]
    options += [word for accepted in ACCEPTED for word in ("--accept", accepted)]
    result = subprocess.run(
        [sys.executable, "-m", "ptxrun", "program", *options, str(build(name)), "--", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    print(result.stdout[-4000:], result.stderr[-4000:])
    assert result.returncode == 0
    assert "Passed" in result.stdout
    assert "Failed" not in result.stdout

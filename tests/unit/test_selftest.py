"""The self-test: it passes where the backend is right, names what is wrong, and says where there is nothing to run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from cake_moe.selftest import checks, cli, machine
from cake_moe.selftest.checks import Check
from cake_moe.testing import stages
from cake_moe.testing.calls import check_streams, check_turns
from cake_moe.testing.cpu_bits import check_cpu_bits
from cake_moe.testing.inputs import MoeInputs, make_inputs
from cake_moe.testing.routings import expert_pool

CPU = torch.device("cpu")
Spoil = Callable[[MoeInputs, Tensor, Tensor], None]


def selftest(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """(exit status, report) of a run with two tokens."""
    file = tmp_path / "report.json"
    status = cli.main(["--device", "cpu", "-M", "2", "--json", str(file), *arguments])
    return status, json.loads(file.read_text())


def test_the_cpu_backend_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = selftest(tmp_path)
    text = capsys.readouterr().out
    assert status == 0
    assert report["passed"]
    assert {result["status"] for result in report["results"]} == {"ok"}
    assert {result["tokens"] for result in report["results"]} == {2, 3}
    assert report["facts"]["device"] == "cpu"
    assert report["facts"]["cake_moe"]
    assert report["plan"] == [{"path": "staged", "first": 1, "last": 16384, "tile_tokens": 32}]
    assert "selftest passed: 14 of 14 checks" in text
    assert text.count("\nok ") == 14


def wrong_code(problem: MoeInputs, workspace: Tensor, output: Tensor) -> None:
    """A nibble of the second row's requantised values."""
    stages.stage_views(workspace, problem.num_tokens).hq[1, 100] ^= 1


def wrong_output(problem: MoeInputs, workspace: Tensor, output: Tensor) -> None:
    output.view(torch.int16)[-1, 5] ^= 1


def write_beyond(problem: MoeInputs, workspace: Tensor, output: Tensor) -> None:
    workspace[-1] = 0


def other_bits(problem: MoeInputs, workspace: Tensor, output: Tensor) -> None:
    """In some calls."""
    output.view(torch.int16)[0, 0] ^= int(time.perf_counter_ns()) & 1


@pytest.mark.parametrize(
    ("spoil", "name", "text"),
    [
        (wrong_code, "every stage", "fc1"),
        (wrong_output, "every stage, duplicates", "finalize"),
        (write_beyond, "memory beside the call", "beyond the plan's total was written"),
        (other_bits, "repeats on poisoned memory", "of 20 outputs differ"),
    ],
)
def test_a_fault_is_named(spoil: Spoil, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = stages.call

    def call(problem: MoeInputs, workspace: Tensor, output: Tensor) -> None:
        right(problem, workspace, output)
        spoil(problem, workspace, output)

    monkeypatch.setattr(stages, "call", call)
    report = cli.Report({}, [])
    cli.run_checks([check for check in checks.checks_of(CPU, [2]) if check.name == name], report, CPU)
    (result,) = report.results
    assert result.status == "FAILED"
    assert text in result.detail
    assert "FAILED: 0 of 1 checks" in report.summary


def test_above_the_limit_a_sample_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of normal input and of a routing; the last token, which is always among the sampled ones, is wrong at the end."""
    monkeypatch.setattr(checks, "_ALL_ROWS", {"cpu": 8})
    monkeypatch.setattr(checks, "_ALL_ROUTED_ROWS", 2)
    monkeypatch.setattr(checks, "_SAMPLE", 4)
    found = [check for check in checks.checks_of(CPU, [9]) if check.name in ("every stage", "every stage, nan")]
    assert [check.tokens for check in found] == [9, 3]
    assert found[0].run().startswith("4 tokens, differing: fc1 0/24576, ")
    assert found[1].run().startswith("3 tokens, differing: fc1 0/18432, ")
    right = stages.call

    def call(problem: MoeInputs, workspace: Tensor, output: Tensor) -> None:
        right(problem, workspace, output)
        wrong_output(problem, workspace, output)

    monkeypatch.setattr(stages, "call", call)
    with pytest.raises(AssertionError, match="finalize: row 3"):
        found[0].run()


@pytest.mark.parametrize("stale", [False, True])
def test_calls_in_turns(stale: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call of another count leaves in the workspace must not show."""
    right, calls = stages.call, []
    problems = [make_inputs(count, experts=expert_pool(32), seed=count) for count in (2, 5)]

    def call(problem: MoeInputs, workspace: Tensor, output: Tensor) -> None:
        right(problem, workspace, output)
        after = [count for count, memory in calls if memory == workspace.data_ptr()][-1:]
        calls.append((problem.num_tokens, workspace.data_ptr()))
        if stale and after == [5] and problem.num_tokens == 2:
            output.view(torch.int16)[1, 1] ^= 1

    monkeypatch.setattr(stages, "call", call)
    if stale:
        with pytest.raises(AssertionError, match=r"^turns: 2 of 3 outputs of M=2 have other bits"):
            check_turns(problems, 3)
    else:
        check_turns(problems, 3)
    assert [count for count, _ in calls[:6]] == [2, 5] * 3
    assert len({memory for _, memory in calls[:6]}) == 1


def test_calls_on_two_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """With streams that run one call after the other: each has a workspace of its own, and all outputs are judged."""
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: object())
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    right, workspaces = stages.call, []
    problems = [make_inputs(count, experts=expert_pool(32), seed=count) for count in (2, 5)]

    def call(problem: MoeInputs, workspace: Tensor, output: Tensor) -> None:
        right(problem, workspace, output)
        workspaces.append(workspace.data_ptr())
        if len(workspaces) == wrong:
            output.view(torch.int16)[0, 0] ^= 1

    monkeypatch.setattr(stages, "call", call)
    wrong = 0
    check_streams(problems, 3)
    assert workspaces[:6] == workspaces[:2] * 3
    assert workspaces[0] != workspaces[1]
    workspaces.clear()
    wrong = 6
    with pytest.raises(AssertionError, match=r"^streams: 1 of 3 outputs of M=5 have other bits"):
        check_streams(problems, 3)


@pytest.mark.parametrize(("section", "text"), [("hq", "hq"), ("xs", "xs"), ("y", "y outside its bound")])
def test_other_bits_than_the_cpu_backend_are_named(section: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of the two calls, which would be the GPU's, is spoiled."""
    right, spoiled = stages.run, []

    def run(problem: MoeInputs) -> tuple[Tensor, stages.Stages]:
        output, dump = right(problem)
        if not spoiled:
            getattr(dump, section).view(torch.uint8)[1, 7] ^= 64
            spoiled.append(section)
        return output, dump

    monkeypatch.setattr(stages, "run", run)
    problem = make_inputs(2, kind="integer", experts=expert_pool(32), seed=3)
    with pytest.raises(AssertionError, match=f"^bits of the CPU backend: {text}$"):
        check_cpu_bits(problem)


def test_the_exit_status_of_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong() -> str:
        raise AssertionError("hq is wrong")

    monkeypatch.setattr(cli, "checks_of", lambda *_: [Check("every stage", 2, "p", wrong)])
    status, report = selftest(tmp_path)
    assert status == 1
    assert report["results"][0]["detail"] == "AssertionError: hq is wrong"
    assert not report["passed"]


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: an illegal memory access was encountered",
        "fused_moe: stage experts: misaligned address",
        "CUDA device 0: unspecified launch failure",
    ],
)
def test_nothing_runs_after_a_cuda_error(text: str) -> None:
    """Of those that stay."""

    def lost() -> str:
        raise RuntimeError(text)

    report = cli.Report({}, [])
    cli.run_checks([Check("a", 1, "p", str), Check("b", 1, "p", lost), Check("c", 2, "p", str)], report, CPU)
    assert [result.status for result in report.results] == ["ok", "FAILED", "not run"]
    assert not report.passed


@pytest.mark.parametrize("error", [KeyError("y"), IndexError("row 7"), RuntimeError("CUDA error: invalid argument")])
def test_any_exception_is_a_failure_and_the_others_run(error: Exception) -> None:
    def fails() -> str:
        raise error

    report = cli.Report({}, [])
    cli.run_checks([Check("a", 1, "p", fails), Check("b", 1, "p", str)], report, CPU)
    assert [result.status for result in report.results] == ["FAILED", "ok"]
    assert report.results[0].detail == f"{type(error).__name__}: {error}"
    assert not report.passed


@pytest.mark.parametrize("answers", [True, False])
def test_a_gpu_that_does_not_answer_is_lost(answers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the text of the error."""

    def synchronize(device: torch.device) -> None:
        if not answers:
            raise RuntimeError("CUDA error: unknown error")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    assert machine.is_lost(AssertionError("hq"), torch.device("cuda", 0)) == (not answers)


def test_a_crash_leaves_a_report(tmp_path: Path) -> None:
    """What the file holds while the second check runs."""
    file, seen = tmp_path / "report.json", []

    def looks() -> str:
        seen.append(json.loads(file.read_text()))
        return ""

    report = cli.Report({}, [])
    cli.run_checks([Check("a", 1, "p", str), Check("b", 2, "p", looks)], report, CPU, file)
    (left,) = seen
    assert [result["name"] for result in left["results"]] == ["a"]
    assert left["running"] == "b, M=2"
    assert not left["passed"]
    ended = json.loads(file.read_text())
    assert ended["passed"]
    assert len(ended["results"]) == 2


def test_driver_and_mig_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = SimpleNamespace(stdout="0, 580.159.04, Disabled\n1, 580.159.04, Enabled\n")
    monkeypatch.setattr(torch._C, "_cuda_getDriverVersion", lambda: 13020, raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    assert machine.driver_facts() == {
        "driver": "CUDA 13.2",
        "nvidia-smi": "GPU 0: driver 580.159.04, MIG Disabled; GPU 1: driver 580.159.04, MIG Enabled",
    }


def test_an_nvidia_smi_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("nvidia-smi", 20)

    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(subprocess, "run", fails)
    assert machine.driver_facts()["nvidia-smi"].startswith("no answer: ")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "nvidia-smi" not in machine.driver_facts()


def test_a_check_that_hangs_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr(cli, "LONGEST_CHECK_S", 0.05)

    def hangs() -> str:
        while not left:
            time.sleep(0.01)
        return ""

    file = tmp_path / "report.json"
    cli.run_checks([Check("waits", 7, "p", hangs)], cli.Report({}, []), CPU, file)
    assert left == [1]
    assert json.loads(file.read_text())["results"][0]["status"] == "HANGS"


def test_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main(["--device", "cuda"]) == 2
    assert "no GPU for cuda" in capsys.readouterr().out


def test_a_gpu_without_kernels(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    old = SimpleNamespace(major=8, minor=0, multi_processor_count=108)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: old)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100")
    assert cli.main([]) == 2
    assert "selftest: NVIDIA A100 (sm_80) has no kernels of fused_moe here; built for: cpu" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["-M", "0"],
        ["-M", "16385"],
        ["--device", "meta"],
        ["--device", "nonsense"],
        ["--device", "cpu", "--json", "no/such/folder/report.json"],
    ],
)
def test_wrong_arguments(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize(("arch", "sms", "paths"), [("sm_90a", 132, 17), ("sm_100a", 148, 10), ("sm_103a", 160, 10)])
def test_every_path_of_a_gpu_is_checked(arch: str, sms: int, paths: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(checks, "target", lambda _: (arch, sms))
    monkeypatch.setattr(checks, "plan_of", lambda count, _: stages._C.make_plan(count, arch, sms))
    found = list(checks.checks_of(gpu, checks.default_counts(gpu)))
    assert {check.path for check in found} == {row.path for row in checks.paths_of(gpu)}
    assert len({check.path for check in found}) == paths
    assert [check.tokens for check in found if check.name == "every stage"] == checks.default_counts(gpu)

    def kernels(count: int) -> tuple[tuple[str, int], ...]:
        launches = stages._C.make_plan(count, arch, sms)["launches"]
        return tuple((launch["stage"], launch["tile_tokens"]) for launch in launches)

    every = {kernels(row.first) for row in checks.paths_of(gpu)}
    small = [check.tokens for check in found if check.name == "capture and replay"]
    assert {kernels(count) for count in small} == every
    assert len(small) == len(every)
    for routing in ("uniform", "no_route", "duplicates", "out_of_range", "nan"):
        assert [check.tokens for check in found if check.name == f"every stage, {routing}"] == small
    for kind in ("in turns with", "streams, beside"):
        pairs = [(int(check.name.split("M=")[1]), check.tokens) for check in found if check.name.startswith(kind)]
        assert pairs == list(pairwise(small))

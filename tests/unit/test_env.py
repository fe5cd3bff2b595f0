"""The report for bug tickets and the plan as a table."""

import os
import re
import subprocess
import sys

import pytest
from rich.console import Console

from cake_moe import env
from cake_moe._native import _C
from cake_moe._version import __version__


def shown(table: object) -> str:
    console = Console(width=300, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    return console.export_text()


def test_report_names_what_a_ticket_needs() -> None:
    facts = env.report()
    assert facts["cake_moe"] == __version__
    assert "compiler" in facts["built with"]
    assert facts["CPU instruction set"]
    assert re.search(r", [1-9]\d* cores, ", facts["CPU"])
    assert re.fullmatch(r"\d+\.\d GB", facts["memory"])
    assert "threads" in facts["torch"]
    assert "cpu" in facts["fused_moe runs on"]


def test_report_shows_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAKE_MOE_VALIDATE", "1")
    assert env.report()["CAKE_MOE_VALIDATE"] == "1"
    monkeypatch.delenv("CAKE_MOE_VALIDATE")
    assert "CAKE_MOE_VALIDATE" not in env.report()


def test_report_survives_a_bad_instruction_set() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "cake_moe.env"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CAKE_MOE_CPU_ISA": "sse9"},
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert "CAKE_MOE_CPU_ISA must be portable, avx2 or avx512, got sse9" in " ".join(run.stdout.split())
    assert __version__ in run.stdout


@pytest.mark.parametrize(("arch", "sms"), [("cpu", 0), ("sm_90a", 132), ("sm_100a", 148), ("sm_103a", 160)])
def test_plan_table_is_the_plan(arch: str, sms: int) -> None:
    counts = (1, 17, 16384)
    table = env.plan_table(arch, counts, sms)
    text = shown(table)
    plans = [_C.make_plan(count, arch, sms) for count in counts]
    assert table.row_count == sum(len(plan["launches"]) for plan in plans)
    for plan in plans:
        assert f"{plan['path']}: {plan['why']}" in " ".join(text.split())
        for launch in plan["launches"]:
            assert re.search(rf"│ {launch['stage']} +│ .*│ +{launch['grid']} │", text)


def test_command_prints_the_report() -> None:
    run = subprocess.run([sys.executable, "-m", "cake_moe.env"], capture_output=True, text=True, check=True)
    assert __version__ in run.stdout
    assert run.stderr == ""


def test_command_prints_every_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert env.main(["--plan", "-M", "8"]) == 0
    text = capsys.readouterr().out
    for arch in ("cpu", "sm_90a", "sm_100a", "sm_103a"):
        assert f"plan for {arch}" in text


def test_one_architecture_with_its_sms(capsys: pytest.CaptureFixture[str]) -> None:
    assert env.main(["--plan", "--arch", "sm_90a", "--sms", "66", "-M", "8"]) == 0
    text = capsys.readouterr().out
    assert "plan for sm_90a, 66 SMs" in text
    assert "sm_100a" not in text


@pytest.mark.parametrize("arguments", [["--plan", "-M", "0"], ["--plan", "-M", "16385"], ["--plan", "--arch", "x"]])
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        env.main(arguments)
    assert "error: " in capsys.readouterr().err

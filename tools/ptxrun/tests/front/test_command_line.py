"""python -m ptxrun: results, exit status, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptxrun.__main__ import main

PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry add_to(.param .u64 in, .param .u64 out, .param .u32 n, .param .f32 what)
{
  .reg .pred %p;
  .reg .b32 %i, %n;
  .reg .f32 %x, %y;
  .reg .b64 %at, %from, %to;
  mov.u32 %i, %tid.x;
  ld.param.u32 %n, [n];
  setp.ge.u32 %p, %i, %n;
  @%p bra DONE;
  ld.param.u64 %from, [in];
  ld.param.u64 %to, [out];
  ld.param.f32 %y, [what];
  mul.wide.u32 %at, %i, 4;
  add.u64 %from, %from, %at;
  add.u64 %to, %to, %at;
  ld.global.f32 %x, [%from];
  add.f32 %x, %x, %y;
  st.global.f32 [%to], %x;
DONE:
  ret;
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "add.ptx").write_text(PTX)
    np.save(tmp_path / "in.npy", np.arange(8, dtype=np.float32))
    return tmp_path


def write(folder: Path, **launch: Any) -> str:
    content = {
        "buffers": {"in": {"file": "in.npy", "readonly": True}, "out": {"bytes": 32}},
        "launches": [
            {
                "ptx": "add.ptx",
                "kernel": "add_to",
                "grid": 1,
                "block": 32,
                "args": ["in", "out", 8, {"float": 0.5}],
                **launch,
            }
        ],
        "save": {"out": "out.npy"},
    }
    path = folder / "run.json"
    path.write_text(json.dumps(content))
    return str(path)


@pytest.mark.parametrize("schedule", ["early", "late", "random"])
def test_a_run(folder: Path, schedule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", write(folder), "--schedule", schedule]) == 0
    assert np.array_equal(np.load(folder / "out.npy").view(np.float32), np.arange(8) + 0.5)
    printed = capsys.readouterr().out
    assert "buffer in: 32 bytes read, 0 written" in printed
    assert "0 findings" in printed


def test_a_finding_is_exit_status_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", write(folder, args=["in", "out", 9, {"float": 1}])]) == 1
    printed = capsys.readouterr().out
    assert "out_of_bounds" in printed
    assert "ld.global.f32" in printed


@pytest.mark.parametrize(
    ("launch", "what"),
    [
        ({"args": ["in", "out", 8]}, "4 parameters"),
        ({"args": ["in", "none", 8, 0]}, "none"),
        ({"kernel": "other"}, "add_to"),
        ({"ptx": "missing.ptx"}, "missing.ptx"),
        ({"args": ["in", "out", 1 << 40, {"float": 1}]}, "too big"),
    ],
)
def test_wrong_inputs_are_exit_status_2(
    folder: Path, launch: dict[str, Any], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", write(folder, **launch)]) == 2
    assert what in capsys.readouterr().err


def test_census(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["census", str(folder / "add.ptx")]) == 0
    assert "2 ld.param.u64" in capsys.readouterr().out
    (folder / "odd.ptx").write_text(PTX.replace("add.f32", "frobnicate.f32"))
    assert main(["census", str(folder / "add.ptx"), str(folder / "odd.ptx")]) == 1
    printed = capsys.readouterr().out
    assert "frobnicate.f32   NOT MODELLED" in printed
    assert "1 not modelled" in printed


def test_running_an_unmodelled_spelling_names_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "add.ptx").write_text(PTX.replace("add.f32", "frobnicate.f32"))
    assert main(["run", write(folder)]) == 2
    line = PTX.replace("add.f32", "frobnicate.f32").splitlines().index("  frobnicate.f32 %x, %x, %y;") + 1
    assert f"line {line}" in capsys.readouterr().err


def test_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["codes"]) == 0
    assert "out_of_bounds" in capsys.readouterr().out

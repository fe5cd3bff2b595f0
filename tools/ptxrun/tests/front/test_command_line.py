"""python -m ptxrun: results, exit status, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptxrun import Memory, build, description
from ptxrun.__main__ import main
from ptxrun.build import BuildError
from ptxrun.cache import digest

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


@pytest.mark.parametrize(("number", "value"), [(2.5, 2.5), (2, 2), ({"float": 3}, 3)])
def test_a_number_takes_the_parameters_type(folder: Path, number: Any, value: float) -> None:
    assert main(["run", write(folder, args=["in", "out", 8, number])]) == 0
    assert np.array_equal(np.load(folder / "out.npy").view(np.float32), np.arange(8) + value)


def test_buffers_from_values(tmp_path: Path) -> None:
    memory = Memory()
    buffer = description.buffer_from(memory, "x", {"dtype": "int32", "values": [1, 2]}, tmp_path)
    assert buffer.numpy(np.int32).tolist() == [1, 2]
    assert description.buffer_from(memory, "y", {"bytes": 16, "readonly": True}, tmp_path).readonly
    for values in ([1.7], [1 << 40]):
        with pytest.raises(ValueError, match="no int32"):
            description.buffer_from(memory, "z", {"dtype": "int32", "values": values}, tmp_path)


def test_a_run_has_a_limit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "add.ptx").write_text(PTX.replace("DONE:\n", "DONE:\n  bra DONE;\n"))
    assert main(["run", write(folder), "--max-instructions", "10000"]) == 1
    assert "instruction_limit" in capsys.readouterr().out


def test_an_interrupt_ends_a_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ptxrun.__main__.run", interrupt)
    assert main(["run", write(folder)]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_core_that_cannot_be_built_is_exit_status_2(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise BuildError("no compiler")

    monkeypatch.setattr("ptxrun.api.core", fail)
    assert main(["run", write(folder)]) == 2
    assert "no compiler" in capsys.readouterr().err


def test_checkouts_do_not_share_a_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each asks cmake for a folder of its own in the same cache."""
    folders: list[str] = []

    def note(command: list[str]) -> None:
        folders.extend(command[command.index("-B") + 1 :][:1])
        raise BuildError("enough")

    monkeypatch.setenv("PTXRUN_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "_run", note)
    for project in ("one", "two"):
        monkeypatch.setattr(build, "PROJECT", tmp_path / project)
        monkeypatch.setattr(build, "digest", lambda files, *words: digest([], *words))
        with pytest.raises(BuildError):
            build.build_core()
    assert len(set(folders)) == 2


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
        ({"args": ["in", "out", 8.5, 1]}, "no integer"),
        ({"args": ["in", "out", 8, None]}, "argument"),
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

"""The demo: its check can fail, its errors are words, its temporary files go away, and it does the whole job."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from cake_moe import demo, synthetic
from cake_moe.checkpoint import CheckpointLayer, CheckpointReport
from cake_moe.layout import EXPERTS
from cake_moe.testing.inputs import MoeInputs, RandomWeights, make_inputs
from cake_moe.testing.routings import make_routing
from cake_moe.weights import PreparedWeights

CPU = torch.device("cpu")


def make_layer(distinct: int, tokens: int, seeds: range) -> CheckpointLayer:
    """A layer whose slots repeat `distinct` experts, present where `tokens` tokens with these seeds go."""
    lazy = RandomWeights(seed=5)
    scales = make_inputs(1, weights=lazy).quant_scales
    slots = torch.cat([make_routing("uniform", tokens, seed=seed) for seed in seeds]).unique().tolist()
    lazy.touch({slot % distinct for slot in slots})
    for slot in slots:
        for tensor in (lazy.fc1, lazy.fc1_scales, lazy.fc2, lazy.fc2_scales):
            tensor[slot] = tensor[slot % distinct]
    per_expert = [scale[torch.arange(EXPERTS) % distinct] for scale in (scales[2], scales[3], scales[5])]
    weights = PreparedWeights(lazy.fc1, lazy.fc1_scales, per_expert[0], lazy.fc2, lazy.fc2_scales, per_expert[2])
    quant_scales = [
        torch.ones(1),
        lazy.fc1_scales,
        per_expert[0] * scales[0],
        per_expert[1],
        lazy.fc2_scales,
        per_expert[2],
    ]
    report = CheckpointReport(Path("x"), 1, 0, EXPERTS, distinct, 0, 0.0, (1, 1), 0, (1, 1), (), ())
    return CheckpointLayer(weights, quant_scales, report)


SEEDS = range(demo.TIMED_CALLS + 1)


@pytest.mark.parametrize("distinct", [EXPERTS, 16])
def test_measure(distinct: int) -> None:
    row = demo.measure(make_layer(distinct, 3, SEEDS), 3, CPU, seed=0)
    assert row.tokens == 3
    assert row.experts == len(make_routing("uniform", 3, seed=0).unique())
    assert row.touched_bytes == row.experts * 2_322_432
    assert 0 < row.report.row_error <= row.report.row_bound < 0.05
    assert row.seconds > 0


def test_a_wrong_output_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    call = demo.PreparedCall.__call__

    def one_bit_off(self: demo.PreparedCall, problem: MoeInputs) -> torch.Tensor:
        output = call(self, problem)
        output.view(torch.int16)[1, 99] ^= 1
        return output

    monkeypatch.setattr(demo.PreparedCall, "__call__", one_bit_off)
    with pytest.raises(demo.OutOfBound, match="M = 2: finalize: row 1, column 99"):
        demo.measure(make_layer(EXPERTS, 2, SEEDS), 2, CPU, seed=0)


def test_a_wrong_copy_of_an_expert_is_reported() -> None:
    layer = make_layer(16, 1, SEEDS)
    slot = int(make_routing("uniform", 1, seed=0)[0].max())
    assert isinstance(layer.weights, PreparedWeights)
    layer.weights.fc2_weights[slot] ^= 8  # every sign of an even column
    with pytest.raises(demo.OutOfBound, match="M = 1: slots with the same expert give other outputs"):
        demo.measure(layer, 1, CPU, seed=0)


def test_status_1_outside_the_bound(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object) -> None:
        raise demo.OutOfBound("M = 1: fc2: row 0, column 0")

    monkeypatch.setattr(demo, "run", fail)
    assert demo.main([]) == 1
    assert capsys.readouterr().err == "outside the bound: M = 1: fc2: row 0, column 0\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--full", "--checkpoint", "x"], "they exclude --checkpoint"),
        (["--keep", "--checkpoint", "x"], "they exclude --checkpoint"),
        (["--dir", "d", "--checkpoint", "x"], "they exclude --checkpoint"),
        (["--full", "--experts", "2"], "excludes --experts"),
        (["--experts", "897"], r"--experts must be in 1..896, got 897"),
        (["-M", "1", "16385"], r"token counts must be in 1..16384, got 1 16385"),
        (["--tp-rank", "8"], "--tp-rank must be in 0..7, got 8"),
        (["--tp-rank", "-1"], "--tp-rank must be in 0..7, got -1"),
        (["--layer", "-1"], "--layer must not be negative, got -1"),
        (["--device", "abacus"], "must be cpu or cuda[:index], got 'abacus'"),
    ],
)
def test_bad_arguments(
    arguments: list[str], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "run", lambda *_: pytest.fail("something was done before the arguments were checked"))
    with pytest.raises(SystemExit, match="2"):
        demo.main(arguments)
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--checkpoint", "{tmp}/none.safetensors"], "none.safetensors does not exist"),
        (["--checkpoint", "{tmp}"], "holds no safetensors files"),
        (["--checkpoint", "{tmp}/broken"], "error: "),
        (["--dir", "{tmp}/file"], "File exists"),
    ],
)
def test_status_2_in_words(tmp_path: Path, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.safetensors").write_bytes(b"no safetensors")
    assert demo.main([argument.format(tmp=tmp_path) for argument in arguments]) == 2
    shown = capsys.readouterr().err
    assert text in shown
    assert shown.startswith("error: ")
    assert not list(tmp_path.glob("new/*"))


def test_full_needs_its_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(synthetic.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 16_600_000_000}))
    assert demo.main(["--full", "--dir", str(tmp_path)]) == 2
    assert re.search(r"16\.65 GB needed in .*, 16\.60 GB free", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_device_without_the_operator_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--device", "cuda", "--dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_removes_the_checkpoint(tmp_path: Path, number: signal.Signals) -> None:
    # A test run in the background of a shell may ignore SIGINT, and children inherit that.
    before = signal.signal(number, signal.SIG_DFL)
    process = subprocess.Popen(
        [sys.executable, "-m", "cake_moe.demo", "--dir", str(tmp_path)], stderr=subprocess.PIPE, text=True
    )
    signal.signal(number, before)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("*/*.safetensors")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, shown = process.communicate(timeout=120)
    assert process.returncode == 128 + number, shown
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in shown


def test_whole_job_and_a_checkpoint_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--experts", "2", "-M", "1", "2", "--tp-rank", "3", "--layer", "7", "--seed", "9"]
    assert demo.main([*arguments, "--dir", str(tmp_path), "--keep"]) == 0
    first = capsys.readouterr().out
    (folder,) = tmp_path.iterdir()
    assert f"the checkpoint stays in {folder}" in first
    assert "2 distinct full-width experts, each standing for 448 of the 896 slots" in first
    assert "layer 7, rank 3 of 8, on cpu" in first
    assert demo.main([*arguments, "--checkpoint", str(folder)]) == 0
    second = capsys.readouterr().out
    errors = [re.findall(r"│ +(\d\.\d\de-\d+) +", text) for text in (first, second)]
    assert len(errors[0]) == 4
    assert errors[0] == errors[1]
    assert all(float(error) <= float(bound) for error, bound in zip(errors[0][::2], errors[0][1::2], strict=True))


def test_unkept_checkpoint_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def load(path: Path, *_: object, **__: object) -> None:
        seen.append((path.parent, len(list(path.iterdir()))))
        raise ValueError("enough")

    monkeypatch.setattr(demo, "load_checkpoint_layer", load)
    assert demo.main(["--experts", "1", "--dir", str(tmp_path)]) == 2
    assert seen == [(tmp_path, 2)]
    assert list(tmp_path.iterdir()) == []

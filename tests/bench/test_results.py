"""Numbers, files, table and picture of the benchmark."""

import json
import sys
from pathlib import Path

import pytest

from cake_moe.bench import cli, plot, report
from cake_moe.bench.results import CaseResult, Session
from cake_moe.testing.inputs import RandomWeights


def make_case(tokens: int = 4, loop: bool = True) -> CaseResult:
    seconds = {"streaming read": [4e-3, 1e-3, 2e-3], "cake_moe": [3e-3, 9e-3, 2e-3]}
    if loop:
        seconds["torch.mm loop"] = [0.03, 0.04, 0.02]
    return CaseResult(tokens, "uniform", "cold", 64, 60, 60 * 2_322_432, 5, 1e-3, 2e-3, seconds)


def test_ratios_are_those_of_medians() -> None:
    case = make_case()
    assert case.median("cake_moe") == 3e-3
    assert case.ratio("cake_moe", "streaming read") == pytest.approx(1.5)
    assert case.ratio("torch.mm loop", "cake_moe") == pytest.approx(10)
    assert make_case(loop=False).ratio("torch.mm loop", "cake_moe") is None


def test_session_survives_its_file(tmp_path: Path) -> None:
    session = Session({"CPU": "x"}, {"rounds": 3}, [make_case(), make_case(loop=False)])
    session.save(tmp_path / "r.json")
    assert Session.load(tmp_path / "r.json") == session


@pytest.mark.parametrize("text", ["[]", "{}", '{"schema": 0}', "not json"])
def test_other_files_are_refused(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.json").write_text(text)
    assert cli.main(["--load", str(tmp_path / "r.json")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_table_row() -> None:
    # 64 routes * 8,257,536 operations in 3 ms
    cells = ("4", "uniform", "cold", "60", "139", "2 ms", "3 ms", "1.50", "30 ms", "10.0", "0.176")
    assert report.table_row(make_case()) == cells
    assert report.table_row(make_case(loop=False))[8:10] == ("-", "-")


@pytest.mark.parametrize(("seconds", "text"), [(2.5, "2.5 s"), (0.0421, "42.1 ms"), (1.5e-5, "15 us")])
def test_time_text(seconds: float, text: str) -> None:
    assert report.time_text(seconds) == text


def test_plot_draws_each_series_for_each_panel(tmp_path: Path) -> None:
    session = Session({"CPU": "some processor"}, {}, [make_case(1), make_case(16), make_case(64, loop=False)])
    plot.plot(session, tmp_path / "p.svg")
    picture = (tmp_path / "p.svg").read_text()
    assert picture.count("<!-- cake_moe -->") == picture.count("<!-- streaming read -->") == 1
    assert "<!-- uniform routing, cold caches -->" in picture


def test_plot_without_matplotlib_is_refused_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(cli, "measure_session", lambda *_: pytest.fail("measured"))
    assert cli.main(["--plot", str(tmp_path / "p.svg")]) == 2
    assert "pip install 'cake-moe[bench]'" in capsys.readouterr().err


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cli, "make_weights", RandomWeights)
    file = tmp_path / "r.json"
    arguments = [
        "-M",
        "1-2",
        "--routing",
        "one_group",
        "duplicates",
        "--rounds",
        "1",
        "--pool",
        "2",
        "--json",
        str(file),
    ]
    assert cli.main(arguments) == 0
    data = json.loads(file.read_text())
    assert [(c["tokens"], c["routing"]) for c in data["cases"]] == [
        (1, "one_group"),
        (2, "one_group"),
        (1, "duplicates"),
        (2, "duplicates"),
    ]
    assert {"CPU", "torch", "cake_moe", "load before", "load after", "clock"} <= data["facts"].keys()
    assert data["settings"] == {"rounds": 1, "budget": 60.0, "pool": 2, "seed": 0, "device": "cpu"}
    assert capsys.readouterr().out.count("one_group") == 2
    assert cli.main(["--load", str(file)]) == 0
    assert capsys.readouterr().out.count("one_group") == 2


@pytest.mark.parametrize("arguments", [["-M", "0"], ["--routing", "x"], ["--device", "tpu"], ["--rounds", "0"]])
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert "error: " in capsys.readouterr().err

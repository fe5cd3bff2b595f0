"""Numbers, files, table and picture of the benchmark."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from cake_moe.bench import cli, plot, report
from cake_moe.bench.results import CaseResult, HostResult, LaunchResult, Session
from cake_moe.testing.inputs import RandomWeights


def make_case(tokens: int = 4, loop: bool = True) -> CaseResult:
    seconds = {"streaming read": [4e-3, 1e-3, 2e-3], "cake_moe": [3e-3, 9e-3, 2e-3]}
    if loop:
        seconds["torch.mm loop"] = [0.03, 0.04, 0.02]
    return CaseResult(tokens, "uniform", "cold", 64, 60, 60 * 2_322_432, 5, 4, 1e-3, 2e-3, seconds)


def make_gpu_case(tokens: int, matmul: float = 5e-3, peer: bool = True) -> CaseResult:
    seconds = {"streaming read": [2e-3], "cake_moe": [7e-3, 6e-3, 8e-3]} | ({"Peer W4A16": [14e-3]} if peer else {})
    notes = {"Peer W4A16": "small tiles"}
    return CaseResult(tokens, "skew", "warm", 64, 60, 10, 1, 4, 1e-3, 2e-3, seconds, matmul, notes)


def test_ratios_are_those_of_medians() -> None:
    case = make_case()
    assert case.median("cake_moe") == 3e-3
    assert case.ratio("cake_moe", "streaming read") == pytest.approx(1.5)
    assert case.ratio("torch.mm loop", "cake_moe") == pytest.approx(10)
    assert make_case(loop=False).ratio("torch.mm loop", "cake_moe") is None


def test_floor_is_the_larger_of_reading_and_arithmetic() -> None:
    assert (make_gpu_case(1).floor, make_gpu_case(1).floor_kind) == (5e-3, "matmul")
    assert (make_gpu_case(1, 1e-3).floor, make_gpu_case(1, 1e-3).floor_kind) == (2e-3, "read")
    assert make_case().floor == 2e-3


def test_launches_are_work_of_the_gpu() -> None:
    assert LaunchResult(1, {"kernel": 2, "memset": 1, "memcpy": 3, "empty": 7}, [], [], []).launches == 6


def test_session_survives_its_file(tmp_path: Path) -> None:
    host = HostResult(1, 100, 2e-5, 3e-5, None)
    launches = LaunchResult(1, {"kernel": 2}, ["a", "b"], [1e-6, 2e-6], [1e-7])
    session = Session({"CPU": "x"}, {"rounds": 3}, [make_case(), make_gpu_case(2)], [host], [launches])
    session.save(tmp_path / "r.json")
    assert Session.load(tmp_path / "r.json") == session
    assert '"cake_moe": [ 0.003, 0.009, 0.002 ]' in (tmp_path / "r.json").read_text()


@pytest.mark.parametrize("text", ["[]", "{}", '{"schema": 0}', "not json"])
def test_other_files_are_refused(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.json").write_text(text)
    assert cli.main(["--load", str(tmp_path / "r.json")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def cells(case: CaseResult) -> dict[str, str]:
    return {heading: cell(case) for heading, cell in report.columns([make_case(), make_gpu_case(1)]).items()}


def test_table_cells() -> None:
    assert cells(make_case()) == {
        "M": "4",
        "routing": "uniform",
        "caches": "cold",
        "experts": "60",
        "MB": "139",
        "floor": "2 ms",
        "cake_moe": "3 ms",
        "min .. max": "2 ms .. 9 ms",
        "over floor": "1.50",
        "torch.mm loop": "30 ms",
        "x torch.mm": "10.0",
        "Peer W4A16": "-",
        "x Peer": "-",
        "TFLOP/s": "0.176",  # 64 routes * 8,257,536 operations in 3 ms
    }
    gpu = cells(make_gpu_case(1))
    assert (gpu["floor"], gpu["over floor"], gpu["x Peer"], gpu["x torch.mm"]) == ("5 ms (mm)", "1.40", "2.00", "-")


def test_tables_of_the_host_and_of_launches() -> None:
    hosts = [HostResult(1, 100, 2e-5, 3e-5, 5e-6, 2.5e-5), HostResult(2, 100, 2e-5, 3e-5, None)]
    *_, above, _, recording = [list(column.cells) for column in report.host_table(hosts).columns]
    assert (above, recording) == (["15 us", "-"], ["25 us", "-"])
    launches = [
        LaunchResult(
            1, {"memset": 1, "kernel": 2}, ["void a::b<c>(int)", "d(e::f)", "g"], [1e-6, 2e-6, 3e-6], [4e-7, 1e-7]
        )
    ]
    row = [next(iter(column.cells)) for column in report.launch_table(launches).columns]
    assert row == ["1", "3", "2 kernel, 1 memset", "b 1 us, d 2 us, g 3 us", "0.4 us"]


@pytest.mark.parametrize(("seconds", "text"), [(2.5, "2.5 s"), (0.0421, "42.1 ms"), (1.5e-5, "15 us")])
def test_time_text(seconds: float, text: str) -> None:
    assert report.time_text(seconds) == text


def test_plot_draws_each_series_for_each_panel(tmp_path: Path) -> None:
    session = Session({"CPU": "some processor"}, {}, [make_case(1), make_case(16), make_case(64, loop=False)])
    plot.plot(session, tmp_path / "p.svg")
    picture = (tmp_path / "p.svg").read_text()
    assert picture.count("<!-- cake_moe -->") == picture.count("<!-- streaming read -->") == 1
    assert "<!-- uniform routing, cold caches -->" in picture


def test_plot_of_a_gpu_has_the_floor_and_the_peers(tmp_path: Path) -> None:
    cases = [make_gpu_case(tokens, peer=tokens < 16) for tokens in (1, 2, 16)]
    facts = {"CPU": "some processor", "GPUs": "some GPU"}
    plot.plot(Session(facts, {"device": "cuda"}, [*cases, make_case()]), tmp_path / "p.svg")
    picture = (tmp_path / "p.svg").read_text()
    for label in ("cake_moe", "Peer W4A16", "floor", "skew routing, warm caches", "some GPU"):
        assert picture.count(f"<!-- {label} -->") == 1, label
    assert "uniform routing" not in picture  # one count is no curve
    again = tmp_path / "again.svg"
    plot.plot(Session(facts, {"device": "cuda"}, cases), again)
    plot.plot(Session(facts, {"device": "cuda"}, cases), tmp_path / "p.svg")
    assert again.read_bytes() == (tmp_path / "p.svg").read_bytes()


def test_everything_that_was_measured_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow_before = dataclasses.replace(make_gpu_case(1), seconds={"streaming read": [1e-3], "cake_moe": [1.0] * 3})
    session = Session(
        {"GPUs": "some GPU"},
        {"device": "cuda"},
        [slow_before, make_gpu_case(2)],
        [HostResult(1, 100, 2e-5, 3e-5, 5e-6)],
        [LaunchResult(1, {"kernel": 2}, ["first", "second"], [1e-6, 2e-6], [1e-7])],
    )
    session.save(tmp_path / "r.json")
    assert cli.main(["--load", str(tmp_path / "r.json"), "--targets"]) == 0
    shown = capsys.readouterr().out
    for part in (
        "own targets for the H200",
        "first 1 us, second 2 us",
        "warning: skew, warm: M = 2 takes 7000 us",
        "M = 2, skew, warm: Peer W4A16: small tiles",
        "host time of an eager call",
    ):
        assert part in shown, part


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
    settings = {"rounds": 1, "budget": 60.0, "pool": 2, "seed": 0, "verify_tokens": 16, "device": "cpu"}
    assert data["settings"] == settings
    assert capsys.readouterr().out.count("one_group") == 2
    assert cli.main(["--load", str(file)]) == 0
    assert capsys.readouterr().out.count("one_group") == 2


def test_counts_of_other_routings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "make_weights", RandomWeights)
    file = tmp_path / "r.json"
    arguments = ["-M", "2", "--routing", "one_group", "duplicates", "--other-tokens", "1", "--rounds", "1"]
    assert cli.main([*arguments, "--pool", "0", "--json", str(file)]) == 0
    data = json.loads(file.read_text())
    assert [(c["tokens"], c["routing"]) for c in data["cases"]] == [(2, "one_group"), (1, "duplicates")]


@pytest.mark.parametrize(
    "arguments",
    [
        ["-M", "0"],
        ["--routing", "x"],
        ["--device", "tpu"],
        ["--rounds", "0"],
        ["--device", "cuda", "--host", "1"],
        ["--device", "cuda", "--peers", "x"],
        ["--peers", "bf16"],
        ["--launch", "eager"],
        ["--host"],
        ["--launches"],
        ["--targets"],
    ],
)
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert "error: " in capsys.readouterr().err

"""The parts of the sweep that need no GPU: reading and rewriting the plan's table, and choosing."""

from __future__ import annotations

from pathlib import Path

import pytest

from cake_moe._native import _C
from cake_moe.bench import sweep

CHECKOUT = Path(__file__).resolve().parents[2]
TABLE = """
constexpr PathRow kCpuRows[] = {
    {kMaxTokens, "staged", Shape::kStaged, 32, kCpuGemm, kCpuGemm, Pool::kStatic, "one"},
};
constexpr PathRow kSm90Rows[] = {
    {4, "few", Shape::kPrologue, 8, kA, kB, Pool::kStatic,
     "a reason, with a comma"},
    {64, "more", Shape::kPrologue, 16, kA, kB, Pool::kStatic, "another"},
    {kMaxTokens, "again", Shape::kPrologue, 8, kA, kB, Pool::kStatic, "the first shape once more"},
};
constexpr PathRow kSm100Rows[] = {
    {kMaxTokens, "other", Shape::kFused, 8, kT, kT, Pool::kStatic, "untouched"},
};
"""


def test_rows_and_their_shapes() -> None:
    rows = sweep.read_rows(TABLE, "sm_90a")
    assert [(row.max_tokens, row.path) for row in rows] == [("4", "few"), ("64", "more"), ("kMaxTokens", "again")]
    assert rows[0].shape == "Shape::kPrologue, 8, kA, kB, Pool::kStatic"
    assert [row.path for row in sweep.distinct_rows(rows)] == ["few", "more"]


def test_one_row_serves_every_count() -> None:
    text = sweep.only_row(TABLE, "sm_90a", sweep.read_rows(TABLE, "sm_90a")[1])
    assert sweep.read_rows(text, "sm_90a") == [
        sweep.Row("kMaxTokens", "more", sweep.read_rows(TABLE, "sm_90a")[1].shape)
    ]
    assert sweep.read_rows(text, "sm_100a") == sweep.read_rows(TABLE, "sm_100a")
    assert text.split("kSm90Rows")[0] == TABLE.split("kSm90Rows")[0]


def test_a_table_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no rows of kSm90Rows"):
        sweep.read_rows("constexpr PathRow kCpuRows[] = {};", "sm_90a")


@pytest.mark.parametrize(("arch", "sms"), [("sm_90a", 132), ("sm_100a", 148)])
def test_the_sources_are_read_as_the_plan_is_built(arch: str, sms: int) -> None:
    rows = sweep.read_rows((CHECKOUT / sweep.TABLES).read_text(), arch)
    limits = {"kMaxTokens": 16384, "kFusedTokens": 64, "kRoutedTokens": 64, "kFewTokens": 4}  # src/plan
    for row in rows:
        most = limits.get(row.max_tokens) or int(row.max_tokens)
        assert _C.make_plan(most, arch, sms)["path"] == row.path


def test_the_fastest_path_of_each_run_of_counts() -> None:
    times = {"a": {1: 1.0, 2: 2.0, 3: 9.0, 4: 9.0}, "b": {1: 2.0, 2: 3.0, 3: 4.0, 4: 8.0}}
    assert sweep.best_paths(times, [1, 2, 3, 4]) == [("a", 1, 2), ("b", 3, 4)]
    cells = [list(column.cells) for column in sweep.time_table(times, [1, 3]).columns]
    assert cells[1:] == [["1000000.0*", "9000000.0 "], ["2000000.0 ", "4000000.0*"]]


def test_without_sources_or_rows_nothing_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sweep, "sweep", lambda *_: pytest.fail("built"))
    monkeypatch.setattr(sweep, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="2"):
        sweep.main(["-M", "1"])
    assert "needs a checkout" in capsys.readouterr().err
    monkeypatch.setattr(sweep, "ROOT", CHECKOUT)
    with pytest.raises(SystemExit, match="2"):
        sweep.main(["-M", "1", "--paths", "no_such_path"])
    assert "no_such_path" in capsys.readouterr().err

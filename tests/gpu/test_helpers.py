"""The helpers of these tests, on any machine."""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
import torch
from gpu_support.plans import first_of_each_instance, plan, plan_rows
from gpu_support.problems import tile_edge_counts, tile_edge_ids, token_part

from cake_moe.layout import MAX_TOKENS, TOP_K
from cake_moe.testing.routings import expert_pool

RACECHECK = Path(__file__).resolve().parents[2] / "ci" / "racecheck_known.py"
LOG = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at _ZN8cake_moe4sm903fc1_kernelE+0x30
=========     and Read access at _ZN8cake_moe4sm903fc1_kernelE+0x50 [16 hazards]
=========     and Read access at _ZN8cake_moe4sm903fc1_kernelE+0x60 [8 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)
"""
SASS = """\
\t\tFunction : _ZN8cake_moe4sm903fc1_kernelE
        /*0030*/              @P0 UBLKCP [UR8], [UR10], UR5 ;                /* 0x00 */
        /*0050*/                  LDS.U.128 R4, [R2+0x10] ;
        /*0060*/             @!UP1 STS [R2], R3 ;
"""


@pytest.fixture(scope="module")
def racecheck() -> ModuleType:
    spec = importlib.util.spec_from_file_location("racecheck_known", RACECHECK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_plan_rows_cover_every_count_once() -> None:
    rows = plan_rows()
    assert rows[0].first == 1
    assert rows[-1].last == MAX_TOKENS
    assert all(a.last + 1 == b.first for a, b in pairwise(rows))
    assert all(row.tile_tokens >= 8 for row in rows)


def test_instances_begin_with_one_token() -> None:
    counts = first_of_each_instance()
    assert counts[0] == 1
    assert {row.path for row in plan_rows()} >= {plan(count)["path"] for count in counts}
    tiles = {row.tile_tokens for row in plan_rows()}
    assert tiles == {row.tile_tokens for row in plan_rows() for count in counts if row.first <= count <= row.last}


@pytest.mark.parametrize("tile", [8, 16, 128])
@pytest.mark.parametrize("num_tokens", [1, 4, 64, 1000])
@pytest.mark.parametrize("fill", [True, False])
def test_tile_edges(num_tokens: int, tile: int, fill: bool) -> None:
    pool = expert_pool(32)
    ids = tile_edge_ids(num_tokens, tile, pool, fill=fill)
    assert ids.shape == (num_tokens, TOP_K)
    assert set(ids.unique().tolist()) <= {*pool, -1}
    assert bool((ids >= 0).all()) or not fill
    rows = torch.bincount(ids[ids >= 0].view(-1).long(), minlength=896)
    counts = tile_edge_counts(num_tokens * TOP_K, tile)
    order = [pool[-1], pool[0], *pool[1:-1]]
    assert rows[order[: len(counts)]].tolist() == counts
    if num_tokens * TOP_K >= 20 * tile:
        assert set(counts) >= {tile - 2, tile - 1, tile, tile + 1, tile + 2, 2 * tile + 1}


@pytest.mark.parametrize("kind", ["normal", "nan_row"])
@pytest.mark.parametrize("num_tokens", [1, 2, 100, 2047, 2048, 5000])
def test_token_part(num_tokens: int, kind: str) -> None:
    tokens = torch.arange(2048)[token_part(num_tokens, 2048, kind)]
    assert len(tokens) == num_tokens
    assert kind == "normal" or 1024 in tokens


def test_racecheck_pairs_are_read_from_the_log(racecheck: ModuleType) -> None:
    kernel = "_ZN8cake_moe4sm903fc1_kernelE"
    pairs = racecheck.parse_log(LOG)
    assert pairs == {(kernel, 0x30, kernel, 0x50), (kernel, 0x30, kernel, 0x60)}
    opcodes = racecheck.parse_sass(SASS)
    assert opcodes == {(kernel, 0x30): "UBLKCP", (kernel, 0x50): "LDS", (kernel, 0x60): "STS"}
    known = [racecheck.Known("fc1_kernel", frozenset({"UBLKCP", "LDS"}), "some barrier")]
    accepted, unknown = racecheck.judge(pairs, opcodes, known)
    assert len(accepted) == 1
    assert len(unknown) == 1
    assert "STS" in unknown[0]


def test_a_report_without_pairs_is_not_accepted(racecheck: ModuleType) -> None:
    assert racecheck.summary_hazards(LOG) == 2
    assert racecheck.summary_hazards("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n") == 0
    with pytest.raises(ValueError, match="no summary"):
        racecheck.summary_hazards("========= COMPUTE-SANITIZER\n")

"""What a call of the sm_100a kernels moves and multiplies, counted: the least that its token tiles allow."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
from ptx_cases import POOL, crowded, sparse
from ptx_operator import Call
from ptxrun import Report

from cake_moe.bench.model import COLUMN_INSTRUCTIONS
from cake_moe.layout import EXPERTS, FC1_ROWS, FC2_ROWS, HIDDEN, INTERMEDIATE
from cake_moe.testing.inputs import MoeInputs, make_inputs

SM_COUNT = 148
WEIGHTS = ("fc1_weights", "fc1_scales", "fc2_weights", "fc2_scales")
STEPS_OF_TILE = (FC1_ROWS * HIDDEN + FC2_ROWS * INTERMEDIATE) // (128 * 64)  # an MMA takes 128 rows by K = 64
COLUMNS = 8  # the grain of an MMA's token side
LEAST_IN_FLIGHT = 64 * 1024


class Tile(NamedTuple):
    """A token tile: rows [first_row, first_row + rows) of one expert."""

    expert: int
    first_row: int
    rows: int


def tiles_of(call: Call) -> list[Tile]:
    """What the call has written."""
    count = int(call.sections["tile_count"].numpy(np.int32)[0])
    entries = call.sections["tiles"].numpy(np.int32, (-1, 4))[:count]
    return [Tile(*entry[:3]) for entry in entries.tolist()]


def rows_of_experts(problem: MoeInputs) -> Counter[int]:
    ids = problem.token_selected_experts
    return Counter(ids[ids >= 0].tolist())


def check_tiles(problem: MoeInputs, tiles: list[Tile], tile_tokens: int) -> None:
    """As few as the rows of each expert need, one after the other."""
    row = 0
    for tile in tiles:
        assert tile.first_row == row
        assert 1 <= tile.rows <= tile_tokens
        row += tile.rows
    covered: Counter[int] = Counter()
    for tile in tiles:
        covered[tile.expert] += tile.rows
    assert covered == rows_of_experts(problem)
    count = Counter(tile.expert for tile in tiles)
    assert count == {expert: -(-rows // tile_tokens) for expert, rows in covered.items()}


def check_weights(report: Report, tiles: list[Tile]) -> None:
    """Each byte of a touched expert is read once for each of its token tiles, and no other byte."""
    tiles_of_expert = Counter(tile.expert for tile in tiles)
    for name in WEIGHTS:
        counters = report.buffers[name]
        expert_bytes = sum(counters.read_histogram.values()) // EXPERTS
        expected = Counter({0: (EXPERTS - len(tiles_of_expert)) * expert_bytes})
        for count in tiles_of_expert.values():
            expected[count] += expert_bytes
        assert counters.read_histogram == expected, name


def check_steps(report: Report, tiles: list[Tile]) -> None:
    """Each MMA is as wide as the rows of its tile need, and there is one for each 128 rows and K = 64 of a weight."""
    steps: Counter[str] = Counter()
    for tile in tiles:
        columns = -(-tile.rows // COLUMNS) * COLUMNS
        steps[f"tcgen05.mxf4nvf4.m128n{columns}k64"] += STEPS_OF_TILE
    counted: Counter[str] = Counter()
    for launch in report.launches:
        counted.update(launch.mma_steps)
    assert counted == steps


def check_results(problem: MoeInputs, report: Report) -> None:
    """y and the output are written once, and y is read once."""
    row_bytes = 2 * HIDDEN
    y, output = report.buffers["y"], report.buffers["output"]
    rows = rows_of_experts(problem).total()
    assert y.bytes_written == y.bytes_read == rows * row_bytes
    assert y.read_histogram.get(1, 0) == rows * row_bytes
    assert output.bytes_written == problem.num_tokens * row_bytes
    assert output.bytes_read == 0


def counted(num_tokens: int) -> MoeInputs:
    """All routes of few tokens; else experts with full tiles, begun ones, and several."""
    if num_tokens <= 64:
        return make_inputs(num_tokens, kind="integer", experts=POOL, seed=num_tokens)
    tile = Call(make_inputs(num_tokens, experts=POOL), "100a", sm_count=SM_COUNT).plan["launches"][1]["tile_tokens"]
    return crowded(num_tokens, {0: 2 * tile + 1, 5: tile, 6: tile - 1, 15: 1})


@pytest.mark.parametrize(
    "num_tokens", [1, 8, *(pytest.param(count, marks=pytest.mark.full) for count in (64, 100, 300, 1024, 3000, 16384))]
)
def test_a_call_moves_and_multiplies_the_least(num_tokens: int) -> None:
    problem = counted(num_tokens)
    call = Call(problem, "100a", sm_count=SM_COUNT)
    report = call.run()
    report.raise_on_findings()
    tiles = tiles_of(call)
    tile_tokens = call.plan["launches"][call.stages().index("experts")]["tile_tokens"]
    check_tiles(problem, tiles, tile_tokens)
    check_weights(report, tiles)
    check_steps(report, tiles)
    check_results(problem, report)
    read = sum(report.buffers[name].bytes_read for name in WEIGHTS)
    steps = sum(sum(launch.mma_steps.values()) for launch in report.launches)
    print(f"M={num_tokens}: {len(tiles)} tiles, {read} bytes of weights and scales, {steps} MMAs")


@pytest.mark.parametrize("num_tokens", [2, 65, 300, 1000, pytest.param(2700, marks=pytest.mark.full)])
def test_bytes_in_flight(num_tokens: int) -> None:
    """Of an SM, on the paths that stream weights, where copies complete as late as they can."""
    call = Call(sparse(num_tokens, 3), "100a", sm_count=SM_COUNT)
    report = call.run("late")
    report.raise_on_findings()
    most = report.launches[call.stages().index("experts")].max_bytes_in_flight_sm
    print(f"M={num_tokens}, {call.plan['path']}: {most} bytes in flight")
    assert most >= LEAST_IN_FLIGHT


@pytest.mark.full
def test_instructions_of_a_row() -> None:
    """What a row more in a token tile costs both GEMMs, as the time model has it; other warps' waiting blurs it."""
    counts = {}
    for rows in (8, 64):
        call = Call(crowded(2700, {1: rows}), "100a", sm_count=34)
        report = call.run()
        report.raise_on_findings()
        counts[rows] = report.launches[call.stages().index("experts")].instructions
    of_a_row = (counts[64] - counts[8]) / 56
    print(f"{of_a_row:.0f} warp instructions a row")
    assert of_a_row == pytest.approx(COLUMN_INSTRUCTIONS["sm_100a"], rel=0.02)


def test_the_checks_can_fail() -> None:
    """A byte read twice, a step too many, a tile too small."""
    problem = counted(1)
    call = Call(problem, "100a", sm_count=SM_COUNT)
    report = call.run()
    tiles = tiles_of(call)
    with pytest.raises(AssertionError, match="fc1_weights"):
        check_weights(report, tiles[1:])
    with pytest.raises(AssertionError):
        check_steps(report, tiles[1:])
    with pytest.raises(AssertionError):
        check_steps(report, [tiles[0]._replace(rows=9), *tiles[1:]])
    with pytest.raises(AssertionError):
        check_tiles(problem, tiles[1:], 8)
    moved = problem.token_selected_experts.clone()
    moved[0, 0] = -1
    with pytest.raises(AssertionError):
        check_results(MoeInputs(**{**vars(problem), "token_selected_experts": moved}), report)

"""The plan is a pure function, defined for every count, architecture and SM count, and its layout fits the query."""

from __future__ import annotations

import itertools

import pytest
import torch

from cake_moe._native import _C
from cake_moe.testing.plans import weight_launches

ARCHS = ("cpu", "sm_90a", "sm_100a", "sm_103a")
MAX_TOKENS = 16384
SECTIONS = {
    # name: (bytes a call, bytes a token); H = 3584, I = 384, 896 experts, 16 routes a token
    "beta": (896 * 4, 0),
    "linear_beta": (896 * 4, 0),
    "expert_offsets": (897 * 4, 0),
    "row_route": (0, 16 * 4),
    "route_row": (0, 16 * 4),
    "xq": (0, 1792),
    "xs": (0, 224),
    "hq": (0, 16 * 192),
    "hs": (0, 16 * 24),
    "y": (0, 16 * 3584 * 2),
    "x_half": (0, 3584 * 2),
    "tiles": (0, 0),  # see test_token_tiles_fit
    "tile_count": (4, 0),
    "work_counter": (4, 0),
    "progress": (12, 0),
}
SM90_ONLY, GPU_ONLY = ("x_half", "progress"), ("tiles", "tile_count")
GPUS = ("sm_90a", "sm_100a", "sm_103a")
SM100_LIMITS = (224, 544, 1216, 2752, 4352, 5984, 9280, 12416)
SM90_LIMITS = (4, 64, 224, 672, 960, 1312, 2048, 2880, 3584, 4736, 5312, 7040, 8448, 10240, 11264, 14080)
SM90_FUSED = 4
"""Most tokens of the path of one launch."""
EDGES = sorted(
    {1, 2, 3, 16, 63, 64, 65, 1023, 1024, 4095, 4096, 8191, 8192, 16383, 16384}
    | {limit + step for limit in SM90_LIMITS + SM100_LIMITS for step in (0, 1)}
)


def test_workspace_size_is_monotone_and_covers_every_layout() -> None:
    sizes = [_C.workspace_bytes(count) for count in range(1, MAX_TOKENS + 1)]
    assert all(small < large for small, large in itertools.pairwise(sizes))
    for arch in ARCHS:
        for count, size in enumerate(sizes, 1):
            assert _C.make_plan(count, arch, 132)["workspace_total"] <= size


def test_size_of_the_operator_is_that_of_the_plan() -> None:
    for count in range(1, MAX_TOKENS + 1):
        assert torch.ops.cake.workspace_size(count) == _C.workspace_bytes(count)


@pytest.mark.parametrize(("count", "goal"), [(16384, 2.10e9), (64, 10e6), (1, 0.25e6)])
def test_goal_sizes(count: int, goal: float) -> None:
    """Goals of the interface, as the maximum over all backends, with dequantised activations (sm_90a)."""
    assert _C.workspace_bytes(count) <= goal


@pytest.mark.parametrize("count", [0, -1, MAX_TOKENS + 1, 2**31 - 1])
def test_counts_outside_the_range_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"got {count}"):
        _C.workspace_bytes(count)
    for arch in ARCHS:
        with pytest.raises(ValueError, match=f"num_tokens must be in 1..16384, got {count}"):
            _C.make_plan(count, arch, 132)


def test_other_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="sm_120"):
        _C.make_plan(1, "sm_120", 148)
    for arch in ARCHS[1:]:
        with pytest.raises(ValueError, match="sm_count must be at least 1, got 0"):
            _C.make_plan(1, arch, 0)


@pytest.mark.parametrize("arch", ARCHS)
def test_sections_are_complete_aligned_and_disjoint(arch: str) -> None:
    constant = {}
    for count in EDGES:
        plan = _C.make_plan(count, arch, 132)
        sections = plan["workspace"]
        assert list(sections) == list(SECTIONS)
        end = 0
        for name, (offset, size) in sections.items():
            absent = (name in SM90_ONLY and arch != "sm_90a") or (name in GPU_ONLY and arch == "cpu")
            fixed, per_token = (0, 0) if absent else SECTIONS[name]
            assert offset % 128 == 0
            assert offset >= end
            assert size == fixed + per_token * count or (name == "tiles" and arch != "cpu")
            end = offset + size
        assert plan["workspace_total"] >= end
        # The default betas lie at offsets of their own for every count: one buffer serves many counts.
        for name in ("beta", "linear_beta"):
            assert constant.setdefault(name, sections[name]) == sections[name]


@pytest.mark.parametrize("arch", ARCHS[1:])
def test_every_sm_count_has_a_plan(arch: str) -> None:
    """Partitions of a chip (MIG, green contexts) own fewer SMs than the chip."""
    for sm_count in range(8, 161):
        for count in EDGES:
            plan = _C.make_plan(count, arch, sm_count)
            assert plan["launches"]
            for launch in plan["launches"]:
                assert launch["grid"] >= 1
                assert launch["threads"] in range(32, 1025, 32)
                assert launch["cluster"] >= 1
                assert launch["grid"] % launch["cluster"] == 0
            (drawing,) = (launch for launch in plan["launches"] if launch["stage"] in ("fc2", "experts"))
            draws = arch != "sm_90a" or count > SM90_FUSED
            assert plan["fc2_pool"] == (drawing["grid"] if draws else 0)


@pytest.mark.parametrize("arch", ARCHS)
def test_every_count_has_a_route_with_a_reason(arch: str) -> None:
    """Each count is served by stages that together do the whole work, in order, in as few launches as promised."""
    order = ["quantize", "route", "prologue", "routed_fc1", "fc1", "fc2", "experts", "finalize"]
    paths = []
    for count in range(1, MAX_TOKENS + 1):
        plan = _C.make_plan(count, arch, 132)
        stages = [launch["stage"] for launch in plan["launches"]]
        assert stages == sorted(stages, key=order.index)
        routed = ("prologue" in stages) + ({"quantize", "route"} <= set(stages))
        assert routed == 1 or stages[0] in ("experts", "routed_fc1")
        assert ("experts" in stages) + ({"fc1", "fc2"} <= set(stages)) + ({"routed_fc1", "fc2"} <= set(stages)) == 1
        with_finalise = (["experts"], ["routed_fc1", "fc2"], ["prologue", "fc1", "fc2"])
        assert stages in with_finalise if arch == "sm_90a" else stages[-1] == "finalize"
        if arch != "cpu":
            alone = arch == "sm_90a" and count <= SM90_FUSED
            assert len(stages) == (1 if alone else 2 if count <= 64 else 3)
            assert [launch["pdl"] for launch in plan["launches"]] == [False] + [True] * (len(stages) - 1)
        assert plan["why"]
        if not paths or paths[-1] != plan["path"]:
            paths.append(plan["path"])
    assert len(paths) == len(set(paths))  # each row of the table covers one range of counts


@pytest.mark.parametrize("arch", ARCHS)
def test_grids_hold_every_routing(arch: str) -> None:
    """The tiles of any routing fit the persistent grid's walk or, on the CPU, the number of work units."""
    for count in EDGES:
        plan = _C.make_plan(count, arch, 132)
        for launch in plan["launches"]:
            if launch["stage"] not in ("routed_fc1", "fc1", "fc2"):
                continue
            rows, tile = 16 * count, launch["tile_tokens"]
            weight_rows = {"routed_fc1": 768, "fc1": 768, "fc2": 3584}[launch["stage"]]
            assert weight_rows % launch["tile_rows"] == 0
            columns = weight_rows // launch["tile_rows"]
            # Worst case: as many experts as there are rows, the rest in full tiles of theirs.
            experts = min(rows, 896)
            worst = (experts + (rows - experts) // tile) * columns
            ctas_per_sm = 2 if arch == "sm_90a" and tile == 8 else 1
            assert launch["grid"] == (worst if arch == "cpu" else min(worst, 132 * ctas_per_sm))


@pytest.mark.parametrize("arch", GPUS)
def test_token_tiles_fit(arch: str) -> None:
    """The table of token tiles holds those of the worst routing: every expert's rows in tiles of at least 8."""
    for count in range(1, MAX_TOKENS + 1):
        plan = _C.make_plan(count, arch, 132)
        rows, tile = 16 * count, max(launch["tile_tokens"] for launch in weight_launches(plan))
        assert tile >= 8
        experts = min(rows, 896)
        worst = experts + (rows - experts) // tile
        assert plan["workspace"]["tiles"][1] >= 16 * worst
        assert plan["workspace"]["tiles"][1] == 16 * min(rows, 896 + rows // 8)


@pytest.mark.parametrize("sm_count", [1, 8, 132])
def test_shapes_of_the_sm90_kernels(sm_count: int) -> None:
    """CTAs of every launch are those of a kernel instance, and the stages without weights cover the tokens."""
    instances = {
        "experts": {(128, 8): 672},
        "routed_fc1": {(128, 8): 320},
        "fc1": {(128, 8): 320} | {(384, tile): 896 for tile in (16, 24, 32, 48, 64)}
        | {(256, tile): 640 for tile in (80, 96, 112, 128)},
        "fc2": {(128, tile): 288 for tile in (8, 112, 128)}
        | {(256, tile): 640 for tile in (16, 24, 32, 48, 64, 80, 96)},
    }
    for count in EDGES:
        plan = _C.make_plan(count, "sm_90a", sm_count)
        launches, experts = plan["launches"], weight_launches(plan)
        for launch in experts:
            assert launch["threads"] == instances[launch["stage"]][launch["tile_rows"], launch["tile_tokens"]]
        assert len({launch["tile_tokens"] for launch in experts}) == 1
        if count <= SM90_FUSED:
            assert [launch["stage"] for launch in launches] == ["experts"]
            assert experts[0]["grid"] == sm_count  # all resident together, one an SM
        elif count <= 64:
            assert [launch["stage"] for launch in launches] == ["routed_fc1", "fc2"]
            assert experts[0]["grid"] <= 2 * sm_count  # all resident together, two an SM
        else:
            prologue = launches[0]
            assert [launch["stage"] for launch in launches] == ["prologue", "fc1", "fc2"]
            assert prologue["threads"] == 512
            assert prologue["cluster"] == 8
            assert prologue["cluster"] < prologue["grid"] <= max(3 * sm_count, 9) + 7


@pytest.mark.parametrize("sm_count", [1, 8, 132])
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_shape_of_the_finalise(arch: str, sm_count: int) -> None:
    """A thread has 8 of 3584 columns; from 1024 tokens persistent CTAs have a warp more, which fills their ring."""
    for count in EDGES:
        finalize = _C.make_plan(count, arch, sm_count)["launches"][-1]
        assert finalize["stage"] == "finalize"
        if count < 1024:
            assert finalize["grid"] * finalize["threads"] == 448 * count
            assert 448 % finalize["threads"] == 0
        else:
            assert finalize["grid"] == sm_count
            assert finalize["threads"] == 448 + 32


@pytest.mark.parametrize("sm_count", [8, 148, 160])
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_shapes_of_the_sm100_kernels(arch: str, sm_count: int) -> None:
    """The expert launch is a kernel instance, one CTA an SM, and draws its units from a pool of all of them."""
    threads = {8: 320, 16: 320, 32: 320, 64: 320, 96: 384, 128: 384, 192: 384}
    for count in EDGES:
        plan = _C.make_plan(count, arch, sm_count)
        *front, _ = plan["launches"]
        experts = front[-1]
        assert [launch["stage"] for launch in front] == ["experts"] if count <= 64 else ["prologue", "experts"]
        assert experts["tile_rows"] == 128
        assert experts["threads"] == threads[experts["tile_tokens"]]
        assert experts["grid"] == plan["fc2_pool"] == sm_count
        assert count > 64 or experts["tile_tokens"] == 8


def test_the_plan_is_pure() -> None:
    for arch in ARCHS:
        for count in EDGES:
            assert _C.make_plan(count, arch, 132) == _C.make_plan(count, arch, 132)
    assert _C.make_plan(64, "cpu", 0) == _C.make_plan(64, "cpu", 7)  # ignored on the CPU

"""Loading a synthetic layer: slices, scales, copies, memory, and eight ranks against the unsharded layer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

import cake_moe
from cake_moe import layout, reference
from cake_moe.checkpoint import FULL_INTERMEDIATE, CheckpointLayer, load_checkpoint_layer
from cake_moe.synthetic import synthetic_expert, write_synthetic_checkpoint
from cake_moe.testing.stages import stage_views
from cake_moe.weights import CanonicalWeights, PreparedWeights, pack_weights, unpack_weights

LAYER = 3
EXPERTS = 16
CHOSEN = [11, 0, 5]
RANKS = range(layout.TENSOR_PARALLEL)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """16 full-width experts in two shards: 300 MB."""
    folder = tmp_path_factory.mktemp("checkpoint")
    index = write_synthetic_checkpoint(folder, experts=EXPERTS, seed=5, layer=LAYER)
    yield index
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def unsharded(checkpoint: Path) -> CheckpointLayer:
    return load_checkpoint_layer(checkpoint, LAYER, tp_rank=None, experts=CHOSEN, layout="canonical")


def canonical(layer: CheckpointLayer) -> CanonicalWeights:
    assert isinstance(layer.weights, CanonicalWeights)
    return layer.weights


def prepared(layer: CheckpointLayer) -> PreparedWeights:
    assert isinstance(layer.weights, PreparedWeights)
    return layer.weights


def test_names_dtypes_and_sizes_are_the_exporters(checkpoint: Path) -> None:
    files = sorted(checkpoint.parent.glob("*.safetensors"))
    assert [file.name for file in files] == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert sum(file.stat().st_size for file in files) == pytest.approx(EXPERTS * 18.58e6, rel=1e-3)
    expected = {
        "w1.weight": ("U8", [3072, 1792]),
        "w1.weight_scale": ("F8_E4M3", [3072, 224]),
        "w1.weight_scale_2": ("F32", []),
        "w1.input_scale": ("F32", []),
        "w2.weight": ("U8", [3584, 1536]),
        "w2.weight_scale": ("F8_E4M3", [3584, 192]),
        "w2.weight_scale_2": ("F32", []),
        "w2.input_scale": ("F32", []),
    }
    expected |= {name.replace("w1", "w3"): value for name, value in expected.items() if name.startswith("w1")}
    with safe_open(files[1], framework="pt") as tensors:
        names = [name for name in tensors.keys() if ".experts.9." in name]  # noqa: SIM118
        found = {name.split(".experts.9.")[1]: tensors.get_slice(name) for name in names}
        assert all(name.split(".experts.")[0].endswith(f"layers.{LAYER}.block_sparse_moe") for name in names)
        assert {name: (t.get_dtype(), t.get_shape()) for name, t in found.items()} == expected


def test_writing_is_reproducible(checkpoint: Path, tmp_path: Path) -> None:
    """The same seed gives the same expert, whatever the number of experts; another seed or expert does not."""
    again = write_synthetic_checkpoint(tmp_path, experts=1, seed=5, layer=LAYER)
    one = prepared(load_checkpoint_layer(again, LAYER, tp_rank=2, experts=[0]))
    two = prepared(load_checkpoint_layer(checkpoint, LAYER, tp_rank=2, experts=[0, 1]))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(one.tensors(), two.tensors(), strict=True))
    assert not torch.equal(two.fc1_weights[0], two.fc1_weights[1])
    shutil.rmtree(tmp_path)


def test_values_look_like_a_quantised_normal_matrix(unsharded: CheckpointLayer) -> None:
    weights = canonical(unsharded)
    assert (weights.w13_scales <= 0x7E).all()
    assert torch.equal(weights.w13_global.log2(), weights.w13_global.log2().round())
    values = layout.dequantize_nvfp4(weights.w13[0], weights.w13_scales[0], weights.w13_global[0])
    assert values.std().item() * layout.HIDDEN**0.5 == pytest.approx(1, abs=0.1)
    assert abs(values.mean().item()) < 1e-4


def test_rows_are_up_then_gate(unsharded: CheckpointLayer) -> None:
    weights = canonical(unsharded)
    for slot, expert in enumerate(CHOSEN):
        tensors = {
            n.split(f"experts.{expert}.")[1]: t for n, t in synthetic_expert(expert, seed=5, layer=LAYER).items()
        }
        assert torch.equal(weights.w13[slot], torch.cat([tensors["w3.weight"], tensors["w1.weight"]]))
        scales = torch.cat([tensors[f"{m}.weight_scale"].view(torch.uint8) for m in ("w3", "w1")])
        assert torch.equal(weights.w13_scales[slot], scales)
        assert torch.equal(weights.w2[slot], tensors["w2.weight"])
        assert torch.equal(weights.w2_scales[slot], tensors["w2.weight_scale"].view(torch.uint8))
        assert weights.w13_global[slot] == tensors["w1.weight_scale_2"]
        assert weights.w2_global[slot] == tensors["w2.weight_scale_2"]


@pytest.fixture(scope="module")
def ranks(checkpoint: Path) -> list[CheckpointLayer]:
    return [load_checkpoint_layer(checkpoint, LAYER, tp_rank=rank, experts=CHOSEN) for rank in RANKS]


def test_slices_of_eight_ranks_are_the_unsharded_layer(
    ranks: list[CheckpointLayer], unsharded: CheckpointLayer
) -> None:
    full = canonical(unsharded)
    parts = [unpack_weights(prepared(rank)) for rank in ranks]
    for name in ("w13", "w13_scales"):
        halves = [getattr(part, name).chunk(2, dim=1) for part in parts]
        joined = torch.cat([up for up, _ in halves] + [gate for _, gate in halves], dim=1)
        assert torch.equal(joined, getattr(full, name)), name
    for name in ("w2", "w2_scales"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts], dim=2), getattr(full, name)), name
    for name in ("w13_global", "w2_global"):
        assert all(torch.equal(getattr(part, name), getattr(full, name)) for part in parts), name


def test_prepared_is_the_packed_canonical_slice(checkpoint: Path) -> None:
    kept = canonical(load_checkpoint_layer(checkpoint, LAYER, tp_rank=6, experts=CHOSEN, layout="canonical"))
    loaded = prepared(load_checkpoint_layer(checkpoint, LAYER, tp_rank=6, experts=CHOSEN))
    for a, b in zip(loaded.tensors(), pack_weights(*kept.tensors()).tensors(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(unpack_weights(loaded).tensors(), kept.tensors(), strict=True):
        assert torch.equal(a, b)


def test_repeated_experts_are_read_once(checkpoint: Path) -> None:
    slots = [4, 7, 4, 4, 7]
    result = load_checkpoint_layer(checkpoint, LAYER, tp_rank=1, experts=slots)
    once = prepared(load_checkpoint_layer(checkpoint, LAYER, tp_rank=1, experts=[4, 7]))
    for copied, source in zip(prepared(result).tensors(), once.tensors(), strict=True):
        assert torch.equal(copied, source[[0, 1, 0, 0, 1]])
    slice_bytes = 2 * (384 * (1792 + 224)) + 3584 * (192 + 24)
    assert (result.report.experts, result.report.distinct_experts) == (5, 2)
    assert result.report.bytes_read == 2 * slice_bytes


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three experts with input scales of their own, unequal between w1 and w3 in two of them."""
    folder = tmp_path_factory.mktemp("scaled")
    tensors: dict[str, Tensor] = {}
    for expert, (x1, x3, x2) in enumerate([(0.3, 0.7, 0.11), (0.2, 0.2, 0.05), (0.9, 0.4, 0.23)]):
        tensors |= synthetic_expert(expert, seed=1, layer=LAYER)
        for matrix, value in (("w1", x1), ("w3", x3), ("w2", x2)):
            (name,) = (n for n in tensors if n.endswith(f"experts.{expert}.{matrix}.input_scale"))
            tensors[name] = torch.tensor(value)
    save_file(tensors, folder / "model.safetensors")
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("policy", ["max", "per_expert"])
def test_scale_policies(scaled: Path, policy: str) -> None:
    result = load_checkpoint_layer(
        scaled,
        LAYER,
        tp_rank=0,
        experts=range(3),
        hidden_scale_policy=policy,  # type: ignore[arg-type]
    )
    q_x, _, alpha13, q_a, _, alpha2 = result.quant_scales
    x2 = torch.tensor([0.11, 0.05, 0.23])
    weights = prepared(result)
    assert torch.equal(q_x, 1 / torch.tensor([0.9]))
    assert torch.equal(alpha13, torch.tensor(0.9) * weights.fc1_global)
    assert torch.equal(q_a, 1 / (x2 if policy == "per_expert" else torch.full((3,), 0.23)))
    assert torch.equal(alpha2, weights.fc2_global / q_a)


def test_report(scaled: Path) -> None:
    report = load_checkpoint_layer(scaled, LAYER, tp_rank=4, experts=range(3)).report
    assert report.unequal_input_scales == 2
    assert report.input_scale_range == pytest.approx((0.2, 0.9))
    assert report.hidden_scale_range == pytest.approx((0.05, 0.23))
    text = str(report)
    assert "rank 4 of 8" in text
    assert "3 experts from 3 of the checkpoint" in text
    assert "0.2 to 0.9, unequal in 2 experts" in text
    assert "0 experts unified exactly, 0 with rounding" in text


class Batch:
    """Five tokens on the chosen experts, which stand at PLACES of the operator's 896."""

    TOKENS = 5
    PLACES = (0, 451, 895)

    def __init__(self) -> None:
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(self.TOKENS, layout.HIDDEN, generator=g).bfloat16()
        self.ids = torch.randint(0, len(CHOSEN), (self.TOKENS, layout.TOP_K), generator=g, dtype=torch.int32)
        self.weights = torch.rand(self.TOKENS, layout.TOP_K, generator=g).bfloat16()
        self.routes = reference.route(self.ids, len(CHOSEN))

    def hidden(self, w13: Tensor, scales: list[Tensor], order: reference.Layout) -> tuple[Tensor, Tensor]:
        """The float64 evaluation's quantised SiTU output with the default betas."""
        q_x, s13, alpha13, q_a, _, _ = scales
        expert = self.routes.row_expert
        gate, up = reference.fc1(*reference.quantize_input(self.x, q_x), w13, s13, self.routes, layout=order)
        beta, linear_beta = torch.full((len(expert),), 4.0), torch.full((len(expert),), 25.0)
        return reference.requantize(reference.situ(gate, up, alpha13[expert], beta, linear_beta), q_a[expert])

    def rank_operands(self, layer: CheckpointLayer) -> tuple[Tensor, Tensor, list[Tensor]]:
        """A rank's three experts in their places; the pages of the others are never touched."""
        places = list(self.PLACES)

        def spread(tensor: Tensor) -> Tensor:
            full = torch.from_numpy(np.zeros((layout.EXPERTS, *tensor.shape[1:]), tensor.numpy().dtype))
            full[places] = tensor
            return full

        scales = [layer.quant_scales[0], *map(spread, layer.quant_scales[1:])]
        return spread(prepared(layer).fc1_weights), spread(prepared(layer).fc2_weights), scales


# Half an ulp of bfloat16's 8 bits, relative to the value.
BF16 = 2.0**-8
FLOAT = 2.0**-24


def test_eight_ranks_sum_to_the_unsharded_layer(ranks: list[CheckpointLayer], unsharded: CheckpointLayer) -> None:
    """In float64. The hidden blocks of the ranks are those of the unsharded layer, so only the rounding of y differs:
    each y is off by at most BF16 of itself, in every rank and in the unsharded layer. The float64 sums of exact
    products are off by less than 2^-40 of that.
    """
    batch = Batch()

    def run(w13: Tensor, w2: Tensor, scales: list[Tensor], order: reference.Layout) -> tuple[Tensor, ...]:
        hq, hs = batch.hidden(w13, scales, order)
        y = reference.fc2(hq, hs, w2, scales[4], scales[5], batch.routes, layout=order)
        out = reference.finalize(reference.to_bf16(y), batch.weights, batch.routes)
        return hq, hs, out, BF16 * reference.finalize(y.abs(), batch.weights, batch.routes)

    full = canonical(unsharded)
    hq, hs, expected, bound = run(full.w13, full.w2, unsharded.quant_scales, "canonical")
    parts = [run(prepared(r).fc1_weights, prepared(r).fc2_weights, r.quant_scales, "prepared") for r in ranks]
    assert torch.equal(torch.cat([part[0] for part in parts], dim=1), hq)
    assert torch.equal(torch.cat([part[1] for part in parts], dim=1), hs)
    total = sum(part[2] for part in parts)
    bound = bound + sum(part[3] for part in parts)
    assert ((total - expected).abs() <= bound * (1 + 2.0**-20)).all()
    assert expected.abs().mean() > 20 * bound.mean()


def test_eight_ranks_of_the_operator_sum_to_the_unsharded_layer(
    ranks: list[CheckpointLayer], unsharded: CheckpointLayer
) -> None:
    """The operator on each rank, against the unsharded float64 layer fed with the operator's own hidden blocks.

    Errors of one rank, from the exact sum of a route's terms: 6 roundings of the sum and one of alpha (7 FLOAT of the
    terms' magnitude), BF16 of y, 16 roundings of the weighted sum, BF16 of the output. A factor covers their products.
    """
    batch = Batch()
    places = torch.tensor(batch.PLACES, dtype=torch.int32)
    workspace = torch.empty(cake_moe.workspace_size(batch.TOKENS), dtype=torch.uint8)
    rows = len(batch.routes.row_route)
    total = torch.zeros(batch.TOKENS, layout.HIDDEN, dtype=torch.float64)
    bound = torch.zeros_like(total)
    hidden = []
    for rank in ranks:
        workspace.fill_(0xFF)
        cake_moe.prepare_workspace(workspace, batch.TOKENS)
        operands = batch.rank_operands(rank)
        out = cake_moe.fused_moe(batch.x, places[batch.ids], batch.weights, *operands, workspace=workspace)
        total += out
        stages = stage_views(workspace, batch.TOKENS)
        assert torch.equal(stages.row_route[:rows], batch.routes.row_route)
        hq, hs = stages.hq[:rows].clone(), stages.hs[:rows].clone()
        hidden.append((hq, hs))
        w2, alpha = prepared(rank).fc2_weights, rank.quant_scales[5]
        y = reference.fc2(hq, hs, w2, rank.quant_scales[4], alpha, batch.routes)
        terms = reference.fc2(hq & 0x77, hs, w2 & 0x77, rank.quant_scales[4], alpha, batch.routes)
        y_error = BF16 * y.abs() + 7 * FLOAT * terms
        magnitude = reference.finalize(y.abs(), batch.weights, batch.routes)
        bound += reference.finalize(y_error, batch.weights, batch.routes) + 16 * FLOAT * magnitude + BF16 * out.abs()

    full = canonical(unsharded)
    hq, hs = (torch.cat(parts, dim=1) for parts in zip(*hidden, strict=True))
    expected_hq, expected_hs = batch.hidden(full.w13, unsharded.quant_scales, "canonical")
    assert (hq != expected_hq).double().mean() <= 1e-3
    assert (hs != expected_hs).double().mean() <= 1e-3
    scales = unsharded.quant_scales
    y = reference.fc2(hq, hs, full.w2, scales[4], scales[5], batch.routes, layout="canonical")
    expected = reference.finalize(y, batch.weights, batch.routes)
    assert ((total - expected).abs() <= bound * (1 + 2 * BF16)).all()
    assert expected.abs().mean() > 20 * bound.mean()


# The high-water mark starts again from the present size when 5 is written to clear_refs.
MEASURE = """
import re, sys
from pathlib import Path
from cake_moe.checkpoint import load_checkpoint_layer
load_checkpoint_layer(sys.argv[1], {layer}, tp_rank=1, experts=[0])
Path("/proc/self/clear_refs").write_text("5")
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
before = peak()
result = load_checkpoint_layer(sys.argv[1], {layer}, tp_rank={rank}, experts=range({experts}), layout={layout!r})
output = sum(t.numel() * t.element_size() for t in result.weights.tensors())
print(before, peak(), output)
"""


@pytest.mark.parametrize(("rank", "order"), [(0, "prepared"), (7, "prepared"), (None, "canonical")])
def test_peak_memory(checkpoint: Path, rank: int | None, order: str) -> None:
    """At most 64 MB above the result, while the files that are read have 300 MB."""
    program = MEASURE.format(layer=LAYER, rank=rank, experts=EXPERTS, layout=order)
    done = subprocess.run(
        [sys.executable, "-c", program, checkpoint], cwd=checkpoint.parent, capture_output=True, text=True, check=True
    )
    before, peak, output = map(int, done.stdout.split())
    width = FULL_INTERMEDIATE if rank is None else layout.INTERMEDIATE
    assert output == pytest.approx(EXPERTS * 3 * layout.HIDDEN * width * 9 / 16, rel=1e-4)
    assert output * 0.9 < peak - before <= output + 64e6

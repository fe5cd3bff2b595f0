"""Row permutations, the scale interleave and the geometry, against the facts of the numeric contract."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cake_moe import layout
from cake_moe._native import _C

PROBLEM_H = Path(__file__).resolve().parents[2] / "src" / "plan" / "problem.h"


def test_geometry_is_the_plans() -> None:
    for name, value in _C.geometry().items():
        assert getattr(layout, name.upper()) == value, name
    assert {"hidden", "intermediate", "experts", "top_k", "max_tokens", "group"} <= _C.geometry().keys()


def test_derived_constants_are_those_of_the_header() -> None:
    """problem.h is the home of the numbers; its expressions use only its own names."""
    names: dict[str, float] = {}
    for name, expression in re.findall(r"inline constexpr \w+ (k\w+) = ([^;{]+);", PROBLEM_H.read_text()):
        names[name] = eval(expression.removesuffix("f").replace("/", "//"), {}, names)
    ours = {
        "kFc1Rows": layout.FC1_ROWS,
        "kFc1RowBytes": layout.FC1_ROW_BYTES,
        "kFc1Groups": layout.FC1_GROUPS,
        "kFc2Rows": layout.FC2_ROWS,
        "kFc2RowBytes": layout.FC2_ROW_BYTES,
        "kFc2Groups": layout.FC2_GROUPS,
        "kDefaultBeta": layout.DEFAULT_BETA,
        "kDefaultLinearBeta": layout.DEFAULT_LINEAR_BETA,
        "kTensorParallel": layout.TENSOR_PARALLEL,
    }
    assert ours == {name: names[name] for name in ours}


def test_fc1_rows_begin_as_the_contract_says() -> None:
    up, gate = list(range(384)), list(range(384, 768))
    expected = up[0:16:2] + gate[0:16:2] + up[1:16:2] + gate[1:16:2] + up[16:32:2]
    assert layout.fc1_row_order()[: len(expected)].tolist() == expected


@pytest.mark.parametrize("intermediate", [384, 3072, 16])
def test_fc1_rows_follow_both_formulas(intermediate: int) -> None:
    order, inverse = layout.fc1_row_order(intermediate), layout.fc1_row_order_inverse(intermediate)
    for s in range(2 * intermediate):
        block, j, t = s // 32, s % 8, (s % 32) // 8
        feature = 16 * block + 2 * j + t // 2
        assert order[s] == (feature if t % 2 == 0 else intermediate + feature)
    for feature in range(intermediate):
        for half in (0, 1):
            s = 32 * (feature // 16) + 16 * (feature % 2) + 8 * half + (feature % 16) // 2
            assert inverse[half * intermediate + feature] == s
    assert torch.equal(order[inverse], torch.arange(2 * intermediate))


def test_fc1_rows_are_the_gated_interleave_then_the_32_row_shuffle() -> None:
    """r0, rI, r1, rI+1, ... and then, in every 32 rows, the shuffle that FC2 rows take."""
    interleaved = torch.stack([torch.arange(384), torch.arange(384, 768)], dim=1).flatten()
    assert torch.equal(layout.fc1_row_order(), interleaved[layout.fc2_row_order(768)])


def test_128_stored_fc1_rows_are_64_features() -> None:
    for tile in layout.fc1_row_order().view(-1, 128):
        features = sorted(tile[tile < 384].tolist())
        assert features == sorted((tile[tile >= 384] - 384).tolist())
        assert features == list(range(features[0], features[0] + 64))


def test_fc2_rows_follow_the_formula() -> None:
    order = layout.fc2_row_order()
    assert order.tolist() == [32 * (s // 32) + 4 * (s % 8) + (s % 32) // 8 for s in range(3584)]
    assert torch.equal(order[layout.fc2_row_order_inverse()], torch.arange(3584))
    assert torch.equal(layout.fc2_row_order_inverse()[order], torch.arange(3584))


def test_native_row_orders_agree() -> None:
    rows = np.arange(layout.FC1_ROWS)
    feature = _C.numerics.fc1_row_feature(rows) + layout.INTERMEDIATE * _C.numerics.fc1_row_is_gate(rows)
    assert np.array_equal(layout.fc1_row_order().numpy(), feature)
    assert np.array_equal(layout.fc2_row_order().numpy(), _C.numerics.fc2_row_column(np.arange(layout.FC2_ROWS)))


@pytest.mark.parametrize(("rows", "columns"), [(768, 224), (3584, 24), (128, 4)])
def test_interleave_puts_every_scale_where_the_formula_says(rows: int, columns: int) -> None:
    scales = torch.arange(rows * columns).view(rows, columns)
    stored = layout.interleave_scales(scales)
    assert stored.shape == scales.shape
    r, c = torch.arange(rows)[:, None], torch.arange(columns)
    offset = (r // 128) * (columns // 4) * 512 + (c // 4) * 512 + (r % 32) * 16 + ((r % 128) // 32) * 4 + c % 4
    assert torch.equal(stored.flatten()[offset], scales)
    assert np.array_equal(offset.numpy(), _C.numerics.scale_offset(r.numpy(), c.numpy(), columns))
    assert torch.equal(layout.deinterleave_scales(stored), scales)


@given(row_tiles=st.integers(1, 3), column_tiles=st.integers(1, 5), batch=st.sampled_from([(), (2,), (2, 3)]))
def test_interleave_is_a_bijection(row_tiles: int, column_tiles: int, batch: tuple[int, ...]) -> None:
    shape = (*batch, 128 * row_tiles, 4 * column_tiles)
    scales = torch.arange(int(np.prod(shape))).view(shape)
    stored = layout.interleave_scales(scales)
    assert torch.equal(stored.flatten().sort().values, scales.flatten())
    assert torch.equal(layout.deinterleave_scales(stored), scales)
    assert torch.equal(layout.interleave_scales(layout.deinterleave_scales(scales)), scales)


@given(st.lists(st.integers(0, 15), min_size=2, max_size=64).filter(lambda codes: len(codes) % 2 == 0))
def test_nibbles_round_trip(codes: list[int]) -> None:
    tensor = torch.tensor(codes, dtype=torch.uint8)
    packed = layout.pack_nibbles(tensor)
    assert packed.tolist() == [low + 16 * high for low, high in zip(codes[0::2], codes[1::2], strict=True)]
    assert torch.equal(layout.unpack_nibbles(packed), tensor)

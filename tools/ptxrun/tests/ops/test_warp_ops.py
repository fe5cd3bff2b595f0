"""shfl, vote, match, redux, elect against their definitions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from kernel_text import Run, clean, launch

HEAD = """
  ld.param.u64 %rd0, [data];
  ld.param.u64 %rd1, [out];
  mul.wide.u32 %rd2, %t, 4;
  add.u64 %rd0, %rd0, %rd2;
  add.u64 %rd1, %rd1, %rd2;
  ld.global.b32 %r0, [%rd0];
"""


def words(body: str, data: np.ndarray, block: int = 32) -> np.ndarray:
    report, buffers = launch(
        HEAD + body + "  st.global.b32 [%rd1], %r1;\n", Run({"data": data, "out": 4 * block}, block=block)
    )
    clean(report)
    return buffers["out"].numpy(np.uint32)


def shuffle(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """Source lane and predicate, after the pseudo-code of the PTX ISA."""
    segment_mask, clamp = c >> 8 & 31, c & 31
    max_lane, min_lane = (lane & segment_mask) | (clamp & ~segment_mask & 31), lane & segment_mask
    b &= 31
    j = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": min_lane | (b & ~segment_mask & 31)}[mode]
    inside = j >= max_lane if mode == "up" else j <= max_lane
    return (j if inside else lane), inside


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 16, 8, 4])
def test_shuffles(mode: str, width: int) -> None:
    data = np.arange(32, dtype=np.uint32) + 1000
    c = (32 - width) << 8 | (0 if mode == "up" else 31)
    for b in (0, 1, 3, 7, 15, 31):
        body = f"""
  shfl.sync.{mode}.b32 %r1|%p0, %r0, {b}, {c}, -1;
  @%p0 or.b32 %r1, %r1, 0x10000;
"""
        expected = []
        for lane in range(32):
            source, inside = shuffle(mode, lane, b, c)
            expected.append(int(data[source]) | (0x10000 if inside else 0))
        assert words(body, data).tolist() == expected


def test_votes() -> None:
    data = (np.arange(32) % 3 == 0).astype(np.uint32)
    ballot = sum(1 << lane for lane in range(32) if lane % 3 == 0)
    body = "  setp.ne.u32 %p0, %r0, 0;\n  vote.sync.{} %p0, -1;\n"
    assert (words(body.format("ballot.b32 %r1,"), data) == ballot).all()
    for mode, values, expected in [
        ("all", data, 0), ("any", data, 1), ("uni", data, 0), ("all", data * 0 + 1, 1), ("any", data * 0, 0),
        ("uni", data * 0, 1), ("uni", data * 0 + 1, 1),
    ]:  # fmt: skip
        text = body.format(f"{mode}.pred %p1,") + "  selp.u32 %r1, 1, 0, %p1;\n"
        assert (words(text, values) == expected).all(), mode
    assert (
        words("  setp.ne.u32 %p0, %r0, 0;\n  vote.sync.ballot.b32 %r1, !%p0, -1;\n", data) == ~ballot & 0xFFFFFFFF
    ).all()


def test_matches() -> None:
    data = np.random.default_rng(3).integers(0, 5, 32).astype(np.uint32)
    expected = [sum(1 << j for j in range(32) if data[j] == data[i]) for i in range(32)]
    assert words("  match.any.sync.b32 %r1, %r0, -1;\n", data).tolist() == expected
    body = """
  match.all.sync.b32 %r1|%p0, %r0, -1;
  selp.u32 %r2, 1, 0, %p0;
  add.u32 %r1, %r1, %r2;
"""
    assert (words(body, data) == 0).all()
    assert (words(body, data * 0 + 7) == 0).all()  # all lanes plus one wraps
    wide = "  cvt.u64.u32 %rd4, %r0;\n  shl.b64 %rd4, %rd4, 40;\n  match.any.sync.b64 %r1, %rd4, -1;\n"
    assert words(wide, data).tolist() == expected


@pytest.mark.parametrize(
    ("spelling", "f"),
    [
        ("add.u32", lambda x: int(x.astype(np.uint64).sum())),
        ("add.s32", lambda x: int(x.astype(np.uint64).sum())),
        ("min.u32", lambda x: int(x.min())),
        ("max.u32", lambda x: int(x.max())),
        ("min.s32", lambda x: int(x.view(np.int32).min())),
        ("max.s32", lambda x: int(x.view(np.int32).max())),
        ("and.b32", lambda x: int(np.bitwise_and.reduce(x))),
        ("or.b32", lambda x: int(np.bitwise_or.reduce(x))),
        ("xor.b32", lambda x: int(np.bitwise_xor.reduce(x))),
    ],
)
def test_reductions(spelling: str, f: Callable[[np.ndarray], int]) -> None:
    data = np.random.default_rng(4).integers(0, 1 << 32, 32, dtype=np.uint64).astype(np.uint32)
    op, kind = spelling.split(".")
    assert (words(f"  redux.sync.{op}.{kind} %r1, %r0, -1;\n", data) == f(data) & 0xFFFFFFFF).all()


def test_float_reductions() -> None:
    x = np.random.default_rng(5).standard_normal(32).astype(np.float32)
    with_nan = x.copy()
    with_nan[7] = np.nan
    bits = lambda value: int(np.float32(value).view(np.uint32))  # noqa: E731
    for spelling, data, expected in [
        ("max.f32", x, bits(x.max())), ("min.f32", x, bits(x.min())), ("max.abs.f32", x, bits(np.abs(x).max())),
        ("max.f32", with_nan, bits(np.nanmax(with_nan))), ("max.NaN.f32", with_nan, 0x7FFFFFFF),
        ("min.f32", np.array([0.0, -0.0] * 16, np.float32), 0x80000000),
    ]:  # fmt: skip
        assert (words(f"  redux.sync.{spelling} %r1, %r0, -1;\n", data.view(np.uint32)) == expected).all(), spelling


def test_one_lane_is_elected() -> None:
    body = """
  elect.sync %r1|%p0, -1;
  @%p0 add.u32 %r1, %r1, 100;
"""
    assert words(body, np.zeros(32, np.uint32)).tolist() == [100] + [0] * 31
    body = """
  setp.lt.u32 %p1, %lane, 5;
  mov.u32 %r1, 9;
  @%p1 bra JOIN;
  elect.sync _|%p0, 0xFFFFFFE0;
  selp.u32 %r1, 1, 0, %p0;
JOIN:
"""
    assert words(body, np.zeros(32, np.uint32)).tolist() == [9] * 5 + [1] + [0] * 26


def test_special_registers() -> None:
    names = [
        "%laneid",
        "%warpid",
        "%lanemask_lt",
        "%lanemask_ge",
        "%ntid.x",
        "%nctaid.x",
        "%ctaid.y",
        "%cluster_nctarank",
    ]
    values: list[Callable[[int], int]] = [
        lambda t: t % 32, lambda t: t // 32, lambda t: (1 << t % 32) - 1, lambda t: -(1 << t % 32),
        lambda t: 64, lambda t: 1, lambda t: 0, lambda t: 1,
    ]  # fmt: skip
    for name, f in zip(names, values, strict=True):
        out = words(f"  mov.u32 %r1, {name};\n", np.zeros(64, np.uint32), 64)
        assert out.tolist() == [f(t) & 0xFFFFFFFF for t in range(64)], name


MEMBERS_OF_16 = {
    "shfl": "shfl.sync.idx.b32 %r1, %r0, 3, 31, {mask};",
    "vote": "vote.sync.ballot.b32 %r1, %p0, {mask};",
    "redux": "redux.sync.add.u32 %r1, %r0, {mask};",
    "match": "match.any.sync.b32 %r1, %r0, {mask};",
    "elect": "elect.sync %r1|%p1, {mask};",
    "bar.warp": "bar.warp.sync {mask};",
}


@pytest.mark.parametrize("name", MEMBERS_OF_16)
@pytest.mark.parametrize(("mask", "outside"), [("0xFFFF", 0xFFFF0000), ("0", 0xFFFFFFFF), ("-1", 0)])
def test_a_lane_that_its_own_mask_does_not_name(name: str, mask: str, outside: int) -> None:
    body = HEAD + "  setp.ne.u32 %p0, %r0, 0;\n  " + MEMBERS_OF_16[name].format(mask=mask)
    report, _ = launch(body, Run({"data": np.zeros(32, np.uint32), "out": 128}, block=32))
    assert [(finding.code, finding.place.lanes) for finding in report.findings] == [("not_converged", outside)] * (
        outside != 0
    )


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("shfl.sync.idx.b32 %r1, %t, 20, 31, %r3;", [20] * 16 + [20] * 16),
        ("vote.sync.ballot.b32 %r1, %p1, %r3;", [0xFF] * 16 + [0xFF0000] * 16),
        ("redux.sync.max.u32 %r1, %t, %r3;", [15] * 16 + [31] * 16),
        ("elect.sync %r1|%p2, %r3;", [0] * 16 + [16] * 16),
    ],
)
def test_halves_of_a_warp_with_masks_of_their_own(instruction: str, expected: list[int]) -> None:
    """Both halves come together, and each is a group of its own; a shuffle out of it is a fault."""
    body = f"""
  setp.lt.u32 %p0, %t, 16;
  selp.b32 %r3, 0xFFFF, 0xFFFF0000, %p0;
  and.b32 %r4, %t, 15;
  setp.lt.u32 %p1, %r4, 8;
  {instruction}
  st.global.b32 [%rd1], %r1;
"""
    report, buffers = launch(HEAD + body, Run({"data": np.zeros(32, np.uint32), "out": 128}, block=32))
    assert set(report.codes) == ({"not_converged"} if "shfl" in instruction else set())
    assert buffers["out"].numpy(np.uint32).tolist() == expected

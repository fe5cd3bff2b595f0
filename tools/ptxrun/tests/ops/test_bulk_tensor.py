"""Boxes of tensors: every rank, swizzles, elements outside of the tensor, stores and reductions."""

from __future__ import annotations

import numpy as np
import ptxrun
import pytest
from kernel_text import Run, clean, every_schedule, init_barriers, wait


def coordinates(values: tuple[int, ...]) -> tuple[str, str]:
    """Moves into registers, and the vector operand."""
    moves = "".join(f"  mov.u32 %r{10 + index}, {value};\n" for index, value in enumerate(values))
    return moves, "{" + ", ".join(f"%r{10 + index}" for index in range(len(values))) + "}"


def load_body(rank: int, at: tuple[int, ...], nbytes: int) -> str:
    moves, vector = coordinates(at)
    return (
        init_barriers(1)
        + moves
        + f"""
  mov.u32 %r1, tile;
  mov.b64 %rd0, source;
  cvta.param.u64 %rd0, %rd0;
  @%p7 bra ISSUED;
  prefetch.tensormap [%rd0];
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], {nbytes};
  cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd0, {vector}], [bars];
ISSUED:
"""
        + wait("bars", 0, "WAIT")
        + f"""
  ld.param.u64 %rd1, [out];
  mov.u32 %r2, %t;
SHOW:
  mad.lo.u32 %r3, %r2, 4, %r1;
  ld.shared.u32 %r4, [%r3];
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd2, %rd1, %rd2;
  st.global.u32 [%rd2], %r4;
  add.u32 %r2, %r2, 64;
  setp.lt.u32 %p0, %r2, {nbytes // 4};
  @%p0 bra SHOW;
"""
    )


def box_of(tensor: np.ndarray, at: tuple[int, ...], box: tuple[int, ...], fill: float = 0) -> np.ndarray:
    """The box with its outside filled; `at` and `box` have the contiguous dimension first."""
    result = np.full(box[::-1], fill, tensor.dtype)
    for index in np.ndindex(*result.shape):
        place = tuple(i + a for i, a in zip(index, at[::-1], strict=True))
        if all(0 <= p < n for p, n in zip(place, tensor.shape, strict=True)):
            result[index] = tensor[place]
    return result


def swizzled(data: np.ndarray, span: int) -> np.ndarray:
    """Bytes as they lie in shared memory: bits 4.. are exchanged with bits 7.. as far as the span goes."""
    flat = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
    at = np.arange(flat.size)
    mask = span // 16 - 1 if span else 0
    result = np.empty_like(flat)
    result[at ^ (((at >> 7) & mask) << 4)] = flat
    return result


LOADS = [
    (np.uint32, (100,), (64,), (8,), 0),
    (np.uint32, (100,), (64,), (60,), 0),
    (np.uint8, (256, 40), (128, 32), (128, 4), 128),
    (np.uint8, (256, 40), (128, 32), (192, 20), 128),
    (np.float16, (64, 24), (32, 24), (32, -3), 64),
    (np.uint16, (64, 24), (16, 16), (-4, 12), 32),
    (np.float32, (16, 6, 5), (8, 4, 3), (12, 4, 1), 0),
    (np.uint8, (64, 4, 3, 5), (32, 2, 3, 4), (16, 1, 0, 2), 0),
    (np.uint16, (16, 3, 4, 2, 3), (8, 2, 2, 2, 3), (8, 1, 3, 0, 1), 0),
]


@pytest.mark.parametrize(("dtype", "dims", "box", "at", "swizzle"), LOADS)
def test_load(dtype: type, dims: tuple[int, ...], box: tuple[int, ...], at: tuple[int, ...], swizzle: int) -> None:
    rng = np.random.default_rng(3)
    tensor: np.ndarray = rng.integers(0, 100, dims[::-1]).astype(dtype)
    expected = swizzled(box_of(tensor, at, box), swizzle)
    name = f"{'f' if np.issubdtype(dtype, np.floating) else 'u'}{8 * tensor.itemsize}"
    setup = Run(
        {"tensor": tensor, "out": expected.nbytes},
        params="source:map out:u64",
        maps=lambda b: [ptxrun.TensorMap(b["tensor"], name, dims, box, swizzle=swizzle), b["out"]],
    )
    for report, buffers in every_schedule(load_body(len(dims), at, expected.nbytes), setup):
        clean(report)
        assert (buffers["out"].numpy() == expected).all()


def test_only_bytes_of_the_tensor_are_counted() -> None:
    tensor = np.arange(128 * 16, dtype=np.uint8).reshape(16, 128)
    setup = Run(
        {"tensor": tensor, "out": 128 * 32},
        params="source:map out:u64",
        maps=lambda b: [ptxrun.TensorMap(b["tensor"], "u8", (128, 16), (128, 32), swizzle=128), b["out"]],
    )
    for report, _ in every_schedule(load_body(2, (0, 8), 128 * 32), setup):
        clean(report)
        assert report.buffers["tensor"].read_histogram == {0: 8 * 128, 1: 8 * 128}
        assert report.launches[0].max_bytes_in_flight_sm == 128 * 32


def test_gather_of_rows() -> None:
    tensor = np.random.default_rng(4).integers(0, 255, (40, 128)).astype(np.uint8)
    rows = (3, 39, 0, 17)
    expected = swizzled(tensor[list(rows), 64:128], 64)
    body = load_body(2, (64, *rows), 256).replace("tile.mbarrier", "tile::gather4.mbarrier")
    setup = Run(
        {"tensor": tensor, "out": 256},
        params="source:map out:u64",
        maps=lambda b: [ptxrun.TensorMap(b["tensor"], "u8", (128, 40), (64, 1), swizzle=64), b["out"]],
    )
    for report, buffers in every_schedule(body, setup):
        clean(report)
        assert (buffers["out"].numpy() == expected).all()


STORE = """
  mov.u32 %r1, tile;
  mov.u32 %r2, %t;
FILL:
  mad.lo.u32 %r3, %r2, 4, %r1;
  mad.lo.u32 %r4, %r2, 3, 1;
  st.shared.u32 [%r3], %r4;
  add.u32 %r2, %r2, 64;
  setp.lt.u32 %p0, %r2, 512;
  @%p0 bra FILL;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  setp.ne.u32 %p0, %t, 0;
  @%p0 bra DONE;
  mov.b64 %rd0, target;
  cvta.param.u64 %rd0, %rd0;
  mov.u32 %r10, 16;
  mov.u32 %r11, 8;
  cp<reduce>.async.bulk.tensor.2d.global.shared::cta<op>.tile.bulk_group [%rd0, {%r10, %r11}], [%r1];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
DONE:
"""


@pytest.mark.parametrize("reduce", [False, True])
def test_store_clips_and_reduces(reduce: bool) -> None:
    """A box of 32 x 16 words at (16, 8) of a tensor of 40 x 20."""
    before = np.arange(800, dtype=np.uint32).reshape(20, 40)
    values = (3 * np.arange(512, dtype=np.uint32) + 1).reshape(16, 32)
    unswizzled = np.empty(2048, np.uint8)
    at = np.arange(2048)
    unswizzled[at] = values.view(np.uint8).reshape(-1)[at ^ (((at >> 7) & 7) << 4)]
    box = unswizzled.view(np.uint32).reshape(16, 32)
    expected = before.copy()
    expected[8:20, 16:40] = box[:12, :24] + (before[8:20, 16:40] if reduce else 0)
    body = STORE.replace("<reduce>", ".reduce" if reduce else "").replace("<op>", ".add" if reduce else "")
    setup = Run(
        {"tensor": before},
        params="target:map",
        maps=lambda b: [ptxrun.TensorMap(b["tensor"], "u32", (40, 20), (32, 16), swizzle=128)],
    )
    for report, buffers in every_schedule(body, setup):
        clean(report)
        assert (buffers["tensor"].numpy(np.uint32, (20, 40)) == expected).all()


# A warp copies the map into shared memory, points it to another tensor, and publishes it in global memory.
REPLACE = (
    init_barriers(1)
    + """
  mov.u32 %r1, tile;
  ld.param.u64 %rd4, [maps];
  ld.param.u64 %rd5, [other];
  setp.eq.u32 %p0, %warp, 1;
  @%p0 bra CHANGED;
  mov.b64 %rd0, source;
  cvta.param.u64 %rd0, %rd0;
  mul.wide.u32 %rd1, %lane, 4;
  add.u64 %rd0, %rd0, %rd1;
  ld.u32 %r2, [%rd0];
  mad.lo.u32 %r3, %lane, 4, %r1;
  st.shared.u32 [%r3+4096], %r2;
  bar.warp.sync 0xffffffff;
  @%p7 bra REPLACED;
  tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r1+4096], %rd5;
  mov.u32 %r4, 12;
  tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r1+4096], 1, %r4;
  mov.u64 %rd6, 256;
  tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r1+4096], 0, %rd6;
REPLACED:
  bar.warp.sync 0xffffffff;
  <publish>
CHANGED:
  bar.sync 0;
  @%p7 bra ISSUED;
  <acquire>
  mov.u32 %r10, 0;
  mov.u32 %r11, 8;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], 512;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd4, {%r10, %r11}], [bars];
ISSUED:
"""
    + wait("bars", 0, "WAIT")
    + """
  ld.param.u64 %rd8, [out];
  mul.wide.u32 %rd9, %t, 8;
  add.u64 %rd8, %rd8, %rd9;
  mad.lo.u32 %r20, %t, 8, %r1;
  ld.shared.v2.u32 {%r21, %r22}, [%r20];
  st.global.v2.u32 [%rd8], {%r21, %r22};
"""
)
COPY = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd4], [%r1+4096], 128;"
STORES = "add.u64 %rd7, %rd4, %rd1;\n  ld.shared.u32 %r2, [%r3+4096];\n  st.global.u32 [%rd7], %r2;"


@pytest.mark.parametrize("fenced", [True, False])
def test_a_map_that_the_kernel_changes(fenced: bool) -> None:
    rng = np.random.default_rng(5)
    tensor, other = (rng.integers(0, 255, shape).astype(np.uint8) for shape in ((40, 64), (12, 256)))
    body = REPLACE.replace("<publish>", COPY if fenced else STORES)
    body = body.replace("<acquire>", "fence.proxy.tensormap::generic.acquire.gpu [%rd4], 128;" if fenced else "")
    setup = Run(
        {"tensor": tensor, "other": other, "maps": 128, "out": 512},
        params="source:map other:u64 maps:u64 out:u64",
        maps=lambda b: [ptxrun.TensorMap(b["tensor"], "u8", (64, 40), (64, 8)), b["other"], b["maps"], b["out"]],
    )
    expected = np.zeros((8, 64), np.uint8)
    expected[:4] = other[8:12, :64]
    for report, buffers in every_schedule(body, setup):
        if fenced:
            clean(report)
        else:
            assert set(report.codes) == {"missing_proxy_fence"}
        assert (buffers["out"].numpy(np.uint8, (8, 64)) == expected).all()

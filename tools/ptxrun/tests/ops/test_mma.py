"""mma.sync, ldmatrix and stmatrix."""

from __future__ import annotations

import numpy as np
import ptxrun
import pytest
from kernel_text import Run, clean, launch
from mma_kernels import values
from numpy.typing import NDArray

LANE = np.arange(32)
FOUR = "{%r0, %r1, %r2, %r3}"


def pack(elements: NDArray[np.unsignedinteger], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> np.ndarray:
    """One 32-bit register a lane from neighbouring elements; rows and columns as [lanes, elements]."""
    bits = 32 // rows.shape[1]
    picked = elements[rows, columns].astype(np.uint32)
    return (picked << np.arange(0, 32, bits, dtype=np.uint32)[None]).sum(axis=1, dtype=np.uint32)


def a_registers(a: NDArray[np.unsignedinteger], per: int) -> list[np.ndarray]:
    """The layout of the ISA: row lane / 4 (+ 8), columns per * (lane % 4) + i (+ 4 * per)."""
    registers = []
    for half in range(a.shape[1] // (4 * per)):
        for lower in range(2):
            rows = (LANE // 4 + 8 * lower)[:, None].repeat(per, 1)
            registers.append(pack(a, rows, per * (LANE % 4)[:, None] + np.arange(per) + 4 * per * half))
    return registers


def b_registers(b: NDArray[np.unsignedinteger], per: int) -> list[np.ndarray]:
    """b is [columns, k]: column lane / 4, rows per * (lane % 4) + i (+ 4 * per)."""
    columns = (LANE // 4)[:, None].repeat(per, 1)
    return [
        pack(b, columns, per * (LANE % 4)[:, None] + np.arange(per) + 4 * per * half)
        for half in range(b.shape[1] // (4 * per))
    ]


def accumulator_places() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(rows, columns) of the four accumulators, [lanes, 4]."""
    i = np.arange(4)
    return LANE[:, None] // 4 + 8 * (i // 2), 2 * (LANE[:, None] % 4) + i % 2


def run_mma(spelling: str, a: list[np.ndarray], b: list[np.ndarray], c: list[np.ndarray]) -> np.ndarray:
    """Fragments in, accumulator words out, [lanes, registers]."""
    inputs = np.stack([*a, *b, *c], axis=1)
    names = [f"%r{i}" for i in range(inputs.shape[1])]
    results = [f"%r{20 + i}" for i in range(len(c))]
    load = "\n".join(f"  ld.global.u32 {name}, [%rd1+{4 * i}];" for i, name in enumerate(names))
    store = "\n".join(f"  st.global.u32 [%rd2+{4 * i}], {name};" for i, name in enumerate(results))
    body = f"""
  ld.param.u64 %rd0, [input];
  mul.wide.u32 %rd1, %t, {4 * len(names)};
  add.u64 %rd1, %rd0, %rd1;
  ld.param.u64 %rd3, [out];
  mul.wide.u32 %rd2, %t, {4 * len(c)};
  add.u64 %rd2, %rd3, %rd2;
{load}
  {spelling} {{{", ".join(results)}}}, {{{", ".join(names[: len(a)])}}},
      {{{", ".join(names[len(a) : len(a) + len(b)])}}}, {{{", ".join(names[len(a) + len(b) :])}}};
{store}
"""
    report, buffers = launch(body, Run({"input": inputs, "out": 128 * len(c)}, block=32))
    clean(report)
    assert sum(report.launches[0].mma_steps.values()) == 1
    return buffers["out"].numpy(np.uint32, (32, len(c)))


CASES = [
    ("m16n8k16", "f16", 16, 16, False),
    ("m16n8k16", "f16", 16, 16, True),
    ("m16n8k8", "f16", 8, 16, False),
    ("m16n8k8", "f16", 8, 16, True),
    ("m16n8k16", "bf16", 16, 16, False),
    ("m16n8k32", "e4m3", 32, 8, False),
    ("m16n8k32", "e4m3", 32, 8, True),
    ("m16n8k32", "e5m2", 32, 8, False),
]


@pytest.mark.parametrize(("shape", "kind", "k", "width", "f16_sums"), CASES)
def test_mma(shape: str, kind: str, k: int, width: int, f16_sums: bool) -> None:
    rng = np.random.default_rng(5)
    (a, a_values), (b, b_values) = values(rng, kind, (16, k)), values(rng, kind, (8, k))
    c = rng.integers(-100, 100, (16, 8)).astype(np.float16 if f16_sums else np.float32)
    rows, columns = accumulator_places()
    c_words = np.ascontiguousarray(c[rows, columns]).view(np.uint32)
    per = 32 // width
    sums = "f16" if f16_sums else "f32"
    spelling = f"mma.sync.aligned.{shape}.row.col.{sums}.{kind}.{kind}.{sums}"
    words = run_mma(spelling, a_registers(a, per), b_registers(b, per), list(c_words.T))
    got = np.zeros((16, 8), c.dtype)
    got[rows, columns] = words.view(c.dtype).reshape(32, 4)
    np.testing.assert_array_equal(got, (a_values @ b_values.T + c.astype(np.float32)).astype(c.dtype))


@pytest.mark.parametrize("a_type", ["u8", "s8"])
@pytest.mark.parametrize("b_type", ["u8", "s8"])
@pytest.mark.parametrize("k", [16, 32])
def test_integers_wrap(a_type: str, b_type: str, k: int) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.integers(0, 256, (rows, k), dtype=np.uint8) for rows in (16, 8))
    c = rng.integers(-(1 << 31), 1 << 31, (16, 8), dtype=np.int64)
    c[0] = (1 << 31) - 1
    rows, columns = accumulator_places()
    c_words = c[rows, columns].astype(np.int32).view(np.uint32)
    spelling = f"mma.sync.aligned.m16n8k{k}.row.col.s32.{a_type}.{b_type}.s32"
    got = np.zeros((16, 8), np.int32)
    got[rows, columns] = run_mma(spelling, a_registers(a, 4), b_registers(b, 4), list(c_words.T)).view(np.int32)
    views = {"u8": np.uint8, "s8": np.int8}
    exact = a.view(views[a_type]).astype(np.int64) @ b.view(views[b_type]).astype(np.int64).T + c
    np.testing.assert_array_equal(got, exact.astype(np.int32))


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_from_and_to_shared_memory(count: int, trans: str) -> None:
    """Thread i stores row i; ldmatrix reads in one order, stmatrix writes the same registers back elsewhere."""
    matrices = np.random.default_rng(6).integers(0, 1 << 16, (count, 8, 8), dtype=np.uint16)
    words = np.zeros((32, 4), np.uint32)
    words[: 8 * count] = matrices.reshape(-1, 8).view(np.uint32)
    registers = ", ".join(f"%r{8 + i}" for i in range(count))
    body = f"""
  ld.param.u64 %rd0, [input];
  mul.wide.u32 %rd1, %t, 16;
  add.u64 %rd1, %rd0, %rd1;
  ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%rd1];
  mov.u32 %r4, tile;
  shl.b32 %r5, %t, 4;
  add.u32 %r4, %r4, %r5;
  st.shared.v4.u32 [%r4], {{%r0, %r1, %r2, %r3}};
  bar.warp.sync 0xffffffff;
  ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%r4];
  stmatrix.sync.aligned.m8n8.x{count}.shared.b16 [%r4+1024], {{{registers}}};
  bar.warp.sync 0xffffffff;
  setp.ge.u32 %p0, %t, {8 * count};
  @%p0 bra DONE;
  ld.shared.v4.u32 {{%r0, %r1, %r2, %r3}}, [%r4+1024];
  ld.param.u64 %rd2, [out];
  mul.wide.u32 %rd1, %t, 16;
  add.u64 %rd2, %rd2, %rd1;
  st.global.v4.u32 [%rd2], {{%r0, %r1, %r2, %r3}};
DONE:
"""
    report, buffers = launch(body, Run({"input": words, "out": 128 * count}, block=32))
    clean(report)
    got = buffers["out"].numpy(np.uint16, (count, 8, 8))
    np.testing.assert_array_equal(got, matrices.transpose(0, 2, 1) if trans else matrices)


def test_ldmatrix_gives_each_thread_two_neighbours() -> None:
    body = """
  mov.u32 %r4, tile;
  shl.b32 %r5, %t, 2;
  add.u32 %r6, %r4, %r5;
  st.shared.u32 [%r6], %t;
  bar.warp.sync 0xffffffff;
  shl.b32 %r5, %t, 4;
  add.u32 %r6, %r4, %r5;
  ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r8}, [%r6];
  ld.param.u64 %rd2, [out];
  mul.wide.u32 %rd1, %t, 4;
  add.u64 %rd2, %rd2, %rd1;
  st.global.u32 [%rd2], %r8;
"""
    report, buffers = launch(body, Run({"out": 128}, block=32))
    clean(report)
    np.testing.assert_array_equal(buffers["out"].numpy(np.uint32), np.arange(32))


def test_ldmatrix_needs_aligned_rows() -> None:
    body = """
  mov.u32 %r4, tile;
  st.shared.u32 [%r4], %t;
  add.u32 %r6, %r4, 8;
  ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r8}, [%r6];
"""
    report, _ = launch(body, Run(block=32))
    assert "misaligned" in {finding.code for finding in report.findings}


@pytest.mark.parametrize(
    "spelling",
    [
        f"mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {FOUR}, {FOUR}, {{%r0, %r1}}, {FOUR}",
        f"mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {FOUR}, {FOUR}, {{%r0, %r1}}, {FOUR}",
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0,%r1}, [%r2]",
    ],
)
def test_unknown_spellings_are_refused(spelling: str) -> None:
    with pytest.raises(ValueError, match=r"PTX line \d+"):
        launch(f"  {spelling};", Run(block=32))
    assert issubclass(ptxrun.build.core().PtxError, ValueError)

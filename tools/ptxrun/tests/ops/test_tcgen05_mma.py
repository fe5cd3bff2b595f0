"""tcgen05.mma against exact products: kinds, layouts, scales, masks, operands in tensor memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from canonical_layout import Layout
from kernel_text import SCHEDULES, clean
from mma_kernels import FIRST_BYTE, image, values
from numpy.typing import NDArray
from tcgen05_kernels import copy_scales, execute, frame, instruction_descriptor, scale_atoms

A_START, B_START, A_SCALES, B_SCALES = 1024, 48 * 1024, 96 * 1024, 112 * 1024
A_SCALE_COLUMN, B_SCALE_COLUMN = 128, 160  # of tensor memory, behind 64 columns of sums and room for A
SCALES = {0.25: 0x28, 0.5: 0x30, 1.0: 0x38, 2.0: 0x40, 4.0: 0x48}


def put(picture: NDArray[np.uint8], start: int, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The picture with bytes at `start` of shared memory."""
    whole = np.zeros(max(picture.size, start - FIRST_BYTE + data.size), np.uint8)
    whole[: picture.size] = picture
    whole[start - FIRST_BYTE : start - FIRST_BYTE + data.size] = data
    return whole


def nvfp4(rng: np.random.Generator, rows: int, k: int) -> tuple[NDArray[Any], NDArray[np.uint8], NDArray[np.float32]]:
    """(codes, scale codes [rows, k / 16], values)."""
    codes, elements = values(rng, "e2m1", (rows, k))
    scales = rng.choice(list(SCALES), (rows, k // 16))
    scale_codes = np.vectorize(SCALES.__getitem__, otypes=[np.uint8])(scales)
    return codes, scale_codes, elements * np.repeat(scales, 16, axis=1).astype(np.float32)


def nvfp4_steps(a: Layout, b: Layout, descriptor: int, steps: int) -> str:
    text = f"  add.u32 %r16, %r10, {A_SCALE_COLUMN};\n  add.u32 %r17, %r10, {B_SCALE_COLUMN};\n"
    for step in range(steps):
        text += f"""
  mov.b64 %rd16, {a.descriptor(True) + 2 * step};
  mov.b64 %rd17, {b.descriptor(True) + 2 * step};
  setp.ne.u32 %p1, {step}, 0;
  tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X
      [%r10], %rd16, %rd17, {descriptor}, [%r16], [%r17], %p1;
  add.u32 %r16, %r16, 4;
  add.u32 %r17, %r17, 4;
"""
    return text


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize("n", [8, 40, 64])
def test_nvfp4_tile(n: int, schedule: str, seed: int) -> None:
    """128 x n x 256 in four steps along the swizzled rows, scales by tcgen05.cp."""
    rng = np.random.default_rng(11)
    k, steps = 256, 4
    a, a_scales, a_values = nvfp4(rng, 128, k)
    b, b_scales, b_values = nvfp4(rng, n, k)
    a_layout, b_layout = Layout(128, k, 4, 128, "k", A_START), Layout(n, k, 4, 128, "k", B_START)
    picture = put(image((a_layout, a), (b_layout, b)), A_SCALES, scale_atoms(a_scales))
    picture = put(picture, B_SCALES, scale_atoms(b_scales))
    descriptor = instruction_descriptor(128, n, bit7=1, bit10=1)
    body = copy_scales(A_SCALE_COLUMN, A_SCALES, steps) + copy_scales(B_SCALE_COLUMN, B_SCALES, steps)
    body += nvfp4_steps(a_layout, b_layout, descriptor, steps)
    report, words = execute(frame(body, n), picture, n, schedule=schedule, seed=seed)
    clean(report)
    np.testing.assert_array_equal(words[0].view(np.float32), a_values @ b_values.T)
    assert report.launches[0].mma_steps == {f"tcgen05.mxf4nvf4.m128n{n}k64": steps}


def test_n_256_takes_eight_columns_of_scales() -> None:
    rng = np.random.default_rng(12)
    a, a_scales, a_values = nvfp4(rng, 128, 64)
    b, b_scales, b_values = nvfp4(rng, 256, 64)
    a_layout, b_layout = Layout(128, 64, 4, 32, "k", A_START), Layout(256, 64, 4, 0, "k", B_START)
    picture = put(image((a_layout, a), (b_layout, b)), A_SCALES, scale_atoms(a_scales))
    picture = put(picture, B_SCALES, scale_atoms(b_scales))
    body = copy_scales(256, A_SCALES, 1) + copy_scales(264, B_SCALES, 2)
    body += f"""
  add.u32 %r16, %r10, 256;
  add.u32 %r17, %r10, 264;
  mov.b64 %rd16, {a_layout.descriptor(True)};
  mov.b64 %rd17, {b_layout.descriptor(True)};
  setp.ne.u32 %p1, 0, 0;
  tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16
      [%r10], %rd16, %rd17, {instruction_descriptor(128, 256, bit7=1, bit10=1, bit14=1)}, [%r16], [%r17], %p1;
"""
    text = frame(body, 256).replace("], 256;", "], 512;").replace("%r10, 256;\nFREED", "%r10, 512;\nFREED")
    report, words = execute(text, picture, 256)
    clean(report)
    np.testing.assert_array_equal(words[0].view(np.float32), -(a_values @ b_values.T) + 0.0)


@pytest.mark.parametrize("scale_id", [0, 2])
def test_mxf4_takes_two_scales_of_a_cell(scale_id: int) -> None:
    rng = np.random.default_rng(13)
    (a, a_values), (b, b_values) = values(rng, "e2m1", (128, 64)), values(rng, "e2m1", (32, 64))
    a_scales, b_scales = (rng.integers(124, 131, (rows, 4), dtype=np.uint8) for rows in (128, 32))
    a_layout, b_layout = Layout(128, 64, 4, 32, "k", A_START), Layout(32, 64, 4, 32, "k", B_START)
    picture = put(image((a_layout, a), (b_layout, b)), A_SCALES, scale_atoms(a_scales))
    picture = put(picture, B_SCALES, scale_atoms(b_scales))
    fields = instruction_descriptor(128, 32, bit4=scale_id, bit7=1, bit10=1, bit23=1, bit29=scale_id)
    body = copy_scales(A_SCALE_COLUMN, A_SCALES, 1) + copy_scales(B_SCALE_COLUMN, B_SCALES, 1)
    body += f"""
  add.u32 %r16, %r10, {A_SCALE_COLUMN | scale_id << 30};
  add.u32 %r17, %r10, {B_SCALE_COLUMN | scale_id << 30};
  mov.b64 %rd16, {a_layout.descriptor(True)};
  mov.b64 %rd17, {b_layout.descriptor(True)};
  setp.ne.u32 %p1, 0, 0;
  tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X [%r10], %rd16, %rd17, {fields}, [%r16], [%r17], %p1;
"""
    report, words = execute(frame(body, 32), picture, 32)
    clean(report)

    def scaled(elements: NDArray[np.float32], scales: NDArray[np.uint8]) -> NDArray[np.float32]:
        powers = np.ldexp(np.float32(1), scales[:, scale_id : scale_id + 2].astype(np.int32) - 127)
        return elements * np.repeat(powers, 32, axis=1)

    np.testing.assert_array_equal(words[0].view(np.float32), scaled(a_values, a_scales) @ scaled(b_values, b_scales).T)


@pytest.mark.parametrize("scale_id", range(4))
def test_mxf8_takes_one_scale_of_a_cell(scale_id: int) -> None:
    rng = np.random.default_rng(14)
    (a, a_values), (b, b_values) = values(rng, "e4m3", (128, 32)), values(rng, "e5m2", (16, 32))
    a_scales, b_scales = (rng.integers(124, 131, (rows, 4), dtype=np.uint8) for rows in (128, 16))
    a_layout, b_layout = Layout(128, 32, 8, 64, "k", A_START), Layout(16, 32, 8, 64, "k", B_START)
    picture = put(image((a_layout, a), (b_layout, b)), A_SCALES, scale_atoms(a_scales))
    picture = put(picture, B_SCALES, scale_atoms(b_scales))
    fields = instruction_descriptor(128, 16, bit4=scale_id, bit10=1, bit23=1, bit29=scale_id)
    body = copy_scales(A_SCALE_COLUMN, A_SCALES, 1) + copy_scales(B_SCALE_COLUMN, B_SCALES, 1)
    body += f"""
  add.u32 %r16, %r10, {A_SCALE_COLUMN};
  add.u32 %r17, %r10, {B_SCALE_COLUMN};
  mov.b64 %rd16, {a_layout.descriptor(True)};
  mov.b64 %rd17, {b_layout.descriptor(True)};
  setp.ne.u32 %p1, 0, 0;
  tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%r10], %rd16, %rd17, {fields}, [%r16], [%r17], %p1;
"""
    report, words = execute(frame(body, 16), picture, 16)
    clean(report)
    a_power, b_power = (np.ldexp(1.0, s[:, scale_id].astype(np.int32) - 127) for s in (a_scales, b_scales))
    expected = (a_values @ b_values.T) * a_power[:, None] * b_power[None]
    np.testing.assert_array_equal(words[0].view(np.float32), expected.astype(np.float32))


def lanes_of(m: int) -> NDArray[np.int64]:
    """Lane of each row of the accumulators."""
    rows = np.arange(m)
    return rows if m == 128 else rows % 16 + 32 * (rows // 16)


@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize(
    ("kind", "m", "n", "a_major", "b_major"),
    [
        ("f16", 128, 64, "k", "k"),
        ("f16", 64, 8, "k", "k"),
        ("bf16", 128, 128, "mn", "mn"),
        ("f16", 64, 64, "mn", "k"),
        ("e4m3", 128, 32, "k", "k"),
        ("e5m2", 64, 16, "k", "k"),
    ],
)
def test_plain_kinds(kind: str, m: int, n: int, a_major: str, b_major: str, span: int) -> None:
    rng = np.random.default_rng(15)
    wide = kind in ("f16", "bf16")
    bits = 16 if wide else 8
    code = {"f16": 0, "bf16": 1, "e4m3": 0, "e5m2": 1}[kind]
    (a, a_values), (b, b_values) = values(rng, kind, (m, 256 // bits)), values(rng, kind, (n, 256 // bits))
    a_layout = Layout(m, 256 // bits, bits, span, a_major, A_START)
    b_layout = Layout(n, 256 // bits, bits, span, b_major, B_START)
    majors = {"bit15": int(a_major == "mn"), "bit16": int(b_major == "mn")}
    fields = instruction_descriptor(m, n, bit4=1, bit7=code, bit10=code, **majors)
    body = f"""
  mov.b64 %rd16, {a_layout.descriptor(True)};
  mov.b64 %rd17, {b_layout.descriptor(True)};
  setp.ne.u32 %p1, 0, 0;
  tcgen05.mma.cta_group::1.kind::{"f16" if wide else "f8f6f4"} [%r10], %rd16, %rd17, {fields}, %p1;
"""
    text = frame(body, n)
    if m == 64:  # the other lanes hold nothing: write them first, so that the whole is read
        text = text.replace("  @%p7 bra ISSUED;", fill(n) + "  @%p7 bra ISSUED;", 1)
    report, words = execute(text, image((a_layout, a), (b_layout, b)), n)
    clean(report)
    np.testing.assert_array_equal(words[0].view(np.float32)[lanes_of(m)], a_values @ b_values.T)


def fill(columns: int) -> str:
    """Every warp writes zeros to its lanes before thread 0 goes on."""
    zeros = ", ".join(["%r40"] * 8)
    stores = "".join(
        f"  tcgen05.st.sync.aligned.32x32b.x8.b32 [%r41+{column}], {{{zeros}}};\n" for column in range(0, columns, 8)
    )
    return f"""
  mov.u32 %r40, 0;
  shl.b32 %r41, %warp, 21;
  add.u32 %r41, %r41, %r10;
{stores}
  tcgen05.wait::st.sync.aligned;
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
"""


def f16_case(seed: int, m: int, n: int) -> tuple[Layout, Layout, NDArray[Any], NDArray[Any], NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    (a, a_values), (b, b_values) = values(rng, "f16", (m, 16)), values(rng, "f16", (n, 16))
    a_layout, b_layout = Layout(m, 16, 16, 32, "k", A_START), Layout(n, 16, 16, 32, "k", B_START)
    return a_layout, b_layout, a, b, a_values @ b_values.T


def f16_mma(a: Layout, b: Layout, accumulate: int, extra: str = "", fields: int = 0) -> str:
    return f"""
  mov.b64 %rd16, {a.descriptor(True)};
  mov.b64 %rd17, {b.descriptor(True)};
  setp.ne.u32 %p1, {accumulate}, 0;
  tcgen05.mma.cta_group::1.kind::f16.collector::a::fill
      [%r10], %rd16, %rd17, {instruction_descriptor(a.rows, b.rows, bit4=1) | fields}, {extra};
"""


def test_disabled_lanes_keep_their_values() -> None:
    a, b, a_bits, b_bits, expected = f16_case(16, 128, 16)
    masks = "  mov.u32 %r30, 0x0000ffff;\n  mov.u32 %r31, 0;\n  mov.u32 %r32, 0x80000000;\n"
    mma = masks + f16_mma(a, b, 0, "{%r30, %r31, %r32, %r31}, %p1")
    text = frame(mma, 16).replace("  @%p7 bra ISSUED;", fill(16) + "  @%p7 bra ISSUED;", 1)
    report, words = execute(text, image((a, a_bits), (b, b_bits)), 16)
    clean(report)
    expected[:16] = 0
    expected[95] = 0
    np.testing.assert_array_equal(words[0].view(np.float32), expected)


def test_the_accumulator_is_scaled_down() -> None:
    a, b, a_bits, b_bits, expected = f16_case(17, 128, 16)
    mma = f16_mma(a, b, 0, "%p1") + f16_mma(a, b, 1, "%p1, 3")
    report, words = execute(frame(mma, 16), image((a, a_bits), (b, b_bits)), 16)
    clean(report)
    np.testing.assert_array_equal(words[0].view(np.float32), expected + expected / 8)


def test_f16_accumulators_lie_in_the_low_halves() -> None:
    a, b, a_bits, b_bits, expected = f16_case(18, 128, 16)
    f32_sums, f16_sums = instruction_descriptor(128, 16, bit4=1), instruction_descriptor(128, 16)
    mma = f16_mma(a, b, 0, "%p1").replace(str(f32_sums), str(f16_sums))
    report, words = execute(frame(mma, 16), image((a, a_bits), (b, b_bits)), 16)
    clean(report)
    np.testing.assert_array_equal(words[0].astype(np.uint16).view(np.float16), expected.astype(np.float16))


def test_a_in_tensor_memory() -> None:
    """Warps store their rows of A with tcgen05.st; row r lies in lane r, two elements a cell."""
    rng = np.random.default_rng(19)
    (a, a_values), (b, b_values) = values(rng, "f16", (128, 16)), values(rng, "f16", (16, 16))
    b_layout = Layout(16, 16, 16, 32, "k", B_START)
    picture = put(image((b_layout, b)), A_START, a.view(np.uint8).reshape(-1))
    registers = ", ".join(f"%c{i}" for i in range(8))
    loads = "".join(f"  ld.shared.u32 %c{i}, [%r42+{4 * i}];\n" for i in range(8))
    store = f"""
  mad.lo.u32 %r42, %t, 32, {A_START};
{loads}
  shl.b32 %r41, %warp, 21;
  add.u32 %r41, %r41, %r10;
  tcgen05.st.sync.aligned.32x32b.x8.b32 [%r41+64], {{{registers}}};
  tcgen05.wait::st.sync.aligned;
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
"""
    mma = f"""
  add.u32 %r16, %r10, 64;
  mov.b64 %rd17, {b_layout.descriptor(True)};
  setp.ne.u32 %p1, 0, 0;
  tcgen05.mma.cta_group::1.kind::f16 [%r10], [%r16], %rd17, {instruction_descriptor(128, 16, bit4=1)}, %p1;
"""
    text = frame(mma, 16).replace("  @%p7 bra ISSUED;", store + "  @%p7 bra ISSUED;", 1)
    report, words = execute(text, picture, 16)
    clean(report)
    np.testing.assert_array_equal(words[0].view(np.float32), a_values @ b_values.T)

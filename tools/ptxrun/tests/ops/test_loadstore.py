"""ld and st: widths, vectors, extension, address forms, every space; faults of addresses."""

from __future__ import annotations

import numpy as np
import ptxrun
import pytest
from kernel_text import Run, clean, entry, every_schedule, launch, module

PLACE = """
  ld.param.u64 %rd0, [data];
  ld.param.u64 %rd1, [out];
  mul.wide.u32 %rd2, %t, 16;
  add.u64 %rd3, %rd1, %rd2;
"""


def words(body: str, data: np.ndarray, block: int = 32) -> np.ndarray:
    setup = Run({"data": data, "out": 16 * block}, block=block)
    results = []
    for report, buffers in every_schedule(PLACE + body, setup):
        clean(report)
        results.append(buffers["out"].numpy(np.uint32).reshape(block, 4))
    return results[0]


def codes(body: str, block: int = 32, **buffers: object) -> list[str]:
    report, _ = launch(PLACE + body, Run({"data": np.zeros(64, np.uint32), "out": 512, **buffers}, block=block))
    return [finding.code for finding in report.findings]


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("u8", np.uint8), ("s8", np.int8), ("u16", np.uint16), ("s16", np.int16), ("u32", np.uint32), ("s32", np.int32)],
)
def test_extension_to_wider_registers(kind: str, dtype: type) -> None:
    data = np.random.default_rng(1).integers(0, 256, 32 * 4, dtype=np.uint8)
    size = np.dtype(dtype).itemsize
    body = f"""
  mul.wide.u32 %rd4, %t, {size};
  add.u64 %rd4, %rd4, %rd0;
  ld.global.{kind} %r0, [%rd4];
  ld.global.{kind} %rd5, [%rd4];
  st.global.u32 [%rd3], %r0;
  st.global.u64 [%rd3+8], %rd5;
  st.global.u32 [%rd3+4], 0;
"""
    out = words(body, data)
    expected = data.view(dtype)[:32].astype(np.int64)
    assert np.array_equal(out[:, 0], expected.astype(np.uint32))
    assert np.array_equal(out[:, 2:].copy().view(np.int64)[:, 0], expected)


def test_vectors_and_narrow_stores() -> None:
    data = np.arange(32 * 4, dtype=np.uint32) * 0x01010101 + 0x80
    body = """
  add.u64 %rd4, %rd0, %rd2;
  ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%r0, _, %r2, %r3}, [%rd4];
  ld.global.v2.u64 {%rd5, %rd6}, [%rd4];
  ld.global.cg.v2.u16 {%h0, %h1}, [%rd4+-0];
  st.global.u32 [%rd3], %r3;
  st.global.v2.u8 [%rd3+4], {%r0, %r2};
  st.global.u16 [%rd3+6], %h1;
  st.global.u64 [%rd3+8], %rd6;
"""
    out = words(body, data).view(np.uint8)
    source = data.reshape(32, 4)
    assert np.array_equal(out.view(np.uint32)[:, 0], source[:, 3])
    assert np.array_equal(out[:, 4], source[:, 0].astype(np.uint8))
    assert np.array_equal(out[:, 5], source[:, 2].astype(np.uint8))
    assert np.array_equal(out.view(np.uint16)[:, 3], (source[:, 0] >> 16).astype(np.uint16))
    assert np.array_equal(out.view(np.uint64)[:, 1], source.copy().view(np.uint64)[:, 1])


def test_256_bits() -> None:
    data = np.arange(32 * 8, dtype=np.uint32)
    body = """
  .reg .b32 %w<8>;
  mul.wide.u32 %rd4, %t, 32;
  add.u64 %rd4, %rd4, %rd0;
  ld.global.v8.b32 {%w0, %w1, %w2, %w3, %w4, %w5, %w6, %w7}, [%rd4];
  ld.global.v4.b64 {%rd5, %rd6, %rd7, %rd8}, [%rd4];
  st.global.v2.b32 [%rd3], {%w7, %w5};
  st.global.b64 [%rd3+8], %rd8;
"""
    out, source = words(body, data), data.reshape(32, 8)
    assert np.array_equal(out, source[:, [7, 5, 6, 7]])


def test_generic_addresses_reach_every_space() -> None:
    """One instruction, lanes in global, shared, local, const and parameter memory."""
    body = """
  .local .align 8 .b8 mine[16];
  mov.u64 %rd4, mine;
  cvta.local.u64 %rd4, %rd4;
  st.u32 [%rd4], 300;
  mov.u64 %rd5, tile;
  cvta.shared.u64 %rd5, %rd5;
  setp.eq.u32 %p0, %lane, 0;
  @%p0 st.u32 [%rd5], 200;
  bar.sync 0;
  mov.u64 %rd6, data;
  cvta.param.u64 %rd6, %rd6;
  rem.u32 %r0, %t, 4;
  setp.eq.u32 %p1, %r0, 1;
  setp.eq.u32 %p2, %r0, 2;
  setp.eq.u32 %p3, %r0, 3;
  mov.u64 %rd7, %rd0;
  @%p1 mov.u64 %rd7, %rd5;
  @%p2 mov.u64 %rd7, %rd4;
  @%p3 mov.u64 %rd7, %rd6;
  ld.u32 %r1, [%rd7];
  isspacep.shared %p4, %rd7;
  isspacep.local %p5, %rd7;
  isspacep.global %p6, %rd7;
  selp.u32 %r2, 1, 0, %p4;
  selp.u32 %r3, 2, 0, %p5;
  or.b32 %r2, %r2, %r3;
  selp.u32 %r3, 4, 0, %p6;
  or.b32 %r2, %r2, %r3;
  st.global.v4.u32 [%rd3], {%r1, %r2, 0, 0};
"""
    out = words(body, np.full(4, 100, np.uint32))
    assert out[0::4, 0].tolist() == [100] * 8
    assert out[1::4, 0].tolist() == [200] * 8
    assert out[2::4, 0].tolist() == [300] * 8
    assert out[:4, 1].tolist() == [4, 1, 2, 0]


def test_shared_memory_of_the_neighbour_in_the_cluster() -> None:
    body = """
  ld.param.u64 %rd1, [out];
  mov.u32 %r0, tile;
  add.u32 %r1, %cta, 70;
  st.shared.u32 [tile], %r1;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  xor.b32 %r2, %cta, 1;
  mapa.shared::cluster.u32 %r3, %r0, %r2;
  ld.shared::cluster.u32 %r4, [%r3];
  mul.wide.u32 %rd2, %cta, 4;
  add.u64 %rd2, %rd2, %rd1;
  st.global.u32 [%rd2], %r4;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
"""
    for report, buffers in every_schedule(body, Run({"out": 8}, block=1, grid=2, cluster=2)):
        clean(report)
        assert buffers["out"].numpy(np.uint32).tolist() == [71, 70]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("ld.global.u32 %r0, [%rd0+256];", "out_of_bounds"),
        ("ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%rd0+248];", "misaligned"),
        ("ld.global.u32 %r0, [%rd0+-4];", "out_of_bounds"),
        ("ld.global.u32 %r0, [16];", "out_of_bounds"),
        ("ld.global.u64 %rd5, [%rd0+4];", "misaligned"),
        ("st.global.u32 [%rd1+512], 0;", "out_of_bounds"),
        ("ld.global.u32 %r0, [%rd3];", "uninitialised_read"),
        ("ld.shared.u32 %r0, [tile];", "uninitialised_read"),
        ("ld.shared.u32 %r0, [tile+100000];", "out_of_bounds"),
        ("st.shared.u32 [0], 1;", "out_of_bounds"),
        ("ld.shared.u16 %r0, [tile+1];", "misaligned"),
        ("add.u32 %r0, %r1, 1;\n  st.global.u32 [%rd3], %r0;", "uninitialised_register"),
        ("setp.eq.u32 %p0, %r1, 1;\n  @%p0 st.global.u32 [%rd3], 0;", "uninitialised_register"),
        ("and.b32 %r0, %r1, 12;\n  mul.wide.u32 %rd4, %r0, 4;\n  ld.global.u32 %r2, [%rd4];", "uninitialised_register"),
        ("selp.u32 %r0, 5, %r1, %p3;\n  st.global.u32 [%rd3], %r0;", "uninitialised_register"),
        ("@%p3 add.u32 %r0, %t, 1;", "uninitialised_register"),
        ("ld.u32 %r0, [%rd9];", "uninitialised_register"),
    ],
)
def test_faults(body: str, code: str) -> None:
    assert code in codes(f"  {body}\n")


def test_writes_to_readonly_memory() -> None:
    text = ".const .align 4 .u32 table[4] = {1, 2, 3, 4};"
    body = "  mov.u64 %rd0, table;\n  st.u32 [%rd0], 5;\n"
    program = module(text, entry(body))
    report = ptxrun.run([ptxrun.Launch(program, "kernel", 1, 1)], ptxrun.Memory())
    assert [finding.code for finding in report.findings] == ["out_of_bounds"]
    assert "read-only" in report.findings[0].message


def test_a_finding_names_lanes_buffer_and_offset() -> None:
    body = """
  setp.eq.u32 %p0, %lane, 5;
  mov.u64 %rd4, %rd0;
  @%p0 add.u64 %rd4, %rd4, 260;
  ld.global.u32 %r0, [%rd4];
"""
    report, _ = launch(PLACE + body, Run({"data": np.zeros(66, np.uint32), "out": 512}, block=32))
    assert not report.findings
    report, _ = launch(PLACE + body, Run({"data": np.zeros(65, np.uint32), "out": 512}, block=32))
    (finding,) = report.findings
    assert finding.code == "out_of_bounds"
    assert finding.place.lanes == 1 << 5
    assert finding.place.instruction == "ld.global.u32 %r0, [%rd4]"


def test_undefined_bytes_that_do_not_matter() -> None:
    """What a compiler writes for values of fewer bytes than a register: packing with a register that nobody writes."""
    body = """
  .reg .b32 %never;
  prmt.b32 %r0, %t, %never, 0x3340U;
  prmt.b32 %r1, %r0, %never, 0x5410U;
  mov.u32 %r2, %never;
  st.global.u8 [%rd1], %r1;
"""
    assert codes(body) == []
    assert codes(body + "  and.b32 %r3, %r1, 0xFF;\n  st.global.u32 [%rd1+4], %r3;\n") == []
    for store in ("u16", "u32"):
        assert codes(body + f"  st.global.{store} [%rd1+4], %r1;\n") == ["uninitialised_register"]
    assert codes(body + "  add.u32 %r3, %r2, 1;\n") == []
    assert codes(body + "  add.u32 %r3, %r2, 1;\n  st.global.u32 [%rd1+4], %r3;\n") == ["uninitialised_register"]


def test_undefined_values_that_are_discarded() -> None:
    """Registers that only some lanes have written, computed with by all and then left out by a select or predicate."""
    body = """
  setp.lt.u32 %p0, %t, 16;
  @%p0 mov.u32 %r0, 5;
  add.u32 %r1, %r0, 1;
  setp.gt.u32 %p1, %r1, 3;
  and.pred %p2, %p1, %p0;
  selp.u32 %r2, %r1, 0, %p0;
  st.global.u32 [%rd3], %r2;
  @%p2 st.global.u32 [%rd3+4], 1;
  @%p0 st.global.u32 [%rd3+8], %r1;
"""
    assert codes(body) == []
    assert codes(body + "  st.global.u32 [%rd3+12], %r1;\n") == ["uninitialised_register"]


def test_counters() -> None:
    """Bytes by buffer; how often each was read: every lane the first 8, half of the block bytes 16 to 31."""
    body = """
  ld.global.u64 %rd4, [%rd0];
  setp.lt.u32 %p0, %t, 16;
  @%p0 ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%rd0+16];
  st.global.u32 [%rd3], %t;
"""
    report, _ = launch(PLACE + body, Run({"data": np.zeros(64, np.uint32), "out": 512}, block=32))
    clean(report)
    data = report.buffers["data"]
    assert report.buffers["out"].bytes_written == 4 * 32
    assert data.bytes_written == 0
    assert data.bytes_read == sum(times * count for times, count in data.read_histogram.items())
    assert sum(data.read_histogram.values()) == 256


@pytest.mark.parametrize("space", ["global", "shared"])
def test_bytes_of_a_load_that_nobody_uses(space: str) -> None:
    """A struct of 5 bytes in 8, loaded whole; and a vector of which one element is used."""
    base = "%rd3" if space == "global" else "tile"
    body = f"""
  st.{space}.u32 [{base}], 7;
  st.{space}.u8 [{base}+4], 8;
  {{pragma}}
  ld.{space}.v2.u32 {{{{%r0, %r1}}}}, [{base}];
  st.global.u32 [%rd1], %r0;
  {{second}}
"""
    both = "cvt.u16.u32 %h0, %r1;\n  st.global.u8 [%rd1], %h0;"
    assert codes(body.format(pragma="", second=both)) == ["uninitialised_read"]
    assert codes(body.format(pragma='.pragma "used_bytes_mask 31";', second=both)) == []
    assert codes(body.format(pragma='.pragma "used_bytes_mask 0x3F";', second=both)) == ["uninitialised_read"]
    assert codes(body.format(pragma="", second="")) == []
    assert codes(body.format(pragma="", second="").replace("%r0, %r1}", "_, %r0}")) == ["uninitialised_read"]


def test_bytes_that_nobody_uses_must_exist() -> None:
    """The whole access is inside the buffer or out of bounds."""
    body = '  .pragma "used_bytes_mask 1";\n  ld.global.v2.u32 {%r0, %r1}, [%rd0+{}];\n'
    body += "  st.global.u32 [%rd1], %r0;\n"
    data = {"data": np.zeros(65, np.uint32), "out": 512}
    for offset, expected in [(248, []), (256, ["out_of_bounds"])]:
        report, _ = launch(PLACE + body.replace("{}", str(offset)), Run(data, block=32))
        assert list(report.codes) == expected

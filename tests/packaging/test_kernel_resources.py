"""The table of what kernels take of an SM: how it is read, what it refuses, and that of the library at hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cake_moe import _native, build_info

SYMBOL = "_ZN8cake_moe5sm1007experts22cake_moe_sm100_expertsINS1_6ConfigILi{}ELb{}EEEEEvNS1_4ArgsE14CUtensorMap_stS6_"
DUMP = f"""
Fatbin elf code:
================
arch = sm_100a
code version = [1,8]

Resource usage:
 Common:
  GLOBAL:0
 Function {SYMBOL.format(8, 1)}:
  REG:101 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:1000 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function {SYMBOL.format(64, 0)}:
  REG:96 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:1000 TEXTURE:0 SURFACE:0 SAMPLER:0

Fatbin elf code:
================
arch = sm_103a

Resource usage:
 Function _ZN8cake_moe8finalize17cake_moe_finalizeENS0_4ArgsE:
  REG:72 STACK:8 SHARED:1152 LOCAL:16 CONSTANT[0]:568 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function _ZN8cake_moe8finalize22cake_moe_finalize_ringENS0_4ArgsEi:
  REG:35 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:572 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
CONFIGS = [
    {"tokens": 8, "fused": True, "threads": 320, "dynamic_smem": 207872, "tmem_columns": 128, "slots": 6},
    {"tokens": 64, "fused": False, "threads": 320, "dynamic_smem": 216064, "tmem_columns": 256, "slots": 5},
]
RING = {"kernel": "cake_moe_finalize_ring", "threads": 480, "dynamic_smem": 230016}
STAGES = {"fc1_stage_bytes": 18432, "fc2_stage_bytes": 27648}


def table():
    import kernel_resources

    functions = list(kernel_resources.read_functions(DUMP))
    lines = "\n".join(json.dumps(line) for line in [*(config | STAGES for config in CONFIGS), RING])
    return kernel_resources.rows_of(functions, kernel_resources.Headers.read(lines))


def test_what_is_read() -> None:
    fused, wide, finalize, ring = table()
    assert (fused.function.arch, fused.function.registers, fused.function.tokens) == ("sm_100a", 101, 8)
    assert fused.use.paths == ("decode",)
    assert wide.use.paths == ("weight_bound_64",)
    assert fused.in_flight == (6 * 18432, 6 * 27648)
    assert (fused.ctas, wide.ctas) == (1, 1)
    assert (finalize.function.arch, finalize.function.stack, finalize.function.local) == ("sm_103a", 8, 16)
    assert finalize.use.paths[-1] == ring.use.paths[0] == "weight_bound_32"  # both below and above 1024 tokens
    assert len(finalize.use.paths) + len(ring.use.paths) == 10 + 1
    assert (finalize.dynamic_smem, ring.smem, ring.use.threads) == (None, 1024 + 230016, 480)


def test_what_is_refused() -> None:
    fused, wide, finalize, ring = table()
    assert fused.problems() == wide.problems() == ring.problems() == []
    assert finalize.problems() == ["sm_103a cake_moe_finalize: 8 bytes of stack, 16 of spills"]
    (few,) = replace(wide, config=replace(wide.config, slots=3)).problems()
    assert few == "sm_100a cake_moe_sm100_experts, tile of 64: 55296 bytes in flight, at least 65536 are needed"
    (threads,) = replace(wide, config=replace(wide.config, threads=384)).problems()
    assert threads.endswith("384 threads, the plan says 320")
    large = replace(wide, config=replace(wide.config, dynamic_smem=300_000))
    assert "sm_100a cake_moe_sm100_experts, tile of 64: does not fit an SM" in large.problems()


def test_a_path_that_does_not_stream_may_have_less() -> None:
    _, wide, *_ = table()
    use = replace(wide.use, paths=("balanced_192",))
    assert replace(wide, use=use, config=replace(wide.config, slots=3)).problems() == []


def test_the_library_at_hand(capsys: pytest.CaptureFixture[str]) -> None:
    import kernel_resources
    from toolchain import pip_nvcc, system_nvcc
    from wheel_checks import find_cuobjdump

    if find_cuobjdump() is None or (system_nvcc() or pip_nvcc()) is None:
        pytest.skip("needs cuobjdump and nvcc of the CUDA toolkit")
    if not build_info()["cuda_archs"]:
        pytest.skip("needs a library with CUDA code: this one was built with CAKE_CUDA_ARCHS=none")
    assert kernel_resources.main([str(_native.FOLDER / "libcake_ops.so")]) == 0
    assert "cake_moe_finalize" in capsys.readouterr().out

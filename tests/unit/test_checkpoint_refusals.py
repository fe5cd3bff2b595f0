"""What the loader refuses, by name, and the two conventions of storing scales."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from cake_moe import layout
from cake_moe.checkpoint import CheckpointLayer, load_checkpoint_layer
from cake_moe.synthetic import synthetic_expert, write_synthetic_checkpoint

LAYER = 7
NAME = "layers.7.block_sparse_moe.experts.0"
Tensors = dict[str, Tensor]


@pytest.fixture(scope="module")
def expert() -> Tensors:
    """Expert 0 under short keys, w1.weight and so on; both experts of a test checkpoint are made of it."""
    return {name.split("experts.0.")[1]: t for name, t in synthetic_expert(0, seed=3, layer=LAYER).items()}


@pytest.fixture(autouse=True)
def _remove_checkpoints(tmp_path: Path) -> Iterator[None]:
    """pytest keeps the folders of three runs, which would be gigabytes here."""
    yield
    shutil.rmtree(tmp_path)


def save(folder: Path, *experts: Tensors, prefix: str = "model.") -> Path:
    """One safetensors file; expert e is experts[e]."""
    path = folder / "model.safetensors"
    tensors = {}
    for e, fields in enumerate(experts):
        for field, tensor in fields.items():
            tensors[f"{prefix}layers.{LAYER}.block_sparse_moe.experts.{e}.{field}"] = tensor.clone()
    save_file(tensors, path)
    return path


def load(path: Path, experts: int = 1, **options: Any) -> CheckpointLayer:
    options.setdefault("tp_rank", 0)
    return load_checkpoint_layer(path, LAYER, experts=range(experts), **options)


def scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float32)


SCALARS = [f"{matrix}.{field}" for matrix in ("w1", "w2", "w3") for field in ("weight_scale_2", "input_scale")]


@pytest.mark.parametrize("field", SCALARS)
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_unusable_scalars(expert: Tensors, tmp_path: Path, field: str, value: float) -> None:
    path = save(tmp_path, expert | {field: scalar(value)})
    text = f"load_checkpoint_layer: model.{NAME}.{field} must be positive and finite, got {value:g}"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        load(path)


@pytest.mark.parametrize("field", SCALARS)
def test_subnormal_scalars(expert: Tensors, tmp_path: Path, field: str) -> None:
    """They would pass as positive, and lose bits or overflow when inverted."""
    path = save(tmp_path, expert | {field: scalar(1e-39)})
    text = f"{NAME}.{field} must be at least 1.18e-38, the smallest normal float32, got 1e-39"
    with pytest.raises(ValueError, match=f"^load_checkpoint_layer: model.{re.escape(text)}$"):
        load(path)


def test_subnormal_inverses_and_products(expert: Tensors, tmp_path: Path) -> None:
    path = save(tmp_path, _reciprocal(expert) | {"w2.weight_global_scale": scalar(2.0**127)})
    text = r"w2\.weight_global_scale must be at most 8\.51e\+37, where its inverse is .*, got 1\.7.*e\+38$"
    with pytest.raises(ValueError, match=text):
        load(path, convention="compressed-tensors")
    path = save(tmp_path, expert | {f"{matrix}.input_scale": scalar(2.0**-120) for matrix in ("w1", "w3")})
    with pytest.raises(ValueError, match=r"^quant_scales: input_scale \* w13_global must be a finite normal float32"):
        load(path)
    path = save(tmp_path, expert | {"w2.input_scale": scalar(2.0**-120)})
    with pytest.raises(ValueError, match=r"^quant_scales: hidden_scale \* w2_global must be a finite normal float32"):
        load(path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("convention", ["modelopt", "compressed-tensors"])
def test_default_dtype_has_no_effect(expert: Tensors, tmp_path: Path, convention: str, dtype: torch.dtype) -> None:
    odd = {f"{matrix}.input_scale": scalar(0.3 / 7) for matrix in ("w1", "w2", "w3")}
    changed = expert | odd | {"w2.weight_scale_2": scalar(1e-4 / 3)}
    path = save(tmp_path, changed if convention == "modelopt" else _reciprocal(changed))
    options = {"convention": convention, "hidden_scale_policy": "per_expert"}
    expected = load(path, **options).quant_scales
    torch.set_default_dtype(dtype)
    try:
        found = load(path, **options).quant_scales
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("field", ["w1.weight", "w2.weight_scale", "w3.weight_scale_2", "w1.input_scale"])
def test_missing_tensors(expert: Tensors, tmp_path: Path, field: str) -> None:
    path = save(tmp_path, expert, {name: t for name, t in expert.items() if name != field})
    name = f"model.layers.{LAYER}.block_sparse_moe.experts.1.{field}"
    text = f"load_checkpoint_layer: {name} is missing from {path} (1 of 24 tensors are missing)"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        load(path, 2)


def test_missing_expert_and_layer(expert: Tensors, tmp_path: Path) -> None:
    path = save(tmp_path, expert)
    with pytest.raises(ValueError, match=r"experts\.1\.w1\.weight is missing from .* \(12 of 24 tensors are missing\)"):
        load(path, 2)
    with pytest.raises(ValueError, match=r"experts\.1\.w1\.weight is missing from .* \(10740 of 10752 tensors"):
        load_checkpoint_layer(path, LAYER, tp_rank=0)
    with pytest.raises(ValueError, match=r"has no experts in layer 8; layers with experts: 7$"):
        load_checkpoint_layer(path, 8, tp_rank=0, experts=[0])


@pytest.mark.parametrize(
    ("field", "change", "text"),
    [
        ("w1.weight", lambda t: t[:-1], "uint8 [3072, 1792], got U8 [3071, 1792]"),
        ("w1.weight", lambda t: t.view(torch.int8), "uint8 [3072, 1792], got I8 [3072, 1792]"),
        ("w2.weight", lambda t: t[:, :192], "uint8 [3584, 1536], got U8 [3584, 192]"),
        ("w3.weight_scale", lambda t: t.view(torch.uint8), "float8_e4m3fn [3072, 224], got U8 [3072, 224]"),
        ("w2.weight_scale", lambda t: t.float(), "float8_e4m3fn [3584, 192], got F32 [3584, 192]"),
        ("w2.weight_scale", lambda t: t.view(192, 3584), "float8_e4m3fn [3584, 192], got F8_E4M3 [192, 3584]"),
        ("w3.weight_scale_2", lambda t: t.double(), "float32 [], got F64 []"),
        ("w3.input_scale", lambda t: t.expand(2), "float32 [], got F32 [2]"),
    ],
)
def test_other_dtypes_and_shapes(
    expert: Tensors, tmp_path: Path, field: str, change: Callable[[Tensor], Tensor], text: str
) -> None:
    path = save(tmp_path, expert | {field: change(expert[field]).contiguous()})
    with pytest.raises(
        ValueError, match=f"^{re.escape(f'load_checkpoint_layer: model.{NAME}.{field} must be {text}')}$"
    ):
        load(path)


@pytest.mark.parametrize(
    ("field", "row", "column", "rank"),
    [("w1.weight_scale", 390, 7, 1), ("w3.weight_scale", 3071, 0, 7), ("w2.weight_scale", 9, 25, 1)],
)
@pytest.mark.parametrize(("code", "value"), [(0xB8, "-1.0"), (0x7F, "nan"), (0xFF, "nan")])
def test_negative_and_nan_block_scales(
    expert: Tensors, tmp_path: Path, field: str, row: int, column: int, rank: int, code: int, value: str
) -> None:
    scales = expert[field].clone()
    scales.view(torch.uint8)[row, column] = code
    path = save(tmp_path, expert | {field: scales})
    position = [row, column - 24 * rank] if field.startswith("w2") else [row - 384 * rank, column]
    text = f"model.{NAME}.{field} must hold no negative or NaN block scales, got {value} at {position}"
    with pytest.raises(ValueError, match=f"^load_checkpoint_layer: {re.escape(text)}$"):
        load(path, tp_rank=rank)
    load(path, tp_rank=3)


@pytest.mark.parametrize("larger", ["w1", "w3"])
def test_global_scales_that_differ_by_a_power_of_two_unify_exactly(
    expert: Tensors, tmp_path: Path, larger: str
) -> None:
    """The values stay the same and the larger scale is kept, whichever half has it."""
    expected = load(save(tmp_path, expert), layout="canonical").weights
    changed = expert | {f"{larger}.weight_scale_2": expert["w1.weight_scale_2"] * 2}
    result = load(save(tmp_path, changed), layout="canonical")
    scale = expert["w1.weight_scale_2"] * 2
    assert result.weights.w13_global.tolist() == [scale]
    assert result.quant_scales[2].tolist() == [scale]
    assert (result.report.rescaled_experts, result.report.lossy_experts) == ((0,), ())

    up, gate = layout.dequantize_nvfp4(result.weights.w13[0], result.weights.w13_scales[0], scale).chunk(2)
    old = layout.dequantize_nvfp4(expected.w13[0], expected.w13_scales[0], expert["w1.weight_scale_2"])
    old_up, old_gate = old.chunk(2)
    assert torch.equal(up, old_up * 2 if larger == "w3" else old_up)
    assert torch.equal(gate, old_gate * 2 if larger == "w1" else old_gate)


def test_global_scales_that_need_rounding(expert: Tensors, tmp_path: Path) -> None:
    path = save(tmp_path, expert, expert | {"w3.weight_scale_2": expert["w1.weight_scale_2"] * 1.25})
    low, high = float(expert["w1.weight_scale_2"]), float(expert["w1.weight_scale_2"]) * 1.25
    text = (
        f"load_checkpoint_layer: the global scales of w1 and w3 of expert 1 ({low:g} and {high:g}) cannot be unified "
        "without rounding block scales; allow_lossy=True rounds them"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        load(path, 2)
    result = load(path, 2, allow_lossy=True, layout="canonical")
    assert (result.report.rescaled_experts, result.report.lossy_experts) == ((), (1,))
    gate_scales = result.weights.w13_scales[:, 384:]
    assert torch.equal(gate_scales[1], layout.encode_e4m3(layout.decode_e4m3(gate_scales[0]) / 1.25))
    assert torch.equal(result.weights.w13_scales[1, :384], result.weights.w13_scales[0, :384])


@pytest.mark.parametrize(("code", "exact"), [(0x08, True), (0x02, True), (0x00, True), (0x0F, False), (0x01, False)])
def test_global_scales_across_subnormal_block_scales(expert: Tensors, tmp_path: Path, code: int, exact: bool) -> None:
    """2^-6, 2^-8 and 0 can be halved; 15 * 2^-10 and 2^-9 cannot."""
    scales = expert["w1.weight_scale"].clone()
    scales.view(torch.uint8)[5, 5] = code
    path = save(tmp_path, expert | {"w1.weight_scale": scales, "w3.weight_scale_2": expert["w1.weight_scale_2"] * 2})
    if exact:
        assert load(path).report.rescaled_experts == (0,)
    else:
        with pytest.raises(ValueError, match=r"of expert 0 .* cannot be unified without rounding block scales"):
            load(path)
        assert load(path, allow_lossy=True).report.lossy_experts == (0,)
    load(path, tp_rank=1)


def test_other_ratios_are_refused_even_where_no_block_scale_needs_rounding(expert: Tensors, tmp_path: Path) -> None:
    """0.75 of a block scale 1 is a block scale too, but only powers of two are taken as exact."""
    ones = torch.ones_like(expert["w1.weight_scale"].float()).to(torch.float8_e4m3fn)
    changed = {"w1.weight_scale": ones, "w1.weight_scale_2": scalar(0.75 * 2**-13), "w3.weight_scale_2": scalar(2**-13)}
    with pytest.raises(ValueError, match=r"of expert 0 .* cannot be unified"):
        load(save(tmp_path, expert | changed))


def test_nan_global_scale_is_refused_before_unification(expert: Tensors, tmp_path: Path) -> None:
    path = save(tmp_path, expert | {"w3.weight_scale_2": scalar(math.nan)})
    with pytest.raises(ValueError, match=r"w3\.weight_scale_2 must be positive and finite, got nan$"):
        load(path, allow_lossy=True)


def _reciprocal(expert: Tensors) -> Tensors:
    """The same expert as compressed-tensors stores it."""
    renamed = {"weight": "weight_packed", "weight_scale_2": "weight_global_scale", "input_scale": "input_global_scale"}
    result = {}
    for name, tensor in expert.items():
        matrix, field = name.split(".")
        stored = tensor.reciprocal().reshape(1) if tensor.dim() == 0 else tensor
        result[f"{matrix}.{renamed.get(field, field)}"] = stored
    return result


def test_compressed_tensors_gives_the_same_layer(expert: Tensors, tmp_path: Path) -> None:
    expert = expert | {"w1.input_scale": scalar(0.25), "w2.input_scale": scalar(2.0)}
    expected = load(save(tmp_path, expert))
    result = load(save(tmp_path, _reciprocal(expert)), convention="compressed-tensors")
    for a, b in zip(
        result.quant_scales + list(result.weights.tensors()),
        expected.quant_scales + list(expected.weights.tensors()),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_wrong_convention_is_noticed(expert: Tensors, tmp_path: Path) -> None:
    path = save(tmp_path, _reciprocal(expert))
    with pytest.raises(
        ValueError, match=r"w1\.weight is missing .*; the checkpoint looks like convention='compressed-tensors'$"
    ):
        load(path)
    path = save(tmp_path, expert)
    with pytest.raises(
        ValueError, match=r"w1\.weight_packed is missing .*; the checkpoint looks like convention='modelopt'$"
    ):
        load(path, convention="compressed-tensors")


def test_implausible_scales_suggest_the_other_convention(expert: Tensors, tmp_path: Path) -> None:
    path = save(tmp_path, expert | {"w2.weight_scale_2": scalar(8192.0)})
    text = (
        r"w2\.weight_scale_2 means a factor of 8192 on the weights, .*; convention='compressed-tensors' is more likely$"
    )
    with pytest.raises(ValueError, match=text):
        load(path)
    path = save(tmp_path, _reciprocal(expert) | {"w3.weight_global_scale": scalar(2.0**-13)})
    text = r"w3\.weight_global_scale means a factor of 8192 on the weights, .*; convention='modelopt' is more likely$"
    with pytest.raises(ValueError, match=text):
        load(path, convention="compressed-tensors")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tp_rank": 8}, "tp_rank must be in 0..7 or None, got 8"),
        ({"tp_rank": -1}, "tp_rank must be in 0..7 or None, got -1"),
        ({"tp_rank": None}, "layout must be 'canonical' where tp_rank is None, got 'prepared'"),
        ({"layout": "shuffled"}, "layout must be 'prepared' or 'canonical', got 'shuffled'"),
        ({"hidden_scale_policy": "mean"}, "hidden_scale_policy must be 'max' or 'per_expert', got 'mean'"),
        ({"convention": "gguf"}, "convention must be 'modelopt' or 'compressed-tensors', got 'gguf'"),
        ({"experts": []}, "experts must be a list of 1..896, got 0"),
        ({"experts": [0] * 897}, "experts must be a list of 1..896, got 897"),
        ({"experts": [0, -1]}, "experts must be non-negative numbers, got -1"),
    ],
)
def test_arguments(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    arguments = {"tp_rank": 0, "experts": [0]} | options
    with pytest.raises(ValueError, match=f"^{re.escape('load_checkpoint_layer: ' + text)}$"):
        load_checkpoint_layer(tmp_path, LAYER, **arguments)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"layer": 1.0}, "layer must be an integer, got 1.0"),
        ({"layer": "1"}, "layer must be an integer, got '1'"),
        ({"layer": True}, "layer must be an integer, got True"),
        ({"tp_rank": 1.0}, "tp_rank must be an integer, got 1.0"),
        ({"tp_rank": True}, "tp_rank must be an integer, got True"),
        ({"experts": [0.7]}, "experts must be an integer, got 0.7"),
        ({"experts": [0, False]}, "experts must be an integer, got False"),
        ({"experts": torch.tensor([0.5])}, "experts must be an integer, got tensor(0.5000)"),
    ],
)
def test_arguments_of_other_types(expert: Tensors, tmp_path: Path, options: dict[str, Any], text: str) -> None:
    arguments: dict[str, Any] = {"layer": LAYER, "tp_rank": 0, "experts": [0]} | options
    with pytest.raises(TypeError, match=f"^{re.escape('load_checkpoint_layer: ' + text)}$"):
        load_checkpoint_layer(save(tmp_path, expert), **arguments)


def test_integers_of_other_libraries(expert: Tensors, tmp_path: Path) -> None:
    experts: Any = torch.tensor([0, 0])
    assert load_checkpoint_layer(save(tmp_path, expert), np.int64(LAYER), tp_rank=np.int8(1), experts=experts).report


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", " is no JSON: "),
        (b'{"weight_map": {"a": "b', " is no JSON: "),
        (b'{"weight_map": {"\xff": "b"}}', " is no JSON: "),
        (b"[" * 100_000, " is no JSON: "),
        (b"[]", " must hold an object weight_map of file names by tensor name"),
        (b"{}", " must hold an object weight_map of file names by tensor name"),
        (b'{"weight_map": ["a"]}', " must hold an object weight_map of file names by tensor name"),
        (b'{"weight_map": {"a": 3}}', " must hold an object weight_map of file names by tensor name"),
        (b'{"weight_map": {"a": null}}', " must hold an object weight_map of file names by tensor name"),
    ],
)
def test_malformed_index(tmp_path: Path, content: bytes, text: str) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_bytes(content)
    for path in (index, tmp_path):
        with pytest.raises(ValueError, match=f"^{re.escape(f'load_checkpoint_layer: {index}{text}')}"):
            load(path)


def test_index_naming_a_tensor_that_the_shard_lacks(expert: Tensors, tmp_path: Path) -> None:
    path = save(tmp_path, {field: tensor for field, tensor in expert.items() if field != "w3.weight"})
    names = [f"model.{NAME}.{field}" for field in expert]
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, path.name)}))
    text = f"load_checkpoint_layer: {path} lacks model.{NAME}.w3.weight, which the index places there"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        load(index)


def test_paths(expert: Tensors, tmp_path: Path) -> None:
    """A file, its folder, and an index give the same layer; what is missing or ambiguous is named."""
    path = save(tmp_path, expert)
    expected = load(path).weights
    assert torch.equal(load(tmp_path).weights.fc1_weights, expected.fc1_weights)
    names = [f"model.{NAME}.{field}" for field in expert]
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, path.name)}))
    assert torch.equal(load(index).weights.fc2_weights, expected.fc2_weights)
    assert torch.equal(load(tmp_path).weights.fc2_scales, expected.fc2_scales)

    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "gone.safetensors")}))
    with pytest.raises(FileNotFoundError, match=r"index\.json names gone\.safetensors, which is missing$"):
        load(tmp_path)
    (tmp_path / "other.safetensors.index.json").write_text("{}")
    with pytest.raises(ValueError, match=r"has several indices, give the path of one: model.* other"):
        load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no\.safetensors does not exist$"):
        load(tmp_path / "no.safetensors")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty holds no safetensors files$"):
        load(tmp_path / "empty")
    (tmp_path / "cut.safetensors").write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"cut\.safetensors is no complete safetensors file: "):
        load(tmp_path / "cut.safetensors")


def test_ambiguous_names(expert: Tensors, tmp_path: Path) -> None:
    tensors = {f"{prefix}.{NAME}.{field}": t.clone() for prefix in ("a", "b") for field, t in expert.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=rf"two tensors fit: a\.{NAME}\.w1\.\w+ and b\.{NAME}\.w1\.\w+$"):
        load(tmp_path)


@pytest.mark.parametrize("prefix", ["", "model.", "language_model.model."])
def test_any_prefix(expert: Tensors, tmp_path: Path, prefix: str) -> None:
    """Tensors of other layers and of other modules do not matter."""
    path = save(tmp_path, expert, prefix=prefix)
    others = (f"{prefix}layers.{LAYER}.mlp.gate.weight", f"{prefix}layers.17.block_sparse_moe.experts.0.w1.weight")
    save_file({name: torch.zeros(3) for name in others}, tmp_path / "others.safetensors")
    assert load(tmp_path).report.bytes_read == load(path).report.bytes_read


@pytest.mark.parametrize("experts", [0, 897])
def test_writer_refuses_other_counts(tmp_path: Path, experts: int) -> None:
    with pytest.raises(ValueError, match=f"experts must be in 1..896, got {experts}"):
        write_synthetic_checkpoint(tmp_path, experts=experts)


def test_writer_checks_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 16_000_000_000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(OSError, match=r"16\.65 GB needed in .*, 16\.00 GB free"):
        write_synthetic_checkpoint(tmp_path, full=True)
    assert list(tmp_path.iterdir()) == []

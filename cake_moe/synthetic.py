"""A synthetic checkpoint of one layer, as NVIDIA Model-Optimizer names and stores it."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from . import layout
from ._progress import track
from .checkpoint import FULL_INTERMEDIATE

INDEX_NAME = "model.safetensors.index.json"
_PREFIX = "language_model.model"
_EXPERTS_PER_SHARD = 8
_BYTES_PER_EXPERT = 3 * layout.HIDDEN * FULL_INTERMEDIATE * 9 // 16
# The largest of 16 normal values is 1.77 standard deviations on average, and quantisation maps it to 6.
_CODE_DEVIATION = layout.E2M1_MAX / 1.77
_GLOBAL_EXPONENTS = (-15, -12)  # block scales stay between 2^5 and 256


def _normal_pairs() -> Tensor:
    step = (torch.arange(16, dtype=torch.float32, device="cpu") + 0.5) / 16
    codes = layout.encode_e2m1(torch.special.ndtri(step) * _CODE_DEVIATION)
    return layout.pack_nibbles(torch.stack([codes.repeat(16), codes.repeat_interleave(16)], dim=-1)).flatten()


# uint8 [256]: from a uniform byte to two codes, each a sixteen-step normal distribution.
_NORMAL_PAIRS = _normal_pairs()


def write_synthetic_checkpoint(
    path: str | Path,
    *,
    experts: int = 56,
    seed: int = 0,
    layer: int = 1,
    full: bool = False,
    progress: bool | None = None,
) -> Path:
    """Write random full-width experts of one layer as safetensors shards with an index.

    Real names, dtypes and shapes; values distributed like a quantised normal matrix that keeps the variance of its
    input. As in Kimi-K3's own export all input scales are 1, and the global scales are powers of two, equal for w1 and
    w3, here with exponents that vary from expert to expert. The same seed gives the same bytes, and expert e does not
    depend on the number of experts.

    Args:
        path: folder, created where missing.
        experts: distinct experts, 1..896, 18.6 MB each.
        seed: of the values.
        layer: number of the layer in the names.
        full: write all 896 experts (16.65 GB).
        progress: show a progress bar; None: where stderr is a terminal.

    Returns:
        The index, which ``load_checkpoint_layer`` takes as its path.

    Raises:
        ValueError: experts out of range.
        OSError: the file system has too little free space.
    """
    experts = layout.EXPERTS if full else experts
    if not 1 <= experts <= layout.EXPERTS:
        raise ValueError(f"write_synthetic_checkpoint: experts must be in 1..{layout.EXPERTS}, got {experts}")
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = experts * _BYTES_PER_EXPERT, shutil.disk_usage(folder).free
    if free < needed * 1.02:
        raise OSError(f"write_synthetic_checkpoint: {needed / 1e9:.2f} GB needed in {folder}, {free / 1e9:.2f} GB free")

    shards = math.ceil(experts / _EXPERTS_PER_SHARD)
    weight_map: dict[str, str] = {}
    for shard in track(range(shards), "writing checkpoint", enabled=progress):
        first = shard * _EXPERTS_PER_SHARD
        tensors: dict[str, Tensor] = {}
        for expert in range(first, min(first + _EXPERTS_PER_SHARD, experts)):
            tensors.update(synthetic_expert(expert, seed=seed, layer=layer))
        file_name = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        save_file(tensors, folder / file_name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(tensors, file_name))
    index = folder / INDEX_NAME
    index.write_text(json.dumps({"metadata": {"total_size": needed}, "weight_map": weight_map}, indent=1))
    return index


def synthetic_expert(expert: int, *, seed: int = 0, layer: int = 1) -> dict[str, Tensor]:
    """The twelve tensors of one expert by their names; see :func:`write_synthetic_checkpoint`."""
    generator = torch.Generator("cpu").manual_seed((seed << 20) + (layer << 10) + expert)
    exponent_13, exponent_2 = torch.randint(*_GLOBAL_EXPONENTS, (2,), generator=generator, device="cpu").tolist()
    tensors: dict[str, Tensor] = {}
    for matrix, rows, columns, exponent in (
        ("w1", FULL_INTERMEDIATE, layout.HIDDEN, exponent_13),
        ("w2", layout.HIDDEN, FULL_INTERMEDIATE, exponent_2),
        ("w3", FULL_INTERMEDIATE, layout.HIDDEN, exponent_13),
    ):
        name = f"{_PREFIX}.layers.{layer}.block_sparse_moe.experts.{expert}.{matrix}"
        words = torch.randint(-(2**63), 2**63 - 1, (rows, columns // 16), generator=generator, device="cpu")
        weight = _NORMAL_PAIRS.index_select(0, words.view(torch.uint8).view(-1).int()).view(rows, columns // 2)
        code = int(layout.encode_e4m3(_float32(2.0**-exponent / (_CODE_DEVIATION * math.sqrt(columns)))))
        size = (rows, columns // layout.GROUP)
        codes = torch.randint(code - 4, code + 5, size, generator=generator, dtype=torch.uint8, device="cpu")
        tensors[f"{name}.weight"] = weight
        tensors[f"{name}.weight_scale"] = codes.view(torch.float8_e4m3fn)
        tensors[f"{name}.weight_scale_2"] = _float32(2.0**exponent)
        tensors[f"{name}.input_scale"] = _float32(1.0)
    return tensors


def _float32(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float32, device="cpu")

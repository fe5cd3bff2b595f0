"""Where the expert tensors of one layer lie in a safetensors checkpoint, and how to read parts of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

_NAME = re.compile(r"(?:^|\.)layers\.(\d+)\.block_sparse_moe\.experts\.(\d+)\.(w[123])\.(\w+)$")
_DTYPES = {"U8": torch.uint8, "F8_E4M3": torch.float8_e4m3fn, "F32": torch.float32}

Key = tuple[int, str, str]
"""Expert, matrix (w1, w2, w3), field."""


class LayerTensors:
    """The expert tensors of one layer.

    Opened files stay mapped, and pages that were read count as memory, until :meth:`release`.
    """

    def __init__(self, path: Path, layer: int) -> None:
        """Find the tensors; reads only indices and headers.

        Args:
            path: a folder with safetensors files (with an index or without), an index JSON, or one safetensors file.
            layer: number of the layer.

        Raises:
            FileNotFoundError: no checkpoint at path.
            ValueError: the layer has no experts, a tensor exists twice, or a file is malformed.
        """
        self.path = path
        self.layer = layer
        self.bytes_read = 0
        self._where: dict[Key, tuple[Path, str]] = {}
        self._files: dict[Path, Any] = {}
        layers = set()
        for file, name in _tensor_names(path):
            match = _NAME.search(name)
            if match is None:
                continue
            layers.add(int(match[1]))
            if int(match[1]) != layer:
                continue
            key = (int(match[2]), match[3], match[4])
            if key in self._where:
                raise ValueError(f"load_checkpoint_layer: two tensors fit: {self._where[key][1]} and {name}")
            self._where[key] = (file, name)
        if not self._where:
            found = ", ".join(map(str, sorted(layers))) or "none"
            raise ValueError(
                f"load_checkpoint_layer: {path} has no experts in layer {layer}; layers with experts: {found}"
            )
        first_name = next(iter(self._where.values()))[1]
        self._prefix = first_name[: first_name.index(f"layers.{layer}.block_sparse_moe")]

    def __contains__(self, key: Key) -> bool:
        return key in self._where

    def name(self, key: Key) -> str:
        """Full name of a tensor, also of one that is missing."""
        expert, matrix, field = key
        expected = f"{self._prefix}layers.{self.layer}.block_sparse_moe.experts.{expert}.{matrix}.{field}"
        return self._where[key][1] if key in self._where else expected

    def check(self, key: Key, dtype: torch.dtype, *shapes: tuple[int, ...]) -> None:
        """Refuse a tensor whose header says another dtype or shape.

        Raises:
            ValueError: naming the tensor.
        """
        header = self._slice(key)
        found_dtype, found_shape = header.get_dtype(), tuple(header.get_shape())
        if _DTYPES.get(found_dtype) != dtype or found_shape not in shapes:
            wanted = f"{str(dtype).removeprefix('torch.')} {list(shapes[0])}"
            raise ValueError(
                f"load_checkpoint_layer: {self.name(key)} must be {wanted}, got {found_dtype} {list(found_shape)}"
            )

    def read(self, key: Key, rows: slice = slice(None), columns: slice = slice(None)) -> Tensor:
        """Part of a matrix; a view of the mapped file."""
        part: Tensor = self._slice(key)[rows, columns]
        self.bytes_read += part.numel() * part.element_size()
        return part

    def read_scalar(self, key: Key) -> float:
        """Value of a tensor with one element."""
        return float(self._slice(key)[...])

    def release(self) -> None:
        """Unmap the opened files (once the views of them are gone)."""
        self._files.clear()

    def released(self, experts: Iterable[int], every: int) -> Iterator[int]:
        """Yield the experts, releasing the files after each ``every`` of them."""
        for position, expert in enumerate(experts):
            if position % every == 0:
                self.release()
            yield expert
        self.release()

    def _slice(self, key: Key) -> Any:
        file, name = self._where[key]
        if file not in self._files:
            self._files[file] = _open(file)
        try:
            return self._files[file].get_slice(name)
        except SafetensorError as error:
            raise ValueError(f"load_checkpoint_layer: {file} lacks {name}, which the index places there") from error


def _tensor_names(path: Path) -> Iterator[tuple[Path, str]]:
    """Every tensor of a checkpoint, with its file."""
    if path.is_dir():
        indices = sorted(path.glob("*.safetensors.index.json"))
        if len(indices) > 1:
            names = ", ".join(index.name for index in indices)
            raise ValueError(f"load_checkpoint_layer: {path} has several indices, give the path of one: {names}")
        files = sorted(path.glob("*.safetensors"))
        if indices:
            path = indices[0]
        elif not files:
            raise FileNotFoundError(f"load_checkpoint_layer: {path} holds no safetensors files")
    else:
        files = [path]
    if path.suffix == ".json":
        weight_map = _weight_map(path)
        paths = {file_name: path.parent / file_name for file_name in set(weight_map.values())}
        for file_name, file in sorted(paths.items()):
            if not file.is_file():
                raise FileNotFoundError(f"load_checkpoint_layer: {path} names {file_name}, which is missing")
        for name, file_name in weight_map.items():
            yield paths[file_name], name
        return
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"load_checkpoint_layer: {file} does not exist")
        for name in _open(file).keys():  # noqa: SIM118
            yield file, name


def _weight_map(index: Path) -> Mapping[str, str]:
    """File name of every tensor name."""
    if not index.is_file():
        raise FileNotFoundError(f"load_checkpoint_layer: {index} does not exist")
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # not UTF-8, or not JSON
        raise ValueError(f"load_checkpoint_layer: {index} is no JSON: {error}") from error
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(file_name, str) for file_name in weight_map.values()):
        raise ValueError(f"load_checkpoint_layer: {index} must hold an object weight_map of file names by tensor name")
    return weight_map


def _open(file: Path) -> Any:
    try:
        return safe_open(file, framework="pt")
    except SafetensorError as error:
        raise ValueError(f"load_checkpoint_layer: {file} is no complete safetensors file: {error}") from error

"""Runs that are described by a JSON file: what `python -m ptxrun run` reads.

    {
      "buffers": {
        "x": {"file": "x.npy"},
        "y": {"bytes": 4096},
        "n": {"dtype": "int32", "values": [1, 2, 3]}
      },
      "launches": [
        {"ptx": "kernel.ptx", "kernel": "scale", "grid": 4, "block": 128, "smem": 0,
         "args": ["x", "y", 1024, {"float": 0.5}, {"tensor_map": {"base": "x", "dtype": "f32", "dims": [64, 16],
                                                                  "box": [32, 16], "swizzle": 128}}]}
      ],
      "save": {"y": "y.npy"}
    }

Paths are relative to the file. A buffer comes from a .npy file, from values, or is uninitialised; `readonly` may be
added. An argument is the name of a buffer, a number (in the parameter's type), {"float": x}, {"hex": bytes} or
{"tensor_map": parameters}. A launch takes the other fields of :class:`ptxrun.Launch` too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxrun.api import Argument, Launch, Module
from ptxrun.memory import Buffer, Memory
from ptxrun.tensor_map import TensorMap


@dataclass(frozen=True)
class Description:
    """A run as read from a file."""

    memory: Memory
    launches: list[Launch]
    save: dict[Path, Buffer]

    def write_results(self) -> None:
        """Writes the buffers named by `save` as uint8 arrays."""
        for path, buffer in self.save.items():
            np.save(path, buffer.data)


def buffer_from(memory: Memory, name: str, fields: dict[str, Any], folder: Path) -> Buffer:
    readonly = bool(fields.get("readonly", False))
    if "file" in fields:
        return memory.add(np.ascontiguousarray(np.load(folder / fields["file"])), name, readonly=readonly)
    if "values" in fields:
        return memory.add(_values(name, fields["values"], fields.get("dtype", "float32")), name, readonly=readonly)
    return memory.add_empty(int(fields["bytes"]), name, readonly=readonly)


def _values(name: str, values: Any, dtype: str) -> NDArray[Any]:
    given = np.array(values)
    array = given.astype(dtype)
    if not np.issubdtype(array.dtype, np.floating) and not np.array_equal(array, given):
        raise ValueError(f"buffer {name}: a value is no {dtype}")
    return array


def _argument(value: Any, buffers: dict[str, Buffer]) -> Argument:
    if isinstance(value, str):
        return buffers[value]
    if isinstance(value, (int, float)):
        return value
    if not isinstance(value, dict):
        raise ValueError(f"an argument is a name, a number or an object, not {value!r}")
    if "float" in value:
        return float(value["float"])
    if "hex" in value:
        return bytes.fromhex(value["hex"])
    fields: dict[str, Any] = {}
    for key, entry in value["tensor_map"].items():
        fields[key] = tuple(entry) if isinstance(entry, list) else entry
    fields["base"] = buffers[fields["base"]]
    return TensorMap(**fields)


def read_description(path: Path) -> Description:
    """Raises KeyError or ValueError for a file that does not say what it must."""
    content, folder = json.loads(path.read_text()), path.parent
    memory = Memory()
    buffers = {name: buffer_from(memory, name, fields, folder) for name, fields in content["buffers"].items()}
    modules: dict[str, Module] = {}
    launches = []
    for fields in content["launches"]:
        name = fields.pop("ptx")
        if name not in modules:
            modules[name] = Module((folder / name).read_text())
        arguments = [_argument(value, buffers) for value in fields.pop("args", [])]
        launches.append(Launch(module=modules[name], args=arguments, **fields))
    save = {folder / target: buffers[name] for name, target in content.get("save", {}).items()}
    return Description(memory, launches, save)

"""CUTLASS's example programs for sm_100a, compiled for the interpreter from the nvidia-cutlass package."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ptxrun.cache import cache_folder, digest
from ptxrun.host_shim import architecture_flags, compile_object, link_program


@dataclass(frozen=True)
class Example:
    """A source file under examples/, and text that is replaced in it."""

    name: str
    source: str
    changes: dict[str, str] = field(default_factory=dict)


PLAIN = "72_blackwell_narrow_precision_gemm/72a_blackwell_nvfp4_bf16_gemm.cu"
GROUPED = "75_blackwell_grouped_gemm/75_blackwell_grouped_gemm_block_scaled.cu"
EXAMPLES = {
    example.name: example
    for example in (
        Example("plain_2sm", PLAIN, {"Shape<_2,_4,_1>;": "Shape<_2,_1,_1>;"}),
        Example(
            "plain_1sm",
            PLAIN,
            {"Shape<_256,_256,_256>;": "Shape<_128,_128,_256>;", "Shape<_2,_4,_1>;": "Shape<_1,_1,_1>;"},
        ),
        Example("grouped", GROUPED),  # runs a 1-SM and a 2-SM kernel
    )
}


@cache
def package() -> Path | None:
    """The package's sources, or None if nvidia-cutlass is not installed."""
    spec = importlib.util.find_spec("cutlass_library")
    folders = (spec.submodule_search_locations or []) if spec else []
    return next((Path(folder) / "source" for folder in folders if (Path(folder) / "source").is_dir()), None)


@cache
def build(name: str) -> Path:
    """The program of an example. Takes about a minute and 6 GB the first time."""
    root = package()
    if root is None:
        raise RuntimeError("nvidia-cutlass is not installed")
    example = EXAMPLES[name]
    original = root / "examples" / example.source
    text = original.read_text()
    for old, new in example.changes.items():
        if old not in text:
            raise RuntimeError(f"{original} does not contain {old!r}")
        text = text.replace(old, new)
    source = cache_folder() / "cutlass" / f"{name}-{digest([], text)}.cu"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(text)
    folders = [root / "include", root / "tools" / "util" / "include", root / "examples" / "common", original.parent]
    flags = ["-std=c++17", "-O2", "-DNDEBUG", "--expt-relaxed-constexpr", "-Xcompiler=-fPIC,-w", "-w"]
    flags += [*architecture_flags(["100a"]), *(f"-I{folder}" for folder in folders)]
    return link_program([compile_object(source, flags)], name)

"""PTX of sm_100a as PTX of sm_90a: what sm_90a lacks becomes calls of device functions (device/*.cu)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ptxrun.cache import cache_folder, digest
from ptxrun.toolkit import compile_ptx, run_nvcc

SOURCE_ARCH, TARGET_ARCH = "sm_100a", "sm_90a"
DEVICE = Path(__file__).resolve().parent / "device"


@dataclass(frozen=True)
class Call:
    """What an instruction becomes: a call of `function` of device/`library`.cu.

    results: PTX types of the destination registers, which the function returns one after another. arguments: of the
    other operands; `pred` becomes 0 or 1, and [ ] marks an operand that is an address. The operands are matched in the
    order of the instruction.
    """

    library: str
    function: str
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


OMITTED = None  # orders or announces what the functions do at once
RULES: dict[str, Call | None] = {
    "cvt.rn.satfinite.e2m1x2.f32": Call("convert", "downlevel_cvt_e2m1x2", ("f32", "f32"), ("b8",)),
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32": Call(
        "tcgen05", "downlevel_tmem_alloc", ("[b32]", "b32")
    ),
    "tcgen05.dealloc.cta_group::1.sync.aligned.b32": Call("tcgen05", "downlevel_tmem_dealloc", ("b32", "b32")),
    "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned": OMITTED,
    "tcgen05.cp.cta_group::1.32x128b.warpx4": Call("tcgen05", "downlevel_tmem_copy_scales", ("[b32]", "b64")),
    "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X": Call(
        "tcgen05", "downlevel_mma_nvfp4", ("[b32]", "b64", "b64", "b32", "[b32]", "[b32]", "pred")
    ),
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64": Call(
        "tcgen05", "downlevel_commit", ("[b32]",)
    ),
    "tcgen05.ld.sync.aligned.16x256b.x1.b32": Call("tcgen05", "downlevel_tmem_load_16x8", ("[b32]",), ("b32",) * 4),
    "tcgen05.wait::ld.sync.aligned": OMITTED,
    "tcgen05.fence::before_thread_sync": OMITTED,
    "tcgen05.fence::after_thread_sync": OMITTED,
}

_BYTES = {"b8": 1, "b32": 4, "f32": 4, "b64": 8}
_HEADER = re.compile(r"\.version[^\n]*\n\.target[^\n]*\n\.address_size 64\n")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,]+")


def _argument_lines(index: int, kind: str, operand: str) -> list[str]:
    name = f"argument{index}"
    if kind == "pred":
        return [
            f".param .b32 {name};",
            f".reg .b32 flag{index};",
            f"selp.b32 flag{index}, 1, 0, {operand};",
            f"st.param.b32 [{name}], flag{index};",
        ]
    if kind.startswith("["):
        kind, operand = kind.strip("[]"), operand.strip("[]").strip()
    if not re.fullmatch(r"%?\w+", operand):
        raise ValueError(f"operand {operand!r} is neither a register nor an immediate")
    return [f".param .{kind.replace('f', 'b')} {name};", f"st.param.{kind} [{name}], {operand};"]


def _result_lines(call: Call, registers: Sequence[str]) -> tuple[str, list[str]]:
    """Declaration of the returned variable, and the loads from it."""
    if len(call.results) == 1:
        (kind,) = call.results
        # A function returns at least 32 bits.
        return ".param .b32 result;", [f"ld.param.{kind} {registers[0]}, [result+0];"]
    size = _BYTES[call.results[0]]
    declaration = f".param .align 16 .b8 result[{size * len(call.results)}];"
    return declaration, [
        f"ld.param.{kind} {register}, [result+{size * i}];"
        for i, (kind, register) in enumerate(zip(call.results, registers, strict=True))
    ]


def _call_text(call: Call, operands: list[str]) -> str:
    lines, returned, loads = [], "", []
    if call.results:
        registers = [register.strip() for register in operands.pop(0).strip("{}").split(",")]
        declaration, loads = _result_lines(call, registers)
        lines.append(declaration)
        returned = "(result), "
    for index, (kind, operand) in enumerate(zip(call.arguments, operands, strict=True)):
        lines += _argument_lines(index, kind, operand)
    arguments = ", ".join(f"argument{i}" for i in range(len(call.arguments)))
    lines.append(f"call.uni {returned}{call.function}, ({arguments});")
    return "{\n" + "\n".join([*lines, *loads]) + "\n}"


def _replacement(match: re.Match[str]) -> str:
    guard, spelling, text = match.groups()
    if guard is not None:
        raise ValueError(f"a guarded {spelling} is not rewritten: {match[0].strip()}")
    call = RULES[spelling]
    if call is OMITTED:
        return ""
    return _call_text(call, [operand.strip() for operand in _OPERAND.findall(text.strip())])


@cache
def library(name: str) -> str:
    """PTX of the functions of device/`name`.cu, without its header."""
    source = DEVICE / f"{name}.cu"
    output = cache_folder() / "downlevel" / f"{name}-{digest([source])}.ptx"
    text = output.read_text() if output.exists() else compile_ptx(source, output, TARGET_ARCH, ["-rdc=true"])
    return text[_find_header(text).end() :]


def _find_header(text: str) -> re.Match[str]:
    header = _HEADER.search(text)
    if header is None:
        raise ValueError("no PTX header")
    return header


def rewrite(text: str, spellings: Iterable[str] = RULES) -> str:
    """PTX for sm_90a that does what the PTX `text` for sm_100a does. Raises ValueError for what it cannot rewrite."""
    header = _find_header(text)
    if f".target {SOURCE_ARCH}\n" not in header[0]:
        raise ValueError(f"the PTX is not for {SOURCE_ARCH}: {header[0]}")
    known = "|".join(map(re.escape, spellings))
    statement = re.compile(rf"^[^\S\n]*(@\S+\s+)?({known})(?![\w.:])([^;]*);", re.MULTILINE)
    calls = [RULES[match[2]] for match in statement.finditer(text)]
    libraries = sorted({call.library for call in calls if call is not OMITTED})
    body = statement.sub(_replacement, text[header.end() :])
    return "\n".join([header[0].replace(SOURCE_ARCH, TARGET_ARCH), *map(library, libraries), body])


def assemble(text: str) -> bytes:
    """Machine code of PTX for sm_90a. Raises RuntimeError with the assembler's messages."""
    folder = cache_folder() / "downlevel"
    output = folder / f"{digest([], text)}.cubin"
    if not output.exists():
        folder.mkdir(parents=True, exist_ok=True)
        source = output.with_suffix(".ptx")
        source.write_text(text)
        partial = output.with_suffix(".partial.cubin")
        run_nvcc(["-cubin", f"-arch={TARGET_ARCH}", source, "-o", partial])
        partial.replace(output)
    return output.read_bytes()

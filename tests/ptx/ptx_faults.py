"""Single faults in the shipped PTX: an instruction taken out, spelled otherwise, or with one operand off."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from ptx_cases import judge, same_bits
from ptx_operator import Call
from ptxrun import Launch, Module, Report
from ptxrun.api import Schedule

from cake_moe.testing.inputs import MoeInputs

WRONG_BITS = "wrong bits"
"""Beside the interpreter's codes: the call ends without a finding, its results are not the CPU backend's."""

_LONGEST = 6  # times the instructions of a right call: a wait that nothing ends
_REGISTER = re.compile(r"%(?:rd|r)\d+")

Edit = Callable[[str], str]
"""An instruction, its semicolon included -> what stands in its place."""


def dropped(_: str) -> str:
    return ""


def respelled(old: str, new: str) -> Edit:
    """`old` is a part of the instruction."""

    def edit(instruction: str) -> str:
        if old not in instruction:
            raise ValueError(f"{old!r} is no part of {instruction!r}")
        return instruction.replace(old, new, 1)

    return edit


def _through_a_register(operation: str, register: int, value: int) -> Edit:
    def edit(instruction: str) -> str:
        found = list(_REGISTER.finditer(instruction))[register]
        bits = 64 if found[0].startswith("%rd") else 32
        kind = ("b" if operation == "xor" else "s") + str(bits)
        changed = instruction[: found.start()] + "planted" + instruction[found.end() :]
        return f"{{\n.reg .b{bits} planted;\n{operation}.{kind} planted, {found[0]}, {value};\n{changed}\n}}\n"

    return edit


def added(register: int, value: int) -> Edit:
    """`value` more in the register at that place of the instruction, predicates not counted."""
    return _through_a_register("add", register, value)


def flipped(register: int, bits: int = 1) -> Edit:
    """Those bits of the register at that place of the instruction."""
    return _through_a_register("xor", register, bits)


@dataclass(frozen=True)
class Fault:
    """One change of one kernel's text. at: which of the instructions that begin with `opcode`, every one if None; an
    opcode with its semicolon is the whole instruction.
    codes: findings that name it, or WRONG_BITS; the schedule that shows it."""

    name: str
    opcode: str
    edit: Edit
    codes: frozenset[str]
    at: int | None = 0
    stage: str = "experts"
    schedule: Schedule = "late"

    def plant(self, launch: Launch) -> Launch:
        """The launch of a kernel with the fault. Raises ValueError where the kernel has no such instruction."""
        text = launch.module.text
        start = text.index(f".entry {launch.kernel}(")
        end = text.find(".entry ", start + 1)
        body = text[start : end if end >= 0 else len(text)]
        rest = "" if self.opcode.endswith(";") else "[^;]*;"
        places = list(re.finditer(rf"^{re.escape(self.opcode)}{rest}", body, re.MULTILINE))
        chosen = places if self.at is None else places[self.at : self.at + 1 or None]
        if not chosen:
            raise ValueError(f"{self.name}: {len(places)} of {self.opcode} in {launch.kernel}")
        for place in reversed(chosen):
            body = body[: place.start()] + self.edit(place[0]) + body[place.end() :]
        changed = text[:start] + body + (text[end:] if end >= 0 else "")
        if changed == text:
            raise ValueError(f"{self.name}: nothing was changed")
        return replace(launch, module=Module(changed))


@dataclass(frozen=True)
class Verdict:
    """codes: of the findings, and WRONG_BITS. report: the interpreter's."""

    codes: frozenset[str]
    report: Report


@dataclass(frozen=True)
class Subject:
    """A call of the operator, on integer-valued inputs and few SMs, that kernels with faults have to spoil."""

    problem: MoeInputs
    arch: str = "100a"
    sm_count: int = 8

    @cached_property
    def instructions(self) -> int:
        """Warp instructions of the right kernels, whose results are right and without a finding."""
        verdict = self._verdict(None, "late", 0)
        verdict.report.raise_on_findings()
        assert not verdict.codes
        return verdict.report.instructions

    def with_fault(self, fault: Fault) -> Verdict:
        """What the whole operator gives with a fault in one of its kernels."""
        return self._verdict(fault, fault.schedule, _LONGEST * self.instructions)

    def _verdict(self, fault: Fault | None, schedule: Schedule, max_instructions: int) -> Verdict:
        call = Call(self.problem, self.arch, sm_count=self.sm_count)
        launches = call.launches()
        if fault is not None:
            index = call.stages().index(fault.stage)
            launches[index] = fault.plant(launches[index])
        report = call.execute(launches, schedule, max_instructions=max_instructions)
        codes = set(report.codes)
        if not codes:
            try:
                judge(self.problem, call)
                same_bits(self.problem, *call.result())
            except (AssertionError, IndexError):  # IndexError: a route table holds anything
                codes.add(WRONG_BITS)
        return Verdict(frozenset(codes), report)

"""Runs a CUDA program from main() to exit, with the interpreter for a GPU.

The program is linked as `host_shim.link_program` does. Its device memory is host memory at the same address; launches
are executed when it copies, frees or synchronises, so programmatic dependent launches stay together.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ptxrun.api import Checks, Launch, Module, Schedule, run
from ptxrun.host_shim import Program
from ptxrun.memory import Memory
from ptxrun.report import Report


@dataclass
class WholeProgram:
    """A program and how to execute its launches. reports: one for each time that launches were executed; on_report gets
    it at once. on_exit: called when the program ends by exit(), which ends this process too, after the launches before
    that have been executed; gets what they raised. It may end the process with a status of its own."""

    path: Path
    capability: tuple[int, int]
    sms: int = 148
    schedule: Schedule = "early"
    seed: int = 0
    checks: Checks = "full"
    max_findings: int = 100
    max_instructions: int = 0
    on_report: Callable[[Report], None] | None = None
    on_exit: Callable[[BaseException | None], None] | None = None
    reports: list[Report] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.program = Program(self.path)
        self.program.set_device(*self.capability, self.sms)
        self.program.library.ptxrun_allocations.restype = ctypes.c_char_p
        self._modules: dict[int, Module] = {}
        self._seen: set[int] = set()  # allocations that a launch may have written
        self._callback: Callable[[], None] = ctypes.CFUNCTYPE(None)(self._execute)
        self._error: BaseException | None = None
        self.program.library.ptxrun_set_execute(self._callback)
        self._exit_callback: Callable[[], None] = ctypes.CFUNCTYPE(None)(self._exit)

    def _module(self, fat_binary: int) -> Module:
        if fat_binary not in self._modules:
            major, minor = self.capability
            self._modules[fat_binary] = Module(self.program.modules[fat_binary, 10 * major + minor])
        return self._modules[fat_binary]

    def _memory(self) -> Memory:
        memory = Memory()
        for address, nbytes, written in json.loads(self.program.library.ptxrun_allocations()):
            content = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
            initialised = written or address in self._seen
            memory.add(content, f"allocation {len(memory.buffers)}", address=address, initialised=initialised)
        return memory

    def _execute(self) -> None:
        if self._error is not None:
            return
        try:
            recorded = self.program.take_launches()
            if not recorded:
                return
            launches = [Launch.recorded(launch, self._module(launch.fat_binary)) for launch in recorded]
            memory = self._memory()

            report = run(
                launches,
                memory,
                schedule=self.schedule,
                seed=self.seed,
                sms=self.sms,
                checks=self.checks,
                max_findings=self.max_findings,
                max_instructions=self.max_instructions,
            )
            self.reports.append(report)
            if self.on_report is not None:
                self.on_report(report)
            self._seen.update(buffer.address for buffer in memory.buffers)
        except BaseException as error:  # nothing may pass through the program's frames
            self._error = error

    def main(self, arguments: Sequence[str] = ()) -> int:
        """Calls main() and returns its status. An exit() in the program calls on_exit and ends this process. Raises
        what `run` raises."""
        words = [str(self.path).encode(), *(word.encode() for word in arguments)]
        vector = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        self.program.library.ptxrun_set_at_exit(self._exit_callback)
        status: int = self.program.library.main(len(words), vector)
        self.program.library.ptxrun_set_at_exit(None)
        self._execute()
        if self._error is not None:
            raise self._error
        return status

    def _exit(self) -> None:
        self._execute()
        if self.on_exit is not None:
            self.on_exit(self._error)

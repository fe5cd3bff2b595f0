"""The compiled interpreter, src/bindings. Its addresses and sizes are bytes."""

import numpy as np
from numpy.typing import NDArray

class PtxError(ValueError):
    """A spelling that is wrong or not modelled: PTX line, text and reason."""

class Program:
    """A parsed module. Raises PtxError for text that is not PTX; kernels are decoded when they are first launched."""

    def __init__(self, text: str) -> None: ...
    @property
    def version(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def kernels(self) -> list[KernelInfo]: ...
    def census(self) -> list[tuple[str, int, str]]:
        """(spelling, how often, why it is not modelled or "") for every spelling."""

class KernelInfo:
    name: str
    line: int
    params: list[tuple[str, int, int, int, str]]  # name, offset, bytes, alignment, type
    param_bytes: int
    static_shared: int
    maxntid: tuple[int, int, int]
    reqntid: tuple[int, int, int]
    cluster: tuple[int, int, int]
    max_registers: int

class Place:
    kernel: str
    instruction: str
    line: int
    launch: int
    cta: int
    warp: int
    lanes: int

class Finding:
    code: str
    message: str
    place: Place
    other: Place | None
    buffer: str
    offset: int
    count: int

class LaunchCounters:
    instructions: int
    by_opcode: dict[str, int]
    by_class: dict[str, int]
    mma_steps: dict[str, int]
    max_bytes_in_flight_cta: int
    max_bytes_in_flight_sm: int

class BufferCounters:
    name: str
    bytes_read: int
    bytes_written: int
    read_histogram: dict[int, int]
    """How often a byte was read -> how many bytes."""

class Machine:
    def __init__(
        self,
        *,
        schedule: str,
        seed: int,
        sms: int,
        checks: str,
        max_findings: int,
        max_instructions: int,
    ) -> None:
        """schedule: early, late, random. checks: none, memory, full. max_instructions 0: no limit."""

    def add_buffer(self, address: int, data: NDArray[np.uint8], name: str, readonly: bool, initialised: bool) -> None:
        """Global memory over the caller's bytes, without a copy; the machine keeps them alive."""

    def launch(
        self,
        program: Program,
        kernel: str,
        *,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        cluster: tuple[int, int, int],
        dynamic_shared: int,
        params: bytes,
        pdl: bool,
        cooperative: bool,
        non_portable_cluster: bool,
        registers: int,
    ) -> None:
        """Queues a launch. params: the parameter block. registers a thread, 0: not limited. Raises PtxError for a
        spelling that is not modelled and ValueError for a shape that the kernel does not allow."""

    def run(self) -> None:
        """Raises what a signal handler raises meanwhile, such as KeyboardInterrupt."""

    @property
    def findings(self) -> list[Finding]: ...
    @property
    def trace(self) -> str:
        """Warps, barriers and phases at a deadlock or at max_instructions; empty otherwise."""

    def counters(self, launch: int) -> LaunchCounters: ...
    def buffer_counters(self) -> list[BufferCounters]: ...

FINDING_CODES: dict[str, str]
"""Code -> meaning."""

def encode_tensor_map(
    *,
    dtype: int,
    address: int,
    dims: list[int],
    strides: list[int],
    box: list[int],
    element_strides: list[int],
    interleave: int,
    swizzle: int,
    l2_promotion: int,
    oob_fill: int,
) -> bytes:
    """The 128-byte handle; enumerations by the driver's values. Raises ValueError naming the rule that is broken."""

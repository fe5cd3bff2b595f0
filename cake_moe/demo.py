"""``python -m cake_moe.demo``: the whole main job on one machine, checked and timed.

Writes a synthetic checkpoint of one layer as NVIDIA Model-Optimizer stores it, loads the slice of one tensor-parallel
rank, prepares it, runs the operator and compares every stage with its float64 evaluation. ``--checkpoint`` takes a
checkpoint of your own instead.

Exit status: 0; 1 where a result lies outside its bound; 2 where something is missing (space, a file, kernels for the
device); 130 and 143 after an interrupt. Temporary files are removed in every case.
"""

from __future__ import annotations

import argparse
import resource
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import torch
from rich.console import Console
from rich.table import Table
from safetensors import SafetensorError
from torch import Tensor

from . import layout
from .bench.cases import EXPERT_BYTES, touched_experts
from .bench.clock import WallClock
from .checkpoint import CheckpointLayer, load_checkpoint_layer
from .ops import build_info, fused_moe, prepare_workspace, workspace_size
from .synthetic import write_synthetic_checkpoint
from .testing.accumulate import accumulation_of
from .testing.compare import Mismatch, Report, TooManyDiffer, compare
from .testing.inputs import MoeInputs, make_input, make_route_weights
from .testing.routings import make_routing
from .testing.stages import POISON, stage_views
from .weights import PreparedWeights

DISTINCT_EXPERTS = 56
SYNTHETIC_LAYER = 1
TIMED_CALLS = 5
LOG_WIDTH = 110
"""Columns of the table where the output is no terminal."""


@dataclass(frozen=True)
class Row:
    """One line of the table: a token count's largest row error with its bound, and its time."""

    tokens: int
    experts: int
    report: Report
    seconds: float

    @property
    def touched_bytes(self) -> int:
        return self.experts * EXPERT_BYTES


class OutOfBound(Exception):
    """A result that no correct backend can give."""


def make_problem(layer: CheckpointLayer, tokens: int, seed: int) -> MoeInputs:
    """Seeded normal input and uniform routing, 16 distinct experts a token, for a loaded layer."""
    weights = layer.weights
    if not isinstance(weights, PreparedWeights):
        raise TypeError("make_problem: layer must hold prepared weights")
    return MoeInputs(
        input=make_input("normal", tokens, seed=seed),
        token_selected_experts=make_routing("uniform", tokens, seed=seed),
        token_final_scales=make_route_weights(tokens, seed=seed),
        fc1_expert_weights=weights.fc1_weights,
        fc2_expert_weights=weights.fc2_weights,
        quant_scales=layer.quant_scales,
        situ_beta=None,
        situ_linear_beta=None,
    )


def on_device(problem: MoeInputs, device: torch.device) -> MoeInputs:
    """The same operands on a device; those that are there already are not copied."""
    return replace(
        problem,
        input=problem.input.to(device),
        token_selected_experts=problem.token_selected_experts.to(device),
        token_final_scales=problem.token_final_scales.to(device),
        fc1_expert_weights=problem.fc1_expert_weights.to(device),
        fc2_expert_weights=problem.fc2_expert_weights.to(device),
        quant_scales=[scale.to(device) for scale in problem.quant_scales],
    )


class PreparedCall:
    """A workspace and an output for calls with a fixed number of tokens."""

    def __init__(self, tokens: int, device: torch.device) -> None:
        self.workspace = torch.full((workspace_size(tokens),), POISON, dtype=torch.uint8, device=device)
        prepare_workspace(self.workspace, tokens)
        self.output = torch.full((tokens, layout.HIDDEN), torch.nan, dtype=torch.bfloat16, device=device)

    def __call__(self, problem: MoeInputs) -> Tensor:
        return fused_moe(
            problem.input,
            problem.token_selected_experts,
            problem.token_final_scales,
            problem.fc1_expert_weights,
            problem.fc2_expert_weights,
            problem.quant_scales,
            workspace=self.workspace,
            output=self.output,
        )

    def finished(self, problem: MoeInputs) -> Tensor:
        """The call, and its end on a GPU."""
        output = self(problem)
        if output.is_cuda:
            torch.cuda.synchronize(output.device)
        return output


def measure(layer: CheckpointLayer, tokens: int, device: torch.device, seed: int) -> Row:
    """Run a token count, compare it with the float64 evaluation, then time calls that touch other experts.

    Where slots share an expert of the checkpoint, float64 evaluates the call with the first slot of each expert, and
    the call with all slots must give the same bits: a row's value depends on the row and the expert's bytes alone.

    Raises:
        OutOfBound: a stage or an output row is not what float64 and the derived bounds allow.
    """
    problem = make_problem(layer, tokens, seed)
    first_slots = problem.token_selected_experts % layer.report.distinct_experts
    checked = replace(problem, token_selected_experts=first_slots)
    call = PreparedCall(tokens, device)
    output = call(on_device(checked, device)).cpu().clone()
    stages = stage_views(call.workspace, tokens).cpu()
    try:
        report = compare(checked, output, stages, accumulation_of(tokens, device))
    except (Mismatch, TooManyDiffer) as error:
        raise OutOfBound(f"M = {tokens}: {error}") from error
    if not torch.equal(call(on_device(problem, device)).cpu().view(torch.int16), output.view(torch.int16)):
        raise OutOfBound(f"M = {tokens}: slots with the same expert give other outputs")
    clock, samples = WallClock(), []
    for variant in range(1, TIMED_CALLS + 1):
        other = on_device(make_problem(layer, tokens, seed + variant), device)
        samples.append(clock.seconds(lambda other=other: call.finished(other)))  # type: ignore[misc]
    return Row(tokens, len(touched_experts(problem.token_selected_experts)), report, statistics.median(samples))


def result_table(rows: list[Row], title: str, caption: str) -> Table:
    """The demo's table."""
    table = Table(title=title, caption=caption, caption_justify="left")
    headings = ("M", "experts", "weights", "time a call", "weights a second", "max row error", "bound", "FC1 codes off")
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        fc1 = row.report.stages["fc1"]
        table.add_row(
            str(row.tokens),
            str(row.experts),
            f"{row.touched_bytes / 1e6:.0f} MB",
            f"{row.seconds * 1e3:.2f} ms",
            f"{row.touched_bytes / row.seconds / 1e9:.1f} GB",
            f"{row.report.row_error:.2e}",
            f"{row.report.row_bound:.2e}",
            f"{fc1.differing} of {fc1.elements}",
        )
    return table


def _caption(layer: CheckpointLayer) -> str:
    found = layer.report
    slots = "all 896 experts of the checkpoint"
    if found.distinct_experts < found.experts:
        each = found.experts / found.distinct_experts
        slots = f"{found.distinct_experts} distinct full-width experts, each standing for {each:g} of the 896 slots"
    return (
        f"{slots}.\n"
        "Row error: |output - float64| / |float64|, largest over rows; every element is within its bound.\n"
        "Input codes, routes and the final sum are bit-exact. FC1 codes off: those that the float32 sums\n"
        "round to the other neighbour, each within its bound.\n"
        f"Time: median of {TIMED_CALLS} calls, each with other experts."
    )


@contextmanager
def checkpoint_folder(parent: Path | None, keep: bool) -> Iterator[Path]:
    """A new folder for the synthetic checkpoint; removed afterwards unless kept."""
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    if keep:
        yield Path(tempfile.mkdtemp(prefix="cake_moe_demo_", dir=parent))
        return
    with tempfile.TemporaryDirectory(prefix="cake_moe_demo_", dir=parent) as name:
        yield Path(name)


def check_device(device: torch.device) -> None:
    """Raises RuntimeError, in words, where the operator cannot run on a device."""
    try:
        workspace = torch.empty(workspace_size(1), dtype=torch.uint8, device=device)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        raise RuntimeError(f"--device {device} cannot be used: {error}") from error
    prepare_workspace(workspace, 1)


def _device(text: str) -> torch.device:
    try:
        return torch.device(text)
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"must be cpu or cuda[:index], got {text!r}") from error


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m cake_moe.demo",
        description="Synthetic checkpoint -> one tensor-parallel rank -> prepared weights -> operator -> float64.",
    )
    source = parser.add_argument_group("checkpoint")
    source.add_argument("--checkpoint", type=Path, metavar="PATH", help="a checkpoint of your own instead")
    source.add_argument("--layer", type=int, default=SYNTHETIC_LAYER, help="layer of the checkpoint (default 1)")
    source.add_argument("--tp-rank", type=int, default=0, help="rank 0..7 of the tensor-parallel group (default 0)")
    source.add_argument(
        "--experts", type=int, metavar="N", help=f"use N distinct experts (default {DISTINCT_EXPERTS}; 896 of your own)"
    )
    source.add_argument("--full", action="store_true", help="write all 896 experts, 16.65 GB")
    source.add_argument("--dir", type=Path, help="where to make the folder that is written (default: /tmp or $TMPDIR)")
    source.add_argument("--keep", action="store_true", help="leave the synthetic checkpoint there")
    parser.add_argument("-M", "--tokens", type=int, nargs="+", default=[1, 16, 64], help="token counts")
    parser.add_argument("--device", type=_device, default=torch.device("cpu"), help="cpu (default) or cuda")
    parser.add_argument("--seed", type=int, default=0, help="of weights, input and routing")
    options = parser.parse_args(arguments)
    if options.checkpoint is not None and (options.full or options.keep or options.dir is not None):
        parser.error("--full, --dir and --keep are for the synthetic checkpoint; they exclude --checkpoint")
    if options.full and options.experts is not None:
        parser.error("--full means all 896 experts; it excludes --experts")
    if options.experts is not None and not 1 <= options.experts <= layout.EXPERTS:
        parser.error(f"--experts must be in 1..{layout.EXPERTS}, got {options.experts}")
    if not 0 <= options.tp_rank < layout.TENSOR_PARALLEL:
        parser.error(f"--tp-rank must be in 0..{layout.TENSOR_PARALLEL - 1}, got {options.tp_rank}")
    if options.layer < 0:
        parser.error(f"--layer must not be negative, got {options.layer}")
    if not all(1 <= tokens <= layout.MAX_TOKENS for tokens in options.tokens):
        parser.error(f"token counts must be in 1..{layout.MAX_TOKENS}, got {' '.join(map(str, options.tokens))}")
    return options


def _load(options: argparse.Namespace, cleanup: ExitStack, console: Console) -> CheckpointLayer:
    """The layer of the command line, its experts repeated over the 896 slots; at most 2.2 GB of memory."""
    path = options.checkpoint
    distinct = options.experts or (DISTINCT_EXPERTS if path is None and not options.full else layout.EXPERTS)
    if path is None:
        started = time.monotonic()
        path = write_synthetic_checkpoint(
            cleanup.enter_context(checkpoint_folder(options.dir, options.keep)),
            experts=distinct,
            seed=options.seed,
            layer=options.layer,
        ).parent
        console.print(f"wrote a synthetic checkpoint to {path} in {time.monotonic() - started:.1f} s", soft_wrap=True)
    slots = [slot % distinct for slot in range(layout.EXPERTS)]
    layer = load_checkpoint_layer(path, options.layer, tp_rank=options.tp_rank, experts=slots)
    console.print(str(layer.report), soft_wrap=True)
    return layer


def run(options: argparse.Namespace, console: Console) -> None:
    """Everything that the command line asks for; the table goes to the console.

    Raises:
        OutOfBound: see :func:`measure`.
        OSError, ValueError, RuntimeError, SafetensorError: what is missing, in words.
    """
    started = time.monotonic()
    check_device(options.device)
    with ExitStack() as cleanup:
        layer = _load(options, cleanup, console)
        rows = []
        with Console(stderr=True).status("") as status:
            for tokens in options.tokens:
                status.update(f"M = {tokens}: operator and float64 comparison")
                rows.append(measure(layer, tokens, options.device, options.seed))
    title = f"layer {options.layer}, rank {options.tp_rank} of {layout.TENSOR_PARALLEL}, on {options.device}"
    if options.device.type == "cpu":
        title += f" ({build_info()['cpu_isa']}, {torch.get_num_threads()} threads)"
    console.print(result_table(rows, title, _caption(layer)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    console.print(f"{time.monotonic() - started:.0f} s in all, largest resident memory {peak / 1e9:.2f} GB")
    if options.keep:
        console.print(f"the checkpoint stays in {layer.report.path}", soft_wrap=True)


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    signals = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, _stop) for number in signals]
    try:
        run(options, Console(highlight=False, width=None if sys.stdout.isatty() else LOG_WIDTH))
    except OutOfBound as error:
        errors.print(f"outside the bound: {error}")
        return 1
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        errors.print(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        errors.print("interrupted")
        return 128 + signal.SIGINT
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
    return 0


if __name__ == "__main__":
    sys.exit(main())

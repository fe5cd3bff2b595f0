"""What can be checked without a GPU of the parts that need one."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import pkgutil
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch

import cake_moe.bench
from cake_moe.bench import cli, cuda, gpu_session, humming, launches
from cake_moe.bench.cases import Case
from cake_moe.bench.contenders import Contender, MatmulLoop
from cake_moe.bench.device_read import DeviceAmax, candidates
from cake_moe.bench.measure import Settings, measure_case
from cake_moe.testing.inputs import MoeInputs, RandomWeights

NEEDS_TRITON = {"glue"}


def test_every_module_can_be_imported_without_a_gpu() -> None:
    for module in pkgutil.iter_modules(cake_moe.bench.__path__):
        if module.name not in NEEDS_TRITON | {"__main__"}:
            importlib.import_module(f"cake_moe.bench.{module.name}")


@dataclasses.dataclass
class Fake:
    name: str
    seconds: float
    result: torch.Tensor = dataclasses.field(default_factory=lambda: torch.ones(2, 4))
    note: str = ""
    last = 0.5  # of all of them; no field

    def call(self, index: int) -> torch.Tensor:
        Fake.last = self.seconds
        return self.result


class FakeClock:
    name = "fake"

    def seconds(self, call: Any) -> float:
        call()
        return Fake.last


def backend_without_a_gpu() -> cuda.CudaBackend:
    backend = object.__new__(cuda.CudaBackend)
    backend.clock, backend._capture = FakeClock(), False
    backend._evict = lambda: None  # type: ignore[assignment]
    return backend


def test_the_fastest_way_is_chosen() -> None:
    ways = [Fake("a", 3.0), Fake("b", 1.0), Fake("c", 2.0)]
    assert backend_without_a_gpu()._fastest(ways, 1).name == "b"
    assert backend_without_a_gpu()._fastest(ways[2:], 1).name == "c"


class FakeGraph:
    """Replays what was called while it was captured; like a graph, it keeps nothing alive."""

    current: FakeGraph | None = None

    def __init__(self) -> None:
        self.replayed = 0

    def __enter__(self) -> None:
        FakeGraph.current = self

    def __exit__(self, *_: object) -> None:
        FakeGraph.current = None

    def replay(self) -> None:
        self.replayed += 1


def test_a_captured_contender_keeps_its_memory_and_a_graph_for_each_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = type("Stream", (), {"wait_stream": lambda self, other: None})
    monkeypatch.setattr(torch.cuda, "Stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda side: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: graph)
    calls: list[tuple[int, bool]] = []

    class Recording(Fake):
        def call(self, index: int) -> torch.Tensor:
            calls.append((index, FakeGraph.current is not None))
            return torch.full((1,), float(index))

    contender = Recording("a", 1.0, note="one way")
    alive = weakref.ref(contender)
    captured = cuda.Captured(contender, 2)
    assert calls == [(0, False), (1, False), (0, True), (1, True)]
    assert (captured.name, captured.note) == ("a", "one way")
    assert [float(captured.call(index)) for index in (1, 0, 1)] == [1.0, 0.0, 1.0]
    assert [graph.replayed for graph in captured._graphs] == [1, 2]
    del contender
    gc.collect()
    assert alive() is not None, "its buffers would be reused while the graph still writes to them"


class LoopPeer:
    """The layer without quantised activations, times a factor, as a peer with two ways to do it."""

    name = "loop"

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def candidates(self, variants: Sequence[MoeInputs]) -> list[Contender]:
        loop = MatmulLoop(variants, pool_size=896)

        class Way(Fake):
            factor = self.factor

            def call(self, index: int) -> torch.Tensor:
                super().call(index)
                return loop.call(index).mul_(self.factor).bfloat16()

        return [Way(self.name, 2.0, note="slow"), Way(self.name, 1.0, note="fast")]


@pytest.mark.parametrize("routing", ["one_group", "no_route"])
def test_a_case_of_the_gpu_backend(monkeypatch: pytest.MonkeyPatch, routing: str) -> None:
    """On the CPU, with eager calls: everything but capture and events."""
    for name, value in {
        "DEVICE": torch.device("cpu"),
        "EventClock": lambda launch: FakeClock(),
        "FLUSH_BYTES": 1 << 16,
        "MATMUL_SIZE": 32,
        "EXPERTS": 64,
        "_CALIBRATION_TOKENS": 1,
        "_TRIALS": 1,
    }.items():
        monkeypatch.setattr(cuda, name, value)
    monkeypatch.setattr("cake_moe.bench.device_read.find_spec", lambda name: None)
    settings = Settings(rounds=2, verify_tokens=2)
    peers = [lambda model: LoopPeer(1.0), lambda model: LoopPeer(1.1)]
    backend = cuda.CudaBackend(RandomWeights(), settings, "eager", peers)
    result = measure_case(Case(3, routing, "cold"), backend, settings)
    assert result.verified_tokens == 2
    assert result.matmul_seconds == backend.matmul_seconds(backend.variants(Case(3, routing, "warm"), 1)[0]) > 0
    assert result.notes["streaming read"] == "torch.amax, no Triton"
    if routing == "no_route":
        assert "loop" not in result.seconds
        return
    assert set(result.seconds) == {"streaming read", "cake_moe", "loop"}
    assert result.notes["loop"].startswith("fast; differs from float32 by 0.00")
    assert list(backend.left_out) == ["loop, M = 3, not timed"]
    assert "does not compute the layer: a relative difference of 0.1" in backend.left_out["loop, M = 3, not timed"]


def test_rows_of_an_expert_are_padded_in_the_arithmetic_floor() -> None:
    backend = backend_without_a_gpu()
    backend.matmul_rate = 1e12
    problem = dataclasses.make_dataclass("Problem", ["token_selected_experts"])
    ids = torch.tensor([[3] * 9 + [4] * 7], dtype=torch.int32)  # 16 + 8 rows of 8,257,536 operations
    assert backend.matmul_seconds(problem(ids)) == pytest.approx(24 * 8_257_536 / 1e12)


def test_a_peer_that_computes_something_else_is_refused() -> None:
    generator = torch.Generator().manual_seed(0)
    right = torch.randn(9, 3584, generator=generator)
    tokens = torch.tensor([0, 4, 8])
    near = Fake("near", 1.0, right.bfloat16(), "some tiles")
    cuda._require_same_layer(near, right[tokens], tokens)
    assert near.note.startswith("some tiles; differs from float32 by 0.00")
    one_token = right.clone()
    one_token[4] = right[5]
    for other in (right.roll(1, 0), one_token, right * torch.nan, right * 1.05):
        with pytest.raises(RuntimeError, match="far does not compute the layer"):
            cuda._require_same_layer(Fake("far", 1.0, other), right[tokens], tokens)


def test_amax_reads_the_bytes_of_each_variant() -> None:
    memory = torch.zeros(100, dtype=torch.int32)
    memory[19] = 5  # the high half of the tenth word
    read = DeviceAmax(memory, [80, 72])
    assert int(read.call(0)) == 5 << 32
    assert int(read.call(1)) == 0


def test_reads_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cake_moe.bench.device_read.find_spec", lambda name: None)
    assert [type(read) for read in candidates(torch.zeros(8, dtype=torch.int32), [32])] == [DeviceAmax]


def test_a_missing_peer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(humming, "find_spec", lambda name: None if name == "humming" else object())
    session = object.__new__(gpu_session.GpuSession)
    session.facts = {}
    assert session._peer("humming", [1]) == []
    assert session.facts == {"Humming W4A16": "not timed: the package humming is not installed"}
    assert len(session._peer("bf16", [1])) == 1


def event(start: float, duration: float, name: str = "k", category: str = "kernel") -> dict[str, Any]:
    return {"cat": category, "name": name, "ts": start, "dur": duration}


def test_time_line_of_replays() -> None:
    replays = [
        [event(0, 10, "a"), event(12, 5, "b"), event(16, 1, "c")],
        [event(100, 11, "a"), event(114, 5, "b"), event(118, 1, "c")],
        [event(200, 12, "a"), event(213, 5, "b"), event(217, 1, "c")],
    ]
    events = [*(e for replay in replays for e in reversed(replay)), event(5, 1, "host side", "cpu_op"), {"ph": "M"}]
    names, seconds, gaps = launches.time_line(events, 3)
    assert names == ["a", "b", "c"]
    assert seconds == pytest.approx([11e-6, 5e-6, 1e-6])
    assert gaps == pytest.approx([2e-6, 0.0])  # b starts 2, 3 and 1 us after a; c before b has ended


def test_time_line_needs_whole_replays() -> None:
    assert launches.time_line([event(0, 1), event(2, 1), event(4, 1)], 2) == ([], [], [])
    assert launches.time_line([], 4) == ([], [], [])


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_the_command_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "make_weights", lambda seed: None)
    assert cli.main(["--device", "cuda"]) == 2
    assert "torch sees no CUDA GPU" in capsys.readouterr().err

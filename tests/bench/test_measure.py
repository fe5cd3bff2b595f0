"""Order of events: verified first, then timed in turns, in the cache state that the case names."""

import dataclasses

import pytest
import torch

from cake_moe.bench import contenders, cpu
from cake_moe.bench.cases import Case
from cake_moe.bench.cpu import CpuBackend
from cake_moe.bench.measure import MIN_ROUNDS, Settings, measure_case, sample
from cake_moe.bench.results import CaseResult
from cake_moe.testing.compare import Mismatch
from cake_moe.testing.inputs import RandomWeights


class Tape:
    """A clock, a cache eviction and contenders that write down what happens."""

    name = "tape"

    def __init__(self) -> None:
        self.events: list[str] = []

    def seconds(self, call) -> float:
        self.events.append("start")
        call()
        self.events.append("stop")
        return float(len(self.events))

    def __call__(self) -> None:
        self.events.append("evict")


@dataclasses.dataclass
class Recorded:
    name: str
    tape: Tape
    note: str = ""

    def call(self, index: int) -> torch.Tensor:
        self.tape.events.append(f"{self.name}{index}")
        return torch.zeros(1)


def run(case: Case, settings: Settings, tape: Tape) -> CaseResult:
    return measure_case(case, CpuBackend(RandomWeights(), settings, tape, tape), settings)


def test_contenders_take_turns_and_variants_rotate() -> None:
    tape = Tape()
    pair = [Recorded("a", tape), Recorded("b", tape)]
    settings = Settings(rounds=3)
    samples = sample(pair, 2, settings, tape, lambda contender, index: tape())
    turn = "evict start a{0} stop evict start b{0} stop"
    assert " ".join(tape.events) == " ".join(["a0 b0", *(turn.format(index) for index in (0, 1, 0))])
    assert {name: len(values) for name, values in samples.items()} == {"a": 3, "b": 3}


def test_budget_ends_after_the_smallest_number_of_rounds() -> None:
    tape = Tape()
    samples = sample([Recorded("a", tape)], 1, Settings(rounds=50, budget=0.0), tape, lambda contender, index: None)
    assert len(samples["a"]) == MIN_ROUNDS


def test_a_wrong_operator_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    call = cpu.stages.call

    def wrong(problem, workspace, output) -> None:
        call(problem, workspace, output)
        output[0, 17] += 1

    monkeypatch.setattr(cpu.stages, "call", wrong)
    tape = Tape()
    with pytest.raises(Mismatch, match=r"finalize: row 0, column 17"):
        run(Case(1, "uniform", "cold"), Settings(rounds=1), tape)
    assert tape.events == []


def test_timed_calls_must_give_the_verified_output(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(contenders.Operator):
        def call(self, index: int) -> torch.Tensor:
            return super().call(index).neg_()

    monkeypatch.setattr(cpu, "Operator", Other)
    tape = Tape()
    with pytest.raises(AssertionError, match="do not give the verified output"):
        run(Case(1, "uniform", "warm"), Settings(rounds=1, pool=0), tape)


def test_an_output_that_the_timed_calls_do_not_write_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle(contenders.Operator):
        """Right for as long as somebody else's result is in the output."""

        calls = 0

        def call(self, index: int) -> torch.Tensor:
            self.calls += 1
            return super().call(index) if self.calls < 3 else self._output

    monkeypatch.setattr(cpu, "Operator", Idle)
    with pytest.raises(AssertionError, match="do not give the verified output"):
        run(Case(1, "uniform", "cold"), Settings(rounds=1, pool=0), Tape())


def test_what_was_chosen_for_a_case_is_in_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders.StreamingRead, "note", "backwards")
    result = run(Case(1, "uniform", "cold"), Settings(rounds=1, pool=0), Tape())
    assert result.notes == {"streaming read": "backwards"}


@pytest.mark.parametrize(("state", "evictions"), [("cold", 3 * 2), ("warm", 0)])
def test_case_result(state: str, evictions: int) -> None:
    tape = Tape()
    settings = Settings(rounds=2, pool=4, seed=4)
    result = run(Case(2, "uniform", state), settings, tape)
    assert set(result.seconds) == {"streaming read", "cake_moe", "torch.mm loop"}
    assert tape.events.count("evict") == evictions
    assert (result.tokens, result.routes, result.state) == (2, 32, state)
    assert result.variants == (2 if state == "cold" else 1)
    assert 16 <= result.experts <= 32
    assert result.touched_bytes == result.experts * 2_322_432
    assert 0 < result.row_error <= result.row_bound
    assert result.verified_tokens == 2
    assert (result.matmul_seconds, result.notes) == (0.0, {})

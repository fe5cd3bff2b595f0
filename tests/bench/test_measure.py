"""Order of events: verified first, then timed in turns, in the cache state that the case names."""

import dataclasses

import pytest
import torch

from cake_moe.bench import contenders, measure
from cake_moe.bench.cases import Case
from cake_moe.bench.measure import MIN_ROUNDS, Settings, measure_case, sample
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

    def call(self, index: int) -> torch.Tensor:
        self.tape.events.append(f"{self.name}{index}")
        return torch.zeros(1)


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
    call = measure.stages.call

    def wrong(problem, workspace, output) -> None:
        call(problem, workspace, output)
        output[0, 17] += 1

    monkeypatch.setattr(measure.stages, "call", wrong)
    tape = Tape()
    with pytest.raises(Mismatch, match=r"finalize: row 0, column 17"):
        measure_case(Case(1, "uniform", "cold"), RandomWeights(), Settings(rounds=1), tape, tape)
    assert tape.events == []


def test_timed_calls_must_give_the_verified_output(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(contenders.Operator):
        def call(self, index: int) -> torch.Tensor:
            return super().call(index).neg_()

    monkeypatch.setattr(measure, "Operator", Other)
    tape = Tape()
    with pytest.raises(AssertionError, match="do not give the verified output"):
        measure_case(Case(1, "uniform", "warm"), RandomWeights(), Settings(rounds=1, pool=0), tape, tape)


@pytest.mark.parametrize(("state", "evictions"), [("cold", 3 * 2), ("warm", 0)])
def test_case_result(state: str, evictions: int) -> None:
    tape = Tape()
    settings = Settings(rounds=2, pool=4, seed=4)
    result = measure_case(Case(2, "uniform", state), RandomWeights(), settings, tape, tape)
    assert set(result.seconds) == {"streaming read", "cake_moe", "torch.mm loop"}
    assert tape.events.count("evict") == evictions
    assert (result.tokens, result.routes, result.state) == (2, 32, state)
    assert result.variants == (2 if state == "cold" else 1)
    assert 16 <= result.experts <= 32
    assert result.touched_bytes == result.experts * 2_322_432
    assert 0 < result.row_error <= result.row_bound

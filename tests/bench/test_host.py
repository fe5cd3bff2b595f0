"""The measurement of what a call costs the caller's thread."""

from __future__ import annotations

import pytest
import torch

from cake_moe.bench import host
from cake_moe.testing.inputs import make_inputs


def test_turns_of_a_hundred_between_synchronisations() -> None:
    events: list[str] = []
    calls = {"a": (lambda: events.append("a"), 250), "b": (lambda: events.append("b"), 100)}
    medians = host.median_seconds(calls, lambda: events.append("sync"))
    turn = ["sync", *["a"] * 100]
    assert events == ["a", "b", *turn, "sync", *["b"] * 100, *turn, *turn, "sync"]
    assert set(medians) == {"a", "b"}
    assert all(0 < seconds < 1 for seconds in medians.values())


def test_the_empty_operator_has_the_schema_and_does_nothing() -> None:
    empty = host.empty_operator()
    assert host.empty_operator() is empty
    ours, theirs = torch.ops.cake.fused_moe.default._schema, torch.ops.cake_moe_bench.empty.default._schema
    assert str(theirs) == str(ours).replace("cake::fused_moe", "cake_moe_bench::empty")
    result = host.measure_host(make_inputs(1), empty, 100, lambda: None)
    assert (result.tokens, result.calls) == (1, 100)
    assert result.empty is not None
    assert result.recording is not None
    assert 0 < result.empty < result.operator
    assert 0 < result.recording < 1


def test_without_a_compiler_there_is_no_yardstick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_built", {})
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(OSError, match="no C\\+\\+ compiler"):
        host.empty_operator()

"""What prepare_workspace promises: for which bytes, for which counts, and for how long."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import cake_moe
from cake_moe.testing.inputs import MoeInputs
from cake_moe.testing.stages import POISON, run, stage_views

Problems = Callable[[int], MoeInputs]
SameBits = Callable[[Tensor, Tensor], bool]


def buffer(num_tokens: int, extra: int = 0) -> Tensor:
    return torch.full((cake_moe.workspace_size(num_tokens) + extra,), POISON, dtype=torch.uint8)


class Memory:
    """Bytes at one address that one storage after the other can own."""

    def __init__(self, num_tokens: int) -> None:
        self.size = cake_moe.workspace_size(num_tokens)
        self.raw = bytearray(self.size + 64)
        self.offset = -torch.frombuffer(self.raw, dtype=torch.uint8).data_ptr() % 64

    def tensor(self) -> Tensor:
        return torch.frombuffer(self.raw, dtype=torch.uint8, offset=self.offset, count=self.size)


def is_prepared(problem: MoeInputs, workspace: Tensor) -> bool:
    try:
        cake_moe.fused_moe(**vars(problem), workspace=workspace)
    except ValueError as error:
        assert "must be prepared for" in str(error)  # noqa: PT017
        return False
    return True


def test_prepare_returns_its_argument_and_writes_the_constants() -> None:
    workspace = buffer(3)
    assert cake_moe.prepare_workspace(workspace, 3) is workspace
    stages = stage_views(workspace, 3)
    assert (stages.beta == 4).all()
    assert (stages.linear_beta == 25).all()


def test_only_the_prepared_counts(make_problem: Problems) -> None:
    workspace = cake_moe.prepare_workspace(buffer(16), 7)
    assert is_prepared(make_problem(7), workspace)
    assert not is_prepared(make_problem(5), workspace)
    assert not is_prepared(make_problem(16), workspace)


def test_one_buffer_holds_many_counts(make_problem: Problems, same_bits: SameBits) -> None:
    workspace = buffer(16)
    for tokens in (16, 1, 7):
        cake_moe.prepare_workspace(workspace, tokens)
    for tokens in (1, 16, 7, 16, 1):
        problem = make_problem(tokens)
        assert same_bits(cake_moe.fused_moe(**vars(problem), workspace=workspace), run(problem)[0])


def test_the_message_lists_what_is_prepared(make_problem: Problems) -> None:
    workspace = buffer(64)
    cake_moe.prepare_workspace(workspace, 4, up_to=True)
    for tokens in (16, 32, 33, 64):
        cake_moe.prepare_workspace(workspace, tokens)
    text = r"prepared for 5 tokens \(prepare_workspace\), got one prepared for 1\.\.4, 16, 32\.\.33, 64$"
    with pytest.raises(ValueError, match=text):
        cake_moe.fused_moe(**vars(make_problem(5)), workspace=workspace)


def test_up_to_prepares_every_smaller_count(make_problem: Problems) -> None:
    workspace = cake_moe.prepare_workspace(buffer(17), 16, up_to=True)
    for tokens in range(1, 17):
        assert is_prepared(make_problem(5).take(torch.arange(tokens) % 5), workspace)
    assert not is_prepared(make_problem(17), workspace)


def test_up_to_16384_takes_less_than_50_ms() -> None:
    workspace = torch.empty(cake_moe.workspace_size(16384), dtype=torch.uint8)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        cake_moe.prepare_workspace(workspace, 16384, up_to=True)
        times.append(time.perf_counter() - start)
        cake_moe.forget_workspace(workspace)
    assert min(times) < 0.05


def test_an_alias_is_the_same_buffer(make_problem: Problems) -> None:
    workspace = cake_moe.prepare_workspace(buffer(5), 5)
    for alias in (workspace[:], workspace.view(-1, 1).view(-1), workspace.detach(), workspace.view(torch.int8)):
        assert is_prepared(make_problem(5), alias)


@pytest.mark.parametrize(("start", "stop"), [(64, None), (0, -1), (0, -64)])
def test_a_view_with_another_start_or_size_is_not(make_problem: Problems, start: int, stop: int | None) -> None:
    workspace = cake_moe.prepare_workspace(buffer(5, extra=64), 5)
    view = workspace[start:stop]
    assert not is_prepared(make_problem(5), view)
    cake_moe.prepare_workspace(view, 5)
    assert is_prepared(make_problem(5), view)
    # Only a view with the same start has its constants in the same place.
    assert is_prepared(make_problem(5), workspace) == (start == 0)


def test_state_ends_when_the_storage_is_freed_and_its_address_reused(make_problem: Problems) -> None:
    memory = Memory(5)
    first = cake_moe.prepare_workspace(memory.tensor(), 5)
    address = first.data_ptr()
    assert is_prepared(make_problem(5), first)
    del first
    gc.collect()
    second = memory.tensor()
    assert second.data_ptr() == address
    assert not is_prepared(make_problem(5), second)


def test_state_lives_as_long_as_any_alias(make_problem: Problems) -> None:
    memory = Memory(5)
    workspace = cake_moe.prepare_workspace(memory.tensor(), 5)
    alias = workspace[:]
    part = workspace[100:]
    del workspace
    gc.collect()
    assert is_prepared(make_problem(5), alias)
    del alias
    gc.collect()
    assert is_prepared(make_problem(5), memory.tensor())  # `part` still holds the storage
    del part
    gc.collect()
    assert not is_prepared(make_problem(5), memory.tensor())


def test_a_new_owner_of_the_bytes_takes_the_state_over(make_problem: Problems) -> None:
    """The end of an earlier storage must not end what a later one prepared."""
    memory = Memory(5)
    first = cake_moe.prepare_workspace(memory.tensor(), 5)
    second = cake_moe.prepare_workspace(memory.tensor(), 5)
    del first
    gc.collect()
    assert is_prepared(make_problem(5), second)
    del second
    gc.collect()
    assert not is_prepared(make_problem(5), memory.tensor())


@pytest.mark.parametrize("forget", [cake_moe.forget_workspace, torch.ops.cake.forget_workspace], ids=["python", "raw"])
def test_forget(make_problem: Problems, forget: Callable[[Tensor], None]) -> None:
    workspace = buffer(5)
    torch.ops.cake.prepare_workspace(workspace, 5)
    assert is_prepared(make_problem(5), workspace)
    forget(workspace[:-1])  # other bytes
    assert is_prepared(make_problem(5), workspace)
    forget(workspace)
    assert not is_prepared(make_problem(5), workspace)
    forget(workspace)


def test_prepare_allocates_no_tensor_storage() -> None:
    workspace = buffer(64)
    with torch.profiler.profile(profile_memory=True) as profile:
        cake_moe.prepare_workspace(workspace, 64, up_to=True)
    events = list(profile.events())
    assert any(event.name == "cake::prepare_workspace" for event in events)
    assert sum(abs(event.self_cpu_memory_usage) for event in events) == 0


def test_two_threads_with_their_own_workspaces(make_problem: Problems, same_bits: SameBits) -> None:
    counts = (3, 16)
    expected = {tokens: run(make_problem(tokens))[0] for tokens in counts}
    failures: list[str] = []

    def work(tokens: int) -> None:
        problem = make_problem(tokens)
        workspace = cake_moe.prepare_workspace(buffer(tokens), tokens)
        output = torch.empty_like(problem.input)
        for repetition in range(25):
            output.view(torch.uint8).fill_(POISON)
            cake_moe.fused_moe(**vars(problem), workspace=workspace, output=output)
            if not same_bits(output, expected[tokens]):
                failures.append(f"M={tokens}, call {repetition}")

    threads = [threading.Thread(target=work, args=(tokens,)) for tokens in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_preparing_and_forgetting_from_many_threads(make_problem: Problems) -> None:
    problem = make_problem(1)
    steady = cake_moe.prepare_workspace(buffer(1), 1)
    failures: list[BaseException] = []

    def churn() -> None:
        try:
            for tokens in range(1, 60):
                workspace = cake_moe.prepare_workspace(buffer(1), 1)
                assert is_prepared(problem, workspace)
                cake_moe.prepare_workspace(steady, 1, up_to=tokens % 2 == 0)
                del workspace
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert is_prepared(problem, steady)


def test_overwritten_workspace_is_refused(make_problem: Problems) -> None:
    problem = make_problem(5)
    workspace = buffer(problem.num_tokens)
    cake_moe.prepare_workspace(workspace, problem.num_tokens)
    assert is_prepared(problem, workspace)
    workspace.zero_()
    with pytest.raises(ValueError, match="got one that was overwritten since"):
        cake_moe.fused_moe(**vars(problem), workspace=workspace)


def test_replaced_storage_is_refused(make_problem: Problems) -> None:
    problem = make_problem(5)
    workspace = buffer(problem.num_tokens)
    cake_moe.prepare_workspace(workspace, problem.num_tokens)
    workspace.untyped_storage().resize_(0)
    output = torch.full_like(problem.input, 7)
    with pytest.raises(ValueError, match=r"fused_moe: workspace must be backed by \d+ bytes of storage, got 0"):
        cake_moe.fused_moe(**vars(problem), workspace=workspace, output=output)
    with pytest.raises(ValueError, match=r"prepare_workspace: workspace must be backed by \d+ bytes of storage, got 0"):
        cake_moe.prepare_workspace(workspace, problem.num_tokens)
    assert (output == 7).all()


def test_freed_input_is_refused(make_problem: Problems) -> None:
    problem = make_problem(5)
    workspace = cake_moe.prepare_workspace(buffer(problem.num_tokens), problem.num_tokens)
    arguments = vars(problem) | {"input": problem.input.clone()}
    arguments["input"].untyped_storage().resize_(100)
    with pytest.raises(ValueError, match=r"fused_moe: input must be backed by \d+ bytes of storage, got 100"):
        cake_moe.fused_moe(**arguments, workspace=workspace, output=torch.empty_like(problem.input))


def test_preparing_an_overlapping_buffer_forgets_the_other(make_problem: Problems) -> None:
    problem = make_problem(5)
    whole = buffer(problem.num_tokens, extra=64)
    size = cake_moe.workspace_size(problem.num_tokens)
    first, second = whole[:size], whole[64 : 64 + size]
    cake_moe.prepare_workspace(first, problem.num_tokens)
    cake_moe.prepare_workspace(second, problem.num_tokens)
    assert is_prepared(problem, second)
    with pytest.raises(ValueError, match="got an unprepared buffer"):
        cake_moe.fused_moe(**vars(problem), workspace=first)

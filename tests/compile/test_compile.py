"""torch.compile(fullgraph=True, dynamic=True): results, one graph for every token count, no copy of big arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor.utils import run_and_get_code

import cake_moe
from cake_moe.testing.inputs import MoeInputs

Problems = Callable[[int], MoeInputs]
Workspaces = Callable[[int], Tensor]

TOKENS = (5, 7, 16)


def operands(problem: MoeInputs) -> tuple[Any, ...]:
    return (
        problem.input,
        problem.token_selected_experts,
        problem.token_final_scales,
        problem.fc1_expert_weights,
        problem.fc2_expert_weights,
        problem.quant_scales,
    )


def functional(x: Tensor, ids: Tensor, weights: Tensor, w13: Tensor, w2: Tensor, scales: list[Tensor]) -> Tensor:
    return cake_moe.fused_moe(x, ids, weights, w13, w2, scales)


def into_output(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    w13: Tensor,
    w2: Tensor,
    scales: list[Tensor],
    workspace: Tensor,
    output: Tensor,
) -> Tensor:
    return cake_moe.fused_moe(x, ids, weights, w13, w2, scales, workspace=workspace, output=output)


def inside_a_model(
    x: Tensor, ids: Tensor, weights: Tensor, w13: Tensor, w2: Tensor, scales: list[Tensor], workspace: Tensor
) -> Tensor:
    """The operands come from other operators of the graph, and the result goes on."""
    routed = cake_moe.fused_moe(x * 2, ids, weights.softmax(-1), w13, w2, scales, workspace=workspace)
    return x + routed


def same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def test_functional(make_problem: Problems) -> None:
    compiled = torch.compile(functional, fullgraph=True, dynamic=True)
    for count, tokens in enumerate(TOKENS):
        arguments = operands(make_problem(tokens))
        with torch.compiler.set_stance("default" if count == 0 else "fail_on_recompile"):
            assert same_bits(compiled(*arguments), functional(*arguments))


def test_into_output(make_problem: Problems, new_workspace: Workspaces) -> None:
    compiled = torch.compile(into_output, fullgraph=True, dynamic=True)
    workspace = cake_moe.prepare_workspace(new_workspace(16), 16, up_to=True)
    for count, tokens in enumerate(TOKENS):
        problem = make_problem(tokens)
        output = torch.empty_like(problem.input)
        with torch.compiler.set_stance("default" if count == 0 else "fail_on_recompile"):
            result = compiled(*operands(problem), workspace, output)
        assert result.data_ptr() == output.data_ptr()
        assert same_bits(output, functional(*operands(problem)))


def test_into_output_without_workspace(make_problem: Problems) -> None:
    def call(*arguments: Any) -> Tensor:
        *inputs, output = arguments
        return cake_moe.fused_moe(*inputs, output=output)

    compiled = torch.compile(call, fullgraph=True, dynamic=True)
    for count, tokens in enumerate(TOKENS):
        problem = make_problem(tokens)
        output = torch.full_like(problem.input, torch.nan)
        with torch.compiler.set_stance("default" if count == 0 else "fail_on_recompile"):
            assert compiled(*operands(problem), output).data_ptr() == output.data_ptr()
        assert same_bits(output, functional(*operands(problem)))
    for spoilt, text in (
        (output.float(), "output must be of the result's dtype, torch.bfloat16, got"),
        (output[:4], "output must be of the result's shape, "),
    ):
        with pytest.raises(Exception, match=text):
            compiled(*operands(problem), spoilt)


def big_arguments_of_the_call(code: str, operator: str) -> list[str]:
    """What generated code passes for weights, block scales and workspace; fails if there is not exactly one call."""
    (call,) = re.findall(rf"torch\.ops\.cake\.{operator}\.default\((.*)\)", code)
    before, scales, after = re.fullmatch(r"(.*), \[(.*)\](.*)", call).groups()  # type: ignore[union-attr]
    fc1, fc2 = before.split(", ")[3:5]
    scale = scales.split(", ")
    workspace = after.split(", ")[1]
    return [fc1, fc2, scale[1], scale[4], workspace]


def find_copies(code: str) -> list[str]:
    """Big arguments that are not the graph's own inputs, or that anything but the call reads."""
    found = []
    for name in big_arguments_of_the_call(code, "fused_moe"):
        if not re.fullmatch(r"arg\d+_1", name):
            found.append(f"{name} is no input of the graph")
        uses = [line.strip() for line in code.splitlines() if re.search(rf"\b{name}\b", line)]
        harmless = ("torch.ops.cake.fused_moe.default(", "assert_size_stride(", "del ", "args.clear()")
        found += [use for use in uses if not use.startswith(harmless) and not use.endswith("= args")]
    return found


def compile_and_run(function: Callable[..., Tensor], arguments: tuple[Any, ...]) -> tuple[Tensor, str]:
    """The result and the generated code without inductor's benchmark of it."""
    with torch._inductor.config.patch(benchmark_harness=False):
        compiled = torch.compile(function, fullgraph=True, dynamic=True)
        result, (code,) = run_and_get_code(compiled, *arguments)
    return result, code


def test_generated_code_copies_no_weights_and_no_workspace(make_problem: Problems, new_workspace: Workspaces) -> None:
    arguments = (*operands(make_problem(5)), new_workspace(5))
    result, code = compile_and_run(inside_a_model, arguments)
    assert same_bits(result, inside_a_model(*arguments))
    assert find_copies(code) == []


def test_the_search_for_copies_finds_them(make_problem: Problems, new_workspace: Workspaces) -> None:
    def copying(*arguments: Any) -> Tensor:
        *inputs, workspace, output = arguments
        return into_output(*inputs, workspace.clone(), output)

    problem = make_problem(5)
    arguments = (*operands(problem), new_workspace(5), torch.empty_like(problem.input))
    with cake_moe.testing.auto_prepare():
        _, code = compile_and_run(copying, arguments)
    assert find_copies(code) != []


def test_preparation_inside_a_graph(make_problem: Problems) -> None:
    def prepare_and_run(*arguments: Any) -> Tensor:
        *inputs, workspace, output = arguments
        cake_moe.prepare_workspace(workspace, 16, up_to=True)
        return into_output(*inputs, workspace, output)

    problem = make_problem(5)
    workspace = torch.empty(cake_moe.workspace_size(16), dtype=torch.uint8)
    compiled = torch.compile(prepare_and_run, fullgraph=True, dynamic=True)
    result = compiled(*operands(problem), workspace, torch.empty_like(problem.input))
    assert same_bits(result, functional(*operands(problem)))
    cake_moe.forget_workspace(workspace)


@pytest.mark.parametrize("query", [cake_moe.workspace_size, torch.ops.cake.workspace_size], ids=["python", "raw"])
def test_size_of_a_symbolic_count(query: Callable[[int], int]) -> None:
    def allocate(x: Tensor) -> Tensor:
        return torch.empty(query(x.shape[0]), dtype=torch.uint8)

    compiled = torch.compile(allocate, fullgraph=True, dynamic=True)
    for count, tokens in enumerate(TOKENS):
        with torch.compiler.set_stance("default" if count == 0 else "fail_on_recompile"):
            assert compiled(torch.empty(tokens, 3)).numel() == cake_moe.workspace_size(tokens)


def test_quantize() -> None:
    x, encode = torch.randn(6, 3, 64).bfloat16(), torch.tensor([7.0])
    packed, scales = torch.compile(cake_moe.quantize_nvfp4, fullgraph=True, dynamic=True)(x, encode)
    expected_packed, expected_scales = cake_moe.quantize_nvfp4(x, encode)
    assert torch.equal(packed, expected_packed)
    assert same_bits(scales, expected_scales)
    assert scales.dtype == torch.float8_e4m3fn


def test_gradients_are_refused_while_tracing(make_problem: Problems) -> None:
    x, *rest = operands(make_problem(5))
    compiled = torch.compile(functional, fullgraph=True, dynamic=True)
    with pytest.raises(Exception, match="without gradient"):
        compiled(x.clone().requires_grad_(), *rest)


def test_meta_tensors_give_shapes(problem: MoeInputs) -> None:
    scales = [scale.to("meta") for scale in problem.quant_scales]
    inputs = [tensor.to("meta") for tensor in operands(problem)[:5]]
    result = cake_moe.fused_moe(*inputs, scales)
    assert (result.shape, result.dtype, result.device.type) == (problem.input.shape, torch.bfloat16, "meta")
    workspace = torch.empty(cake_moe.workspace_size(5), dtype=torch.uint8, device="meta")
    cake_moe.prepare_workspace(workspace, 5)
    assert cake_moe.fused_moe(*inputs, scales, workspace=workspace).is_meta

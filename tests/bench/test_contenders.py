"""What the benchmark times does the work that it claims."""

import pytest
import torch

from cake_moe import reference
from cake_moe.bench.contenders import MatmulLoop, Operator, StreamingRead
from cake_moe.layout import EXPERTS, FC1_ROWS, HIDDEN, INTERMEDIATE
from cake_moe.testing import stages
from cake_moe.testing.inputs import MoeInputs, RandomWeights, make_inputs
from cake_moe.testing.routings import expert_pool

LARGEST = 2**63 - 1
UNIT = 2 * 2.0**-53  # of both evaluations together


@pytest.fixture(scope="module")
def weights() -> RandomWeights:
    return RandomWeights(seed=1)


@pytest.fixture(scope="module")
def problem(weights: RandomWeights) -> MoeInputs:
    return make_inputs(5, experts=expert_pool(20), seed=2, weights=weights)


def test_operator_gives_the_output(problem: MoeInputs) -> None:
    expected, _ = stages.run(problem)
    operator = Operator([problem])
    operator.call(0)
    assert torch.equal(operator.call(0).view(torch.int16), expected.view(torch.int16))


def test_streaming_read_covers_the_announced_experts_and_moves_on(weights: RandomWeights, problem: MoeInputs) -> None:
    count = len(problem.token_selected_experts.unique())
    weights.touch(range(2 * count))
    tensors = [
        part.view(EXPERTS, -1).view(torch.int64)
        for part in (weights.fc1, weights.fc1_scales, weights.fc2, weights.fc2_scales)
    ]
    for first in (0, count):
        for expert, word in ((first, 0), (first + count - 1, -1)):  # both ends of the range
            kept = [int(words[expert, word]) for words in tensors]
            read = StreamingRead(weights, [problem])
            for _ in range(0, first, count):
                read.call(0)
            for number, words in enumerate(tensors):
                words[expert, word] = LARGEST - number
            assert read.call(0).tolist() == [LARGEST - number for number in range(4)]
            for words, value in zip(tensors, kept, strict=True):
                words[expert, word] = value


def test_streaming_read_starts_again_at_the_end(weights: RandomWeights, problem: MoeInputs) -> None:
    read = StreamingRead(weights, [problem])
    first = read.call(0)
    read._next = EXPERTS - 1
    assert torch.equal(read.call(0), first)


def _layer_without_quantised_activations(problem: MoeInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """The layer in float64, and for each output the largest difference of another float64 evaluation.

    A sum of n products has an error of at most 1.01 n u sum|terms|, u = 2^-53, in each evaluation; SiTU is Lipschitz:
    b tanh(g/b) sigmoid(g) by 1 + b/4 and l tanh(u/l) by 1, while the factors are at most b and l.
    """
    encode, s1, a1, hidden_encode, s2, a2 = problem.quant_scales
    betas, linear_betas = problem.betas
    out = torch.zeros(problem.num_tokens, HIDDEN, dtype=torch.float64)
    error = torch.zeros_like(out)
    x = problem.input.double()
    for token, slot in torch.cartesian_prod(torch.arange(problem.num_tokens), torch.arange(16)).tolist():
        e = int(problem.token_selected_experts[token, slot])
        w13 = reference.fc1_expert(problem.fc1_expert_weights, s1, e, "prepared", torch.float64) * (a1[e] * encode)
        w2 = reference.fc2_expert(problem.fc2_expert_weights, s2, e, "prepared", torch.float64) * (
            a2[e] * hidden_encode[e]
        )
        b, l = betas[e].double(), linear_betas[e].double()  # noqa: E741
        up, gate = (w13 @ x[token]).chunk(2)
        up_error, gate_error = (1.01 * (HIDDEN + 2) * UNIT * (w13.abs() @ x[token].abs())).chunk(2)
        p = b * torch.tanh(gate / b) * torch.sigmoid(gate)
        q = l * torch.tanh(up / l)
        p_error = (1 + b / 4) * gate_error + 16 * UNIT * b
        q_error = up_error + 16 * UNIT * l
        hidden = p * q
        hidden_error = p_error * (q.abs() + q_error) + q_error * p.abs()
        weight = problem.token_final_scales[token, slot].double()
        size = w2.abs() @ (hidden.abs() + hidden_error)
        out[token] += weight * (w2 @ hidden)
        error[token] += weight.abs() * (w2.abs() @ hidden_error + 1.01 * (INTERMEDIATE + 20) * UNIT * size)
    return out, error


def test_matmul_loop_is_the_layer(problem: MoeInputs) -> None:
    few = problem.take(slice(0, 1))
    expected, bound = _layer_without_quantised_activations(few)
    result = MatmulLoop([few], pool_size=16, dtype=torch.float64).call(0)
    assert bool(((result - expected).abs() <= bound).all())
    assert bool(bound.norm() < 1e-6 * expected.norm()), "a bound that lets a wrong weight pass"
    assert MatmulLoop([few], pool_size=1).call(0).dtype == torch.float32


def test_matmul_loop_shares_a_small_pool(problem: MoeInputs) -> None:
    touched = problem.token_selected_experts.unique().tolist()
    loop = MatmulLoop([problem], pool_size=4)
    assert len(loop._pool) == 4
    assert sorted(loop._slot[0]) == touched
    assert set(loop._slot[0].values()) == set(range(4))
    assert loop._pool[0][0].shape == (FC1_ROWS, HIDDEN)
    assert loop.call(0).shape == (5, HIDDEN)

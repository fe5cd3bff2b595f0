"""The example of the README runs as it stands there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import cake_moe
from cake_moe.checkpoint import CheckpointLayer
from cake_moe.testing.inputs import make_inputs
from cake_moe.weights import PreparedWeights

README = Path(__file__).parents[2] / "README.md"


def layer_of_random_weights(*_: Any, **__: Any) -> CheckpointLayer:
    """What load_checkpoint_layer returns, with weights of all 896 experts."""
    problem = make_inputs(64, routing="balanced", seed=0)
    _, fc1_scales, fc1_alpha, _, fc2_scales, fc2_alpha = problem.quant_scales
    weights = PreparedWeights(
        problem.fc1_expert_weights, fc1_scales, fc1_alpha, problem.fc2_expert_weights, fc2_scales, fc2_alpha
    )
    return CheckpointLayer(weights, problem.quant_scales, report=None)  # type: ignore[arg-type]


def test_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cake_moe, "load_checkpoint_layer", layer_of_random_weights)
    code = README.read_text().split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    torch.manual_seed(0)
    exec(compile(code, str(README), "exec"), names)
    assert names["output"].isfinite().all()
    assert names["output"].float().norm() > 0

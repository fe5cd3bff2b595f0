"""Humming (the package ``humming-kernels``) as a peer: NVFP4 weights, bfloat16 activations, two expert GEMMs.

Its heuristic picks a kernel for each count of rows; what lies around the GEMMs is in `glue`. Both of its layouts for
routed rows are candidates: `indexed` reads tokens where they are and pads each expert's rows to the tile, grouped
takes rows gathered by expert.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from cake_moe.layout import (
    EXPERTS,
    FC1_ROWS,
    GROUP,
    HIDDEN,
    INTERMEDIATE,
    TOP_K,
    deinterleave_scales,
    fc1_row_order_inverse,
    fc2_row_order_inverse,
)
from cake_moe.testing.inputs import MoeInputs

from .contenders import Contender

LAYOUTS = ("indexed", "grouped_contiguous")
_FORMAT = {"dtype": "float4e2m1", "group_size": GROUP, "scale_dtype": "float8e4m3", "scale_2_type": "tensor"}


def missing() -> str | None:
    """The first package that this peer needs and that is not installed."""
    return next((name for name in ("triton", "humming") if find_spec(name) is None), None)


class Humming:
    """Both layers' weights in Humming's format (2 GB), and the kernels for some token counts, compiled beforehand."""

    name = "Humming W4A16"

    def __init__(self, model: MoeInputs, counts: Sequence[int]) -> None:
        """model: a problem on a GPU that has all experts' weights; counts: tokens of the cases to come."""
        encode, s1, a1, hidden_encode, s2, a2 = model.quant_scales
        self.fc1 = _layer(model.fc1_expert_weights, s1, fc1_row_order_inverse(), encode * a1)
        self.fc2 = _layer(model.fc2_expert_weights, s2, fc2_row_order_inverse(), hidden_encode * a2)
        for layout in LAYOUTS:
            for layer in (self.fc1, self.fc2):
                self._compile(layer, layout, counts)

    def tuning(self, layer: Any, layout: str, tokens: int) -> dict[str, Any]:
        """Humming's own choice of a kernel for `layer` at this count."""
        tune = import_module("humming.tune")
        chosen = tune.get_heuristics_config(layer.humming_config, shape_m=tokens * TOP_K, gemm_type=layout)
        config: dict[str, Any] = json.loads(json.dumps(chosen))
        return config

    def candidates(self, variants: Sequence[MoeInputs]) -> list[Contender]:
        return [_Calls(self, variants, layout) for layout in LAYOUTS]

    def _compile(self, layer: Any, layout: str, counts: Sequence[int]) -> None:
        """All kernels of a layer at once: Humming compiles a list of them in parallel."""
        distinct = {json.dumps(self.tuning(layer, layout, tokens), sort_keys=True) for tokens in counts}
        kernel = import_module("humming.kernel.humming").HummingKernel
        kernel.prepare_kernels(
            layer.humming_config.to_str(),
            json.dumps({"gemm_type": layout}),
            [[0, 1 << 30, json.loads(config)] for config in sorted(distinct)],
            device=0,
        )


def _layer(packed: Tensor, scales: Tensor, order: Tensor, global_scales: Tensor) -> Any:
    """A Humming layer with prepared weights [E, N, K/2] and their scales, brought back into canonical order."""
    order = order.to(packed.device)
    rows, columns = packed.shape[1], 2 * packed.shape[2]
    with packed.device:
        layer = import_module("humming.layer").HummingLayer(
            shape_n=rows,
            shape_k=columns,
            num_experts=EXPERTS,
            torch_dtype=torch.bfloat16,
            weight_config=dict(_FORMAT),
        )
    layer.weight.data.copy_(packed[:, order].view(torch.int32))
    canonical = deinterleave_scales(scales)[:, order]
    layer.weight_scale.data.view(torch.uint8).copy_(canonical)
    layer.weight_scale_2.data.copy_(global_scales.view_as(layer.weight_scale_2))
    layer.transform()
    return layer


class _Calls:
    name = Humming.name

    def __init__(self, peer: Humming, variants: Sequence[MoeInputs], layout: str) -> None:
        self._glue = import_module("cake_moe.bench.glue")
        self._peer, self._variants, self._layout = peer, variants, layout
        tokens = variants[0].num_tokens
        configs = [peer.tuning(layer, layout, tokens) for layer in (peer.fc1, peer.fc2)]
        self._options = [
            {
                "valid_shape_m": tokens * TOP_K,
                "compute_config": json.dumps({"gemm_type": layout}),
                "tuning_config": json.dumps(config),
            }
            for config in configs
        ]
        units = [config["block_shape"][0] if layout == "indexed" else 1 for config in configs]
        self.note = f"{layout}, tiles " + " and ".join("x".join(map(str, config["block_shape"])) for config in configs)
        self._groups = []
        for variant in variants:
            by_unit = {unit: self._glue.Groups(variant.token_selected_experts, unit) for unit in units}
            self._groups.append([by_unit[unit] for unit in units])

        def rows(columns: int) -> Tensor:
            shape = (tokens * TOP_K, columns)
            return torch.empty(shape, dtype=torch.bfloat16, device=variants[0].input.device)

        self._sums, self._hidden, self._rows = rows(FC1_ROWS), rows(INTERMEDIATE), rows(HIDDEN)
        self._gathered = rows(HIDDEN) if layout != "indexed" else None
        self._output = torch.empty_like(variants[0].input)

    def call(self, index: int) -> Tensor:
        problem, (first, second) = self._variants[index], self._groups[index]
        first.find()
        if second is not first:
            second.find()
        if self._gathered is None:
            source = problem.input
            arguments = [_indexed(first, TOP_K), _indexed(second, 1)]
        else:
            self._glue.gather(problem.input, first, self._gathered)
            source = self._gathered
            arguments = [{"expert_layout": groups.starts[: EXPERTS + 1]} for groups in (first, second)]
        self._peer.fc1(inputs=source, outputs=self._sums, **arguments[0], **self._options[0])
        self._glue.situ(self._sums, self._hidden)
        self._peer.fc2(inputs=self._hidden, outputs=self._rows, **arguments[1], **self._options[1])
        placed = None if self._gathered is None else first
        self._glue.weighted_sum(self._rows, problem.token_final_scales, placed, self._output)
        return self._output


def _indexed(groups: Any, routes_per_row: int) -> dict[str, Any]:
    return {
        "sorted_ids": groups.slot_route,
        "expert_ids": groups.unit_expert,
        "num_tokens_padded": groups.total,
        "top_k": routes_per_row,
    }

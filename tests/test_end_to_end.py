"""Random small graphs through the whole compiler, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
import pytest

import tvm_ext
from tvm_ext.verification.metrics import OutputMetrics

from .random_models import RandomModel

#: Values inside the graphs are of order one, and so is their rounding, 2^-24 an operation. An output of a few nearly
#: equal numbers (a mean of a mean) has a range of thousandths: four roundings are then more than 1e-5 of it.
FOUR_ROUNDINGS = 2.0**-22


def agrees(output: OutputMetrics) -> bool:
    rounding = output.max_abs <= FOUR_ROUNDINGS and not output.nan_mismatch and not output.inf_mismatch
    same_kind = (output.shape, output.dtype) == (output.reference_shape, output.reference_dtype)
    return output.ok or (same_kind and rounding)


def check(seed: int) -> None:
    """Compile a random model and verify it; a failure prints the report and names the seed."""
    model = RandomModel(seed).build(nodes=4 + seed % 5)
    compiled = tvm_ext.compile(model, cache=False, threads=1 + seed % 3)
    report = tvm_ext.verify(compiled, model=model, seed=seed)
    assert report.outputs and not report.problems, f"seed {seed}\n{report}"
    assert all(agrees(output) for output in report.outputs), f"seed {seed}\n{report}"
    assert not lost_nodes(model, compiled.report), f"seed {seed}"


def lost_nodes(model: onnx.ModelProto, report: Mapping[str, Any]) -> set[str]:
    """Nodes an output needs that the report names neither with a kernel nor with a pass that made them vanish."""
    needed, live = {output.name for output in model.graph.output}, set()
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            live.add(node.name)
            needed.update(node.input)
    computed = {name for kernel in report["kernels"] for name in kernel["nodes"]}
    events = [e for p in report["passes"] for e in (*p["fired"], *p["skipped"])]
    return live - computed - {name for value, _ in events for name in value.split(", ")}


@pytest.mark.parametrize("seed", range(40))
def test_a_random_model_agrees(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40, 240))
def test_another_random_model_agrees(seed: int) -> None:
    check(seed)

"""Live variables and their readers: what passes ask of each function is computed once."""

import numpy as np
import pytest

from tests.onnx_graphs import model, node, value
from tvm_ext.core.graph import relax_graph
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.driver.programs import lower
from tvm_ext.passes.pipeline import SIMPLIFY
from tvm_ext.passes.simplification.simplify_algebra import SimplifyAlgebra
from tvm_ext.passes.steps import liveness

own = relax_graph.uses_of


@pytest.mark.parametrize("length", [4, 64])
def test_a_pass_by_rules_asks_for_readers_a_bounded_number_of_times(length, monkeypatch):
    """Once for each of its two walks, and once for what is live in what it changed."""
    names = ["x", *(f"v{at}" for at in range(length))]
    chain = [node("Relu" if at % 2 else "Tanh", names[at], names[at + 1]) for at in range(length)]
    chain.append(node("Sub", f"{names[-1]} c", "y"))
    proto = model(chain, [value("x", [4])], [value("y", [4])], {"c": np.full(4, 2, np.float32)})
    begun = lower(proto, CompileOptions.of(records=None), Machine.detect(None, 1), until=SIMPLIFY[0])
    asked = []
    for module in (relax_graph, liveness):
        monkeypatch.setattr(module, "uses_of", lambda function: asked.append(1) or own(function))
    fired = SimplifyAlgebra().run(begun.mod, begun.ctx).fired
    assert len(fired) == 1 and len(asked) == 3

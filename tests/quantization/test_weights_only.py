"""Weights of matmuls in few bits: the model that is written, in onnxruntime and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import tvm_ext
from tests.frontend.graphs import model, value
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.core.errors import ModelError, OptionError


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def graph(rng: np.random.Generator) -> Any:
    """A matmul, a Gemm with a bias and a transposed weight, and one whose weight is too small."""
    weights = {"a": rng.standard_normal((96, 40)), "b": rng.standard_normal((33, 40)), "c": rng.standard_normal(33),
               "d": rng.standard_normal((8, 3))}  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], "first"),
        helper.make_node("Gemm", ["h", "b", "c"], ["g"], "second", transB=1),
        helper.make_node("Slice", ["g", "zero", "eight", "one"], ["s"], "cut"),
        helper.make_node("MatMul", ["s", "d"], ["y"], "third"),
    ]
    known = {name: np.float32(array) for name, array in weights.items()}
    known |= {name: np.int64([number]) for name, number in (("zero", 0), ("eight", 8), ("one", 1))}
    return model(nodes, [value("x", (5, 96))], [value("y", (5, 3))], known)


@pytest.mark.parametrize(("weights", "error"), [("int4", 0.3), ("int8", 0.02)])
@pytest.mark.parametrize("block", [16, 32])
def test_every_runtime_agrees_and_the_error_is_that_of_the_bits(
    graph: Any, weights: str, error: float, block: int, rng: np.random.Generator
) -> None:
    result = tvm_ext.quantize(graph, weights=weights, block=block)
    assert [node.op_type for node in result.model.graph.node] == ["MatMulNBits", "MatMulNBits", "Slice", "MatMul"]
    assert result.quantized == 2 and [name for name, *_ in result.left] == ["third"]
    assert not {"a", "b"} & {t.name for t in result.model.graph.initializer}
    feeds = {"x": np.float32(rng.standard_normal((5, 96)))}
    wanted, stated = onnxruntime_outputs(graph, feeds)["y"], onnxruntime_outputs(result.model, feeds)["y"]
    scale = np.abs(wanted).max()
    assert 0 < np.abs(stated - wanted).max() < error * scale
    got = tvm_ext.compile(result.model, threads=1, cache=False).run(feeds)["y"]
    np.testing.assert_allclose(got, stated, rtol=0, atol=1e-5 * scale)


def test_excluded_nodes_keep_their_weights(graph: Any) -> None:
    result = tvm_ext.quantize(graph, weights="int4", exclude=["second"])
    assert [node.op_type for node in result.model.graph.node][:2] == ["MatMulNBits", "Gemm"]
    assert ("second", "Gemm", "excluded") in result.left and "int4" in str(result)


def test_what_does_not_fit_is_refused(graph: Any) -> None:
    for wrong in ({"weights": "int3"}, {"weights": "int4", "block": 24}, {"weights": "int4", "exclude": ["none"]}):
        with pytest.raises(OptionError):
            tvm_ext.quantize(graph, **wrong)
    with pytest.raises(ModelError):
        tvm_ext.quantize(graph, weights="int4", exclude=["first", "second"])

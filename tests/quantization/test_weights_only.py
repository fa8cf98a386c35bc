"""Weights of matmuls in few bits: the model that is written, in onnxruntime and compiled."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tvm_ext
from tests.onnx_graphs import model, node, value
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
        node("MatMul", "x a", "h", "first"), node("Gemm", "h b c", "g", "second", transB=1),
        node("Slice", "g zero eight one", "s", "cut"), node("MatMul", "s d", "y", "third"),
    ]  # fmt: skip
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


@pytest.mark.parametrize("size", [1e-7, 1.0, 1e7])
@pytest.mark.parametrize("weights", ["int4", "int8"])
def test_scales_beyond_halves_are_kept(weights: str, size: float, rng: np.random.Generator) -> None:
    """The error is that of the codes, wherever the scales lie: half a step of the largest of a block."""
    bits, array = int(weights[3:]), np.float32(rng.standard_normal((64, 24)) * size)
    array[:32, 3] = 0
    proto = model([node("MatMul", "x w", "y")], [value("x", (64, 64))], [value("y", (64, 24))], {"w": array})
    result = tvm_ext.quantize(proto, weights=weights)
    feeds = {"x": np.eye(64, dtype=np.float32)}
    bound = np.abs(array).reshape(2, 32, 24).max(1).repeat(32, 0) / (1 << (bits - 1)) * 1.01
    for outputs in (onnxruntime_outputs(result.model, feeds), tvm_ext.compile(result.model, cache=False).run(feeds)):
        assert (np.abs(outputs["y"] - array) <= bound).all() and np.abs(outputs["y"]).max() > 0


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_refused(number: float, rng: np.random.Generator) -> None:
    weights = {name: np.float32(rng.standard_normal((64, 64))) for name in "ab"}
    weights["b"][40, 3] = number
    nodes = [node("MatMul", "x a", "h", "a"), node("MatMul", "h b", "y", "b")]
    proto = model(nodes, [value("x", (2, 64))], [value("y", (2, 64))], weights)
    with pytest.raises(ModelError, match="'b'"):
        tvm_ext.quantize(proto, weights="int4")
    assert tvm_ext.quantize(proto, weights="int4", exclude=["b"]).quantized == 1


def test_what_a_branch_reads_is_kept(rng: np.random.Generator) -> None:
    """A weight that is quantized outside stays for a branch, as do a constant and the result of a branch."""
    weights = {name: np.float32(rng.standard_normal((32, 32))) for name in "wv"}
    then, other = (
        helper.make_graph(inner, "branch", [], [value("r", (32, 32))])
        for inner in ([node("MatMul", "x w", "t"), node("Add", "t v", "r")], [node("Mul", "x x", "r")])
    )
    nodes = [node("If", "flag", "i", "branch", then_branch=then, else_branch=other), node("MatMul", "i w", "y")]
    inputs = [value("x", (32, 32)), value("flag", (), TensorProto.BOOL)]
    proto = model(nodes, inputs, [value("y", (32, 32))], weights)
    result = tvm_ext.quantize(proto, weights="int8")
    assert {"w", "v"} < {t.name for t in result.model.graph.initializer}
    x = np.float32(rng.standard_normal((32, 32)))
    for flag in (True, False):
        wanted, got = (onnxruntime_outputs(m, {"x": x, "flag": np.array(flag)})["y"] for m in (proto, result.model))
        assert 0 < np.abs(got - wanted).max() < 0.02 * np.abs(wanted).max()


def test_options_that_count_for_nothing_are_refused(graph: Any) -> None:
    samples = [np.zeros((5, 96), np.float32)]
    for wrong in ({"calibration": samples}, {"operators": ["Conv"]}, {"operators": ["MatMul", "Add"]}):
        with pytest.raises(OptionError):
            tvm_ext.quantize(graph, weights="int4", **wrong)
    result = tvm_ext.quantize(graph, weights="int4", operators=["Gemm"])
    assert [node.op_type for node in result.model.graph.node][:2] == ["MatMul", "MatMulNBits"]
    assert ("first", "MatMul") in [(name, kind) for name, kind, _ in result.left]

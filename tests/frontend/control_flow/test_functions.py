"""Operators that ONNX defines by others are imported by that definition."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tvm_ext
from tvm_ext.core.errors import UnsupportedError

from ..graphs import check_numbers, imported, message, model, node, run_tvm, value

RNG = np.random.default_rng(3)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_definition_without_types():
    nodes = [node("Celu", ["x"], ["a"], "celu", alpha=1.5), node("Swish", ["a"], ["y"], alpha=0.5)]
    proto = model(nodes, [value("x", [3, 7])], [value("y", [3, 7])], opset=24)
    before = proto.SerializeToString()
    translated = check_numbers(proto, {"x": floats(3, 7)})
    assert proto.SerializeToString() == before
    assert translated.provenance.of("y") == ("Swish:y",) or "Swish:y" in translated.provenance.of("y")[0]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_definitions_inside_definitions(reduction):
    nodes = [node("SoftmaxCrossEntropyLoss", ["x", "t"], ["y"], reduction=reduction)]
    shape = [5] if reduction == "none" else []
    proto = model(nodes, [value("x", [5, 3]), value("t", [5], TensorProto.INT64)], [value("y", shape)])
    check_numbers(proto, {"x": floats(5, 3), "t": np.array([0, 2, 1, 1, 0])})


def test_sizes_of_32_bits_where_the_definition_has_64():
    x, nodes = floats(4, 6), [node("CenterCropPad", ["x", "s"], ["y"])]
    translated = imported(model(nodes, [value("x", [4, 6])], [value("y", [2, 8])], {"s": np.int32([2, 8])}, opset=18))
    np.testing.assert_array_equal(run_tvm(translated, {"x": x})[0], np.pad(x[1:3], ((0, 0), (1, 1))))


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_with_grouped_heads(causal):
    nodes = [node("Attention", ["q", "k", "v"], ["y"], is_causal=causal)]
    inputs = [value("q", [1, 4, 5, 8]), value("k", [1, 2, 5, 8]), value("v", [1, 2, 5, 8])]
    feeds = {"q": floats(1, 4, 5, 8), "k": floats(1, 2, 5, 8), "v": floats(1, 2, 5, 8)}
    check_numbers(model(nodes, inputs, [value("y", [1, 4, 5, 8])], opset=23), feeds)


@pytest.mark.parametrize(("query", "values"), [("float32", "float16"), ("float16", "float32"), ("float32", "float64")])
def test_attention_with_values_of_another_float(query, values):
    """onnxruntime refuses them; ONNX's evaluator multiplies them in the wider float."""
    names = {"q": query, "k": query, "v": values, "pk": query, "pv": values}
    feeds = {name: floats(1, 2, 5 if name[0] != "p" else 2, 4).astype(dtype) for name, dtype in names.items()}
    kinds = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in feeds.items()}
    outputs = {"y": (5, "q"), "k1": (7, "q"), "v1": (7, "v")}
    proto = model(
        [node("Attention", ["q", "k", "v", "", "pk", "pv"], list(outputs))],
        [value(name, x.shape, kinds[name]) for name, x in feeds.items()],
        [value(name, [1, 2, rows, 4], kinds[like]) for name, (rows, like) in outputs.items()], opset=23,
    )  # fmt: skip
    results = tvm_ext.compile(proto, cache=False, threads=1).run(feeds).values()
    for mine, reference in zip(results, ReferenceEvaluator(proto).run(None, feeds), strict=True):
        assert mine.dtype == reference.dtype
        np.testing.assert_allclose(mine, reference, rtol=0, atol=2e-3 if query == "float16" else 1e-6)


def test_what_has_neither_is_refused():
    proto = model([node("Multinomial", ["x"], ["y"], "draw")], [value("x", [1, 3])],
                  [value("y", [1, 1], TensorProto.INT32)])  # fmt: skip
    with pytest.raises(UnsupportedError) as info:
        imported(proto)
    assert "'draw'" in message(info.value) and "has no converter" in message(info.value)

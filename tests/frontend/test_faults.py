"""Wrong and odd models: each is refused by a class of ours that names the object, and no word of TVM's gets out."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tvm_ext.core.errors import ModelError, TvmExtError, UnsupportedError

from .graphs import imported, message, model, node, relu_model, value

X, Y, STRING = value("x", [2, 3]), value("y", None), TensorProto.STRING


def one(op_type: str, inputs: str = "x", weights: dict[str, Any] | None = None, opset: int = 17, **more: Any) -> Any:
    """A model of one node "it"."""
    arrays = {name: np.array(array) for name, array in (weights or {}).items()}
    return model([node(op_type, inputs.split(), ["y"], "it", **more)], [X], [Y], arrays, opset)


def changed(change: Any) -> onnx.ModelProto:
    proto = relu_model()
    change(proto)
    return proto


def _recursive() -> onnx.ModelProto:
    proto = model([node("F", ["x"], ["y"], "it", domain="d")], [X], [Y], domains=["d"])
    opsets = [helper.make_opsetid("d", 1)]
    for name, callee in (("F", "G"), ("G", "F")):
        inner = [helper.make_node(callee, ["a"], ["b"], domain="d")]
        proto.functions.append(helper.make_function("d", name, ["a"], ["b"], inner, opsets))
    return proto


#: What is wrong -> model, class, words of the object that the message names.
FAULTS: dict[str, tuple[onnx.ModelProto, type[TvmExtError], tuple[str, ...]]] = {
    "a cycle": (
        model([node("Add", ["x", "b"], ["a"], "p"), node("Relu", ["a"], ["b"], "q")], [X], [value("b", None)]),
        ModelError, ("p -> q",),
    ),
    "a value of two nodes": (
        model([node("Relu", ["x"], ["y"], "p"), node("Abs", ["x"], ["y"], "q")], [X], [Y]), ModelError, ("'y'", "'p'"),
    ),
    "an input twice": (model([node("Relu", ["x"], ["y"])], [X, X], [Y]), ModelError, ("'x'",)),
    "no such operator": (one("Foo"), UnsupportedError, ("'it'", "'Foo'", "ai.onnx")),
    "no such domain": (one("Foo", domain="a.b"), UnsupportedError, ("'it'", "'a.b'")),
    "no such opset": (changed(lambda m: setattr(m.opset_import[0], "version", 99)), UnsupportedError, ("opset 99",)),
    "functions that recurse": (_recursive(), ModelError, ("F",)),
    "a required input missing": (one("Add", "x"), ModelError, ("'it'", "Add")),
    "a required attribute missing": (one("Concat"), ModelError, ("'it'", "axis")),
    "elements of two types": (one("Add", "x k", {"k": np.int64(1)}), ModelError, ("'it'", "'k'", "int64")),
    "an axis out of range": (one("Softmax", axis=-5), ModelError, ("'it'", "axis")),
    "axes out of range": (one("ReduceSum", "x a", {"a": [7]}), TvmExtError, ("'it'", "'x'", "(2, 3)")),
    "a rank too small": (one("MaxPool", kernel_shape=[1]), ModelError, ("'it'", "MaxPool")),
    "strings": (
        model([node("Identity", ["s"], ["y"])], [value("s", [2], STRING)], [value("y", [2], STRING)]),
        UnsupportedError, ("'s'", "STRING"),
    ),
    "2^40 elements": (model([node("Relu", ["x"], ["y"])], [value("x", [1 << 40])], [Y]), UnsupportedError, ("'x'",)),
    "40 dimensions": (model([node("Relu", ["x"], ["y"])], [value("x", [1] * 40)], [Y]), UnsupportedError, ("'x'",)),
    "a negative dimension": (model([node("Relu", ["x"], ["y"])], [value("x", [-1, 3])], [Y]), TvmExtError, ("'x'",)),
    "a tensor cut off": (
        changed(lambda m: m.graph.initializer.append(TensorProto(name="w", dims=[2], data_type=1, raw_data=b"abc"))),
        ModelError, ("'w'",),
    ),
    "indices out of range": (one("Gather", "x i", {"i": np.int64(9)}), TvmExtError, ("'it'", "Gather", "'i'")),
    "updates that do not fit": (
        one("ScatterND", "x i u", {"i": np.zeros((2, 1), np.int64), "u": np.zeros((5, 7), np.float32)}),
        TvmExtError, ("'it'", "ScatterND", "'u' float32 of shape (5, 7)"),
    ),
    "a condition longer than its axis": (
        one("Compress", "x c", {"c": [True] * 4}, axis=0), UnsupportedError,
        ("'it'", "axis 0", "'c' bool of shape (4,)"),
    ),
    "a condition of two dimensions": (
        one("Compress", "x c", {"c": [[True, True]]}, axis=0), UnsupportedError, ("'it'", "(1, 2)"),
    ),
    "shapes that do not broadcast": (one("Max", "x k", {"k": np.zeros(4, np.float32)}), TvmExtError, ("'it'",)),
    "an attribute of another kind": (one("ReduceMax", axes=1.5), TvmExtError, ("'it'", "axes")),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_object_is_named(fault: str) -> None:
    proto, kind, words = FAULTS[fault]
    with pytest.raises(kind) as info:
        imported(proto)
    text = message(info.value)
    assert [word for word in words if word not in text] == []
    assert info.value.fix and len(info.value.message) < 1000
    for dump in ("ir.Op(", "R.shape", "T.int64", "Traceback", "converter is wrong", "damaged"):
        assert dump not in text


def test_a_refused_node_is_told_with_all_that_is_known_of_it_and_its_cause() -> None:
    proto = one("Gelu", opset=20, approximate="cubic")
    with pytest.raises(UnsupportedError) as info:
        imported(proto)
    for word in ("small", "'it'", "(Gelu, opset 20)", "domain 'ai.onnx'", "'x' float32 of shape (2, 3)"):
        assert word in info.value.message
    assert info.value.__cause__ is not None and not isinstance(info.value.__cause__, TvmExtError)


def test_what_the_import_itself_raises_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr("tvm_ext.frontend.importer.check_shapes", fails)
    with pytest.raises(UnsupportedError, match=r"^small: its import failed: KeyError: 'x'\n  fix: ") as info:
        imported(relu_model())
    assert isinstance(info.value.__cause__, KeyError)

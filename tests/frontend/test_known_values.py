"""What is known at import becomes a constant: every operator against onnxruntime, and what is left alone."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_ext.core.graph.relax_graph import main_bindings, op_name, shape_of
from tvm_ext.frontend.known_values import LARGEST, evaluated, known_outputs

from .graphs import check_numbers, imported, model, node, run_onnxruntime, value

INT = TensorProto.INT64
A, B = np.array([7, 2, 9], np.int64), np.array([2, 3, 9], np.int64)
F = np.array([[0.5, 2.25], [4.0, 9.5]], np.float32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


CASES: dict[str, tuple[Any, list[np.ndarray]]] = {
    **{name: (name, [A, B]) for name in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Equal", "Greater", "Less")},
    **{name: (name, [A, B]) for name in ("GreaterOrEqual", "LessOrEqual", "Pow", "CastLike")},
    **{name: (name, [A > 2, B > 2]) for name in ("And", "Or", "Xor")},
    **{name: (name, [F]) for name in ("Abs", "Ceil", "Floor", "Identity", "Neg", "Reciprocal", "Round", "Sign", "Sqrt",
                                   "Flatten")},
    "Sum": ("Sum", [F, F]),
    "Not": ("Not", [A > 2]),
    "Where": ("Where", [A > 2, A, B]),
    "Cast": (("Cast", {"to": TensorProto.FLOAT}), [A]),
    "Cast to int": (("Cast", {"to": TensorProto.INT32}), [-F]),
    "Concat": (("Concat", {"axis": 0}), [A, B]),
    "ConstantOfShape": ("ConstantOfShape", [i64(2, 3)]),
    "ConstantOfShape of": (
        ("ConstantOfShape", {"value": numpy_helper.from_array(np.array([5], np.int64))}), [i64(2)],
    ),
    "Expand": ("Expand", [A, i64(2, 3)]),
    "Gather": ("Gather", [A, np.array(-1, np.int64)]),
    "Gather rows": (("Gather", {"axis": 1}), [F, i64(1, 0, 1)]),
    "NonZero": ("NonZero", [i64(0, 4, 5)]),
    "Range": ("Range", [np.array(v, np.int64) for v in (7, 1, -2)]),
    "ReduceMax": (("ReduceMax", {"axes": [0]}), [F]),
    "ReduceMin": (("ReduceMin", {"axes": [1], "keepdims": 0}), [F]),
    "ReduceProd": (("ReduceProd", {"keepdims": 0}), [A]),
    "ReduceSum": ("ReduceSum", [F, i64(1)]),
    "Reshape": ("Reshape", [F, i64(0, -1, 1)]),
    "Slice": ("Slice", [A, i64(0), i64(2)]),
    "Slice backwards": ("Slice", [A, i64(-1), i64(-5), i64(0), i64(-2)]),
    "Squeeze": ("Squeeze", [F.reshape(1, 2, 2), i64(0)]),
    "Tile": ("Tile", [A, i64(2)]),
    "Transpose": ("Transpose", [F]),
    "Unsqueeze": ("Unsqueeze", [F, i64(-1)]),
}  # fmt: skip


def one_node(kind: Any, operands: list[np.ndarray]) -> tuple[Any, dict[str, np.ndarray]]:
    name, attributes = (kind, {}) if isinstance(kind, str) else kind
    weights = {f"w{i}": w for i, w in enumerate(operands)}
    return node(name, list(weights), ["y"], "one", **attributes), weights


@pytest.mark.parametrize("name", CASES)
def test_is_what_onnxruntime_computes(name: str) -> None:
    checked, weights = one_node(*CASES[name])
    out = helper.make_empty_tensor_value_info("y")
    (want,) = run_onnxruntime(model([checked], [], [out], weights), {})
    import tvm
    from tvm import relax

    operands = [relax.const(tvm.runtime.tensor(w), str(w.dtype)) for w in weights.values()]
    (got,) = known_outputs(checked, operands, 17) or []
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


_UNITS = np.arange(6, dtype=np.float32).reshape(3, 1, 1, 2)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        *(("Squeeze", {"axes": axes}) for axes in ([1], [-2], [2, 1], [-1, 1])), ("Squeeze", {}),
        ("Unsqueeze", {"axes": [1, 0]}), ("ReduceSum", {"axes": [0], "keepdims": 0}), ("Split", {"split": [1, 2]}),
    ],
    ids=str,
)  # fmt: skip
def test_an_older_version_has_its_attributes(name: str, attributes: Any) -> None:
    """What became an input later, as the model's own version of ONNX has it."""
    x = _UNITS[..., :1] if attributes.get("axes") == [-1, 1] else _UNITS
    outputs = ["y", "z"] if name == "Split" else ["y"]
    written = node(name, ["x"], outputs, "one", **attributes)
    proto = model([written], [], [helper.make_empty_tensor_value_info(o) for o in outputs], {"x": x}, 11)
    for mine, theirs in zip(evaluated(written, [x], 11) or [], run_onnxruntime(proto, {}), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("attribute", "want"),
    [({"value_int": 3}, 3), ({"value_ints": [3, 4]}, [3, 4]), ({"value_float": 2}, 2), ({"value_floats": [2]}, [2])],
)
def test_constants_of_every_kind(attribute: Any, want: Any) -> None:
    (got,) = known_outputs(node("Constant", [], ["y"], **attribute), [], 17) or []
    np.testing.assert_array_equal(got, want)


def test_a_reshape_by_arithmetic_on_the_shape() -> None:
    """Sizes taken from the shape, as exporters write them: nothing of it is left, and provenance is that of Reshape."""
    zero, minus = np.array(0, np.int64), i64(-1)
    nodes = [
        node("Relu", ["x"], ["r"], "relu"),
        node("Shape", ["r"], ["s"], "shape"),
        node("Cast", ["s"], ["s32"], "narrow", to=TensorProto.INT32),
        node("Slice", ["s32", "b", "e"], ["part"], "slice"),
        node("Cast", ["part"], ["part64"], "widen", to=TensorProto.INT64),
        node("Gather", ["s", "zero"], ["n"], "batch"),
        node("Unsqueeze", ["n", "axis"], ["n1"], "unsqueeze"),
        node("Concat", ["n1", "part64", "minus"], ["t"], "concat", axis=0),
        node("Reshape", ["r", "t"], ["y"], "reshape"),
    ]
    weights = {"b": i64(1), "e": i64(2), "zero": zero, "axis": i64(0), "minus": minus}
    proto = model(nodes, [value("x", ["n", 3, "h"])], [value("y", [None, None, None])], weights)
    translated = check_numbers(
        proto, {"x": np.random.default_rng(0).standard_normal((2, 3, 5)).astype("f4")}, shapes={"x": (2, 3, 5)}
    )
    assert [op_name(b.value) for b in main_bindings(translated.mod)] == ["relax.nn.relu", "relax.reshape"]
    assert shape_of(main_bindings(translated.mod)[-1].var) == (2, 3, 5)
    assert translated.provenance.of("y") == ("reshape",)


def test_a_known_output_names_its_node() -> None:
    proto = model([node("Shape", ["x"], ["y"], "shape")], [value("x", [2, 3])], [value("y", [2], INT)])
    translated = check_numbers(proto, {"x": np.zeros((2, 3), np.float32)})
    assert translated.provenance.of("y") == ("shape",)


def test_shape_of_a_large_input_takes_no_memory() -> None:
    nodes = [node("Shape", ["x"], ["s"], "shape"), node("Size", ["x"], ["n"], "size")]
    inputs = [value("x", [1 << 15, 1 << 15])]
    translated = imported(model(nodes, inputs, [value("s", [2], INT), value("n", [], INT)]))
    assert [spec.shape for spec in translated.outputs] == [(2,), ()]


def test_division_of_negative_integers_goes_towards_zero() -> None:
    weights = {"a": i64(-7, 7), "b": i64(2, -2)}
    nodes = [node("Div", ["a", "b"], ["q"]), node("Add", ["q", "x"], ["y"])]
    check_numbers(model(nodes, [value("x", [2], INT)], [value("y", [2], INT)], weights), {"x": i64(0, 0)})


LARGE = {
    "ConstantOfShape": ("ConstantOfShape", [i64(1 << 20, 1 << 20)]),
    "Expand": ("Expand", [np.array(1.0), i64(1 << 20, 1 << 20)]),
    "Tile": ("Tile", [A, i64(1 << 40)]),
    "Range": ("Range", [np.array(v, np.int64) for v in (0, 1 << 40, 1)]),
    "broadcast": ("Add", [np.zeros((LARGEST, 1), "f4"), np.zeros((1, LARGEST), "f4")]),
    "Gather": (("Gather", {"axis": 0}), [np.zeros((1, LARGEST), "f4"), np.zeros(LARGEST, np.int64)]),
    "large operand": ("Neg", [np.zeros(LARGEST + 1, "f4")]),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_values_are_left_to_the_passes(name: str) -> None:
    import tvm
    from tvm import relax

    checked, weights = one_node(*LARGE[name])
    operands = [relax.const(tvm.runtime.tensor(w), str(w.dtype)) for w in weights.values()]
    assert known_outputs(checked, operands, 17) is None


def test_quantized_constants_and_computed_values_are_left() -> None:
    from tvm import relax

    scale, q = relax.const(np.float32(0.5)), relax.const(np.array([1], "int8"))
    assert known_outputs(node("DequantizeLinear", ["q", "s"], ["y"]), [q, scale], 17) is None
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    assert known_outputs(node("Add", ["x", "s"], ["y"]), [x, scale], 17) is None
    assert known_outputs(node("RandomNormalLike", ["s"], ["y"]), [scale], 17) is None

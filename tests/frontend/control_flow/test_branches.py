"""If: a known condition takes its branch; else both branches are computed and selected, as onnxruntime would answer."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from tvm_ext.core.errors import DriverError, ModelError, UnsupportedError
from tvm_ext.core.graph.relax_graph import main_bindings, op_name

from ..graphs import check_numbers, imported, message, model, node, run_onnxruntime, run_tvm, value

RNG = np.random.default_rng(6)
INT, BOOL = TensorProto.INT64, TensorProto.BOOL


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def branch(
    nodes: list[onnx.NodeProto], outputs: list[str], weights: dict[str, np.ndarray] | None = None,
    kind: int = TensorProto.FLOAT,
) -> Any:  # fmt: skip
    declared = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    return helper.make_graph(nodes, "branch", [], [value(o, None, kind) for o in outputs], declared)


def choice(then: Any, other: Any, outputs: list[str], name: str = "choose", flag: str = "flag") -> onnx.NodeProto:
    return node("If", [flag], outputs, name, then_branch=then, else_branch=other)


def check_both(proto: onnx.ModelProto, feeds: dict[str, np.ndarray], flags: tuple[Any, ...] = (True, False)) -> None:
    """Compile once, and compare with onnxruntime for either condition."""
    compiled = tvm_ext.compile(proto, cache=False, threads=2)
    for flag in flags:
        inputs = feeds | {"flag": np.array(flag)}
        outputs = compiled.run(inputs)
        for spec, wanted in zip(compiled.outputs, run_onnxruntime(proto, inputs), strict=True):
            assert outputs[spec.name].dtype == wanted.dtype
            np.testing.assert_allclose(outputs[spec.name], wanted, rtol=1e-5, atol=1e-5)


def flagged(nodes: list[onnx.NodeProto], outputs: list[Any], shape: tuple[int, ...] = (3, 7), **more: Any) -> Any:
    return model(nodes, [value("x", shape), value("flag", more.pop("flag", []), BOOL)], outputs, **more)


def test_several_outputs_captured_values_constants_and_values_passed_through() -> None:
    then = branch([node("Add", ["x", "w"], ["a"]), node("Relu", ["outer"], ["b"]), node("Identity", ["x"], ["s"])],
                  ["a", "b", "k", "s"], {"k": np.float32([7, 8])})  # fmt: skip
    other = branch([node("Neg", ["x"], ["a"]), node("Exp", ["outer"], ["b"]), node("Add", ["k", "k"], ["m"]),
                    node("Identity", ["outer"], ["t"])], ["a", "b", "m", "t"], {"k": np.float32([1, -2])})  # fmt: skip
    nodes = [node("Sin", ["x"], ["outer"]), choice(then, other, ["p", "q", "r", "o"]), node("Mul", ["p", "q"], ["y"])]
    outputs = [value("y", [3, 7]), value("r", [2]), value("o", [3, 7])]
    check_both(flagged(nodes, outputs, weights={"w": floats(7)}), {"x": floats(3, 7)})


def test_branches_of_convolutions_and_matmuls() -> None:
    weights = {"w": floats(5, 3, 3, 3), "v": floats(5, 3, 1, 1), "d": floats(7, 7)}
    then = branch([node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), node("Relu", ["c"], ["a"])], ["a"])
    other = branch([node("Conv", ["x", "v"], ["c"]), node("MatMul", ["c", "d"], ["a"])], ["a"])
    nodes = [choice(then, other, ["z"]), node("Softmax", ["z"], ["y"])]
    check_both(flagged(nodes, [value("y", [1, 5, 7, 7])], (1, 3, 7, 7), weights=weights), {"x": floats(1, 3, 7, 7)})


@pytest.mark.parametrize("shape", [[], [1]])
@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.int8, np.float64])
def test_dtypes_and_shapes_of_the_condition(shape: list[int], dtype: Any) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    then = branch([node("Identity", ["x"], ["a"])], ["a"], kind=kind)
    other = branch([], ["k"], {"k": np.array([0, 1], dtype)}, kind)
    proto = model([choice(then, other, ["y"])], [value("x", [2], kind), value("flag", shape, BOOL)],
                  [value("y", [2], kind)])  # fmt: skip
    flags = (True, False) if not shape else ([True], [False])
    check_both(proto, {"x": np.array([1, 1], dtype)}, flags)


def test_if_inside_if_with_equal_names_in_both_branches() -> None:
    inner = choice(branch([node("Abs", ["t"], ["u"])], ["u"]), branch([node("Neg", ["t"], ["u"])], ["u"]), ["v"], "in",
                   "positive")  # fmt: skip
    then = branch([node("Mul", ["x", "x"], ["t"]), inner, node("Add", ["v", "x"], ["w"])], ["w"])
    other = branch([node("Sub", ["x", "one"], ["t"]), inner, node("Relu", ["v"], ["w"])], ["w"])
    nodes = [node("ReduceSum", ["x"], ["total"], keepdims=0), node("Greater", ["total", "zero"], ["positive"]),
             choice(then, other, ["y"])]  # fmt: skip
    weights = {"one": np.float32([1]), "zero": np.float32(0)}
    proto = flagged(nodes, [value("y", [3, 7])], weights=weights)
    for x in (np.abs(floats(3, 7)), -np.abs(floats(3, 7))):
        check_both(proto, {"x": x})


def test_a_definition_and_a_loop_inside_branches() -> None:
    body = helper.make_graph(
        [node("Add", ["s", "x"], ["t"]), node("Identity", ["c"], ["go"])], "body",
        [value("i", [], INT), value("c", [], BOOL), value("s", [3, 7])], [value("go", [], BOOL), value("t", [3, 7])],
    )  # fmt: skip
    then = branch([node("Loop", ["n", "", "x"], ["l"], body=body)], ["l"], {"n": np.array(3)})
    other = branch([node("Celu", ["x"], ["c"], alpha=0.5)], ["c"])
    check_both(flagged([choice(then, other, ["y"])], [value("y", [3, 7])]), {"x": floats(3, 7)})


def test_an_if_in_every_step_of_a_loop() -> None:
    """Whose condition is known in each step where it counts, and is not where it looks at values."""
    counted = choice(branch([node("Add", ["s", "x"], ["a"])], ["a"]), branch([node("Mul", ["s", "x"], ["a"])], ["a"]),
                     ["t"], "by number", "early")  # fmt: skip
    looked = choice(branch([node("Tanh", ["t"], ["b"])], ["b"]), branch([node("Neg", ["t"], ["b"])], ["b"]), ["u"],
                    "by value", "flag")  # fmt: skip
    nodes = [node("Less", ["i", "two"], ["early"]), counted, looked, node("Identity", ["c"], ["go"])]
    body = helper.make_graph(
        nodes, "body", [value("i", [], INT), value("c", [], BOOL), value("s", [3, 7])],
        [value("go", [], BOOL), value("u", [3, 7]), value("t", [3, 7])],
    )  # fmt: skip
    loop = node("Loop", ["n", "", "x"], ["y", "each"], "loop", body=body)
    outputs = [value("y", [3, 7]), value("each", [4, 3, 7])]
    proto = flagged([loop], outputs, weights={"n": np.array(4), "two": np.array(2)})
    check_both(proto, {"x": floats(3, 7)})


def test_a_condition_made_of_shapes_is_known_and_the_other_branch_need_not_fit() -> None:
    """As PyTorch exports `squeeze` of a dimension that it does not know."""
    then = branch([node("Squeeze", ["x", "axis"], ["a"])], ["a"])
    other = branch([node("Identity", ["x"], ["a"])], ["a"])
    nodes = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["n"]), node("Equal", ["n", "one"], ["flag"]),
             choice(then, other, ["y"])]  # fmt: skip
    weights = {"one": np.array(1), "axis": np.array([1])}
    for size in (1, 5):
        proto = model(nodes, [value("x", [2, size])], [value("y", None)], weights)
        translated, x = imported(proto), floats(2, size)
        np.testing.assert_array_equal(run_tvm(translated, {"x": x})[0], x[:, 0] if size == 1 else x)
        assert "relax.where" not in {op_name(b.value) for b in main_bindings(translated.mod)}


def test_an_unsupported_operator_in_a_branch_that_is_not_taken() -> None:
    then = branch([node("Relu", ["x"], ["a"])], ["a"])
    other = branch([node("RandomNormalLike", ["x"], ["a"], "m")], ["a"])
    proto = model([choice(then, other, ["y"])], [value("x", [2, 3])], [value("y", [2, 3])], {"flag": np.array(True)})
    check_numbers(proto, {"x": floats(2, 3)})
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(False), "flag"))
    with pytest.raises(UnsupportedError, match=r"'m'.*'RandomNormalLike' has no converter: its output is random"):
        imported(proto)


def test_shapes_that_the_condition_decides_are_refused_and_freezing_helps() -> None:
    then = branch([node("Relu", ["x"], ["a"])], ["a"])
    other = branch([node("Concat", ["x", "x"], ["a"], axis=0)], ["a"])
    proto = flagged([choice(then, other, ["y"])], [value("y", [None, 7])])
    with pytest.raises(UnsupportedError) as info:
        imported(proto)
    text = message(info.value)
    assert all(word in text for word in ("'choose' (If", "(3, 7)", "(6, 7)", "'flag'", "freeze={'flag': ...}"))
    assert imported(proto, freeze={"flag": np.array(False)}).outputs[0].shape == (6, 7)


def test_an_equal_constant_in_both_branches_needs_no_selection() -> None:
    two = branch([], ["k"], {"k": np.array([2, 3])}, INT)
    nodes = [choice(two, two, ["s"]), node("Expand", ["x", "s"], ["y"])]
    check_both(flagged(nodes, [value("y", [2, 3])], (1, 3)), {"x": floats(1, 3)})


def test_an_output_that_nobody_takes_may_have_any_shape() -> None:
    then = branch([node("Relu", ["x"], ["a"]), node("Concat", ["x", "x"], ["b"], axis=0)], ["a", "b"])
    other = branch([node("Neg", ["x"], ["a"]), node("Neg", ["x"], ["b"])], ["a", "b"])
    translated, x = imported(flagged([choice(then, other, ["y", ""])], [value("y", [3, 7])])), floats(3, 7)
    for flag in (True, False):  # onnxruntime does not run it
        (got,) = run_tvm(translated, {"x": x, "flag": np.array(flag)})
        np.testing.assert_array_equal(got, np.maximum(x, 0) if flag else -x)


@pytest.mark.parametrize("negated", [False, True])
def test_a_branch_that_is_not_valid_stops_the_run_that_takes_it(negated: bool, tmp_path: Any) -> None:
    """As voice models have one for each sample rate, of which only one takes frames of this length."""
    then = branch([node("Relu", ["x"], ["a"]), node("Add", ["x", "x"], ["b"])], ["a", "b"])
    lstm = node("LSTM", ["x", "w", "w"], ["a"], "other_rate", hidden_size=1)
    other = branch([lstm, node("Neg", ["x"], ["b"])], ["a", "b"])
    sides = (other, then) if negated else (then, other)
    nodes = [node("Equal", ["sr", "rate"], ["is16"]), node("Not" if negated else "Identity", ["is16"], ["flag"]),
             choice(*sides, ["y", "z"])]  # fmt: skip
    weights = {"rate": np.array(16000), "w": floats(1, 4, 1)}
    inputs = [value("x", [3, 7]), value("sr", [], TensorProto.INT64)]
    proto = model(nodes, inputs, [value("y", None), value("z", None)], weights)
    compiled, x = tvm_ext.compile(proto, cache=False, threads=1), floats(3, 7)
    assert any("'choose' (If" in warning or "'choose'" in warning for warning in compiled.report["warnings"])
    compiled.export(tmp_path / "guarded.so")
    for program in (compiled, tvm_ext.load(tmp_path / "guarded.so")):
        np.testing.assert_array_equal(program.run({"x": x, "sr": np.array(16000)})["y"], np.maximum(x, 0))
        with pytest.raises(DriverError) as info:
            program.run({"x": x, "sr": np.array(8000)})
        for word in ("'choose' (If)", "then_branch" if negated else "else_branch", "'flag'", "'other_rate' (LSTM)"):
            assert word in str(info.value)
    frozen = imported(proto, freeze={"sr": np.array(16000)})
    assert not frozen.regions
    np.testing.assert_array_equal(run_tvm(frozen, {"x": x})[0], np.maximum(x, 0))


def test_neither_branch_is_valid() -> None:
    lstm = branch([node("LSTM", ["x", "w", "w"], ["a"], "wrong", hidden_size=1)], ["a"])
    proto = flagged([choice(lstm, lstm, ["y"])], [value("y", None)], weights={"w": floats(1, 4, 1)})
    with pytest.raises(ModelError, match="'wrong'"):
        imported(proto)


def test_data_is_nothing_to_freeze() -> None:
    nodes = [
        node("ReduceMax", ["x"], ["m"], keepdims=0), node("Cast", ["m"], ["k"], to=INT),
        node("Range", ["zero", "k", "one"], ["y"], "find"),
    ]  # fmt: skip
    weights = {"zero": np.array(0), "one": np.array(1)}
    proto = model(nodes, [value("x", [8, 64])], [value("y", None, INT)], weights)
    with pytest.raises(UnsupportedError, match="'find'") as info:
        imported(proto)
    assert "freeze" not in message(info.value)

"""Loop and Scan of a few steps: every one stands in the graph, masked where it may not happen."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.passes.stages import agrees
from tvm_ext.core.errors import UnsupportedError

from ..graphs import check_numbers, imported, message, model, node, value

INT, BOOL = TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(4)


def scan_body():
    nodes = [node("Add", ["s", "x"], ["t"]), node("Mul", ["t", "w"], ["z"]), node("Identity", ["t"], ["s_out"])]
    return helper.make_graph(nodes, "body", [value("s", [3]), value("x", [3])], [value("s_out", [3]), value("z", [3])])


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("opset", [11, 17])
def test_scan(back, axis, opset):
    shape = [5, 3] if axis == 0 else [3, 5]
    scan = node("Scan", ["s0", "x"], ["s", "z"], body=scan_body(), num_scan_inputs=1, scan_input_axes=[axis],
                scan_input_directions=[back], scan_output_axes=[axis], scan_output_directions=[back])  # fmt: skip
    proto = model([scan], [value("s0", [3]), value("x", shape)], [value("s", [3]), value("z", shape)],
                  {"w": np.float32([1, 2, 3])}, opset=opset)  # fmt: skip
    feeds = {"s0": np.float32([1, 2, 3]), "x": RNG.standard_normal(shape).astype(np.float32)}
    check_numbers(proto, feeds)


@pytest.mark.parametrize("back", [0, 1])
def test_the_scan_of_opset_8_runs_over_a_batch(back):
    scan = node("Scan", ["", "s0", "x"], ["s", "z"], body=scan_body(), num_scan_inputs=1, directions=[back])
    proto = model([scan], [value("s0", [2, 3]), value("x", [2, 5, 3])], [value("s", [2, 3]), value("z", [2, 5, 3])],
                  {"w": np.float32([1, 2, 3])}, opset=8)  # fmt: skip
    floats = RNG.standard_normal
    check_numbers(proto, {"s0": floats((2, 3)).astype(np.float32), "x": floats((2, 5, 3)).astype(np.float32)})


def loop_model(condition, trips=(4,)):
    """y doubles with every step; `condition` makes the body's condition."""
    nodes = [node("Add", ["y_in", "y_in"], ["y_out"]), condition, node("Identity", ["y_out"], ["each"])]
    body = helper.make_graph(
        nodes, "body",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("y_in", [2])],
        [value("c_out", [], TensorProto.BOOL), value("y_out", [2]), value("each", [2])],
    )  # fmt: skip
    loop = node("Loop", ["n", "go", "y0"], ["y", "all"], "loop", body=body)
    weights = {"n": np.array(trips[0]), "go": np.array(True)}
    return model([loop], [value("y0", [2])], [value("y", [2]), value("all", [trips[0], 2])], weights)


def test_loop():
    check_numbers(loop_model(node("Identity", ["c"], ["c_out"])), {"y0": np.float32([1, -3])})


# ------------------------------------------------------------ loops that a condition ends
def ending(condition, outputs=("y",), trips=True, states=(), weights=()):
    """y doubles until `condition`, nodes that make "c_out" of "y_out" and "i"; "each" collects y."""
    extra = [(f"{name}_in", f"{name}_out") for name in states]
    nodes = [node("Add", ["y_in", "y_in"], ["y_out"]), node("Identity", ["y_out"], ["each"]), *condition]
    body = helper.make_graph(
        nodes, "body",
        [value("i", [], INT), value("c", [], BOOL), value("y_in", [3]), *(value(i, [3]) for i, _ in extra)],
        [value("c_out", [], BOOL), value("y_out", [3]), *(value(o, [3]) for _, o in extra),
         *([value("each", [3])] if "each" in outputs else [])],
    )  # fmt: skip
    loop = node("Loop", ["n" if trips else "", "", "y0", *states], list(outputs), "loop", body=body)
    declared = [value("y0", [3]), value("limit", [])]
    shapes = {"each": [None, 3]}
    return model([loop], declared, [value(o, shapes.get(o, [3])) for o in outputs], dict(weights))


BY_VALUE = [node("ReduceMax", ["y_out"], ["most"], keepdims=0), node("Less", ["most", "limit"], ["c_out"])]


@pytest.mark.parametrize("limit", [-1, 3, 17, 1e9])
def test_a_condition_that_looks_at_values_masks_the_steps_after_the_last(limit):
    proto = ending(BY_VALUE, weights={"n": np.array(6)})
    feeds = {"y0": np.float32([1, -3, 0.5]), "limit": np.array(limit, np.float32)}
    check_numbers(proto, feeds)
    agrees(proto, feeds)


def test_a_condition_that_counters_and_shapes_decide_ends_the_loop_when_it_is_compiled():
    """Without a trip count, as PyTorch exports `while i < x.shape[0] + 2`."""
    condition = [node("Shape", ["y_out"], ["s"]), node("ReduceSum", ["s"], ["rows"], keepdims=0),
                 node("Less", ["i", "rows"], ["c_out"])]  # fmt: skip
    proto = ending(condition, ("y", "each"), trips=False)
    translated = check_numbers(proto, {"y0": np.float32([1, -3, 2]), "limit": np.array(0, np.float32)})
    assert [spec.shape for spec in translated.outputs] == [(3,), (4, 3)]


def test_what_is_collected_while_a_condition_is_computed_is_refused():
    proto = ending(BY_VALUE, ("y", "each"), weights={"n": np.array(6)})
    with pytest.raises(UnsupportedError) as info:
        imported(proto)
    text = message(info.value)
    assert "'loop' (Loop" in text and "'each' has an element for each step" in text and "freeze=" in text


def test_a_trip_count_that_is_computed_names_what_to_freeze():
    proto = loop_model(node("Identity", ["c"], ["c_out"]))
    del proto.graph.initializer[0]
    proto.graph.input.append(value("n", [], INT))
    with pytest.raises(UnsupportedError, match=r"'loop' \(Loop.*'n', is computed") as info:
        imported(proto)
    assert "compile(freeze={'n': ...})" in message(info.value)
    assert imported(proto, freeze={"n": np.array(4)}).outputs[1].shape == (4, 2)


@pytest.mark.parametrize("trips", [0, 1])
def test_no_steps_and_one(trips):
    check_numbers(loop_model(node("Identity", ["c"], ["c_out"]), (trips,)), {"y0": np.float32([1, -3])})


def test_a_loop_that_never_starts_and_one_that_stops_at_once():
    for start, condition in ((False, node("Identity", ["c"], ["c_out"])), (True, node("Not", ["c"], ["c_out"]))):
        proto = loop_model(condition, (int(start),))
        proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array(5), "n"))
        proto.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.array(start), "go"))
        check_numbers(proto, {"y0": np.float32([1, -3])})


def test_a_loop_that_would_become_too_many_nodes_and_cannot_stay_one():
    grows = loop_model(node("Identity", ["c"], ["c_out"]), (10_000,))
    body = grows.graph.node[0].attribute[0].g
    body.node[0].CopyFrom(node("Concat", ["y_in", "y_in"], ["y_out"], axis=0))
    for stated in (*body.output[1:], *grows.graph.output):
        stated.type.tensor_type.ClearField("shape")
    with pytest.raises(
        UnsupportedError, match=r"'loop'.*more than 20000 nodes; it cannot stay a loop: .*before a step"
    ):
        imported(grows)


def test_a_loop_in_a_loop():
    inner_body = helper.make_graph(
        [node("Add", ["t_in", "y_in"], ["t_out"]), node("Identity", ["d"], ["d_out"])], "inner",
        [value("j", [], INT), value("d", [], BOOL), value("t_in", [2])],
        [value("d_out", [], BOOL), value("t_out", [2])],
    )  # fmt: skip
    condition = node("Identity", ["c"], ["c_out"])
    proto = loop_model(condition, (3,))
    body = proto.graph.node[0].attribute[0].g
    inner = node("Loop", ["i", "", "y_in"], ["y_out"], "inner", body=inner_body)  # as many steps as the outer counts
    body.node[0].CopyFrom(inner)
    check_numbers(proto, {"y0": np.float32([1, -3])})


# ------------------------------------------------------------ sequences
def test_sequences_that_a_loop_fills():
    sequence = helper.make_tensor_sequence_value_info
    body = helper.make_graph(
        [node("Gather", ["x", "i"], ["row"]), node("SequenceInsert", ["s_in", "row"], ["s_out"]),
         node("Identity", ["c"], ["c_out"])], "body",
        [value("i", [], INT), value("c", [], BOOL), sequence("s_in", TensorProto.FLOAT, None)],
        [value("c_out", [], BOOL), sequence("s_out", TensorProto.FLOAT, None)],
    )  # fmt: skip
    nodes = [node("SequenceEmpty", [], ["s0"]), node("Loop", ["n", "", "s0"], ["s"], body=body),
             node("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1), node("SequenceLength", ["s"], ["l"]),
             node("SequenceAt", ["s", "last"], ["z"])]  # fmt: skip
    outputs = [value("y", [4, 3]), value("l", [], INT), value("z", [3])]
    proto = model(nodes, [value("x", [5, 3])], outputs, {"n": np.array(4), "last": np.array(-1)})
    check_numbers(proto, {"x": RNG.standard_normal((5, 3)).astype(np.float32)})

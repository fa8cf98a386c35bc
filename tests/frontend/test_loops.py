"""Scan and Loop with a known number of steps are unrolled; others are refused."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tvm_ext.core.errors import UnsupportedError

from .graphs import check_numbers, imported, message, model, node, value

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


def test_a_loop_that_its_values_end_is_refused():
    limit = onnx.numpy_helper.from_array(np.float32(9))
    nodes = node("Constant", [], ["limit"], value=limit)
    proto = loop_model(node("Less", ["total", "limit"], ["c_out"]))
    body = proto.graph.node[0].attribute[0].g
    body.node.insert(0, nodes)
    body.node.insert(2, node("ReduceSum", ["y_out"], ["total"], keepdims=0))
    with pytest.raises(UnsupportedError) as info:
        imported(proto)
    assert "'loop'" in message(info.value)

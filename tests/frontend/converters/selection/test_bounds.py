"""Indices out of bounds: refused where they are known, the nearest row where they are not; never foreign memory."""

import numpy as np
import pytest
from onnx import TensorProto

import tvm_ext
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.core.errors import UnsupportedError

from ...graphs import imported, message, model, node, value

RNG = np.random.default_rng(4)
INT = TensorProto.INT64
X = RNG.standard_normal((4, 3)).astype(np.float32)
U = RNG.standard_normal((2, 3)).astype(np.float32)


def case(op_type, indices, **attributes):
    """(model with indices as an input, feeds)."""
    nodes = [node(op_type, ["x", "i", "u"][: 3 if "Scatter" in op_type else 2], ["y"], "pick", **attributes)]
    inputs = [value("x", X.shape), value("i", indices.shape, INT), *[value("u", U.shape)] * ("Scatter" in op_type)]
    return model(nodes, inputs, [value("y", None)]), {"x": X, "i": indices, "u": U}


def compiled(proto):
    return tvm_ext.compile(proto, cache=False, threads=1, records=None)


PICKS = {
    "GatherElements": ((2, 3), {"axis": 0}), "ScatterElements": ((2, 3), {"axis": 0}), "GatherND": ((2, 1), {}),
    "ScatterND": ((2, 1), {}),
}  # fmt: skip


@pytest.mark.parametrize("op_type", PICKS)
def test_indices_in_bounds_mean_what_they_mean(op_type):
    shape, attributes = PICKS[op_type]
    indices = RNG.permuted(np.broadcast_to(np.array([-4, -1, 0, 3]), (3, 4)), axis=1).T[: shape[0], : shape[1]].copy()
    proto, feeds = case(op_type, indices, **attributes)
    inputs = {name: feeds[name] for name in [v.name for v in proto.graph.input]}
    np.testing.assert_array_equal(compiled(proto).run(inputs)["y"], onnxruntime_outputs(proto, inputs)["y"])


@pytest.mark.parametrize("op_type", PICKS)
def test_indices_out_of_bounds_mean_the_nearest_row(op_type):
    shape, attributes = PICKS[op_type]
    proto, feeds = case(op_type, np.zeros(shape, np.int64), **attributes)
    one = compiled(proto)
    for far, near in (((1 << 62), 3), (-(1 << 62), 0), (4, 3), (-5, 0)):
        inputs = {name: feeds[name] for name in [v.name for v in proto.graph.input]}
        wild, tame = ({**inputs, "i": np.full(shape, index)} for index in (far, near))
        np.testing.assert_array_equal(one.run(wild)["y"], one.run(tame)["y"])


@pytest.mark.parametrize("op_type", PICKS)
def test_known_indices_out_of_bounds_are_refused(op_type):
    shape, attributes = PICKS[op_type]
    proto, _ = case(op_type, np.zeros(shape, np.int64), **attributes)
    with pytest.raises(UnsupportedError, match=r"'pick'.*index 4 is out of bounds") as error:
        imported(proto, freeze={"i": np.full(shape, 4)})
    assert message(error.value)


def test_sequences_are_not_longer_than_they_are():
    nodes = [node("ReverseSequence", ["x", "n"], ["y"], time_axis=0, batch_axis=1)]
    one = compiled(model(nodes, [value("x", X.shape), value("n", [3], INT)], [value("y", X.shape)]))
    result = one.run({"x": X, "n": np.array([1 << 40, 4, 1])})["y"]
    np.testing.assert_array_equal(result, np.stack([X[::-1, 0], X[::-1, 1], X[:, 2]], 1))


def test_unpooled_values_stay_in_the_image():
    nodes = [node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[2, 2], strides=[2, 2])]
    one = compiled(model(nodes, [value("x", [1, 1, 2, 2]), value("i", [1, 1, 2, 2], INT)], [value("y", [1, 1, 4, 4])]))
    x = X.reshape(-1)[:4].reshape(1, 1, 2, 2)
    result = one.run({"x": x, "i": np.array([0, 5, 10, 1 << 50]).reshape(x.shape)})["y"].reshape(-1)
    assert result[0] == x.reshape(-1)[0] and result[5] == x.reshape(-1)[1] and result[15] == x.reshape(-1)[3]


def test_nothing_can_be_gathered_of_a_constant_without_rows():
    proto = model([node("Gather", ["w", "i"], ["y"], "pick")], [value("i", [1], INT)], [value("y", None)],
                  {"w": np.zeros((0, 3), np.float32)})  # fmt: skip
    with pytest.raises(UnsupportedError, match="'pick'"):
        imported(proto)

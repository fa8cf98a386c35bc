"""onnxruntime's sums of products of bytes are exact, whatever the CPU."""

import numpy as np
import pytest
from onnx import helper

from tests.onnx_graphs import model, node, value

from .reference import onnxruntime_outputs


@pytest.mark.parametrize("zero", [None, 127])
@pytest.mark.parametrize(("data", "offset"), [("uint8", 255), ("int8", -128)])
def test_products_of_bytes(data: str, offset: int, zero: int | None) -> None:
    x, w = np.full((3, 67), 255 + min(offset, 0), data), np.full((67, 7), -128, np.int8)
    weights = {"w": w, "zx": np.array(offset, data), **({} if zero is None else {"zw": np.int8(zero)})}
    products = node("MatMulInteger", "x w zx" if zero is None else "x w zx zw", "y")
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    proto = model([products], [value("x", x.shape, kind)], [value("y", (3, 7), 6)], weights)
    before = proto.SerializeToString()
    wanted = (x.astype(int) - offset) @ (w.astype(int) - (zero or 0))
    np.testing.assert_array_equal(onnxruntime_outputs(proto, {"x": x})["y"], wanted)
    assert proto.SerializeToString() == before

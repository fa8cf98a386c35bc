"""What outputs are compared with is right on every CPU."""

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from tests.onnx_graphs import model, node, value
from tvm_ext.verification.reference import run_reference


def of_integers() -> ModelProto:
    w = np.full((8, 3), 127, np.int8)
    inputs, outputs = [value("x", (2, 8), TensorProto.UINT8)], [value("y", (2, 3), TensorProto.INT32)]
    return model([node("MatMulInteger", "x w", "y")], inputs, outputs, {"w": w})


def quantized() -> ModelProto:
    scales = {"one": np.float32(1), "zero": np.uint8(0), "many": np.float32(4096), "none": np.int8(0)}
    nodes = [
        node("DequantizeLinear", "x one zero", "a"), node("DequantizeLinear", "w one none", "b"),
        node("MatMul", "a b", "c"), node("QuantizeLinear", "c many zero", "y"),
    ]  # fmt: skip
    inputs, outputs = [value("x", (2, 8), TensorProto.UINT8)], [value("y", (2, 3), TensorProto.UINT8)]
    return model(nodes, inputs, outputs, {**scales, "w": np.full((8, 3), 127, np.int8)})


@pytest.mark.parametrize(("proto", "scale"), [(of_integers(), 1), (quantized(), 4096)], ids=["integers", "quantized"])
def test_sums_of_bytes_do_not_saturate(proto: ModelProto, scale: int) -> None:
    """Without VNNI onnxruntime adds products of uint8 and int8 in pairs of 16 bits, unless it is told."""
    outputs, _ = run_reference(proto, {"x": np.full((2, 8), 255, np.uint8)}, 1)
    np.testing.assert_array_equal(outputs["y"], np.full((2, 3), round(8 * 255 * 127 / scale)))

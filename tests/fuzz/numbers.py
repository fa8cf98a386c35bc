"""Numbers that break readers of models: sizes, indices, floats, element types."""

from onnx import TensorProto

SIZES = (
    -(1 << 63), -(1 << 31), -7, -1, 0, 1, 2, 3, 5, 64, 1000, 65536, (1 << 31) - 1, 1 << 31, 1 << 40, 1 << 62,
    (1 << 63) - 1,
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-8, 3e38, -3e38, float("inf"), float("-inf"), float("nan"), 0.5, 1e9)
TYPES = tuple(code for code in TensorProto.DataType.values() if code)

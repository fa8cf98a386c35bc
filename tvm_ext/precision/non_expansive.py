"""ONNX operators that pass on a rounding of their operand no larger than it is, of the result's size."""

from __future__ import annotations

#: They move elements.
MOVES = frozenset(
    [
        "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Concat", "Expand", "Tile",
        "MaxPool", "Identity",
    ]
)  # fmt: skip

#: They compute each element by itself.
ELEMENTWISE = frozenset(
    [
        "Add", "Sub", "Mul", "Max", "Min", "Neg", "Abs", "Clip", "Relu", "LeakyRelu", "PRelu", "Sigmoid",
        "HardSigmoid", "HardSwish", "Tanh", "Erf", "Gelu", "Where", "BatchNormalization",
    ]
)  # fmt: skip

#: What may read a bfloat16 tensor between kernels.
NON_EXPANSIVE = MOVES | ELEMENTWISE | {
    "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "Resize",
    "Upsample", "Pad", "Gather", "GatherElements", "GatherND",
}  # fmt: skip

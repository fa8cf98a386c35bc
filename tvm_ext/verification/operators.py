"""Sets of ONNX operators that comparisons treat alike."""

from __future__ import annotations

#: Operators that move or pick values; results must be equal.
MOVES = frozenset(
    [
        "Identity", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Split", "Slice",
        "Gather", "GatherElements", "GatherND", "Expand", "Tile", "Pad", "DepthToSpace", "SpaceToDepth",
        "MaxPool", "GlobalMaxPool", "Relu", "Max", "Min", "Clip", "Neg", "Abs", "Where", "Dropout", "Shape",
        "Size", "Cast", "Constant", "ConstantOfShape", "ReduceMax", "ReduceMin", "ScatterElements", "ScatterND",
        "TopK", "Compress", "Trilu",
    ]
)  # fmt: skip

#: Operators whose result jumps: a rounding before them can tip it.
JUMPS = frozenset(
    [
        "Floor", "Ceil", "Round", "Sign", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "ArgMax",
        "ArgMin", "TopK", "NonZero", "Hardmax", "Mod", "Cast", "IsInf", "IsNaN", "Unique",
    ]
)  # fmt: skip

#: Operators that round a real number to an integer: a neighbour is as right.
ROUNDS = frozenset(
    [
        "QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul",
        "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearConcat",
    ]
)  # fmt: skip

#: Operators that draw random numbers.
RANDOM = frozenset(
    [
        "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial",
    ]
)  # fmt: skip

#: Operators whose rounding is bounded by norms of what they read.
SUMS = frozenset(["Conv", "ConvTranspose", "MatMul", "Gemm", "Div", "BatchNormalization"])

#: Operators that round once.
ONE_STEP = frozenset(["Add", "Sub", "Mul", "Div", "Sqrt", "Reciprocal", "LeakyRelu", "PRelu", "Mod", "Sum"])

#: Operators that sum over axes of their first operand: over all of it, at most.
WHOLE = frozenset(
    [
        "ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd",
        "ReduceSumSquare", "Einsum", "Attention", "LayerNormalization", "InstanceNormalization",
        "GroupNormalization", "RMSNormalization", "MeanVarianceNormalization", "LpNormalization",
        "SimplifiedLayerNormalization", "GRU", "LSTM", "RNN", "DFT", "STFT",
    ]
)  # fmt: skip

"""The models of the kit: what accelerators take, in odd shapes, and what is easily mistaken for it."""

from typing import Any

import numpy as np

from .graphs import KitModel, Tensor, graph, int8, normal

_CONV = ("relax.nn.conv2d",)
_BOTH = ("relax.matmul", "relax.nn.conv2d")


def _model(name: str, about: str, *lines: str, outputs: tuple[str, ...] = (), **tensors: Any) -> KitModel:
    """A float32 model. Of `tensors`, names that begin with x are inputs; the rest are constants, or their shapes."""
    kit = {key: tensors.pop(key) for key in ("anchors", "dtypes", "specialize", "tolerance") if key in tensors}
    inputs = {n: t if isinstance(t, Tensor) else Tensor(t) for n, t in tensors.items() if n.startswith("x")}
    constants = {
        n: normal(*t, seed=seed) if isinstance(t, tuple) else np.asarray(t)
        for seed, (n, t) in enumerate(tensors.items())
        if n not in inputs
    }
    return KitModel(name, about, graph(lines, inputs, constants, outputs), **kit)


def float_models() -> tuple[KitModel, ...]:
    """Matmuls and convolutions of float32 with what stands around them, and single operators of other kinds."""
    return (*_dense(), *_matmul(), *_lookalikes(), *_graphs(), *_convolutions(), *_others())


def _dense() -> tuple[KitModel, ...]:
    return (
        _model("dense", "a constant weight", "y = MatMul(x, w)", x=(3, 7), w=(7, 5)),
        _model("dense-1x1", "everything is 1", "y = MatMul(x, w)", x=(1, 1), w=(1, 1)),
        _model(
            "dense-bias-relu", "bias [n], all of it in one", "m = MatMul(x, w)", "a = Add(m, b)", "y = Relu(a)",
            x=(1, 13), w=(13, 17), b=(17,),
        ),
        _model("bias-row", "bias [1, n]", "m = MatMul(x, w)", "y = Add(m, b)", x=(5, 11), w=(11, 3), b=(1, 3)),
        _model("bias-first", "Add(bias, m)", "m = MatMul(x, w)", "y = Add(b, m)", x=(2, 3), w=(3, 19), b=(19,)),
        _model("bias-scalar", "one number", "m = MatMul(x, w)", "y = Add(m, b)", x=(2, 3), w=(3, 5), b=np.float32(1.5)),
        _model("gemm", "Gemm, weight [n, k]", "y = Gemm(x, w, b) transB=1", x=(4, 23), w=(31, 23), b=(31,)),
        _model(
            "gelu", "written out as exporters do", "m = MatMul(x, w)", "a = Add(m, b)", "d = Div(a, r)", "e = Erf(d)",
            "f = Add(e, o)", "g = Mul(a, f)", "y = Mul(g, h)", x=(3, 8), w=(8, 9), b=(9,), r=np.float32(2**0.5),
            o=np.float32(1), h=np.float32(0.5),
        ),
        _model("large", "more than one tile", "m = MatMul(x, w)", "y = Relu(m)", x=(67, 131), w=(131, 97)),
    )  # fmt: skip


def _matmul() -> tuple[KitModel, ...]:
    return (
        _model("matmul", "both computed", "y = MatMul(x1, x2)", x1=(5, 3), x2=(3, 7)),
        _model("batched", "a matmul a batch", "y = MatMul(x1, x2)", x1=(2, 5, 3), x2=(2, 3, 4)),
        _model("batched-weight", "one weight, many rows", "y = MatMul(x, w)", x=(2, 3, 5, 7), w=(7, 3)),
        _model("broadcast", "batches 3 and 1", "y = MatMul(x1, x2)", x1=(3, 2, 5), x2=(1, 5, 4)),
        _model("self", "x @ x", "y = MatMul(x, x)", x=(7, 7)),
        _model("vector", "x has one dimension", "y = MatMul(x, w)", x=(7,), w=(7, 5)),
        _model("transposed", "x @ t(x)", "t = Transpose(x) perm=[1,0]", "y = MatMul(x, t)", x=(5, 3)),
        _model(
            "heads", "transposed by heads", "a = Transpose(x1) perm=[0,2,1,3]", "b = Transpose(x2) perm=[0,2,3,1]",
            "y = MatMul(a, b)", x1=(1, 5, 2, 3), x2=(1, 7, 2, 3),
        ),
    )  # fmt: skip


def _lookalikes() -> tuple[KitModel, ...]:
    """What looks like a bias, and is none."""
    return (
        _model("residual", "what is added is as large", "m = MatMul(x, w)", "y = Add(m, x)", x=(6, 6), w=(6, 6)),
        _model("residual-input", "it is [n], and computed", "m = MatMul(x1, w)", "y = Add(m, x2)",
               x1=(5, 3), x2=(5,), w=(3, 5)),
        _model("residual-constant", "it is constant", "m = MatMul(x, w)", "y = Add(m, c)",
               x=(4, 3), w=(3, 4), c=(4, 4)),
        _model("bias-column", "a number a row", "m = MatMul(x, w)", "y = Add(m, c)", x=(5, 3), w=(3, 5), c=(5, 1)),
        _model("bias-widens", "it makes the result larger", "m = MatMul(x, w)", "y = Add(m, c)",
               x=(1, 3), w=(3, 5), c=(4, 5)),
        _model("two-adds", "bias and residual", "m = MatMul(x, w)", "a = Add(m, b)", "s = Add(a, x)", "y = Relu(s)",
               x=(3, 6), w=(6, 6), b=(6,)),
        _model("doubled", "m + m reads it twice", "m = MatMul(x, w)", "y = Add(m, m)", x=(3, 7), w=(7, 5)),
        _model("relu-first", "relu, then bias", "m = MatMul(x, w)", "r = Relu(m)", "y = Add(r, b)",
               x=(3, 7), w=(7, 5), b=(5,)),
    )  # fmt: skip


def _graphs() -> tuple[KitModel, ...]:
    return (
        _model("twins", "equal layers, other weights", "y1 = MatMul(x, w1)", "y2 = MatMul(x, w2)",
               x=(3, 5), w1=(5, 5), w2=(5, 5)),
        _model("twins-chained", "one feeds the other", "a = MatMul(x, w1)", "y = MatMul(a, w2)",
               x=(3, 5), w1=(5, 5), w2=(5, 5)),
        _model("shared-weight", "one weight, two layers", "a = MatMul(x, w)", "y = MatMul(a, w)", x=(3, 5), w=(5, 5)),
        _model("leak", "what is within is an output too", "m = MatMul(x, w)", "a = Add(m, b)", "y = Relu(a)",
               outputs=("m",), x=(3, 7), w=(7, 5), b=(5,)),
        _model("fork", "two read one", "m = MatMul(x, w)", "a = Relu(m)", "b = Sigmoid(m)", x=(3, 7), w=(7, 5)),
        _model("island", "a path leaves and comes back", "m = MatMul(x, w)", "s = Softmax(m) axis=-1",
               "t = MatMul(s, v)", "y = Add(t, m)", x=(3, 5), w=(5, 5), v=(5, 5)),
        _model("split", "a tuple is taken apart", "m = MatMul(x, w)", "a, b = Split(m) axis=1", "c = Relu(a)",
               "y = MatMul(b, v)", x=(3, 7), w=(7, 6), v=(3, 4)),
        _model("perceptron", "three layers", "m1 = MatMul(x, w1)", "a1 = Add(m1, b1)", "r1 = Relu(a1)",
               "m2 = MatMul(r1, w2)", "a2 = Add(m2, b2)", "r2 = Relu(a2)", "m3 = MatMul(r2, w3)", "y = Add(m3, b3)",
               x=(2, 17), w1=(17, 23), b1=(23,), w2=(23, 11), b2=(11,), w3=(11, 3), b3=(3,)),
        _model("symbolic", "a batch of any size", "m = MatMul(x, w)", "a = Add(m, b)", "y = Relu(a)",
               x=("N", 7), w=(7, 5), b=(5,), specialize=(1, 3)),
    )  # fmt: skip


def _convolutions() -> tuple[KitModel, ...]:
    def conv(name: str, about: str, attributes: str, *more: str, **tensors: Any) -> KitModel:
        first = f"{'m' if more else 'y'} = Conv(x, w) {attributes}".rstrip()
        return _model(name, about, first, *more, anchors=_CONV, **tensors)

    return (
        conv("conv", "3x3 with a border", "pads=[1,1,1,1]", x=(1, 3, 7, 5), w=(4, 3, 3, 3)),
        conv("conv-1x1", "a matmul over pixels", "", x=(2, 5, 3, 3), w=(7, 5, 1, 1)),
        conv("conv-strides", "strides 2 and 3, uneven border", "strides=[2,3] pads=[0,1,2,1]",
             x=(1, 2, 11, 13), w=(3, 2, 3, 2)),
        conv("conv-dilated", "dilation 2 and 1", "dilations=[2,1] pads=[2,1,2,1]", x=(2, 3, 8, 7), w=(5, 3, 3, 3)),
        conv("conv-groups", "three groups", "group=3 pads=[1,1,1,1]", x=(1, 6, 5, 5), w=(9, 2, 3, 3)),
        conv("depthwise", "a group a channel", "group=5 strides=[2,2]", x=(1, 5, 7, 7), w=(5, 1, 3, 3)),
        conv("conv-bias-relu", "bias [1, n, 1, 1]", "pads=[1,1,1,1]", "a = Add(m, b)", "y = Relu(a)",
             x=(1, 3, 5, 7), w=(4, 3, 3, 3), b=(1, 4, 1, 1)),
        conv("conv-residual", "bias, then what it read", "pads=[1,1,1,1]", "a = Add(m, b)", "s = Add(a, x)",
             "y = Relu(s)", x=(2, 4, 5, 5), w=(4, 4, 3, 3), b=(1, 4, 1, 1)),
        conv("conv-wide-bias", "a number a column of the image", "", "y = Add(m, b)",
             x=(1, 2, 4, 4), w=(4, 2, 1, 1), b=(4,)),
        conv("conv-chain", "two layers", "pads=[1,1,1,1]", "r = Relu(m)", "y = Conv(r, v)",
             x=(1, 3, 6, 6), w=(5, 3, 3, 3), v=(2, 5, 3, 3)),
        _model("conv-dense", "convolution, pooling, matmul", "c = Conv(x, w, b)", "r = Relu(c)",
               "p = GlobalAveragePool(r)", "f = Flatten(p)", "y = MatMul(f, v)", anchors=_BOTH,
               x=(2, 3, 5, 5), w=(4, 3, 3, 3), b=(4,), v=(4, 7)),
    )  # fmt: skip


def _others() -> tuple[KitModel, ...]:
    return (
        _model("softmax", "over the last axis", "y = Softmax(x) axis=-1", anchors=("relax.nn.softmax",), x=(3, 7)),
        _model("max-pool", "3x3, stride 2", "y = MaxPool(x) kernel_shape=[3,3] strides=[2,2]",
               anchors=("relax.nn.max_pool2d",), x=(1, 3, 9, 7)),
        _model("average-pool", "2x2", "y = AveragePool(x) kernel_shape=[2,2]", anchors=("relax.nn.avg_pool2d",),
               x=(1, 3, 5, 7)),
        _model("mean", "over one axis", "y = ReduceMean(x) axes=[1] keepdims=0", anchors=("relax.mean",), x=(3, 5, 7)),
        _model("elementwise", "add, multiply, sigmoid", "a = Add(x1, x2)", "m = Mul(a, x1)", "y = Sigmoid(m)",
               anchors=("relax.add", "relax.multiply", "relax.sigmoid"), x1=(3, 7), x2=(3, 7)),
        _model("relu", "alone", "y = Relu(x)", anchors=("relax.nn.relu",), x=(3, 7)),
    )  # fmt: skip


#: Scales of powers of two: everything is exact, so that half-way cases occur and have one right answer.
_X, _W, _Y = np.float32(1 / 8), np.float32(1 / 16), np.float32(1 / 4)
_QUANTIZE = ("q = QuantizeLinear(x, sx, zx)", "d = DequantizeLinear(q, sx, zx)")
_REQUANTIZE = ("r = QuantizeLinear(m, sy, zy)", "y = DequantizeLinear(r, sy, zy)")


def quantized_models() -> tuple[KitModel, ...]:
    """int8 matmuls and convolutions between QuantizeLinear and DequantizeLinear, and MatMulInteger."""
    return (*_quantized_dense(), *_quantized_conv())


def _quantized_dense() -> tuple[KitModel, ...]:
    weight, product = "v = DequantizeLinear(w, sw, zw) axis=1", "m = MatMul(d, v)"
    x, w = (11, 17), int8(17, 11)
    channels = (2.0 ** np.random.default_rng(3).integers(-6, -2, 11)).astype(np.float32)

    def dense(name: str, about: str, middle: tuple[str, ...] = (product,), **tensors: Any) -> KitModel:
        constants: dict[str, Any] = {
            "sx": _X, "zx": np.int8(0), "w": w, "sw": _W, "zw": np.int8(0), "sy": _Y, "zy": np.int8(0), **tensors,
        }  # fmt: skip
        kit = {"dtypes": ("int8",), "tolerance": 0.0}
        return _model(name, about, *_QUANTIZE, weight, *middle, *_REQUANTIZE, x=x, **{**kit, **constants})

    biased = ("n = MatMul(d, v)", "b = DequantizeLinear(c, sc)", "a = Add(n, b)", "m = Relu(a)")
    bias = {"c": np.arange(-500, 600, 100).astype(np.int32), "sc": np.float32(_X * _W)}
    return (
        dense("int8-dense", "per tensor"),
        dense("int8-dense-channels", "a scale a column", sw=channels, zw=np.zeros(11, np.int8)),
        dense("int8-any-scales", "one step more or less", sx=np.float32(0.11), sw=np.float32(0.07), sy=np.float32(0.3),
              tolerance=0.01),
        dense("uint8-dense", "inputs of uint8", zx=np.uint8(99), zy=np.uint8(131), dtypes=("int8", "uint8")),
        dense("int8-zero-points", "at the edges", zx=np.int8(-128), zy=np.int8(127)),
        dense("int8-bias-relu", "an int32 bias", biased, **bias),
        _model("matmul-integer", "int32 comes out", "y = MatMulInteger(x, w, zx, zw)", dtypes=("int8",), tolerance=0.0,
               x=Tensor((3, 19), "int8"), w=int8(19, 7), zx=np.int8(-5), zw=np.int8(3)),
    )  # fmt: skip


def _quantized_conv() -> tuple[KitModel, ...]:
    channels = (2.0 ** np.arange(-8, -4)).astype(np.float32)
    weight = "v = DequantizeLinear(w, sw, zw) axis=0"

    def conv(name: str, about: str, attributes: str, **tensors: Any) -> KitModel:
        constants: dict[str, Any] = {
            "sx": _X, "zx": np.int8(0), "sw": channels, "zw": np.zeros(4, np.int8), "sy": _Y, "zy": np.int8(0),
            **tensors,
        }  # fmt: skip
        lines = (*_QUANTIZE, weight, f"m = Conv(d, v) {attributes}", *_REQUANTIZE)
        return _model(name, about, *lines, anchors=_CONV, dtypes=("int8",), tolerance=0.0, **constants)

    return (
        conv("int8-conv", "a scale a channel", "pads=[1,1,1,1]", x=(1, 3, 5, 7), w=int8(4, 3, 3, 3)),
        conv("int8-conv-border", "the border is the zero point", "pads=[1,0,1,2] strides=[2,1]", x=(2, 3, 6, 5),
             w=int8(4, 3, 3, 3), zx=np.int8(17), zy=np.int8(-3)),
    )  # fmt: skip

"""Elementwise operators: functions of one value, arithmetic with broadcasting, comparisons, where, casts."""

import math

import numpy as np

from .graph import ANY, BOOL, F32, FLOATS, HALVES, INTS, SMALL_INTS, UNIT, Graph, Value, maker

#: Operator -> (bound of the output for a bound, largest slope). Their series are off by a few units.
_SMOOTH = {
    "Sigmoid": (lambda b: 1.0, 1.0), "Tanh": (lambda b: 1.0, 1.0), "Erf": (lambda b: 1.0, 1.2),
    "Softplus": (lambda b: b + 1, 1.0), "HardSigmoid": (lambda b: 1.0, 1.0),
    "Selu": (lambda b: 2 * b + 2, 1.8), "Celu": (lambda b: b + 1, 1.0), "Elu": (lambda b: b + 1, 1.0),
    "Softsign": (lambda b: 1.0, 1.0), "Sin": (lambda b: 1.0, 1.0), "Cos": (lambda b: 1.0, 1.0),
    "Atan": (lambda b: 1.6, 1.0), "LeakyRelu": (lambda b: b, 1.0),
}  # fmt: skip
_NEW = {"Mish": (18, 1.2), "Gelu": (20, 1.2), "HardSwish": (14, 1.5)}
_ROUNDINGS = 12.0
_EVERYWHERE = {"empty": True, "rows": True}


@maker(*HALVES, weight=5, **_EVERYWHERE)
def smooth(g: Graph, x: Value) -> Value | None:
    op = g.any([*_SMOOTH, *(name for name in _NEW if g.opset >= _NEW[name][0])])
    if op == "Celu" and x.dtype != "float32":
        return None
    bound, slope = _SMOOTH.get(op, (lambda b: b, _NEW.get(op, (0, 1.0))[1]))
    # onnxruntime computes erf, tanh and their kin from series whose error is a part of 1, not of their value
    return g.node(op, [x], x.shape, bound=max(bound(x.bound), 1.0), gain=slope, terms=_ROUNDINGS)


@maker("float64", weight=3, **_EVERYWHERE)
def smooth_double(g: Graph, x: Value) -> Value:
    op = g.any(["Sigmoid", "Tanh", "Sin", "Cos"])
    return g.node(op, [x], x.shape, bound=1.0, terms=_ROUNDINGS)


@maker(*FLOATS, *INTS, weight=3, **_EVERYWHERE)
def exact_unary(g: Graph, x: Value) -> Value:
    ops = ["Abs", "Neg", "Identity"]
    return g.node(g.any(["Relu", *ops] if x.dtype in UNIT else ops), [x], x.shape, terms=0)


@maker(*FLOATS, exact=True, **_EVERYWHERE, nan=False)
def step(g: Graph, x: Value) -> Value:
    op = g.any(["Round", "Floor", "Ceil", "Sign"])
    return g.node(op, [x], x.shape, bound=x.bound + 1, terms=0)


@maker(*F32, exact=True, **_EVERYWHERE, nan=False)
def thresholded(g: Graph, x: Value) -> Value:
    op = g.any(["ThresholdedRelu", "Shrink"])
    attrs = {"alpha": 0.7} if op == "ThresholdedRelu" else {"lambd": 0.7, "bias": g.any([0.0, 0.3])}
    return g.node(op, [x], x.shape, bound=x.bound + 1, **attrs)


@maker(*FLOATS, weight=2, **_EVERYWHERE)
def clip(g: Graph, x: Value) -> Value:
    low, high = sorted(float(v) for v in g.numbers().uniform(-2, 2, 2))
    ends = [np.asarray(end, x.dtype) if g.chance(0.8) else None for end in (low, high)]
    return g.node("Clip", [x, *ends], x.shape, bound=max(x.bound, 2.0), terms=0)


@maker(*FLOATS, **_EVERYWHERE)
def exponential(g: Graph, x: Value) -> Value | None:
    if x.bound > 4:
        return None
    bound = math.exp(x.bound)
    return g.node("Exp", [x], x.shape, bound=bound, gain=bound, terms=4)


@maker(*FLOATS, **_EVERYWHERE)
def root(g: Graph, x: Value) -> Value:
    squares = g.node("Mul", [x, x], x.shape, bound=x.bound**2, gain=x.bound)
    one = g.node("Add", [squares, np.asarray(1, x.dtype)], x.shape, bound=squares.bound + 1)
    return g.node(g.any(["Sqrt", "Log", "Reciprocal"]), [one], x.shape, bound=x.bound + 1, terms=4)


@maker(*F32, **_EVERYWHERE)
def power(g: Graph, x: Value) -> Value:
    exponent = g.any([2.0, 3.0, 2, 0.5, -1.0, 1.5])
    if exponent in (2.0, 3.0):
        slope = exponent * x.bound ** (exponent - 1)
        raised = np.asarray(exponent, np.int64 if isinstance(exponent, int) else x.dtype)
        return g.node("Pow", [x, raised], x.shape, bound=x.bound**exponent, gain=slope, terms=4)
    positive = g.node("Abs", [x], x.shape, terms=0)
    positive = g.node("Add", [positive, np.asarray(0.5, x.dtype)], x.shape, bound=x.bound + 0.5)
    bound = max(positive.bound, 2.0) ** abs(exponent)
    return g.node("Pow", [positive, np.asarray(exponent, x.dtype)], x.shape, bound=bound, gain=4 * bound, terms=6)


@maker(*FLOATS, *INTS, weight=9, **_EVERYWHERE)
def binary(g: Graph, x: Value) -> Value | None:
    op, y = g.any(["Add", "Add", "Sub", "Mul", "Max", "Min"]), g.other(x)
    bound = x.bound * y.bound if op == "Mul" else x.bound + y.bound
    if x.dtype not in UNIT and bound > 1e6:
        return None
    operands = [x, y] if g.chance(0.6) else [y, x]
    error = x.bound * y.error + y.bound * x.error if op == "Mul" else x.error + y.error
    error += UNIT.get(x.dtype, 0.0) * bound * (op not in ("Max", "Min"))
    return g.node(op, operands, x.shape, bound=bound, error=error)


@maker(*FLOATS, weight=2, **_EVERYWHERE)
def divide(g: Graph, x: Value) -> Value:
    divisor = g.array(*x.shape[g.size(0, x.rank) :][-2:], low=0.5, dtype=x.dtype)
    if g.rows and divisor.ndim == x.rank:
        divisor = divisor.reshape(-1)[:1]
    if divisor.ndim and divisor.shape != x.shape[x.rank - divisor.ndim :]:
        divisor = divisor.reshape(-1)[:1] if divisor.size else np.asarray(0.5, x.dtype)
    return g.node("Div", [x, divisor], x.shape, bound=2 * x.bound, gain=2, terms=2)


@maker(*INTS, nan=False, **_EVERYWHERE)
def divide_integers(g: Graph, x: Value) -> Value:
    op, by = g.any(["Div", "Mod"]), np.asarray(g.any([-3, -1, 1, 2, 7]), x.dtype)
    if op == "Mod" and g.chance(0.4):
        return g.node("Mod", [x, by], x.shape, bound=max(x.bound, 7), fmod=1)
    return g.node(op, [x, by], x.shape, bound=max(x.bound, 7))


@maker(*FLOATS, **_EVERYWHERE, weight=2)
def doubled(g: Graph, x: Value) -> Value:
    return g.node("Add", [x, x], x.shape, bound=2 * x.bound, gain=1)


@maker(*F32, **_EVERYWHERE, weight=2)
def many(g: Graph, x: Value) -> Value:
    op, others = g.any(["Sum", "Max", "Min", "Mean"]), [g.other(x) for _ in range(g.size(0, 2))]
    bound = x.bound + sum(y.bound for y in others)
    return g.node(op, [*others, x], x.shape, bound=bound, terms=0 if op in ("Max", "Min") else 3)


@maker(*F32, rank=(1, 5), rows=True)
def prelu(g: Graph, x: Value) -> Value:
    slope = g.array(*([x.shape[1]] + [1] * (x.rank - 2)) if x.rank > 2 else x.shape[-1:])
    return g.node("PRelu", [x, slope], x.shape, bound=3.5 * x.bound, gain=3.5)


@maker(*HALVES, *INTS, weight=3, exact=True, **_EVERYWHERE)
def compare(g: Graph, x: Value) -> Value:
    op = g.any(["Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual"])
    y = g.other(x, exact=True)
    return g.node(op, [x, y] if g.chance(0.7) else [y, x], x.shape, dtype="bool", bound=1)


@maker(*F32, exact=True, **_EVERYWHERE)
def classify(g: Graph, x: Value) -> Value:
    return g.node(g.any(["IsNaN", "IsInf"]), [x], x.shape, dtype="bool", bound=1)


@maker(*BOOL, weight=6, **_EVERYWHERE)
def logic(g: Graph, x: Value) -> Value:
    op = g.any(["Not", "And", "Or", "Xor"])
    return g.node(op, [x] if op == "Not" else [x, g.other(x)], x.shape)


@maker(*BOOL, weight=8, **_EVERYWHERE)
def where(g: Graph, x: Value) -> Value:
    """One of two values, of the condition's shape or broadcast to it."""
    dtype = g.any([*F32 * 3, "int64"])
    like = x._replace(dtype=dtype)
    yes, no = g.other(like), g.other(like)
    bound, error = max(yes.bound, no.bound), max(yes.error, no.error)
    return g.node("Where", [x, yes, no], x.shape, dtype=dtype, bound=bound, error=error)


_TO = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11}


@maker(*ANY, weight=2, **_EVERYWHERE)
def cast(g: Graph, x: Value) -> Value | None:
    """To another dtype; whoever leaves float32 comes back to it soon."""
    to = g.any(["float32", "float32", "float32", "float16", "float64", "int32", "int64", "bool", "int8", "uint8"])
    whole = to not in UNIT
    if to == x.dtype or (whole and (x.error or (g.special and x.dtype in UNIT) or x.bound > 1e8)):
        return None
    if to in SMALL_INTS and x.dtype in UNIT:  # out of range it is not defined
        x = g.node("Clip", [x, np.asarray(0, x.dtype), np.asarray(100, x.dtype)], x.shape, bound=100, terms=0)
    bound = 1.0 if to == "bool" else 255.0 if to in SMALL_INTS else x.bound
    if to == "float16" and bound > 1e4:
        return None
    wider = to in UNIT and x.dtype in UNIT and UNIT[to] <= UNIT[x.dtype]
    terms = 0 if whole or wider or x.dtype in (*BOOL, *SMALL_INTS) else 1
    return g.node("Cast", [x], x.shape, dtype=to, bound=bound, terms=terms, to=_TO[to])


@maker(*INTS, *SMALL_INTS, *BOOL, "float64", "float16", weight=6, **_EVERYWHERE)
def back_to_float(g: Graph, x: Value) -> Value | None:
    if x.bound > 2**24:
        return None
    return g.node("Cast", [x], x.shape, dtype="float32", terms=x.dtype == "float64", to=1)


@maker("uint8", nan=False, **_EVERYWHERE)
def shift(g: Graph, x: Value) -> Value:
    amount = np.asarray(g.size(0, 7), x.dtype)
    return g.node("BitShift", [x, amount], x.shape, bound=255, direction=g.any(["LEFT", "RIGHT"]))


@maker(*INTS, since=18, nan=False, **_EVERYWHERE)
def bitwise(g: Graph, x: Value) -> Value:
    op = g.any(["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"])
    inputs = [x] if op == "BitwiseNot" else [x, np.asarray(g.size(0, 63), x.dtype)]
    return g.node(op, inputs, x.shape, bound=2 * x.bound + 64)


@maker(*F32, **_EVERYWHERE)
def dropout(g: Graph, x: Value) -> Value:
    return g.node("Dropout", [x, np.asarray(0.5, np.float32)], x.shape, terms=0)


@maker(*F32, weight=2, rows=True)
def written_out(g: Graph, x: Value) -> Value:
    """Gelu, silu and hard-swish, as exporters write them."""
    kind, shape = g.any(["gelu", "tanh", "silu", "hard"]), x.shape
    if kind == "silu":
        return g.node("Mul", [x, g.node("Sigmoid", [x], shape, bound=1)], shape, gain=1.2, terms=_ROUNDINGS)
    if kind == "hard":
        inner = g.node("Clip", [g.node("Add", [x, np.float32(3)], shape, bound=x.bound + 3), np.float32(0),
                                np.float32(6)], shape, bound=6)  # fmt: skip
        product = g.node("Mul", [x, inner], shape, bound=6 * x.bound, gain=6)
        return g.node("Div", [product, np.float32(6)], shape, bound=x.bound, gain=1 / 6)
    if kind == "gelu":
        inner = g.node("Div", [x, np.float32(2**0.5)], shape)
        gate = g.node("Erf", [inner], shape, bound=1, gain=1.2, terms=_ROUNDINGS)
    else:
        cubes = g.node("Pow", [x, np.float32(3)], shape, bound=x.bound**3, gain=3 * x.bound**2)
        little = g.node("Mul", [cubes, np.float32(0.044715)], shape, bound=cubes.bound / 20, gain=0.05)
        total = g.node("Add", [x, little], shape, bound=x.bound + little.bound)
        inner = g.node("Mul", [total, np.float32(0.7978845608)], shape, bound=total.bound)
        gate = g.node("Tanh", [inner], shape, bound=1, gain=1, terms=_ROUNDINGS)
    one = g.node("Add", [gate, np.float32(1)], shape, bound=2)
    half = g.node("Mul", [x, one], shape, bound=2 * x.bound, error=2 * x.error + x.bound * one.error + 2e-7 * x.bound)
    return g.node("Mul", [half, np.float32(0.5)], shape, bound=x.bound, gain=0.5)

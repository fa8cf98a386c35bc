"""Recurrent operators, and control flow that a constant decides: If, Loop, Scan."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from .graph import F32, INTS, Graph, Value, maker, squared

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@maker(*F32, rank=(3, 3), weight=6)
def recurrent(g: Graph, x: Value) -> Value | None:
    """One or two directions, with or without bias; the last state stands among the values to choose from."""
    steps, batch, depth = x.shape
    if steps > 7:
        return None
    op, hidden = g.any(list(_GATES)), g.size(1, 6)
    direction = g.any(["forward", "reverse", "bidirectional"])
    ways, rows = 1 + (direction == "bidirectional"), _GATES[op] * hidden
    w, r = g.array(ways, rows, depth, scale=depth**-0.5), g.array(ways, rows, hidden, scale=hidden**-0.5)
    bias = g.array(ways, 2 * rows) if g.chance(0.6) else None
    error = steps * 8 * (x.error + (16 + squared(depth + hidden)) * 2.0**-24 * max(x.bound, 2.0))
    shapes = [(steps, ways, batch, hidden), (ways, batch, hidden)]
    outputs = [Value("", shape, "float32", 1.0, error) for shape in shapes]
    more = {"linear_before_reset": g.size(0, 1)} if op == "GRU" else {}
    inputs = [x, w, r, bias] if bias is not None else [x, w, r]
    y, last = g.emit(op, inputs, outputs, hidden_size=hidden, direction=direction, **more)
    g.values.append(last)
    return y


def _info(name: str, x: Value):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(x.dtype)), x.shape)


@maker(*F32, *INTS, weight=2)
def branch(g: Graph, x: Value) -> Value:
    """If with a constant condition, over two branches that read the value from outside."""
    g.used.add(x.name)
    names = [g.fresh("branch") for _ in range(2)]
    graphs = [
        helper.make_graph([helper.make_node(op, [x.name], [name])], name, [], [_info(name, x)])
        for op, name in zip(("Neg", "Abs"), names, strict=True)
    ]
    condition = np.asarray(g.chance(0.5))
    return g.node("If", [condition], x.shape, dtype=x.dtype, bound=x.bound, error=x.error, then_branch=graphs[0],
                  else_branch=graphs[1])  # fmt: skip


@maker(*F32, weight=2)
def loop(g: Graph, x: Value) -> Value:
    """A Loop of known length that carries one value."""
    count = g.size(0, 3)
    stem = g.fresh("loop")
    names = {key: f"{stem}_{key}" for key in ("i", "on", "in", "out", "on_out", "half")}
    half = helper.make_node(
        "Constant", [], [names["half"]], value=numpy_helper.from_array(np.asarray(0.5, np.float32), "half")
    )
    body = helper.make_graph(
        [half, helper.make_node("Mul", [names["in"], names["half"]], [names["out"]]),
         helper.make_node("Identity", [names["on"]], [names["on_out"]])],
        stem,
        [helper.make_tensor_value_info(names["i"], TensorProto.INT64, []),
         helper.make_tensor_value_info(names["on"], TensorProto.BOOL, []), _info(names["in"], x)],
        [helper.make_tensor_value_info(names["on_out"], TensorProto.BOOL, []), _info(names["out"], x)],
    )  # fmt: skip
    inputs = [np.asarray(count, np.int64), np.asarray(True), x]
    return g.node("Loop", inputs, x.shape, bound=x.bound, terms=0, body=body)


@maker(*F32, rank=(2, 3), weight=2)
def scan(g: Graph, x: Value) -> Value | None:
    """A Scan over the first axis: sums so far, and all of them side by side."""
    steps, row = x.shape[0], x.shape[1:]
    if steps > 5:
        return None
    stem = g.fresh("scan")
    names = {key: f"{stem}_{key}" for key in ("sum", "row", "next", "all")}
    one = x._replace(shape=row)
    body = helper.make_graph(
        [helper.make_node("Add", [names["sum"], names["row"]], [names["next"]]),
         helper.make_node("Identity", [names["next"]], [names["all"]])],
        stem, [_info(names[key], one) for key in ("sum", "row")], [_info(names[key], one) for key in ("next", "all")],
    )  # fmt: skip
    bound, error = steps * x.bound, steps * (x.error + 2.0**-24 * steps * x.bound)
    outputs = [Value("", row, "float32", bound, error), Value("", x.shape, "float32", bound, error)]
    start = np.zeros(row, np.float32)
    return g.emit("Scan", [start, x], outputs, body=body, num_scan_inputs=1)[1]

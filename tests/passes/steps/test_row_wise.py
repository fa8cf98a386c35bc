"""The proof that a model works row by row: what passes, and what is refused with node and reason."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from tvm_ext.core.errors import UnsupportedError
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.driver.programs import _row_wise_outputs
from tvm_ext.frontend.reading.reader import read_model
from tvm_ext.frontend.reading.shapes import input_specs
from tvm_ext.ops import operators

from ...onnx_graphs import model, node, random, value


def proved(nodes: Sequence[onnx.NodeProto], out: Sequence[Any] | None = None, **weights: Any) -> str:
    """Shape of the output of a model of x[N, 6], which must be row-wise."""
    arrays = {name: np.asarray(array) for name, array in weights.items()}
    proto = model(nodes, [value("x", ("B", 6))], [value("y", out or ("B", 6))], arrays)
    options = CompileOptions.of(shapes={"x": ("N", 6)}, specialize={"N": (2,)}, threads=1)
    source, shapes = read_model(proto), dict(options.shapes)
    inputs = input_specs(proto.graph, shapes, source.name)
    return str(_row_wise_outputs(source, options, Machine.detect(None, 1), inputs)[0])


STEP = {"begin": [-1], "end": [-(2**31)], "axis": [0], "step": [-1]}
SIZE = [node("Shape", "x", "shape"), node("Gather", "shape zero", "n")]
REFUSED: dict[str, tuple[list[onnx.NodeProto], str, dict[str, Any]]] = {
    "mean of rows": ([node("ReduceMean", "x", "m", axes=[0]), node("Sub", "x m", "y")], "mixes the rows", {}),
    "softmax over rows": ([node("Softmax", "x", "y", axis=0)], "works over axis 0", {}),
    "rows with rows": ([node("Transpose", "x", "t"), node("MatMul", "x t", "y")], "no multiple of the rows", {}),
    "sum of rows": ([node("Transpose", "x", "t"), node("MatMul", "t x", "y")], "mixes the rows", {}),
    "weights times rows": ([node("MatMul", "w x", "y")], "for every batch", {"w": random(4, 5)}),
    "a row": ([node("Gather", "x i", "y", axis=0)], "mixes the rows", {"i": [0]}),
    "reversed": ([node("Slice", "x begin end axis step", "y")], "depend on the number of rows", STEP),
    "cut elsewhere": ([node("Reshape", "x s", "r"), node("Reshape", "r t", "y")], "mixes the rows",
                      {"s": [3, -1], "t": [-1, 6]}),
    "a fixed batch": ([node("Reshape", "x s", "y")], "for every batch", {"s": [4, 6]}),
    "running sum": ([node("CumSum", "x axis", "y")], "works over axis 0", {"axis": 0}),
    "rows behind rows": ([node("Concat", "x x", "y", axis=0)], "works over axis 0", {}),
    "number of rows": ([*SIZE, node("Cast", "n", "f", to=1), node("Div", "x f", "y")], "constant that depends",
                       {"zero": 0}),
    "position of rows": ([*SIZE, node("Range", "zero n one", "r"), node("Cast", "r", "c", to=1),
                          node("Unsqueeze", "c axis", "u"), node("Add", "x u", "y")], "constant that depends",
                         {"zero": 0, "one": 1, "axis": [1]}),
    "a batch of one": ([node("Squeeze", "x", "y")], r"'y' is float32\[6\] for a batch of 1", {}),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_mixes_rows_is_refused(case: str) -> None:
    nodes, reason, weights = REFUSED[case]
    with pytest.raises(UnsupportedError, match=reason) as caught:
        proved(nodes, ("K", "L"), **weights)
    assert "shapes={'x': (1, 6)}" in caught.value.fix
    assert any(node.name in caught.value.message for node in nodes) or case == "a batch of one"


ACCEPTED: dict[str, tuple[list[onnx.NodeProto], str, dict[str, Any]]] = {
    "elementwise": ([node("Add", "x c", "a"), node("Tanh", "a", "y")], "float32[N, 6]", {"c": random(6)}),
    "matmul": ([node("MatMul", "x w", "y")], "float32[N, 4]", {"w": random(6, 4)}),
    "matmul from the left": ([node("Transpose", "x", "t"), node("MatMul", "w t", "y")], "float32[3, N]",
                             {"w": random(3, 6)}),
    "softmax": ([node("Softmax", "x", "y", axis=1)], "float32[N, 6]", {}),
    "softmax of columns": ([node("Transpose", "x", "t"), node("Softmax", "t", "y", axis=0)], "float32[6, N]", {}),
    "two rows of each": ([node("Reshape", "x s", "y")], "float32[2*N, 3]", {"s": [-1, 3]}),
    "mean of each": ([node("ReduceMean", "x", "y", axes=[1], keepdims=0)], "float32[N]", {}),
    "images": ([node("Reshape", "x s", "r"), node("Conv", "r w", "c"), node("MaxPool", "c", "y", kernel_shape=[1, 2])],
               "float32[N, 4, 1, 1]", {"s": [-1, 2, 1, 3], "w": random(4, 2, 1, 2)}),
    "batch norm": ([node("BatchNormalization", "x scale bias mean variance", "y")], "float32[N, 6]",
                   {"scale": random(6), "bias": random(6), "mean": random(6), "variance": abs(random(6))}),
    "zeros of the shape": ([node("Shape", "x", "s"), node("ConstantOfShape", "s", "z"), node("Add", "x z", "y")],
                           "float32[N, 6]", {}),
    "a token before each": ([node("Shape", "x", "shape"), node("Gather", "shape first", "n"),
                             node("Concat", "n one", "s", axis=0), node("Expand", "token s", "t"),
                             node("Concat", "t x", "y", axis=1)],
                            "float32[N, 7]", {"first": [0], "one": [1], "token": random(1, 1)}),
    "columns": ([node("Gather", "x i", "y", axis=1)], "float32[N, 2]", {"i": [3, -1]}),
}  # fmt: skip


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_keeps_rows_apart_is_proved(case: str) -> None:
    nodes, shape, weights = ACCEPTED[case]
    assert proved(nodes, ("K",) if shape == "float32[N]" else ("K",) * (shape.count(",") + 1), **weights) == shape


def test_every_rule_is_of_an_operator() -> None:
    import tvm

    for row in operators():
        for name in row.relax:
            assert tvm.ir.Op.get(name) is not None

"""Kernels whose buffers are not those of the values they are called with are never built."""

from typing import Any

import pytest
from onnx import TensorProto
from tvm import relax, te, tirx, topi
from tvm.ir import IRModule

import tvm_ext
from tests.onnx_graphs import model, node, value
from tvm_ext.core.errors import UnsupportedError
from tvm_ext.core.graph.provenance import Provenance
from tvm_ext.frontend.converters import CONVERTERS, InFloat32
from tvm_ext.passes.lowering.kernel_interfaces import check_kept, check_kernels

HALF = TensorProto.FLOAT16


def kernel(shape: tuple[int, ...], dtype: str, out: str = "") -> tirx.PrimFunc:
    """y = exp(x), written as `out`."""
    x = te.placeholder(shape, dtype, name="x")
    return te.create_prim_func([x, topi.cast(topi.exp(x), out or dtype)])


def calling(function: tirx.PrimFunc, result: relax.TensorType, operands: int = 1) -> IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            gvar = builder.add_func(function, "exp")
            y = builder.emit(relax.call_tir(gvar, [x] * operands, result), "y")
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()


RIGHT = relax.TensorType((2, 3), "float32")


def test_a_kernel_of_the_types_that_it_is_called_with() -> None:
    check_kernels(calling(kernel((2, 3), "float32"), RIGHT), Provenance())


@pytest.mark.parametrize(
    ("function", "result", "operands", "said"),
    [
        (kernel((2, 3), "float32", "float16"), RIGHT, 1, "writes its buffer .* as float16.2, 3.; .* float32.2, 3."),
        (kernel((2, 3), "float32"), relax.TensorType((2, 3), "float16"), 1, "writes .* float32.* holds float16"),
        (kernel((2, 3), "float32"), relax.TensorType((3, 2), "float32"), 1, "writes .*2, 3.* holds float32.3, 2."),
        (kernel((2, 3), "float32"), relax.TensorType((6,), "float32"), 1, "writes .*2, 3.* holds float32.6."),
        (kernel((2, 4), "float32"), relax.TensorType((2, 4), "float32"), 1, "reads its buffer 'x' as .*2, 4.*2, 3"),
        (kernel((2, 3), "float64"), relax.TensorType((2, 3), "float64"), 1, "reads its buffer 'x' as float64"),
        (kernel((2, 3), "float32"), RIGHT, 2, "has 2 parameters; its call has 3"),
    ],
)
def test_a_kernel_of_others(function: tirx.PrimFunc, result: Any, operands: int, said: str) -> None:
    provenance = Provenance()
    provenance.record("y", ["node y"])
    with pytest.raises(UnsupportedError, match=f"kernel 'exp' {said}"):
        check_kernels(calling(function, result, operands), provenance)


def test_a_value_that_changes_its_type_when_it_is_lowered() -> None:
    before, after = (calling(kernel((2, 3), "float32", t), relax.TensorType((2, 3), t)) for t in ("float16", "float32"))
    check_kept(before, before, Provenance())
    with pytest.raises(UnsupportedError, match=r"kernel 'exp' writes 'y' as float32.*; its caller holds float16"):
        check_kept(before, after, Provenance())


@pytest.mark.parametrize("behind", [(), ("Relu",), ("Tanh", "Neg")])
def test_an_operator_whose_kernel_in_tvm_is_of_another_type(monkeypatch: Any, behind: tuple[str, ...]) -> None:
    """TVM writes what GridSample makes of float16 as float32: twice the memory that is there."""
    monkeypatch.setattr(InFloat32, "__call__", lambda self, op_type, inputs, convert, is_narrow: convert(inputs))
    monkeypatch.delitem(CONVERTERS, "GridSample")
    names = ["z", *(f"z{i}" for i in range(len(behind)))]
    nodes = [node("GridSample", "x g", "z", "sample")]
    nodes += [node(op, names[i], names[i + 1]) for i, op in enumerate(behind)]
    inputs = [value("x", (1, 1, 4, 4), HALF), value("g", (1, 3, 3, 2), HALF)]
    proto = model(nodes, inputs, [value(names[-1], (1, 1, 3, 3), HALF)])
    with pytest.raises(UnsupportedError, match=r"node 'sample': kernel '\w*' writes .* as float32.*holds float16"):
        tvm_ext.compile(proto, cache=False)

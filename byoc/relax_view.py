"""Reads a Relax function as plain operations: what patterns and back ends see of it."""

import functools
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst, IRModule

from tvm_ext.core.graph.provenance import Provenance
from tvm_ext.core.graph.relax_graph import (
    array_of,
    attrs_of,
    bindings_of,
    dtype_of,
    names_of,
    op_name,
    shape_of,
    static_tensor,
    uses_of,
)

from ..core.graph.nodes import nodes_of
from .region import Operand, Operation, Value


class RelaxView:
    """The operations of `main`, by the names of what they compute.

    Attributes:
        bindings: name -> binding, in order.
        readers: name -> names of what reads it, each once, in order; "" stands for the function's result.
    """

    def __init__(self, mod: IRModule, provenance: Provenance) -> None:
        function = mod["main"]
        self._provenance = provenance
        self.bindings: dict[str, relax.VarBinding] = {b.var.name: b for b in bindings_of(function)}
        self.readers: dict[str, tuple[str, ...]] = {
            var.name: tuple(dict.fromkeys("" if reader is None else reader.name for reader in uses))
            for var, uses in uses_of(function).items()
        }

    def op(self, name: str) -> str:
        """Operator of a binding; "" if it is none, or no such binding is there."""
        binding = self.bindings.get(name)
        return op_name(binding.value) if isinstance(binding, relax.VarBinding) else ""

    def nodes(self, name: str) -> tuple[str, ...]:
        """ONNX nodes behind a value."""
        return self._provenance.of(name)

    def operands(self, name: str) -> tuple[str, ...]:
        """Names of the values that a binding reads, each once."""
        return tuple(dict.fromkeys(var.name for var in nodes_of(self.bindings[name].value, relax.Var)))

    @functools.cache  # noqa: B019  (a view lives as long as one pass)
    def operation(self, name: str) -> Operation | str:
        """A binding as an operation; or why it is none that a back end could get."""
        binding = self.bindings[name]
        if not isinstance(binding.value, Call) or not self.op(name):
            return "it is no call of an operator"
        if not static_tensor(binding.var):
            return "its shape is only known at run time" if dtype_of(binding.var) else "its result is no tensor"
        operands = [_operand(argument) for argument in binding.value.args]
        known = [operand for operand in operands if operand is not None]
        if len(known) < len(operands):
            return "an operand is no tensor of known shape"
        attrs = attrs_of(binding.value, names_of(binding.value.attrs))
        return Operation(self.op(name), tuple(known), _value(binding.var), attrs, self.nodes(name))


def _operand(expr: Any) -> Operand | None:
    if isinstance(expr, GenericConst):
        return array_of(expr)
    if isinstance(expr, relax.Var):
        return _value(expr) if static_tensor(expr) else None
    if isinstance(expr, relax.ShapeExpr):
        sizes = [getattr(dim, "value", None) for dim in expr.values]
        return None if None in sizes else np.asarray(sizes, np.int64)
    number = getattr(expr, "value", None)  # an integer or a float
    return np.asarray(number) if isinstance(number, int | float) else None


def _value(var: relax.Var) -> Value:
    return Value(var.name, shape_of(var) or (), dtype_of(var))

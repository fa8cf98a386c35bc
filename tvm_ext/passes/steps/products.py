"""Convolutions and matmuls of a function: which of them may take narrow operands, and why the others keep float32."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call

from ...core.graph.relax_graph import bindings_of, dtype_of, op_name, shape_of, static_tensor, uses_of
from ...core.numbers.precision import STORED_IN, rounded
from ...core.passes import CompileContext
from ...ops.table import of
from .constants import view_of
from .movement import is_movement, moved

#: Jumps that turn a rounding into another place or another angle.
_PLACES = ("whole", "angle")


@dataclass(frozen=True)
class Product:
    """A convolution, a matmul or an attention in float32.

    Attributes:
        var: its result.
        call: the operator call.
        nodes: ONNX nodes that it computes.
        kept: why it keeps float32; "" if its operands are rounded.
    """

    var: relax.Var
    call: Call
    nodes: tuple[str, ...]
    kept: str = ""

    @property
    def name(self) -> str:
        """Its operator, such as "conv2d"."""
        return op_name(self.call).removeprefix("relax.").removeprefix("nn.")

    @property
    def operands(self) -> tuple[Any, ...]:
        """What is multiplied: data and weight, or query, key and value; a mask is no operand."""
        return tuple(self.call.args[number] for number in of(op_name(self.call)).multiplied)


def products_of(function: relax.Function, ctx: CompileContext) -> tuple[Product, ...]:
    """All products of a function in float32, in order."""
    bindings = bindings_of(function)
    facts = _Facts(
        {b.var: b.value for b in bindings},
        uses_of(function),
        dict(ctx.options.keep_float32),
        STORED_IN[ctx.options.precision],
    )
    products = []
    for binding in bindings:
        if of(op_name(binding.value)).multiplied and dtype_of(binding.var) == "float32":
            product = Product(binding.var, binding.value, ctx.provenance.of(binding.var.name))
            products.append(Product(product.var, product.call, product.nodes, facts.why_kept(product)))
    return tuple(products)


@dataclass(frozen=True)
class _Facts:
    """Definitions and readers of all variables; ONNX nodes that keep float32 -> why; the dtype to round to."""

    defs: Mapping[relax.Var, Any]
    uses: Mapping[relax.Var, list[relax.Var | None]]
    kept: Mapping[str, str]
    dtype: str

    def why_kept(self, product: Product) -> str:
        named = next((self.kept[node] for node in product.nodes if node in self.kept), "")
        return named or self._operands(product) or self._length(product) or self._jump(product)

    def _operands(self, product: Product) -> str:
        for operand in product.operands:
            if dtype_of(operand) != "float32" or not static_tensor(operand):
                return "an operand is not float32, or has a shape that is only known at run time"
            weight = view_of(operand)
            if weight is not None and not np.isfinite(rounded(weight, self.dtype)).all():
                return f"its weight has values that {self.dtype} does not have"
        return "its weight is quantized already" if self._dequantized(product.operands[-1]) else ""

    def _dequantized(self, operand: Any) -> bool:
        """Whether an operand is read from integers. Data that are, with a weight of floats, are rounded."""
        value = self.defs.get(operand)
        while is_movement(value) and isinstance(before := moved(value)[0], relax.Var):
            value = self.defs.get(before)
        return op_name(value) == "relax.dequantize"

    @staticmethod
    def _length(product: Product) -> str:
        """An outer product has nothing to sum: it is how positions and frequencies are multiplied."""
        if op_name(product.call) != "relax.matmul":
            return ""
        return "it sums nothing: an outer product" if (shape_of(product.operands[0]) or (0,))[-1] == 1 else ""

    def _jump(self, product: Product) -> str:
        """An operator that its result reaches by elementwise operations only, and that rounding would mislead."""
        level, seen = [product.var], {product.var}
        while level:
            var = level.pop()
            for reader in self.uses.get(var, ()):
                if reader is None or reader in seen:
                    continue
                value = self.defs[reader]
                if of(op_name(value)).jump in _PLACES or _to_integers(value):
                    return f"its result becomes a place or an angle: {op_name(value).removeprefix('relax.')} reads it"
                if of(op_name(value)).is_elementwise or is_movement(value):
                    seen.add(reader)
                    level.append(reader)
        return ""


def _to_integers(value: Any) -> bool:
    return op_name(value) == "relax.astype" and dtype_of(value).startswith(("int", "uint"))

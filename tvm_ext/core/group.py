"""A group: one anchor operation with the epilogue fused into it, or a chain of elementwise operations.

Grouping writes each group as a private Relax function of the module; this is a reader of such a function.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.ir import Call

from .relax_graph import bindings_of, dtype_of, op_name, shape_of

GROUP, CONSTANTS = "tvm_ext.group", "tvm_ext.constants"
#: Attributes of groups with a plan, and of the kernels that are made of them.
RECIPE, CONFIG = "tvm_ext.recipe", "tvm_ext.config"
#: TVM's operator pattern "opaque": its own fusion leaves kernels that have it alone.
OPAQUE = 8


@dataclass(frozen=True)
class Param:
    """One input of a group: logical shape and dtype; constant if every call site passes a constant."""

    var: relax.Var
    shape: tuple[int, ...]
    dtype: str
    constant: bool


class Group:
    """A grouped Relax function, read once.

    Attributes:
        name: of the function in the module.
        function: the Relax function, in logical shapes.
        anchor: operator name of the anchor ("relax.nn.conv2d"), or "elementwise".
        anchor_var: the variable bound to the anchor's call; None for an elementwise group.
        call: the anchor's call; None for an elementwise group.
        params: the inputs, in order.
        shape, dtype: logical, of the result.
    """

    def __init__(self, name: str, function: relax.Function) -> None:
        self.name, self.function = name, function
        self.anchor = str(function.attrs[GROUP])
        constant = {int(i) for i in function.attrs[CONSTANTS]}
        self.params = tuple(
            Param(p, shape_of(p) or (), dtype_of(p), i in constant) for i, p in enumerate(function.params)
        )
        self.bindings = bindings_of(function)
        self.result: relax.Var = function.body.body
        self.shape, self.dtype = shape_of(self.result) or (), dtype_of(self.result)
        anchors = [b for b in self.bindings if op_name(b.value) == self.anchor]
        self.anchor_var: relax.Var | None = anchors[0].var if anchors else None
        self.call: Call | None = anchors[0].value if anchors else None

    @functools.cached_property
    def definitions(self) -> Mapping[relax.Var, Any]:
        """Variable -> the operator call it is bound to."""
        return {b.var: b.value for b in self.bindings}

    @functools.cached_property
    def epilogue(self) -> tuple[str, ...]:
        """Operator names after the anchor, in order, without the "relax." prefix."""
        names = (
            op_name(b.value) for b in self.bindings if self.anchor_var is None or not b.var.same_as(self.anchor_var)
        )
        return tuple(n.rpartition(".")[2] for n in names)

    def param(self, expr: Any) -> Param | None:
        """The parameter that an operand is; None if it is computed inside or is a scalar constant."""
        return next((p for p in self.params if p.var.same_as(expr)), None)

    def operand(self, index: int) -> Param | None:
        """The parameter that is operand `index` of the anchor."""
        return self.param(self.call.args[index]) if self.call is not None else None

    def __repr__(self) -> str:
        return f"Group({self.name}: {self.anchor} + {list(self.epilogue)} -> {self.shape} {self.dtype})"

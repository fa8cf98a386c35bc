"""A group: one anchor operation with the epilogue fused into it, or a chain of elementwise operations.

Grouping writes each group as a private Relax function of the module; this is a reader of such a function.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx
from tvm.ir import Call
from tvm.tirx import IntImm

from .graph.relax_graph import bindings_of, dtype_of, op_name, shape_of
from .numbers.storage import chain_of
from .sizes import extents_of

GROUP, CONSTANTS = "tvm_ext.group", "tvm_ext.constants"
#: Attribute of a group: the level of the memory hierarchy where a call finds its weights (:mod:`.cost.residence`).
WEIGHTS_IN = "tvm_ext.weights_in"
#: And the bytes of all weights of the model, unless that level is memory.
WEIGHTS_BYTES = "tvm_ext.weights_bytes"
#: Attributes of groups with a plan, and of the kernels that are made of them.
RECIPE, CONFIG = "tvm_ext.recipe", "tvm_ext.config"
#: Attribute of a kernel without blocks: the length of all its sums, one behind the other.
SUMS = "tvm_ext.sums"
#: TVM's operator pattern "opaque": its own fusion leaves kernels that have it alone.
OPAQUE = 8


@dataclass(frozen=True)
class Param:
    """One input of a group: logical shape and dtype; constant if every call site passes a constant.

    Attributes:
        decode: operations that make of it what the anchor reads (:mod:`.numbers.storage`); none if it is read as it is.
    """

    var: relax.Var
    shape: tuple[int, ...]
    dtype: str
    constant: bool
    decode: tuple[Call, ...] = ()

    @property
    def computed(self) -> str:
        """The dtype that the anchor reads."""
        return dtype_of(self.decode[-1]) if self.decode else self.dtype


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
        computed: dtype of the anchor's value; what follows it may store the result in another one.
        weights_in: where a call finds its weights: "l2", "l3" or "memory".
        weights_bytes: of all weights of the model; 0 where `weights_in` is memory.
        extents: run-time extents of each parameter, then of the result (:data:`.sizes.EXTENTS`); None if all shapes
            are what is in use. Shapes of parameters and result are those of their buffers.
    """

    def __init__(self, name: str, function: relax.Function) -> None:
        self.name, self.function, self.extents = name, function, extents_of(function)
        self._in_use: dict[tuple[int, int], Any] = {}
        self.anchor = str(function.attrs[GROUP])
        constant = {int(i) for i in function.attrs[CONSTANTS]}
        self.weights_in = str(function.attrs.get(WEIGHTS_IN, "memory"))
        self.weights_bytes = int(function.attrs.get(WEIGHTS_BYTES, 0))
        self.bindings = bindings_of(function)
        self.result: relax.Var = function.body.body
        self.shape, self.dtype = shape_of(self.result) or (), dtype_of(self.result)
        anchors = [b for b in self.bindings if op_name(b.value) == self.anchor]
        self.anchor_var: relax.Var | None = anchors[0].var if anchors else None
        self.call: Call | None = anchors[0].value if anchors else None
        self.computed = self.dtype if self.anchor_var is None else dtype_of(self.anchor_var)
        decodes = {chain[0].args[0]: chain for chain in self._read_by_anchor()}
        numbered = enumerate(function.params)
        own = (Param(p, shape_of(p) or (), dtype_of(p), i in constant, decodes.get(p, ())) for i, p in numbered)
        self.params = tuple(own)

    @classmethod
    def of_call(cls, call: Call) -> Group:
        """A call alone: its operands are the parameters, none of them constant."""
        params = [relax.Var(f"p{i}", operand.ty) for i, operand in enumerate(call.args)]
        result = relax.Var("v", call.ty)
        value = Call(call.op, params, call.attrs, call.ty_args, ret_ty=call.ty)
        body = relax.SeqExpr([relax.DataflowBlock([relax.VarBinding(result, value)])], result)
        attrs = {GROUP: call.op.name, CONSTANTS: []}
        return cls(call.op.name, relax.Function(params, body, call.ty).with_attr(attrs))

    @property
    def beside(self) -> tuple[relax.VarBinding, ...]:
        """Further anchors, which one kernel computes together with the first one."""
        return tuple(b for b in self.bindings if op_name(b.value) == self.anchor)[1:]

    @property
    def attrs(self) -> Any:
        """Attributes of the anchor's call; None of an elementwise group."""
        return self.call.attrs if self.call is not None else None

    @functools.cached_property
    def _chains(self) -> Mapping[relax.Var, tuple[Call, ...]]:
        """Variable -> the decodes that make it of a stored tensor."""
        chains: dict[relax.Var, tuple[Call, ...]] = {}
        for binding in self.bindings:
            if (chain := chain_of(binding.value, chains)) is not None:
                chains[binding.var] = chain
        return chains

    def _read_by_anchor(self) -> list[tuple[Call, ...]]:
        """The decodes of operands of the anchor."""
        operands = [] if self.call is None else [p for a in self.call.args for p in getattr(a, "fields", [a])]
        return [self._chains[a] for a in operands if a in self._chains]

    @functools.cached_property
    def behind(self) -> tuple[relax.VarBinding, ...]:
        """What is computed of the anchor's value, and of that of anchors beside it, in order, with decodes of what only
        that reads: all operations of a group without an anchor."""
        if self.anchor_var is None:
            return tuple(self.bindings)
        bindings: list[relax.VarBinding] = []
        needed = {self.result}
        for binding in reversed(self.bindings):
            if binding.var in needed and op_name(binding.value) != self.anchor:
                bindings.insert(0, binding)
                needed.update(a for a in binding.value.args if isinstance(a, relax.Var))
        return tuple(bindings)

    @functools.cached_property
    def epilogue(self) -> tuple[str, ...]:
        """Operator names of :attr:`behind`, without the "relax." prefix."""
        return tuple(op_name(b.value).rpartition(".")[2] for b in self.behind)

    def param(self, expr: Any) -> Param | None:
        """The parameter that an operand is, or is decoded of; None if it is computed inside or is a scalar constant."""
        if expr in self._chains:
            expr = self._chains[expr][0].args[0]
        return next((p for p in self.params if p.var.same_as(expr)), None)

    def operand(self, index: int) -> Param | None:
        """The parameter that operand `index` of the anchor is, or is decoded of (:attr:`Param.decode`)."""
        return self.param(self.call.args[index]) if self.call is not None else None

    def extent(self, param: Param | None, axis: int) -> Any:
        """How many indices of an axis are in use: a number; or an expression, as wide as indices are (int32), of which
        TVM sees that it is no more than the shape has.

        Args:
            param: a parameter; None is the result.
            axis: of its logical shape.
        """
        shape = self.shape if param is None else param.shape
        if self.extents is None:
            return shape[axis]
        place = (-1 if param is None else self.params.index(param), axis)
        if place not in self._in_use:  # recipes ask at each point of a space
            extent = self.extents[place[0]][axis]
            number = isinstance(extent, int | IntImm)
            bound = None if number else tirx.const(shape[axis], "int32")
            self._in_use[place] = int(extent) if number else tirx.min(extent.astype("int32"), bound)
        return self._in_use[place]

    def __repr__(self) -> str:
        return f"Group({self.name}: {self.anchor} + {list(self.epilogue)} -> {self.shape} {self.dtype})"

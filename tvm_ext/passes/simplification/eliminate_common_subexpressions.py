"""Common subexpression elimination: what is computed twice from the same operands is computed once."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax
from tvm.ir import Call, GenericConst, IRModule

from ...core.graph.relax_graph import Rewriter, op_name, tuple_item
from ...core.passes import CompileContext, Pass, PassResult
from ...ops.table import of
from ..steps.constants import view_of
from ..steps.liveness import is_pure

_NEVER = ("relax.call_", "relax.builtin.", "relax.memory.", "relax.vm.")
_SAMPLES = 61


class EliminateCommonSubexpressions(Pass):
    """Compute equal pure operator calls once; constants count as equal when their bytes are.

    Before::

        a = R.nn.conv2d(x, W1)                  # W1 and W2 hold the same bytes
        b = R.nn.conv2d(x, W2)
        y = R.add(a, b)

    After::

        a = R.nn.conv2d(x, W1)
        y = R.add(a, a)

    Calls of functions, packed functions and allocations, and operators that draw random numbers, are never merged.
    """

    name = "eliminate-common-subexpressions"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        keys, first = _Keys(), dict[Hashable, relax.Var]()
        block_of = {b.var: n for n, block in enumerate(mod["main"].body.blocks) for b in block.bindings}

        def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
            key = keys.of_value(binding.value)
            if key is None:
                return None
            earlier = first.setdefault(key, binding.var)
            if earlier.same_as(binding.var):
                return None
            if isinstance(earlier, relax.DataflowVar) and block_of[earlier] != block_of[binding.var]:
                first[key] = binding.var  # a dataflow variable cannot be read outside its block
                return None
            keys.alias(binding.var, earlier)
            rw.fire(f"the same as {earlier.name}")
            return earlier

        return Rewriter(mod, ctx).rewrite(visit)


class _Structural:
    """A TVM node that hashes and compares by structure."""

    def __init__(self, node: Any) -> None:
        self.node, self._hash = node, int(tvm_ffi.structural_hash(node))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Structural) and bool(tvm_ffi.structural_equal(self.node, other.node))


class _Keys:
    """Hashable keys of expressions: equal keys, equal values."""

    def __init__(self) -> None:
        self._same: dict[relax.Var, relax.Var] = {}
        self._constants: dict[GenericConst, Hashable] = {}
        self._by_sample: dict[Hashable, list[tuple[np.ndarray, int]]] = {}

    def alias(self, var: relax.Var, earlier: relax.Var) -> None:
        """From now on `var` counts as `earlier`."""
        self._same[var] = earlier

    def of_value(self, value: Any) -> Hashable | None:
        """Key of what a variable is bound to; None if it must not be merged."""
        if item := tuple_item(value):
            return ("item", self._operand(item[0]), item[1])
        name = op_name(value)
        if not isinstance(value, Call) or not name or not is_pure(value):
            return None
        if name.startswith(_NEVER) or of(name).random or "random" in name:
            return None
        attrs = None if value.attrs is None else _Structural(value.attrs)
        return (name, attrs, tuple(map(_Structural, value.ty_args)), tuple(map(self._operand, value.args)))

    def _operand(self, expr: Any) -> Hashable:
        if isinstance(expr, relax.Var):
            return self._same.get(expr, expr)
        if isinstance(expr, GenericConst):
            if expr not in self._constants:
                self._constants[expr] = self._constant(expr)
            return self._constants[expr]
        if isinstance(expr, relax.Tuple):
            return tuple(map(self._operand, expr.fields))
        return _Structural(expr)

    def _constant(self, expr: GenericConst) -> Hashable:
        """Equal for equal bytes: a few elements tell most weights apart, the rest is compared in place."""
        view = view_of(expr)
        if view is None:
            return ("constant", expr)
        flat = view.reshape(-1)
        sample = flat[:: max(1, flat.size // _SAMPLES)].tobytes()
        group = ("constant", str(view.dtype), view.shape, sample)
        known = self._by_sample.setdefault(group, [])
        raw = flat.view(np.uint8)
        for other, number in known:
            if np.array_equal(raw, other):
                return (*group, number)
        known.append((raw, len(known)))
        return (*group, len(known) - 1)

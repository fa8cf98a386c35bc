"""Reading and rewriting the straight-line body of a Relax function: the shared steps of every pass."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, IRModule, Op, TupleGetItem

from ...ops.attributes import attrs_of as attrs_of
from ...ops.attributes import names_of as names_of
from ...runtime.table import few
from ..numbers.precision import NARROW_FLOATS
from ..passes import CompileContext, Event, PassResult
from .provenance import Provenance, Step


def main_bindings(mod: IRModule) -> list[relax.VarBinding]:
    """All variable bindings of `main`, in order."""
    return bindings_of(mod["main"])


def with_main(mod: IRModule, function: relax.Function) -> IRModule:
    """The module with another function for `main`."""
    return with_functions(mod, {"main": function})


def with_functions(mod: IRModule, functions: Mapping[str, Any]) -> IRModule:
    """The module with other functions of these names, which it has."""
    out = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for name, function in functions.items():
        out.update_func(out.get_global_var(name), function)
    return out


def with_body(
    function: relax.Function, body: Any, params: Sequence[relax.Var] | None = None, ty: Any = None
) -> relax.Function:
    """The function with another body; with other parameters and another type of its result, where these are stated."""
    own = function.params if params is None else params
    return relax.Function(own, body, ty or function.ret_ty, function.is_pure, function.attrs)


def bindings_of(function: relax.Function) -> list[relax.VarBinding]:
    """All variable bindings of a function, in order."""
    return [b for block in function.body.blocks[:] for b in block.bindings[:]]  # a slice: TVM iterates slowly


def op_name(expr: Any) -> str:
    """Operator name of a call such as "relax.nn.conv2d"; "" for anything else."""
    return str(op.name) if type(expr) is Call and type(op := expr.op) is Op else ""


#: Address of a type -> the type, which keeps it from being another one's, and its shape and dtype: each dimension is a
#: call of TVM, and every pass asks about the same variables.
_known_types: dict[int, tuple[Any, tuple[int, ...] | None, str]] = {}
_MOST_TYPES = 1 << 15


def _shape_and_dtype(expr: Any) -> tuple[Any, tuple[int, ...] | None, str]:
    """The type of an expression, its static shape or None, and its dtype or ""."""
    ty = expr.ty
    known = _known_types.get(address := ty.__chandle__()) if ty is not None else (None, None, "")
    if known is None:
        tensor = type(ty) is relax.TensorType  # `isinstance` takes ten times as long
        if len(_known_types) >= _MOST_TYPES:
            _known_types.clear()
        known = _known_types[address] = ty, _dims_of(ty) if tensor else None, str(ty.dtype) if tensor else ""
    return known


def _dims_of(ty: Any) -> tuple[int, ...] | None:
    if type(shape := ty.shape) is not relax.ShapeExpr:
        return None
    try:
        return tuple([int(d) for d in shape.values[:]])
    except TypeError:
        return None


def shape_of(expr: Any) -> tuple[int, ...] | None:
    """Static shape of a tensor expression; None if it has none (a tuple, a shape, a symbolic dimension)."""
    return _shape_and_dtype(expr)[1]


def static_tensor(expr: Any) -> bool:
    """Whether an expression is a tensor of known shape and dtype."""
    _, shape, dtype = _shape_and_dtype(expr)
    return shape is not None and bool(dtype)


def dtype_of(expr: Any) -> str:
    """dtype of a tensor expression, such as "float32"; "" for anything else."""
    return _shape_and_dtype(expr)[2]


def numpy_of(expr: Any) -> np.ndarray | None:
    """The value of a constant as numpy (a copy TVM does not share); None for anything else."""
    return expr.value.numpy() if isinstance(expr, GenericConst) else None


def array_of(constant: GenericConst) -> np.ndarray:
    """The constant's own memory; a copy for dtypes that numpy alone does not know, such as bfloat16."""
    try:
        return np.from_dlpack(constant.value)
    except (RuntimeError, BufferError):
        return np.asarray(constant.value.numpy())


def prefix_of(mod: IRModule, count: int) -> IRModule:
    """The module with the first bindings of `main` only, so many, and what they call; its result is all they make."""
    bindings, main = main_bindings(mod)[:count], mod["main"]
    values = relax.Tuple([binding.var for binding in bindings])
    out = relax.Var("result", relax.TupleType([binding.var.ty for binding in bindings]))
    body = relax.SeqExpr([relax.DataflowBlock([*bindings, relax.VarBinding(out, values)])], out)
    return relax.transform.DeadCodeElimination(["main"])(with_main(mod, with_body(main, body, ty=out.ty)))


def scalar_of(expr: Any) -> float | int | None:
    """The value of a one-element constant; None for anything else."""
    if isinstance(expr, GenericConst) and isinstance(expr.ty, relax.TensorType):
        shape = shape_of(expr)
        if shape is not None and all(d == 1 for d in shape):
            return expr.value.numpy().reshape(()).item()
    return None


#: Of exactly these classes: `isinstance` of what is none of them takes ten times as long.
_VARIABLES = frozenset((relax.Var, relax.DataflowVar))
#: Expressions within which there is no variable.
_LEAVES = frozenset((GenericConst, GlobalVar, Op))


def uses_of(function: relax.Function) -> dict[relax.Var, list[relax.Var | None]]:
    """Variable -> the variables whose bindings read it, with repeats; None stands for the function's result."""
    uses: dict[relax.Var, list[relax.Var | None]] = {}
    bound = ((binding.var, binding.value) for binding in bindings_of(function))
    for reader, value in (*bound, (None, function.body.body)):
        for var in _variables_in(value):
            uses.setdefault(var, []).append(reader)
    return uses


def _variables_in(expr: Any) -> Iterator[relax.Var]:
    """The variables that an expression reads, with repeats. TVM's visitor, a callback a node, only of what is neither a
    call of an operator or function, a tuple, nor an item of one."""
    kind = type(expr)
    if kind in _VARIABLES:
        yield expr
    elif kind is Call and type(expr.op) in _LEAVES:
        for operand in expr.args[:]:
            yield from _variables_in(operand)
    elif kind is relax.Tuple:
        for field in expr.fields[:]:
            yield from _variables_in(field)
    elif kind is TupleGetItem:
        yield from _variables_in(expr.tuple_value)
    elif kind not in _LEAVES:
        nodes: list[Any] = []
        relax.analysis.post_order_visit(expr, nodes.append)
        yield from (node for node in nodes if type(node) in _VARIABLES)


DROP: Any = object()
"""What a visitor returns to remove a binding; nothing may read its variable afterwards."""


class Rewriter:
    """Rebuilds `main` binding by binding; keeps names and provenance.

    A visitor looks at one binding and returns None to keep it, or an expression to bind instead. While it runs it
    may :meth:`emit` further bindings before it. A variable bound to another variable is replaced by it afterwards.
    """

    def __init__(self, mod: IRModule, ctx: CompileContext, function: str = "main") -> None:
        self.mod, self.ctx = mod, ctx
        self.gvar: GlobalVar = mod.get_global_var(function)
        self.function: relax.Function = mod[function]
        self.defs: dict[relax.Var, Any] = {binding.var: binding.value for binding in bindings_of(self.function)}
        self.fired: list[Event] = []
        self.skipped: list[Event] = []
        self._builder = relax.BlockBuilder()
        self._names = {v.name for v in [*self.function.params, *self.defs]}
        self._functions = {g.name_hint for g in mod.get_global_vars()}
        self._out: list[relax.VarBinding] = []
        self._current: relax.Var | None = None
        self._absorbed: list[str] = []
        self._replaced: set[GlobalVar] = set()
        self._changed = False

    # ------------------------------------------------------------ for visitors
    def emit(self, expr: Any, hint: str | None = None) -> relax.Var:
        """Bind `expr` to a fresh variable before the current binding; its origin is the current binding's."""
        expr = self.normalize(expr)
        name = self._fresh(hint or self.current)
        var = relax.DataflowVar(name, expr.ty) if self._dataflow else relax.Var(name, expr.ty)
        self._out.append(relax.VarBinding(var, expr))
        self.defs[var] = expr
        self.ctx.provenance.forget_held(name)
        trace_views(var, expr, self.ctx.provenance)
        if self._current is not None:
            self.ctx.provenance.record(name, [self._current.name, *self._absorbed])
        return var

    def absorb(self, *variables: relax.Var) -> None:
        """Say that the current binding now also does the work of these variables."""
        self._absorbed.extend(v.name for v in variables)

    def revalue(self) -> None:
        """Say that the current variable gets another value than it had, such as a scaled one: no ONNX value is it."""
        if self._current is not None:
            self.ctx.provenance.forget_held(self._current.name)

    def normalize(self, expr: Any) -> Any:
        """`expr` with its type inferred; calls among its operands are bound before it."""
        if isinstance(expr, Call) and any(type(a) is Call for a in expr.args[:]):
            operands = [self.emit(a) if isinstance(a, Call) else a for a in expr.args]
            expr = Call(expr.op, operands, expr.attrs, expr.ty_args)
        return self._builder.normalize(expr)

    def definition(self, expr: Any) -> Any:
        """The expression a variable is bound to now, through `y = x`; the expression itself if it is not bound."""
        value = self.defs.get(expr, expr)
        while isinstance(value, relax.Var) and value in self.defs:
            value = self.defs[value]
        return value

    def add_function(self, function: relax.Function, name: str) -> GlobalVar:
        """Add a function to the module, or find the equal one added before; `name` is made unique in the module."""
        free = next(unique for n in itertools.count() if (unique := f"{name}{n or ''}") not in self._functions)
        gvar: GlobalVar = self._builder.add_func(function, free)
        self._functions.add(gvar.name_hint)
        return gvar

    @functools.cached_property
    def uses(self) -> dict[relax.Var, list[relax.Var | None]]:
        """:func:`uses_of` the function as it was."""
        return uses_of(self.function)

    def replace_function(self, old: GlobalVar, function: Any) -> GlobalVar:
        """Put `function` in the place of another; callers must be changed to the variable this returns."""
        self._replaced.add(old)
        return self._builder.add_func(function, old.name_hint)

    @property
    def current(self) -> str:
        """Name of the variable that is visited."""
        return self._current.name if self._current is not None else "lv"

    def single_use(self, var: relax.Var) -> bool:
        """Whether exactly one binding (or the result) reads `var`."""
        return len(self.uses.get(var, ())) == 1

    def fire(self, detail: str, value: relax.Var | str | None = None) -> None:
        """Report a rewrite of the current binding (or of `value`)."""
        self.fired.append(self._event(value, detail))

    def skip(self, reason: str, value: relax.Var | str | None = None) -> None:
        """Report why the current binding (or `value`) was left alone. A visitor may return it, for None."""
        self.skipped.append(self._event(value, reason))

    # ------------------------------------------------------------ driving
    def rewrite(self, visit: Callable[[relax.VarBinding, Rewriter], Any]) -> PassResult:
        """Visit every binding in order and return the new module with what fired and was skipped."""
        blocks = []
        for block in self.function.body.blocks[:]:
            self._dataflow, self._out = isinstance(block, relax.DataflowBlock), []
            for binding in block.bindings[:]:
                self._visit(binding, visit)
            kind = relax.DataflowBlock if self._dataflow else relax.BindingBlock
            blocks.append(kind(self._out))
        if not self._changed:
            return PassResult(self.mod, (), tuple(self.skipped))
        return PassResult(self._finish(blocks), tuple(self.fired), tuple(self.skipped))

    def _visit(self, binding: relax.VarBinding, visit: Callable[[relax.VarBinding, Rewriter], Any]) -> None:
        if type(binding) is relax.MatchCast:  # it binds symbolic dimensions: no plain binding can replace it
            self._out.append(binding)
            return
        var, name = binding.var, binding.var.name
        self._current, self._absorbed, self.ctx.at = var, [], name
        new, value = visit(binding, self), binding.value
        if new is not None:
            self._changed = True
            if new is DROP:
                return
            value = self.defs[var] = self.normalize(new)
            if not tvm_ffi.structural_equal(value.ty, var.ty):
                raise TypeError(f"{name}: {var.ty} would become {value.ty}")
            binding = relax.VarBinding(var, value)
        provenance = self.ctx.provenance
        if self._absorbed or not provenance.of(name):
            provenance.record(name, self._absorbed)
        if type(value) in _VARIABLES and value in self.defs:
            provenance.record(value.name, [name])
            provenance.record(name, [value.name])  # either name may be the one that stays
        trace_views(var, value, provenance)
        self._out.append(binding)
        self._current, self.ctx.at = None, ""

    def _finish(self, blocks: list[Any]) -> IRModule:
        new = with_body(self.function, relax.SeqExpr(blocks, self.function.body.body))
        kept = {g: function for g, function in self.mod.functions_items() if g not in self._replaced}
        mod = IRModule(kept, attrs=self.mod.attrs)
        mod.update_func(self.gvar, new)
        for gvar, function in self._builder.get().functions_items():
            mod.update_func(gvar, function)
        return remove_aliases(mod)

    def _fresh(self, hint: str) -> str:
        name, n = hint, 1
        while name in self._names:
            name, n = f"{hint}_{n}", n + 1
        self._names.add(name)
        return name

    def _event(self, value: relax.Var | str | None, detail: str) -> Event:
        if not isinstance(value, str):
            value = (self._current if value is None else value).name  # type: ignore[union-attr]
        name = str(value)
        nodes = self.ctx.provenance.of(name)
        return Event(few(nodes) or name, detail, (name,))


def trace_views(var: relax.Var, value: Any, provenance: Provenance) -> None:
    """Of y = x, y = reshape(x) or y = permute_dims(x): what is held by one of the two, the other one holds as a view.

    A narrow float x and the same numbers as a float32 y are one value. Of another name both hold what either does. Of a
    view, only one that holds nothing so far is told.
    """
    source, name = value, ""
    if type(value) not in _VARIABLES:
        name = op_name(value)
        if name not in READINGS and not (name == _CAST and _widens(value)):
            return
        source = value.args[0]
    if not isinstance(source, relax.Var) or any(provenance.placement(v.name) for v in (source, var)):
        return  # of what lies in another layout, names say nothing about memory
    inner, outer = provenance.held(source.name), provenance.held(var.name)
    if name in READINGS and inner and outer:
        return
    steps = _view_steps(source, var, value)
    if steps is None:
        return
    forth, back = steps
    if not forth or not outer:
        provenance.add_held(var.name, (held.then(*forth) for held in inner))
    if not back or not inner:
        provenance.add_held(source.name, (held.then(*back) for held in outer))


#: Calls that are no kernels: other shapes and orders of the same memory.
READINGS = ("relax.reshape", "relax.permute_dims")
_CAST = "relax.astype"


def _widens(value: Any) -> bool:
    return op_name(value) == _CAST and dtype_of(value) == "float32" and dtype_of(value.args[0]) in NARROW_FLOATS


def _view_steps(source: relax.Var, var: relax.Var, value: Any) -> tuple[tuple[Step, ...], tuple[Step, ...]] | None:
    """What makes the array of `var` of that of `source`, and the other way round; None for unknown shapes."""
    before, after = shape_of(source), shape_of(var)
    if before is None or after is None:
        return None
    if isinstance(value, relax.Var) or _widens(value):
        return (), ()
    if op_name(value) == "relax.reshape":
        return (("reshape", after),), (("reshape", before),)
    stated = value.attrs.axes
    axes = tuple(int(a) % len(before) for a in stated) if stated is not None else tuple(reversed(range(len(before))))
    return (("transpose", axes),), (("transpose", tuple(axes.index(a) for a in range(len(axes)))),)


def remove_aliases(mod: IRModule) -> IRModule:
    """`y = x` is dropped and y replaced by x; tuples that are taken apart again vanish too."""
    return relax.transform.CanonicalizeBindings()(mod)


def iter_groups(mod: IRModule) -> Iterator[tuple[GlobalVar, relax.Function]]:
    """Every function of the module that grouping made."""
    for gvar, function in mod.functions_items():
        if isinstance(function, relax.Function) and function.attrs and "tvm_ext.group" in function.attrs:
            yield gvar, function


def tuple_item(expr: Any) -> tuple[Any, int] | None:
    """(tuple, index) of a tuple access; None for anything else."""
    return (expr.tuple_value, int(expr.index)) if isinstance(expr, TupleGetItem) else None

"""Kernels that are one at several sizes become a kernel of any size: literals that differ are expressions.

    512 wide:  for i in range(512): y[i] = x[511 - i]
    37 wide:   for i in range(37): y[i] = x[36 - i]
      ->       for i in range(S): y[i] = x[S - 1 - i]     # x and y are 512 wide

Buffers keep the shape of the bound, which is that of the first kernel: memory is planned for it, and what is in use of
each begins at index 0. So no kernel may know by itself where an element lies: one that hands a buffer to a function
hands it a copy (:mod:`.contiguous`), and one that mixes addresses and elements is not generalized.
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, PrimType, Range, Type
from tvm.ir.expr import TensorLoad, TensorRegion
from tvm.s_tir import SBlock
from tvm.s_tir.stmt import MatchBufferRegion
from tvm.tirx.buffer import BufferType

from ...core.numbers.precision import NARROW_FLOATS, rounded
from ...core.sizes import Sizes, evaluate
from ...ops.scalars.expressions import dtype_of
from .contiguous import with_contiguous
from .solver import Solver

#: Fields that say nothing of what a node does.
_IDLE = ("span", "name", "name_hint")
#: In what a quotient is computed, so that rounding it again is the same as rounding once.
_COMPUTED_IN = {"float16": "float32", "bfloat16": "float32", "float32": "float64", "float64": "float64"}
_BITS = {"float16": "int16", "bfloat16": "int16", "float32": "int32", "float64": "int64"}
#: Below this denominator it is: half of a unit in the last place of the narrow type is then no less than one over it.
_EXACT = {"float16": 1 << 12, "bfloat16": 1 << 12, "float32": 1 << 24, "float64": 1 << 53}


class NotAlike(Exception):
    """Programs or kernels that differ in more than sizes; the message says in what.

    Attributes:
        variable: of `main`, at which they differ; "" if it is none.
    """

    def __init__(self, reason: str, variable: str = "") -> None:
        super().__init__(reason)
        self.reason, self.variable = reason, variable


class ConstantsDiffer(NotAlike):
    """A constant has other values at other sizes, by no rule that is known: what it is computed of may follow one."""


class EqualAtBounds(NotAlike):
    """Two dimensions have one size at the bounds, and different ones elsewhere: other bounds tell them apart."""


class _Node(NamedTuple):
    """A node as it is compared.

    Attributes:
        kind: its type, and what it has besides children: operation, kind of loop, number of elements.
        number: the value of a literal; else None.
    """

    node: Any
    kind: tuple[Any, ...]
    number: int | float | None = None


def generalize(
    functions: Sequence[tirx.PrimFunc], solver: Solver, results: int | None = None, offsets: bool = False
) -> tirx.PrimFunc:  # fmt: skip
    """The kernel of any size; its symbols are free variables: `solver.sizes.vars`.

    Args:
        functions: the same kernel, not scheduled, at each probe of the solver.
        solver: knows the sizes of dimensions; those of the parameters are added to what it knows.
        results: how many of the last parameters are results; None refuses kernels of which it matters, those that hand
            whole buffers to functions.
        offsets: whether indices that are variables have an offset of 0, which may be another one at another size; tried
            where the functions differ without it.

    Returns:
        The first function with expressions in place of the literals that differ. Its parameters and the buffers that it
        allocates have the shapes of the first.

    Raises:
        NotAlike: they differ in more than integers, or in integers that follow from no symbol.
        ValueError: not one function a probe.
    """
    if len(functions) != len(solver.probes):
        raise ValueError(f"{len(functions)} kernels for {len(solver.probes)} probes: there is one at each")
    near = _learn_dimensions(functions, solver)
    nodes = [_nodes(function.body) for function in functions]
    rows = list(itertools.zip_longest(*nodes))
    try:
        for row in rows:
            _check_kinds(row)
    except NotAlike:
        if offsets:
            raise
        return generalize([_with_offsets(function) for function in functions], solver, results, True)
    for function, other in zip(functions[1:], nodes[1:], strict=True):
        _check_variables([*functions[0].params, *_variables(nodes[0])], [*function.params, *_variables(other)])
    places = _uneven(functions[0], nodes[0], rows, solver)
    if places and results is None:
        raise NotAlike(f"{functions[0].params[places[0]].name} is handed to a function; say which are results")
    if places and results is not None:
        copied = [with_contiguous(function, places, results) for function in functions]
        return generalize(copied, solver, results, offsets)
    expressions = {
        place: _expression(row, solver, near)
        for place, row in enumerate(rows)
        if row[0].number is not None and any(node.number != row[0].number for node in row)
    }
    return functions[0].with_body(_divisible(_replaced(functions[0].body, expressions), solver.sizes))


def _learn_dimensions(functions: Sequence[tirx.PrimFunc], solver: Solver) -> list[Any]:
    """Sizes of dimensions of the parameters, which the solver knows from now on.

    Raises:
        NotAlike: there are other parameters.
    """
    near: list[Any] = []
    _same([len(function.params) for function in functions], "numbers of parameters")
    for params in zip(*(function.params for function in functions), strict=True):
        _same([_variable_kind(param) for param in params], f"types of {params[0].name}")
        for dims in zip(*(getattr(param.ty, "shape", ()) for param in params), strict=True):
            expr = solver.solve([int(d) for d in dims])
            if expr is not None:
                solver.learn(expr, [int(d) for d in dims])
                near.append(expr)
    return near


def _same(values: Sequence[Any], what: str) -> None:
    if any(value != values[0] for value in values):
        raise NotAlike(f"different {what}: {', '.join(map(str, values))}")


def _walk(body: Any, see: Callable[[Any], Any]) -> Any:
    """The body with what `see` returns in place of each node; None to go on within it.

    Nodes are seen once an occurrence, each before what is in it. Variables and types are leaves.
    """

    def visit(node: Any, mutator: Any) -> Any:
        new = see(node)
        if new is not None:
            return new
        return mutator.default_mutate(node) if _has_children(node) else node

    return tvm_ffi.structural_mutate(body, (object, visit))


def _has_children(node: Any) -> bool:
    return isinstance(node, tvm_ffi.Object) and not isinstance(node, tirx.Var | Type | tirx.IntImm | tirx.FloatImm)


def _nodes(body: Any) -> list[_Node]:
    nodes: list[_Node] = []
    _walk(body, lambda node: nodes.append(_node(node)))
    return nodes


def _replaced(body: Any, expressions: Mapping[int, Any]) -> Any:
    places = itertools.count()
    return _walk(body, lambda _: expressions.get(next(places)))


def _with_offsets(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """x[i] as x[i + 0], x[2 * i] as x[2 * i + 0], x[i - 1] as x[i + -1], in regions too: x[i + 7] at another size."""

    def offset(index: Any) -> Any:
        if isinstance(index, tirx.Sub) and isinstance(index.b, tirx.IntImm):
            return tirx.Add(index.a, tirx.IntImm(index.b.ty.dtype, -int(index.b)))
        return tirx.Add(index, tirx.IntImm(index.ty.dtype, 0)) if isinstance(index, tirx.Var | tirx.Mul) else index

    body = tvm_ffi.structural_map(function.body, [
        (TensorLoad, lambda load: tirx.BufferLoad(load.source, [offset(index) for index in load.indices])),
        (tirx.BufferStore, lambda old: tirx.BufferStore(old.buffer, old.value, [offset(i) for i in old.indices])),
        (Range, lambda old: Range.from_min_extent(offset(old.min), old.extent)),
    ])  # fmt: skip
    return function.with_body(body)


def _divisible(body: Any, sizes: Sizes) -> Any:
    """The body that divides by no 0 where a size is 0: there is nothing to compute then, but a CPU stops at it."""
    lowest = {symbol.name: symbol.low for symbol in sizes.symbols}

    def divide(node: Any) -> Any:
        try:
            zero = evaluate(node.b, lowest) == 0
        except (KeyError, TypeError):  # of more than sizes
            return node
        return type(node)(node.a, tirx.max(node.b, tirx.const(1, dtype_of(node.b)))) if zero else node

    return tvm_ffi.structural_map(body, ((tirx.FloorDiv, tirx.FloorMod), divide))


def _node(node: Any) -> _Node:
    if isinstance(node, tirx.IntImm | tirx.FloatImm):
        return _Node(node, (type(node).__name__, dtype_of(node)), node.value)
    if isinstance(node, tirx.Var):
        return _Node(node, ("Var", *_variable_kind(node)))
    if isinstance(node, PrimType):
        return _Node(node, ("PrimType", str(node.dtype)))
    if isinstance(node, tvm_ffi.Array):
        return _Node(node, ("Array", len(node)))
    if isinstance(node, tvm_ffi.Map):
        return _Node(node, ("Map", *sorted(map(str, node.keys()))))
    if isinstance(node, tvm_ffi.Object):
        kind: Any = type(node)
        return _Node(node, (kind.__name__, *(_detail(getattr(node, name)) for name in _fields(kind))))
    return _Node(node, (type(node).__name__, node))


def _variable_kind(var: Any) -> tuple[Any, ...]:
    if isinstance(var.ty, BufferType):
        return (str(var.ty.dtype), var.ty.storage_scope, len(var.ty.shape))
    return (str(var.ty),)


@functools.cache
def _fields(kind: Any) -> tuple[str, ...]:
    """Names of the fields of a type of nodes."""
    names: tuple[str, ...] = ()
    info = getattr(kind, "__tvm_ffi_type_info__", None)
    while info is not None:
        names = (*(attribute.name for attribute in info.fields if attribute.name not in _IDLE), *names)
        info = info.parent_type_info
    return names


def _detail(value: Any) -> Any:
    """What is compared of a field that is no child."""
    if isinstance(value, bool | int | float | str):
        return value
    return value.name if isinstance(value, Op) else None


def _check_kinds(row: Sequence[_Node | None]) -> None:
    first = row[0]
    for node in row:
        if first is None or node is None or node.kind != first.kind:
            raise NotAlike(f"{_text(first)} in one, {_text(node)} in the other")


def _text(node: _Node | None) -> str:
    return "nothing" if node is None else f"{node.kind[0]} {str(node.node)[:80]}"


def _variables(nodes: Sequence[_Node]) -> list[Any]:
    return [node.node for node in nodes if node.kind[0] == "Var"]


def _check_variables(first: Sequence[Any], other: Sequence[Any]) -> None:
    """Each variable has one counterpart.

    Raises:
        NotAlike: it has not.
    """
    there: dict[Any, Any] = {}
    back: dict[Any, Any] = {}
    for own, two in zip(first, other, strict=True):
        if not there.setdefault(own, two).same_as(two) or not back.setdefault(two, own).same_as(own):
            raise NotAlike(f"{own.name} in one, {two.name} in the other")


def _expression(row: Sequence[_Node], solver: Solver, near: Sequence[Any]) -> Any:
    """The expression of a literal that differs, of the literal's dtype."""
    dtype = dtype_of(row[0].node)
    values: list[Any] = [node.number for node in row]
    expr = _float(values, dtype, solver, near) if dtype.startswith(("float", "bfloat")) else solver.solve(values, near)
    if expr is None:
        where = "; ".join(str(dict(probe)) for probe in solver.probes)
        raise NotAlike(f"{', '.join(map(str, values))}, {dtype}, follow from no symbol ({where})")
    return expr if dtype_of(expr) == dtype else tirx.Cast(dtype, expr)


def _float(values: Sequence[float], dtype: str, solver: Solver, near: Sequence[Any]) -> Any:
    """Literals that are quotients of integers, rounded once: counts, one over counts, and scales of images."""
    if not all(map(math.isfinite, values)) or dtype not in _COMPUTED_IN:
        return None
    for below in _denominators(values, solver, near):
        above = [round(value * count) for value, count in zip(values, below, strict=True)]
        pairs = list(zip(values, above, below, strict=True))
        if all(n < _EXACT[dtype] and value in (k / n, _round(k / n, dtype)) for value, k, n in pairs):
            numerator, denominator = solver.solve(above, near), solver.solve(below, near)
            if numerator is not None and denominator is not None:
                return _quotient(numerator, denominator, dtype)
    return _root(values, dtype, solver, near)


def _root(values: Sequence[float], dtype: str, solver: Solver, near: Sequence[Any]) -> Any:
    """Literals that are one over a square root or a fourth root of a size: attention's scales.

    Whoever computed them rounded once or more often: they may be two units in the last place off.
    """
    for degree in (2, 4) if dtype == "float32" and all(value > 0 for value in values) else ():
        sizes = [round(value**-degree) for value in values]
        off = [abs(size ** (-1 / degree) / value - 1) for size, value in zip(sizes, values, strict=True) if size]
        expr = solver.solve(sizes, near) if all(sizes) and max(off) <= 2.0**-22 else None
        if expr is not None:
            root = tirx.sqrt(tirx.Cast("float64", _int64(expr)))
            number = tirx.const(1.0, "float64") / (root if degree == 2 else tirx.sqrt(root))
            return tirx.reinterpret(dtype, tirx.reinterpret(_BITS[dtype], tirx.Cast(dtype, number)))
    return None


def _denominators(values: Sequence[float], solver: Solver, near: Sequence[Any]) -> Iterator[Sequence[int]]:
    """Positive ones: 1; of one over a count; sizes, and those less one, as of images whose corners are aligned."""
    yield [1] * len(values)
    if all(values):
        yield [max(abs(round(1 / value)), 1) for value in values]
    for size in map(solver.at_probes, near):
        for less in (0, 1):
            if min(size) > less:
                yield [d - less for d in size]


def _quotient(above: Any, below: Any, dtype: str) -> Any:
    """The quotient, rounded once to a dtype; as its bits, because TVM's analyzer takes no float of symbols."""
    wide = _COMPUTED_IN[dtype]
    if isinstance(below, int) and below == 1:
        number = tirx.Cast(dtype, above)
    else:
        number = tirx.Cast(wide, _int64(above)) / tirx.Cast(wide, _int64(below))
        number = number if wide == dtype else tirx.Cast(dtype, number)
    return tirx.reinterpret(dtype, tirx.reinterpret(_BITS[dtype], number))


def _int64(value: Any) -> Any:
    return tirx.IntImm("int64", value) if isinstance(value, int) else value


def _round(value: float, dtype: str) -> float:
    import numpy as np

    array = np.asarray(value)
    return float(rounded(array, dtype) if dtype in NARROW_FLOATS else array.astype(dtype))


def _uneven(
    function: tirx.PrimFunc, nodes: Sequence[_Node], rows: Sequence[Sequence[_Node]], solver: Solver
) -> list[int]:
    """Places of the parameters whose memory is taken as a whole, although their rows differ in length.

    Raises:
        NotAlike: another buffer is, or one is larger than at the bound at a size within it.
    """
    addressed, by_element = _addressed(nodes)
    within = [all(probe[name] <= size for name, size in solver.probes[0].items()) for probe in solver.probes]
    buffers = {node.node: [n.node.ty.shape for n in row] for node, row in zip(nodes, rows, strict=True)
               if isinstance(node.node, tirx.Var) and isinstance(node.node.ty, BufferType)}  # fmt: skip
    uneven = []
    for buffer, shapes in buffers.items():
        for dims in zip(*shapes, strict=True):
            if any(int(d) > int(dims[0]) for d, holds in zip(dims, within, strict=True) if holds):
                raise NotAlike(f"{buffer.name} is larger than at the bound: {', '.join(map(str, shapes))}")
        inner = [[int(d) for d in shape[1:]] for shape in shapes]
        if buffer in addressed and any(dims != inner[0] for dims in inner):
            uneven.append(buffer)
    places = [place for place, param in enumerate(function.params) if param in uneven and param not in by_element]
    if len(places) < len(uneven):
        names = ", ".join(buffer.name for buffer in uneven)
        raise NotAlike(f"the address of {names} is taken, whose rows have other lengths at other sizes")
    return places


def _addressed(nodes: Sequence[_Node]) -> tuple[set[Any], set[Any]]:
    """Buffers of which a kernel takes the memory, or a view, and those of which it takes elements."""
    uses = Counter(_variables(nodes))
    addressed, by_element = set(), set()
    for node in (place.node for place in nodes):
        if isinstance(node, TensorLoad | TensorRegion | tirx.BufferStore):
            buffer = node.buffer if isinstance(node, tirx.BufferStore) else node.source
            uses[buffer] -= 1
            by_element.add(buffer)
        elif isinstance(node, tirx.AllocBuffer):
            uses[node.buffer] -= 1
        elif isinstance(node, SBlock):
            uses.subtract(node.alloc_buffers)
        elif isinstance(node, MatchBufferRegion):
            addressed.add(node.source.source)
        elif isinstance(node, Call) and getattr(node.op, "name", "") == "tirx.address_of":
            addressed.add(node.args[0].source)
    addressed |= {var for var, count in uses.items() if count > 0 and isinstance(var.ty, BufferType)}
    return addressed, by_element

"""A kernel with the parameter that brings the sizes of a call, and with the extents that follow from them.

with_sizes(f(x, out), [["N", 64], ["N", 80]], sizes)   ->   f(x, sizes, out), with what the pass `cut-loops` reads
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tvm import tirx

from ...core.graph.nodes import substituted
from ...core.sizes import BORDER, EXTENTS, SIZES, SYMBOLS, Sizes


def with_sizes(
    function: tirx.PrimFunc, extents: Sequence[Sequence[Any]], sizes: Sizes, results: int = 1,
    border: Mapping[int, float] | None = None,
) -> tirx.PrimFunc:  # fmt: skip
    """A kernel that is computed and scheduled at the bound, for :mod:`..tir.cut_loops` to cut.

    Args:
        function: whose body may use the variables of `sizes`. They become loads of the new parameter: TVM gives a
            buffer whose size would depend on what is loaded the one that it has at the bound.
        extents: of each parameter the run-time extent of each dimension: an expression of `sizes.vars`, or the number
            that is the buffer's own.
        sizes: the symbols; the new parameter `sizes`, int64, has an element for each.
        results: how many of the last parameters are results: the sizes stand before them.
        border: index of a parameter, among those of `function` -> the number that stands behind its extents.

    Raises:
        ValueError: not one tuple of extents a parameter, of its rank.
    """
    shapes = [tuple(param.ty.shape) for param in function.params]
    if [len(shape) for shape in shapes] != [len(extent) for extent in extents]:
        raise ValueError(
            f"extents {[len(extent) for extent in extents]} of a kernel whose parameters have the ranks "
            f"{[len(shape) for shape in shapes]}: state one extent for each dimension of each parameter, in order"
        )
    params, _ = _with_parameter(function, sizes, results)
    bounds = [[var, symbol.bound] for var, symbol in zip(sizes.vars, sizes.symbols, strict=True)]
    attrs: dict[str, Any] = {EXTENTS: [[_int64(d) for d in extent] for extent in extents], SYMBOLS: bounds}
    if border:
        attrs[BORDER] = {str(index): float(number) for index, number in border.items()}
    brought = params[-1 - results]
    reads = {var: tirx.BufferLoad(brought, [tirx.const(i, "int32")]) for i, var in enumerate(sizes.vars)}
    body = substituted(function.body, reads)
    return tirx.PrimFunc(params, body, function.ret_type, function.attrs).with_attr(attrs)


def bind_sizes(function: tirx.PrimFunc, sizes: Sizes, results: int = 1) -> tirx.PrimFunc:
    """A scheduled kernel whose loops run over its sizes already: it reads them itself, and nothing is left to cut.

    f(x, out): for i in range(N): ...   ->   f(x, sizes, out): N = sizes[0]; for i in range(N): ...

    Args:
        function, sizes, results: as for :func:`with_sizes`.
    """
    params, buffer = _with_parameter(function, sizes, results)
    binds = reading(buffer, [(var, symbol.bound) for var, symbol in zip(sizes.vars, sizes.symbols, strict=True)])
    return tirx.PrimFunc(params, tirx.SeqStmt([*binds, function.body]), function.ret_type, function.attrs)


def reading(buffer: Any, bounds: Iterable[tuple[Any, int]]) -> list[Any]:
    """Statements that give each symbol its size, as bits that hold its bound: of what is only loaded, TVM does not know
    that it is not negative. It then divides by a constant c as (x + n c) / c - n, where x has a least value, and n
    times a stride is beyond what an index holds.

    Args:
        buffer: the parameter that brings the sizes.
        bounds: each variable, with its largest value, in the order of the elements.
    """
    statements = []
    for place, (var, bound) in enumerate(bounds):
        loaded = tirx.Var(f"{var.name}_loaded", var.ty.dtype)
        bits = tirx.const((1 << int(bound).bit_length()) - 1, var.ty.dtype)
        statements.append(tirx.Bind(loaded, tirx.BufferLoad(buffer, [tirx.const(place, "int32")])))
        statements.append(tirx.Bind(var, tirx.bitwise_and(loaded, bits)))
    return statements


def _with_parameter(function: tirx.PrimFunc, sizes: Sizes, results: int) -> tuple[list[Any], Any]:
    """The parameters with `sizes` before the results, and that one."""
    place = len(function.params) - results
    buffer = tirx.decl_buffer((len(sizes.vars),), "int64", SIZES)
    return [*function.params[:place], buffer, *function.params[place:]], buffer


def _int64(extent: Any) -> Any:
    if isinstance(extent, int):
        return tirx.const(extent, "int64")
    return extent if str(extent.ty.dtype) == "int64" else tirx.Cast("int64", extent)

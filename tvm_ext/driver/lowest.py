"""The proof of what was solved, at the smallest sizes: what no size tried shows is seen there.

y = x[:100]      at S = 512, 281, 199: 100 rows      at S = 1: 1 row      ->   S = 5 is tried too: min(S, 100)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.sizes import evaluate
from ..runtime.sizes.symbols import Symbol

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from ..passes.sizes.solver import Solver

#: The least size of another program: of size 1 dimensions may be broadcast, and of 2 they may be pairs.
_LEAST = 3


def with_windows(symbols: Sequence[Symbol], windows: Sequence[Any]) -> tuple[Symbol, ...]:
    """The symbols, whose smallest sizes are no smaller than the windows of convolutions and pools.

    Args:
        windows: extents behind them, over variables of the names of the symbols.

    Returns:
        The same symbols with other smallest sizes, no larger than their largest ones.
    """
    from tvm import tirx
    from tvm.tirx.analysis import undefined_vars

    known = {symbol.name: symbol for symbol in symbols}
    lows = {symbol.name: -(-symbol.low // symbol.multiple) * symbol.multiple for symbol in symbols}
    for extent in windows:
        names = [var.name for var in undefined_vars(tirx.Evaluate(extent)) if var.name in lows]
        while evaluate(extent, lows) < 1 and any(lows[name] < known[name].high for name in names):
            lows.update({n: min(lows[n] + known[n].multiple, known[n].high) for n in names})
    return tuple(symbol.at_least(lows[symbol.name]) for symbol in symbols)


def probe_near(symbols: Sequence[Symbol], probes: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The smallest sizes at which the model can be read beside the others: no two the same, and none of those."""
    taken = {size for probe in probes for size in probe.values()}
    out: dict[str, int] = {}
    for symbol in symbols:
        size = -(-max(symbol.low, _LEAST) // symbol.multiple) * symbol.multiple
        while size in taken:
            size += symbol.multiple
        taken.add(size)
        out[symbol.name] = size
    return out


def unlike(modules: Sequence[IRModule], low: IRModule, lows: Mapping[str, int], solver: Solver, ops: bool) -> str:
    """What of the import at the smallest sizes does not follow from the imports at others; "" if all does.

    Args:
        modules: of the model as it is imported, at the sizes of the solver's probes.
        low: as it is imported at `lows`, the smallest size of each symbol.
        ops: whether other operators are a difference too.
    """
    from ..core.graph.relax_graph import main_bindings, op_name, shape_of

    wanted = {b.var.name: b for b in main_bindings(low)}
    rows = [{b.var.name: b for b in main_bindings(mod)} for mod in modules]
    if ops and [op_name(b.value) for b in wanted.values()] != [op_name(b.value) for b in rows[0].values()]:
        return "there are other operators at the smallest sizes"
    for name, binding in wanted.items():
        same = [row[name] for row in rows if name in row and op_name(row[name].value) == op_name(binding.value)]
        shapes = [shape_of(b.var) for b in same]
        own = shape_of(binding.var)
        if len(same) < len(rows) or own is None or any(s is None or len(s) != len(own) for s in shapes):
            continue
        for axis, values in enumerate(zip(*shapes, strict=True)):
            expr = solver.solve([int(v) for v in values])
            if expr is not None and evaluate(expr, lows) != own[axis]:
                return (
                    f"dimension {axis} of {name!r} is {own[axis]} at {dict(lows)}, and {list(values)} at larger sizes"
                )
    return ""


def unlike_outputs(shapes: Sequence[Sequence[Any]], low: IRModule, lows: Mapping[str, int]) -> str:
    """Which output has another shape at the smallest sizes than was solved; "" if none has.

    Args:
        shapes: the extents of each output, expressions over the symbols.
        low: the model as it is imported at `lows`.
    """
    from tvm import relax

    from ..core.graph.relax_graph import shape_of

    body = low["main"].body.body
    fields = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    for number, (extents, field) in enumerate(zip(shapes, fields, strict=False)):
        solved = tuple(evaluate(extent, lows) for extent in extents)
        own = shape_of(field)
        if own is not None and solved != own:
            return f"output {number} is {own} at {dict(lows)}, and {solved} follows from larger sizes"
    return ""

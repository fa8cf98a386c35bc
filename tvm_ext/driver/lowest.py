"""The proof of what was solved, at the smallest sizes: what no size tried shows is seen there.

y = x[:100]      at S = 512, 281, 199: 100 rows      at S = 1: 1 row      ->   S = 5 is tried too: min(S, 100)
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.tirx.analysis import undefined_vars

from ..core.graph.relax_graph import array_of, main_bindings, op_name, shape_of
from ..core.sizes import evaluate
from ..frontend.importer import Imported
from ..passes.sizes.alignment import begins_alike, constants_of
from ..passes.sizes.compute_constants import MOST_ELEMENTS
from ..passes.sizes.patterns import patterns_of
from ..passes.sizes.solver import Solver
from ..runtime import control_flow
from ..runtime.sizes.symbols import Symbol

#: The least sizes of other programs, in turn: of size 1 dimensions may be broadcast, and of 2 they may be pairs.
LEAST = (3, 2)


def place_text(variable: str, graph: onnx.GraphProto) -> str:
    """Where programs differ, in words: the node that a variable of `main` is named after, else the variable.

    Variables have the name of a node or of its output, with numbers where several would have one name.
    """
    named = {name: node for node in graph.node for name in (*node.output, node.name) if name}
    stem = variable
    while stem not in named and (shorter := re.sub(r"_\d+$", "", stem)) != stem:
        stem = shorter
    if stem not in named:
        return f" (at {variable!r})" if variable else ""
    return f" (at {variable!r}, {named[stem].op_type} node {named[stem].name or stem!r})"


def with_windows(symbols: Sequence[Symbol], windows: Sequence[Any]) -> tuple[Symbol, ...]:
    """The symbols, whose smallest sizes are no smaller than the windows of convolutions and pools.

    Args:
        windows: extents behind them, over variables of the names of the symbols.

    Returns:
        The same symbols with other smallest sizes, no larger than their largest ones.
    """
    known = {symbol.name: symbol for symbol in symbols}
    lows = {symbol.name: -(-symbol.low // symbol.multiple) * symbol.multiple for symbol in symbols}
    for extent in windows:
        names = [var.name for var in undefined_vars(tirx.Evaluate(extent)) if var.name in lows]
        while evaluate(extent, lows) < 1 and any(lows[name] < known[name].high for name in names):
            lows.update({n: min(lows[n] + known[n].multiple, known[n].high) for n in names})
    return tuple(symbol.at_least(lows[symbol.name]) for symbol in symbols)


def probe_near(symbols: Sequence[Symbol], probes: Sequence[Mapping[str, int]], least: int) -> dict[str, int]:
    """The smallest sizes from `least` on at which the model can be read beside the others: no two the same, and none of
    those."""
    taken = {size for probe in probes for size in probe.values()}
    out: dict[str, int] = {}
    for symbol in symbols:
        size = -(-max(symbol.low, least) // symbol.multiple) * symbol.multiple
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
        ops: whether other operators are a difference; where they are none, there is nothing to compare.
    """
    wanted, *rows = (main_bindings(mod) for mod in (low, *modules))
    kinds = [op_name(binding.value) for binding in wanted]
    if any([op_name(binding.value) for binding in row] != kinds for row in rows):
        return "there are other operators at the smallest sizes" if ops else ""
    for place, binding in enumerate(wanted):
        name, shapes = binding.var.name, [shape_of(row[place].var) or () for row in (wanted, *rows)]
        if len({len(shape) for shape in shapes}) > 1:
            return f"{name!r} has another number of dimensions at {dict(lows)}"
        for axis, values in enumerate(zip(*shapes, strict=True)):
            expr = solver.solve(values[1:])
            if expr is not None and evaluate(expr, lows) != values[0]:
                return f"dimension {axis} of {name!r} is {values[0]} at {dict(lows)}; {list(values[1:])} elsewhere"
        for own, *others in zip(*(constants_of(row[place].value) for row in (wanted, *rows)), strict=False):
            if begins_alike(others):
                follows = begins_alike([others[0], own])
            else:
                follows = _follows([array_of(constant) for constant in (own, *others)], lows, solver)
            if not follows:
                return f"a constant of {name!r} has another value at {dict(lows)} than at larger sizes"
    return ""


def _follows(arrays: Sequence[np.ndarray], lows: Mapping[str, int], solver: Solver) -> bool:
    """Whether integers at the smallest sizes are those that follow from others, where any expression is known."""
    own, shapes = arrays[0], {array.shape for array in arrays[1:]}
    if len(shapes) > 1 and (patterns := patterns_of(arrays[1:])) is not None:
        numbers = [solver.solve(values) for values in zip(*(pattern.numbers for pattern in patterns), strict=True)]
        solved = tuple(evaluate(expr, lows) for expr in numbers if expr is not None)
        rule = replace(patterns[0], numbers=solved)
        return len(solved) < len(numbers) or np.array_equal(rule.array(own.shape, str(own.dtype)), own)
    if own.dtype.kind not in "iub" or own.size > MOST_ELEMENTS or len(shapes) > 1:
        return True
    if own.shape not in shapes:
        return False
    for wanted, *values in zip(*(array.reshape(-1).tolist() for array in arrays), strict=True):
        expr = solver.solve(values)
        if expr is not None and evaluate(expr, lows) != int(wanted):
            return False
    return True


def unlike_regions(own: Imported, first: Imported) -> str:
    """Why what runs beside the program, or what its outputs are, is not the same at all sizes; "" if it is.

    Args:
        own: the model as it is imported at some sizes.
        first: at the bounds.
    """
    if own.results != first.results:
        return "sizes decide how many tensors a sequence among its outputs has"
    for region in own.regions:
        flow = control_flow.flow_of(region.program.value.numpy().tobytes()) if "body" in region.facts else None
        if not isinstance(flow, control_flow.Loop):
            return f"node {region.nodes[0]!r} runs in {region.backend}, at one size only"
        body, other = own.bodies[flow.body], first.bodies.get(flow.body)
        if other is None or not tvm_ffi.structural_equal(body.mod, other.mod) or unlike_regions(body, other):
            return f"the steps of node {region.nodes[0]!r}, a loop, depend on sizes"
    return ""


def unlike_outputs(shapes: Sequence[Sequence[Any]], low: IRModule, lows: Mapping[str, int]) -> str:
    """Which output has another shape at the smallest sizes than was solved; "" if none has.

    Args:
        shapes: the extents of each output, expressions over the symbols.
        low: the model as it is imported at `lows`.
    """
    body = low["main"].body.body
    fields = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    for number, (extents, field) in enumerate(zip(shapes, fields, strict=False)):
        solved = tuple(evaluate(extent, lows) for extent in extents)
        own = shape_of(field)
        if own is not None and solved != own:
            return f"output {number} is {own} at {dict(lows)}, and {solved} follows from larger sizes"
    return ""

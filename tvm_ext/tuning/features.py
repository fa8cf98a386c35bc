"""Numbers a cost model learns from: of a configuration, and of the loops it makes.

Configurations: log2 of split sizes, places of an order, one-hot annotations, and other knobs as numbers.

Loops: for the function as a whole how much there is of each thing, and for each of its two heaviest statements the
arithmetic, the loops by kind, strides, the bytes touched inside each of the innermost loops, and a curve: how many
iterations fit into 1 KiB, 4 KiB, ... of touched bytes. The curve is the "relation feature" of T. Chen et al., "Learning
to Optimize Tensor Programs", NeurIPS 2018, section 4.2: it does not depend on how many loops there are, so it
carries over between shapes and templates.
"""

import math
from typing import Any

import numpy as np
from tvm import tirx

from .loop_analysis import Statement, statements
from .templates.choices import Choices
from .templates.entities import ANNOTATIONS
from .templates.space import ConfigSpace

#: Statements that are described one by one, heaviest first.
_STATEMENTS = 2
#: Loops, innermost first, whose extents and touched bytes are described.
_LEVELS = 6
#: Bytes of the curve: 1 KiB, 4 KiB, ..., 16 MiB.
_SIZES = tuple(1 << bits for bits in range(10, 25, 2))
_OPERATIONS = ("add", "mul", "div", "select", "call")
_KINDS = ("vec", "unroll", "parallel", "serial")
#: Knobs of at most so many choices are one-hot where the choices are no numbers.
_ONE_HOT = 16

_TOTALS = ("statements", "loops", "operations", "bytes_stored", "bytes_loaded", "guarded", "entries")
_OF_STATEMENT = (
    "iterations", *_OPERATIONS, *(f"{kind}_extent" for kind in _KINDS), "innermost_vec", "innermost_unroll",
    "guarded", "stride_0", "stride_1", "stride_more",
    *(f"extent_{level}" for level in range(_LEVELS)), *(f"touched_{level}" for level in range(_LEVELS)),
    *(f"curve_{size >> 10}k" for size in _SIZES),
)  # fmt: skip

#: Names of what :func:`loop_features` returns, in order. Counts, extents and bytes are log2(1 + x).
LOOP_FEATURES = _TOTALS + tuple(f"{place}_{name}" for place in range(_STATEMENTS) for name in _OF_STATEMENT)


def loop_features(function: tirx.PrimFunc) -> np.ndarray:
    """Features of the loops of a scheduled function: a millisecond or a few.

    Returns:
        float32, (len(:data:`LOOP_FEATURES`),), of any function; zeros stand for statements and loops it has not.
    """
    listed = statements(function)
    heaviest = sorted(listed, key=lambda statement: -statement.work)[:_STATEMENTS]
    rows = [_totals(listed), *(_of_statement(statement) for statement in heaviest)]
    values = [value for row in rows for value in row]
    values += [0.0] * (len(LOOP_FEATURES) - len(values))
    return np.array(values, dtype=np.float32)


def _totals(listed: list[Statement]) -> list[float]:
    loops: dict[int, tuple[str, int]] = {}  # each loop once, with how often its body is entered
    for statement in listed:
        times = 1
        for loop in statement.loops:
            times *= loop.extent
            loops[loop.var] = (loop.kind, times)
    counts = (
        len(listed), len(loops), sum(statement.iterations * sum(statement.operations.values()) for statement in listed),
        sum(statement.iterations * statement.accesses[0].item for statement in listed),
        sum(statement.iterations * sum(access.item for access in statement.accesses[1:]) for statement in listed),
        sum(statement.iterations for statement in listed if statement.guarded),
        sum(times for kind, times in loops.values() if kind == "serial"),
    )  # fmt: skip
    return [_log(count) for count in counts]


def _of_statement(statement: Statement) -> list[float]:
    inner = statement.loops[::-1]
    extents = {kind: math.prod(loop.extent for loop in inner if loop.kind == kind) for kind in _KINDS}
    levels = range(1, min(_LEVELS, len(inner)) + 1)
    nothing = [0.0] * (_LEVELS - len(levels))
    return [
        _log(statement.iterations), *(_log(statement.operations[name]) for name in _OPERATIONS),
        *(_log(extents[kind]) for kind in _KINDS), float(bool(inner) and inner[0].kind == "vec"),
        float(bool(inner) and inner[0].kind == "unroll"), float(statement.guarded), *_strides(statement),
        *(_log(inner[level - 1].extent) for level in levels), *nothing,
        *(_log(statement.touched(level)) for level in levels), *nothing, *_curve(statement),
    ]  # fmt: skip


def _strides(statement: Statement) -> list[float]:
    """Accesses that stand still, go on by one, or jump, from one iteration of the vectorized or innermost loop."""
    loops = statement.loops
    loop = next((loop for loop in loops[::-1] if loop.kind == "vec"), loops[-1] if loops else None)
    strides = [min(access.stride(loop.var), 2) for access in statement.accesses] if loop else []
    return [float(strides.count(stride)) for stride in range(3)]


def _curve(statement: Statement) -> list[float]:
    """For each size: iterations of the largest nest of inner loops that touches no more bytes."""
    nests, times = [(1, statement.touched(0))], 1
    for level, loop in enumerate(statement.loops[::-1], start=1):
        times *= loop.extent
        nests.append((times, statement.touched(level)))
    return [_log(max((times for times, touched in nests if touched <= size), default=0)) for size in _SIZES]


def _log(value: float) -> float:
    return math.log2(1 + value)


# ------------------------------------------------------------------------------------------------ configurations
def config_features(space: ConfigSpace, config: dict[str, Any]) -> np.ndarray:
    """Features of a configuration.

    Returns:
        float32, of the same length for every configuration of the space.
    """
    values = [value for name, choices in space.knobs.items() for value in _of_knob(choices, config[name])]
    return np.array(values, dtype=np.float32)


def _of_knob(choices: Choices, value: Any) -> list[float]:
    if choices.kind == "sp":
        return [math.log2(size) for size in value]
    if choices.kind == "re":
        return [float(place) for place in value]
    if choices.kind == "an":
        return [float(ann == word) for ann in value for word in ANNOTATIONS]
    if all(isinstance(choice, int | float) for choice in choices):
        return [math.copysign(_log(abs(value)), value)]
    place = choices.index(value)
    return [float(place == i) for i in range(len(choices))] if len(choices) <= _ONE_HOT else [float(place)]

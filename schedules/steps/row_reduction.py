"""A reduction over the elements of a row in vectors: shared by softmax, layer norm and plain reductions.

    r = 0                                p[0:64] = 0
    for k in range(1000): r += f(k)  ->  for k in range(15): p[0:64] += f(64 k + [0:64])   vectors of partial results
                                         q[0:16] = p[0:16] + p[16:32] + p[32:48] + p[48:64]
                                         q[0:8] += f(992 + [0:8])                          what is left, one odd vector
                                         q[0:8] + q[8:16], ..., [0:2] + [2:4], [0] + [1]     halves, to one result

Several vectors are summed side by side because an addition takes three or four cycles but one can start in each. The
order of the sum is another one than that of a loop, and better: its error grows with the length over the lanes.

Of a row with a run-time extent, elements behind it are replaced by what the reduction starts from, one select a vector,
and the loop ends at the last vector that holds others.

A kernel places all its reductions first and makes vectors of them then: out of a loop that is cut in parts, TVM reads
only whole buffers.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.ops.scalars.strict_floats import maximum, minimum

from .loops import unroll_and_vectorize

#: Vectors of partial results at most: they fill the latency of an addition and stay in 16 registers.
_SIDE_BY_SIDE = 8

Combine = Callable[[Any, Any], Any]


#: What a reduction of a name starts from.
START = {"sum": 0.0, "max": -math.inf, "min": math.inf, "max_number": -math.inf}


def _from(start: float, combine: Combine) -> tuple[Callable[..., Any], Combine]:
    """TVM's own reductions start from the largest finite number: the maximum of a row of nothing but -inf."""

    def first(dtype: str) -> Any:
        if dtype.startswith("float"):
            return tirx.const(start, dtype)
        return tirx.min_value(dtype) if start < 0 else tirx.max_value(dtype)

    return te.comm_reducer(lambda a, b: combine(a, b), first), combine


#: Reduction of a name: over an axis, and of two values. What is NaN is lost in "max_number", where TVM's own maximum
#: takes the second of two operands.
COMBINE: dict[str, tuple[Callable[..., Any], Combine]] = {
    "sum": (te.sum, lambda a, b: a + b),
    "max": _from(START["max"], maximum),
    "min": _from(START["min"], minimum),
    "max_number": _from(START["max_number"], tirx.max),
}


def in_use(kind: str, inside: Any, value: Any) -> Any:
    """A float32 element, or what its reduction starts from where it is not `inside` the run-time extents.

    No garbage that is not inside, NaN included, gets through a select.
    """
    return tirx.Select(inside, value, tirx.const(START[kind], "float32"))


def compute(
    name: str, kind: str, rows: Sequence[int], length: int, lanes: int, term: Callable[..., Any], end: Any = None
) -> te.Tensor:
    """The stages of a reduction.

    Args:
        name: prefix of the stages' names.
        kind: a key of :data:`COMBINE`.
        rows: shape of the rows.
        length: elements of a row.
        lanes: f32 lanes of the machine.
        term: `term(*row, k)` is element k.
        end: elements from there on change nothing, and most are left out: an expression; None if there are none.

    Returns:
        The results, of shape (*rows, 1).
    """
    over, combine = COMBINE[kind]
    width = min(lanes, 1 << (length.bit_length() - 1))
    whole, left = divmod(length, width)
    vectors = max(v for v in range(1, _SIDE_BY_SIDE + 1) if whole % v == 0)
    step = width * vectors
    steps = length // step if end is None else tirx.min((end + step - 1) // step, length // step)
    k = te.reduce_axis((0, steps), name="k")
    partial = te.compute((*rows, step), lambda *i: over(term(*i[:-1], k * step + i[-1]), axis=k), f"{name}_partial")

    def across(*i: Any) -> Any:
        return _in_pairs([partial(*i[:-1], i[-1] + v * width) for v in range(vectors)], combine)

    result = te.compute((*rows, width), across, f"{name}_across")
    if left:
        result = _with_rest(result, name, length - left, left, combine, term)
    while width > 1:
        width //= 2
        result = _halved(result, (*rows, width), combine, f"{name}_half{width}")
    return result


def place(sch: Schedule, name: str, row: Any) -> None:
    """Compute all stages at the loop over rows."""
    for stage in reversed(_stages(sch, name)):
        sch.compute_at(sch.get_sblock(stage), row, preserve_unit_loops=True)


def vectorize(sch: Schedule, name: str) -> None:
    """Make vectors of all stages, after every reduction of the kernel is placed."""
    first, *after = _stages(sch, name)
    partial = sch.get_sblock(first)
    *_, lane, k = sch.get_loops(partial)
    width = int(sch.get(sch.get_loops(sch.get_sblock(after[0]))[-1]).extent)
    vector, lane = sch.split(lane, [None, width])
    sch.reorder(k, vector, lane)
    unroll_and_vectorize(sch, [vector], lane)
    *_, vector, lane = sch.get_loops(sch.decompose_reduction(partial, k))
    unroll_and_vectorize(sch, [vector], lane)
    for stage in after:
        lane = sch.get_loops(sch.get_sblock(stage))[-1]
        left = int(stage.partition("_rest")[2] or 0)
        for part in sch.loop_partition(lane, [left, None]) if left else [lane]:
            sch.vectorize(part)


def _stages(sch: Schedule, name: str) -> list[str]:
    """Names of the stages, producers first."""
    names = [str(sch.get(block).name_hint) for block in sch.get_child_blocks(sch.get_sblock("root"))]
    kinds = ("partial", "across", "rest", "half")
    stages = [n for n in names if n.startswith(tuple(f"{name}_{kind}" for kind in kinds))]
    rank = {kind: i for i, kind in enumerate(kinds)}
    return sorted(stages, key=lambda n: next(rank[kind] for kind in kinds if n.startswith(f"{name}_{kind}")))


def _in_pairs(values: list[Any], combine: Combine) -> Any:
    """All values combined, each with its neighbour, and so on: a maximum names its operands several times, and TVM's
    analyzer puts definitions in place, so a chain of eight would have thousands of terms."""
    while len(values) > 1:
        pairs = [combine(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[len(pairs) * 2 :]
    return values[0]


def _with_rest(
    lanes: te.Tensor, name: str, start: int, left: int, combine: Callable[..., Any], term: Callable[..., Any]
) -> te.Tensor:
    """Add elements `start` to `start + left` to the first lanes."""

    def value(*i: Any) -> Any:
        more = term(*i[:-1], start + tirx.min(i[-1], left - 1))
        return tirx.if_then_else(i[-1] < left, combine(lanes(*i), more), lanes(*i))

    return te.compute(lanes.shape, value, f"{name}_rest{left}")


def _halved(data: te.Tensor, shape: Sequence[int], combine: Callable[[Any, Any], Any], name: str) -> te.Tensor:
    return te.compute(shape, lambda *i: combine(data(*i), data(*i[:-1], i[-1] + shape[-1])), name)

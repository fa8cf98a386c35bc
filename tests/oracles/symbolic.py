"""A model of numbers a second time, with names for some dimensions: how it is called, and what it answers then.

x[4, 5], y[4, 5], axis 0 of x   ->   x["D0", 5], y["D0", 5]; D0 in 1..7, run at 1, 7, 5 and 1 again
"""

import contextlib
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .compare import Allowed, difference
from .outcome import Outcome
from .pool import Service, outcomes
from .reference import compiled

#: The model, and its feeds -> the outputs wanted; raises where they contradict each other.
Answer = Callable[[bytes, Mapping[str, Any]], Sequence[Any]]
#: (input, axis) of dimensions that are of one size.
Places = frozenset[tuple[str, int]]
#: Sizes tried for the smallest, and sizes between the smallest and the largest.
_LEAST, _BETWEEN = (1, 2, 3), (5, 3, 7, 11, 2, 13, 17, 19, 23, 4)


@dataclass(frozen=True)
class Run:
    """Feeds at one size of each symbol, and the outputs wanted."""

    sizes: Mapping[str, int]
    feeds: Mapping[str, Any]
    outputs: Sequence[Any]


@dataclass(frozen=True)
class Symbolic:
    """A model whose inputs have dimensions of any size.

    Attributes:
        model: serialized; the dimensions of its inputs have names.
        dims: bounds of each name.
        runs: smallest sizes, largest, some between, and the smallest again: it reads nothing that the others left.
    """

    model: bytes
    dims: dict[str, tuple[int, int]]
    runs: tuple[Run, ...]


class Variants:
    """Symbolic variants of a model.

    Args:
        model: serialized, of numbers.
        feeds: all inputs; arrays of those that may have symbolic dimensions.
        frozen: inputs that have none.
        answer: the judge of what is valid, and right.
        largest: the least bound of a symbol; one that is larger in the model is bound by that.
    """

    def __init__(
        self, model: bytes, feeds: Mapping[str, Any], answer: Answer, frozen: Sequence[str] = (), largest: int = 0
    ) -> None:
        self._model, self._feeds, self._answer, self._largest = model, feeds, answer, largest
        self._free = {
            name: x for name, x in feeds.items() if isinstance(x, np.ndarray) and x.ndim and name not in frozen
        }

    def of(self, axes: Sequence[int]) -> Symbolic | None:
        """The model with symbols for axes of its first free input; None if onnxruntime takes no other size of any.

        Args:
            axes: each of size 2 or more. Dimensions of other inputs that must agree have the same symbol.
        """
        symbols: dict[str, Places] = {}
        for axis in axes:
            symbols.update(self._symbol(f"D{axis}", axis, symbols))
        if not symbols:
            return None
        size = {name: self._size(places) for name, places in symbols.items()}
        highs = {name: max(self._largest, n) for name, n in size.items()}
        lows = {name: next((n for n in _LEAST if self._valid(symbols, {**size, name: n})), size[name]) for name in size}
        lows = lows if self._valid(symbols, lows) else size
        if lows == highs:
            return None
        runs = [run for sizes in _sizes(lows, highs) if (run := self._run(symbols, sizes))]
        if len(runs) < 2 or runs[1].sizes != highs:
            return None
        dims = {name: (lows[name], highs[name]) for name in symbols}
        return Symbolic(named(self._model, symbols), dims, (*runs, runs[0]))

    def _symbol(self, name: str, axis: int, before: Mapping[str, Places]) -> dict[str, Places]:
        """A symbol for an axis of the first input, and for the fewest dimensions of others with which it is valid."""
        taken = set().union(*before.values())
        for places in dict.fromkeys(self._groups(axis)):
            size = self._size(places)
            symbols = {**before, name: places - taken}
            others = {size + 2, max(self._largest, size)} - {size} if self._largest > size else {size - 1}
            base = {known: self._size(group) for known, group in before.items()}
            if symbols[name] and all(self._valid(symbols, {**base, name: other}) for other in others):
                return {name: symbols[name]}
        return {}

    def _groups(self, axis: int) -> Iterator[Places]:
        first, x = next(iter(self._free.items()))
        same = [(name, a) for name, y in self._free.items() for a, size in enumerate(y.shape) if size == x.shape[axis]]
        others = [(name, a) for name, a in same if name != first]
        front = {(name, a) for name, a in others if a == axis}
        behind = {(name, a) for name, a in others if self._free[name].ndim - a == x.ndim - axis}
        for group in (front | behind, set(others), front, behind, set(), set(same)):
            yield frozenset({(first, axis)} | group)

    def _size(self, places: Places) -> int:
        name, axis = min(places)
        return int(self._free[name].shape[axis])

    def _valid(self, symbols: Mapping[str, Places], sizes: Mapping[str, int]) -> bool:
        return self._run(symbols, sizes) is not None

    def _run(self, symbols: Mapping[str, Places], sizes: Mapping[str, int]) -> Run | None:
        feeds = dict(self._feeds)
        for name, places in symbols.items():
            for owner, axis in places:
                feeds[owner] = _resized(feeds[owner], axis, sizes[name])
        with contextlib.suppress(Exception):
            _check(self._model, feeds)
            return Run(sizes, feeds, self._answer(named(self._model, symbols), feeds))
        return None


def _sizes(lows: Mapping[str, int], highs: Mapping[str, int]) -> Iterator[dict[str, int]]:
    yield dict(lows)
    yield dict(highs)
    between = {name: [n for n in _BETWEEN if lows[name] < n < highs[name]] or [highs[name]] for name in lows}
    yield {name: sizes[place % len(sizes)] for place, (name, sizes) in enumerate(between.items())}


def _resized(x: np.ndarray, axis: int, size: int) -> np.ndarray:
    """The array with the first elements of an axis, or with more, each of which is there already, in no order."""
    more = np.random.default_rng(size).integers(0, x.shape[axis], max(size - x.shape[axis], 0))
    return np.take(x, [*range(min(size, x.shape[axis])), *more], axis)


def told(service: Service, tasks: Mapping[str, Any], workers: int) -> int:
    """Run tasks, by their names; print those that do not pass, and the counts; 1 if any is wrong or crashes."""
    counts: Counter[str] = Counter()
    names = {id(task): name for name, task in tasks.items()}
    for task, outcome in outcomes(service, tasks.values(), workers):
        counts[outcome.kind] += 1
        if outcome.kind not in ("pass", "none", "invalid"):
            print(f"{names[id(task)]}: {outcome}", flush=True)
    print(dict(counts), file=sys.stderr)
    return int(any(counts[kind] for kind in ("wrong", "failed", "hang", "crash")))


def _check(model: bytes, feeds: Mapping[str, Any]) -> None:
    """Raise where ONNX does not take inputs of these shapes: onnxruntime is less strict."""
    import onnx

    proto = onnx.ModelProto.FromString(model)
    for value in proto.graph.input:
        if isinstance(x := feeds[value.name], np.ndarray):
            for dim, size in zip(value.type.tensor_type.shape.dim, x.shape, strict=True):
                dim.dim_value = size
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    del proto.graph.value_info[:]
    onnx.shape_inference.infer_shapes(proto, strict_mode=True)


def named(model: bytes, symbols: Mapping[str, Places]) -> bytes:
    """The model with names of dimensions in its inputs; those of outputs say nothing."""
    import onnx

    proto = onnx.ModelProto.FromString(model)
    names = {place: name for name, places in symbols.items() for place in places}
    for value in proto.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if (value.name, axis) in names:
                dim.dim_param = names[value.name, axis]
    count = itertools.count()
    for value in proto.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.dim_param = f"unknown_{next(count)}"
    del proto.graph.value_info[:]
    return proto.SerializeToString()


def judged(
    case: Symbolic, allowed: Callable[[Run], Allowed], freeze: Mapping[str, Any],
    settled: Callable[[Run, Sequence[Any]], bool] = lambda run, outputs: False, **options: Any,
) -> Outcome:  # fmt: skip
    """Compile for any size, run at each, compare.

    Args:
        allowed: how large the errors of a run may be.
        settled: whether outputs that differ are right nevertheless.
        freeze, options: of `compile`.

    Raises:
        Refused: the model is refused.
    """
    program = compiled(case.model, dims=case.dims, freeze=dict(freeze), **options)
    runs = [run for run in case.runs if not any(s.why_not(run.sizes[s.name]) for s in program.symbols)]
    if not any(run.sizes[s.name] > s.low for run in runs for s in program.symbols):
        sizes = [dict(run.sizes) for run in case.runs]
        return Outcome("refused", f"of the sizes {sizes} {program.symbols} take none")
    for run in runs:
        results = program.run({name: x for name, x in run.feeds.items() if name not in freeze})
        outputs = list(results.values())
        reason, _ = difference(outputs, run.outputs, allowed(run))
        if reason and not settled(run, outputs):
            return Outcome("wrong", f"{dict(run.sizes)}: {reason}")
    return Outcome("pass")

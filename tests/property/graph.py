"""Random small ONNX graphs, valid by construction: a graph grows by one node at a time from values made before.

Beside its shape and dtype, a value has a bound on its magnitude and one on its rounding error. Where that is bounded
by nothing useful, a node is not made; what jumps (comparisons, rounding, indices of maxima) is only asked of values
without any error, so that no tie depends on who computed it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

Shape = tuple[int, ...]
#: Elements of the largest value of a graph.
LARGEST = 4096
#: Half a unit in the last place, relative: what one correctly rounded operation may be off.
UNIT = {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
#: The largest error worth comparing, as a part of the bound: beyond it a wrong value may hide.
_LOOSEST = {"float16": 2.0**-4, "float32": 2.0**-8, "float64": 2.0**-30}
#: Beyond it a value is scaled down.
_LARGE = 24.0
#: Exponent of a sum's probable error: of n roundings of either sign the sum exceeds LAMBDA sqrt(n) units with
#: probability 2 exp(-LAMBDA^2 / 2) (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019).
LAMBDA = 4.0


class Value(NamedTuple):
    """A tensor of the graph: no element exceeds `bound`, none is off by more than `error`."""

    name: str
    shape: Shape
    dtype: str
    bound: float
    error: float = 0.0

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


Operand = Value | np.ndarray | None


class Declined(Exception):
    """A node that would be of no use: its error too large, or its shape."""


@dataclass(frozen=True)
class Maker:
    """Makes a node, or a few, that read a value.

    Attributes:
        make: graph, value -> new value.
        dtypes: of the value.
        rank: lowest and highest rank of the value.
        weight: how often, against others.
        exact: whether the value must be without error.
        empty: whether it may have no element.
        nan: whether ONNX says what becomes of NaN and infinity.
        rows: whether each row of the result is made of the same row of the value.
        since: first opset.
    """

    make: Callable[[Graph, Value], Value | None]
    dtypes: tuple[str, ...]
    rank: tuple[int, int] = (0, 6)
    weight: int = 1
    exact: bool = False
    empty: bool = False
    nan: bool = True
    rows: bool = False
    since: int = 0

    def takes(self, g: Graph, x: Value) -> bool:
        fits = x.dtype in self.dtypes and self.rank[0] <= x.rank <= self.rank[1] and g.opset >= self.since
        clean = (self.empty or x.size) and (self.nan or not g.special) and (self.rows or not g.rows)
        return bool(fits and clean and not (self.exact and x.error))


@dataclass
class Graph:
    """A graph that grows.

    Attributes:
        rng: where every choice comes from: `random.Random`, or hypothesis' own, whose choices shrink.
        makers: what it grows by.
        opset: of the standard operators.
        special: whether inputs hold NaN and infinity.
        rows: whether the first dimension is a batch whose rows never meet.
    """

    rng: random.Random
    makers: Sequence[Maker]
    opset: int = 17
    special: bool = False
    rows: bool = False
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    _names: int = 0

    # ------------------------------------------------------------------------------------------------ growing
    def grow(self) -> None:
        """One maker's nodes on a value, a recent one rather than an old one."""
        x = self.values[-1] if self.chance(0.65) else self.any(self.values)
        fitting = [m for m in self.makers if m.takes(self, x)]
        if not fitting:
            return
        maker = self.any([m for m in fitting for _ in range(m.weight)])
        before = len(self.nodes), len(self.weights), len(self.values), set(self.used)
        try:
            emitted = maker.make(self, x)
            if emitted is not None and emitted.size <= LARGEST:
                self.values.append(self._tamed(emitted))
                return
        except Declined:
            pass
        nodes, weights, values, self.used = before
        del self.nodes[nodes:], self.weights[weights:], self.values[values:]

    def _tamed(self, value: Value) -> Value:
        """The value, scaled down by a power of two where it may be large."""
        if value.dtype not in UNIT or value.bound <= _LARGE:
            return value
        factor = 2.0 ** -math.ceil(math.log2(value.bound / 4))
        scale = np.asarray(factor, value.dtype)
        return self.node("Mul", [value, scale], value.shape, bound=value.bound * factor, gain=factor, terms=0)

    def input(self, shape: Sequence[int], dtype: str, bound: float) -> Value:
        value = Value(self.fresh("x"), tuple(shape), dtype, bound)
        self.inputs.append(value)
        self.values.append(value)
        return value

    # ------------------------------------------------------------------------------------------------ nodes
    def node(
        self, op_type: str, inputs: Sequence[Operand], shape: Sequence[int], *, dtype: str | None = None,
        bound: float | None = None, gain: float = 1.0, terms: float = 1.0, error: float | None = None,
        **attributes: Any,
    ) -> Value:  # fmt: skip
        """A node with one output.

        Args:
            op_type: the operator.
            inputs: values; arrays, which become constants; None for an input left out.
            shape: of the output.
            dtype: of the output; that of the first value unless given.
            bound: of the output; that of the first value unless given.
            gain: by how much the inputs' error grows.
            terms: roundings of the node itself, each of a magnitude up to `bound`; 0 if it is exact.
            error: of the output, where none of these two say it.
            attributes: of the node.
        """
        values = [v for v in inputs if isinstance(v, Value)]
        dtype, bound = dtype or values[0].dtype, values[0].bound if bound is None else bound
        if error is None:
            error = gain * sum(v.error for v in values) + terms * UNIT.get(dtype, 0.0) * bound
        return self.emit(op_type, inputs, [Value("", tuple(map(int, shape)), dtype, bound, error)], **attributes)[0]

    def emit(
        self, op_type: str, inputs: Sequence[Operand], outputs: Sequence[Value | None], **attributes: Any
    ) -> list[Value]:
        """A node with several outputs, given as nameless values, None for one left out; they come back named.

        Raises:
            Declined: one of them is too inexact or too large to be of use.
        """
        for v in outputs:
            if v is not None and (v.size > LARGEST or v.error > _LOOSEST.get(v.dtype, 2.0) * max(v.bound, 1e-3)):
                raise Declined
        names = [self._operand(v) for v in inputs]
        results = [v and v._replace(name=self.fresh(op_type.lower())) for v in outputs]
        label = "" if self.chance(0.1) else f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, names, [v.name if v else "" for v in results], label, **attributes))
        return [v for v in results if v is not None]

    def fresh(self, stem: str) -> str:
        """A new name, in the ways of several exporters."""
        self._names += 1
        return f"{stem}{self.any(['_', '/', '.', ':'])}{self._names}"

    def constant(self, array: np.ndarray) -> str:
        """The name of an initializer, or of what a Constant node makes."""
        name = self.fresh("w")
        tensor = numpy_helper.from_array(np.asarray(array), name)
        if self.chance(0.15):
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.weights.append(tensor)
        return name

    def _operand(self, value: Operand) -> str:
        if value is None:
            return ""
        if not isinstance(value, Value):
            return self.constant(value)
        self.used.add(value.name)
        return value.name

    # ------------------------------------------------------------------------------------------------ choices
    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def size(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def any(self, choices: Sequence[Any]) -> Any:
        return choices[self.rng.randint(0, len(choices) - 1)]

    def some(self, count: int, of: int) -> list[int]:
        """So many different numbers below `of`, ascending."""
        left = list(range(of))
        return sorted(left.pop(self.size(0, len(left) - 1)) for _ in range(count))

    def order(self, count: int) -> list[int]:
        """A permutation."""
        left = list(range(count))
        return [left.pop(self.size(0, len(left) - 1)) for _ in range(count)]

    def numbers(self) -> np.random.Generator:
        """For the elements of an array, which need not shrink one by one."""
        return np.random.default_rng([2026, self.size(0, 1 << 20)])

    def array(self, *shape: int, scale: float = 1.0, low: float | None = None, dtype: str = "float32") -> np.ndarray:
        """Normal numbers; with `low` their magnitudes, and that much more."""
        values = np.clip(self.numbers().standard_normal(shape), -3.5, 3.5) * scale
        return np.asarray(values if low is None else np.abs(values) + low).astype(dtype)

    def integers(self, low: int, high: int, *shape: int, dtype: str = "int64") -> np.ndarray:
        """Whole numbers from `low` to `high`, both included."""
        return np.asarray(self.numbers().integers(low, high + 1, shape)).astype(dtype)

    def other(self, x: Value, *, exact: bool = False) -> Value:
        """An operand that broadcasts against `x` without making it larger: a value, or a constant."""
        fitting = [v for v in self.values if v.dtype == x.dtype and self._meets(v, x) and not (exact and v.error)]
        if fitting and self.chance(0.6):
            return self.any(fitting)
        rank = self.size(0, x.rank)
        shape = [d if self.chance(0.6) else 1 for d in x.shape[x.rank - rank :]]
        if self.rows and rank == x.rank and shape:
            shape[0] = 1
        return self.literal(self.elements(shape, x.dtype))

    def elements(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        """A small constant of any dtype."""
        if dtype == "bool":
            return self.integers(0, 1, *shape).astype(bool)
        if dtype in UNIT:
            return self.array(*shape, dtype=dtype)
        return self.integers(0 if dtype.startswith("u") else -5, 5, *shape, dtype=dtype)

    def literal(self, array: np.ndarray) -> Value:
        """A constant as a value, without error."""
        bound = float(np.abs(array.astype(np.float64)).max(initial=0.0))
        return Value(self.constant(array), array.shape, array.dtype.name, bound)

    def _meets(self, v: Value, x: Value) -> bool:
        if self.rows and v.rank != x.rank:
            return False
        pairs = zip(reversed(v.shape), reversed(x.shape), strict=False)
        return v.rank <= x.rank and all(d in (1, t) for d, t in pairs)


def squared(*numbers: int) -> float:
    """Units of a sum of so many products: see :data:`LAMBDA`."""
    return 1.0 + LAMBDA * math.sqrt(math.prod(numbers))


def weighted(weight: np.ndarray, terms: int) -> float:
    """How much a sum of `terms` values with random weights may exceed one of them."""
    root = float(np.sqrt(np.square(weight.astype(np.float64)).mean())) if weight.size else 0.0
    return min(terms * float(np.abs(weight).max(initial=0.0)), LAMBDA * root * math.sqrt(terms))


INTS = ("int32", "int64")
SMALL_INTS = ("int8", "uint8")
FLOATS = ("float32", "float16", "float64")
#: Those that onnxruntime has for most operators; float64 for some.
HALVES = ("float32", "float16")
F32 = ("float32",)
BOOL = ("bool",)
ANY = (*FLOATS, *INTS, *SMALL_INTS, *BOOL)

#: Every maker there is, in the order of their files.
MAKERS: list[Maker] = []


def maker(*dtypes: str, **facts: Any) -> Callable[[Callable[[Graph, Value], Value | None]], Any]:
    """Puts a function into :data:`MAKERS`; see :class:`Maker` for what is said of it."""

    def register(make: Callable[[Graph, Value], Value | None]) -> Any:
        MAKERS.append(Maker(make, dtypes, **facts))
        return make

    return register

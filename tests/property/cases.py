"""A case: a random graph, values for its inputs, and the options it is compiled with."""

import itertools
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from . import control, elementwise, images, matrices, movement, quantized, reductions  # noqa: F401  (fill MAKERS)
from .graph import MAKERS, UNIT, Graph, Value

#: What a case is about, by weight: most have nothing special.
_KINDS = ["plain"] * 6 + ["special", "rows", "empty", "offload"]
_BOUND = 3.5
BATCH = 3


@dataclass(frozen=True)
class Case:
    """What one worker compiles and compares.

    Attributes:
        name: for messages.
        kind: one of `_KINDS`.
        model: the serialized model.
        feeds: input name -> array.
        errors: how far each output may be off; 0 for what must be equal.
        options: of `compile`.
    """

    name: str
    kind: str
    model: bytes
    feeds: dict[str, np.ndarray]
    errors: tuple[float, ...]
    options: dict[str, Any]

    def operators(self) -> Counter[str]:
        """Operators with how many nodes have them, those of inner graphs not counted."""
        return Counter(node.op_type for node in onnx.ModelProto.FromString(self.model).graph.node)


def plain(start: int, count: int, most: int = 6, without: Collection[str] = ()) -> list[Case]:
    """The first cases from a seed on about nothing special: of float32 inputs, and without some operators."""
    drawn = (make_case(random.Random(seed), f"seed {seed}", most) for seed in itertools.count(start))
    fits = (c for c in drawn if c.kind == "plain" and {x.dtype.name for x in c.feeds.values()} == {"float32"})
    return [*itertools.islice((case for case in fits if not {*without} & {*case.operators()}), count)]


def grown(seed: int, nodes: int) -> onnx.ModelProto:
    """A model of at least so many nodes, about nothing special."""
    g = Graph(random.Random(seed), [m for m in MAKERS if m.since <= 17])
    _inputs(g, "plain")
    while len(g.nodes) < nodes:
        g.grow()
    return _model(g, _outputs(g))


def seeded(seed: int) -> Case:
    """The case of a number."""
    return make_case(random.Random(seed), f"seed {seed}")


def make_case(rng: random.Random, name: str = "case", most: int = 6) -> Case:
    """A case by the choices of a generator of random numbers, grown in `most` steps at most."""
    kind = _KINDS[rng.randint(0, len(_KINDS) - 1)]
    opset = [17, 17, 13, 18, 21][rng.randint(0, 4)]
    makers = [m for m in MAKERS if m.since <= opset and (kind != "empty" or m.empty)]
    g = Graph(rng, makers, opset=opset, special=kind == "special", rows=kind == "rows")
    _inputs(g, kind)
    g.grow()
    for _ in range(most - 1):
        if not g.size(0, 6):  # asked before each step, so that hypothesis can leave out any of them
            break
        g.grow()
    outputs = _outputs(g)
    feeds = {v.name: _feed(g, v) for v in g.inputs}
    return Case(
        name, kind, _model(g, outputs).SerializeToString(), feeds, tuple(v.error for v in outputs), _options(g, kind)
    )


def _inputs(g: Graph, kind: str) -> None:
    """One input or two; the first an image, tokens, rows, or a vector, with odd sizes."""
    spatial = g.any([2, 2, 2, 2, 1, 3])
    batch = BATCH if kind == "rows" else g.any([1, 1, 2])
    image = (batch, g.size(1, 20), *(g.size(3, 13 if spatial < 3 else 6) for _ in range(spatial)))
    tokens = (g.any([1, 2, 3, 5]) if kind != "rows" else BATCH, g.any([1, 2, 5, 7]), g.any([1, 3, 8, 16, 17, 31]))
    table = (g.size(1, 5) if kind != "rows" else BATCH, g.any([1, 4, 13, 16, 37]))
    shape = g.any([image, image, image, tokens, tokens, table])
    if kind == "empty":
        at = g.size(0, len(shape) - 1)
        shape = tuple(0 if a == at else d for a, d in enumerate(shape))
    g.input(shape, "float32", _BOUND)
    if g.chance(0.35):
        second = g.any([shape, tuple(reversed(shape)), (g.size(1, 9),), ()]) if kind != "rows" else shape
        dtype = g.any(["float32", "float32", "int64", "int32", "float64", "float16", "bool", "uint8"])
        g.input(second, "float32" if kind == "rows" else dtype, _bound(dtype))


def _bound(dtype: str) -> float:
    return {"bool": 1.0, "uint8": 255.0, "int64": 9.0, "int32": 9.0}.get(dtype, _BOUND)


def _feed(g: Graph, value: Value) -> np.ndarray:
    """Values for an input: normal, or multiples of a quarter, among which ties are exact; with NaN and infinities."""
    rng, shape = g.numbers(), value.shape
    if value.dtype not in UNIT:
        low = 0 if value.dtype in ("bool", "uint8") else -int(value.bound)
        return np.asarray(rng.integers(low, int(value.bound) + 1, shape)).astype(value.dtype)
    x = np.asarray(np.clip(rng.standard_normal(shape), -_BOUND, _BOUND))
    if g.chance(0.25):
        x = np.round(x * 4) / 4
    if g.special:
        for special in (np.nan, np.inf, -np.inf, -0.0):
            x = np.where(rng.random(shape) < g.any([0.0, 0.02, 0.1]), special, x)
        if value.rank and g.chance(0.3):
            x[..., :1] = -np.inf
            if value.rank > 1 and g.chance(0.5):
                x[:, :1] = -np.inf  # whole rows of it
    return np.asarray(x).astype(value.dtype)


def _outputs(g: Graph) -> list[Value]:
    """Every value that nothing reads; now and then another one, an input among them, or one fewer."""
    outputs = [v for v in g.values if v.name not in g.used and v not in g.inputs] or g.values[-1:]
    others = [v for v in g.values if v not in outputs]
    if others and g.chance(0.25):
        outputs.append(g.any(others))
    if len(outputs) > 1 and g.chance(0.15):
        outputs.pop(0)  # and what leads to it is dead
    return outputs


def _model(g: Graph, outputs: list[Value]) -> onnx.ModelProto:
    infos = [[_info(v, g.rows) for v in values] for values in (g.inputs, outputs)]
    graph = helper.make_graph(g.nodes, "random", *infos, g.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", g.opset)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def _info(value: Value, rows: bool) -> onnx.ValueInfoProto:
    shape = ("N", *value.shape[1:]) if rows else value.shape
    return helper.make_tensor_value_info(value.name, helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype)), shape)


def _options(g: Graph, kind: str) -> dict[str, Any]:
    more = g.any([{}, {}, {}, {"threads": 1}, {"threads": 3}, {"fusion": "none"}, {"accuracy": "exact"}])
    if kind == "special":  # Winograd's transforms spread them over a tile, as its option says
        return {**more, "accuracy": "exact"}
    if kind == "rows":
        shapes = {v.name: ("N", *v.shape[1:]) for v in g.inputs}
        return {**more, "shapes": shapes, "specialize": {"N": g.any([(1,), (1, 2), (4,)])}}
    if kind == "offload":
        return {**more, "offload": "systolic", "offload_options": {"when": "always"}}
    return more

"""Ensembles of trees as arrays: every row goes down all trees at once, a step for each level.

    node = x[feature[node]] <= split[node] ? left[node] : right[node]      as often as the deepest tree has levels
    score[row, target] = sum over trees of weight[node, target]

A leaf leads to itself, so that rows may arrive before the last step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import numpy_helper
from tvm import relax, te, tirx

from ....core.graph.relax_graph import dtype_of
from ...checks.refusal import Refusal
from ..base import Attributes, constant, emit, kernel, static_shape

#: What a node asks; the order is that of TreeEnsemble's numbers.
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
_ASKS: Sequence[Callable[[Any, Any], Any]] = (
    lambda x, s: x <= s, lambda x, s: x < s, lambda x, s: x >= s, lambda x, s: x > s, lambda x, s: x == s,
    lambda x, s: tirx.any(x < s, x > s, tirx.isnan(x)),  # NaN too, of which TVM has != false
)  # fmt: skip
#: Levels of a tree, each a part of one kernel; and elements of the table of weights.
_MOST_LEVELS, _MOST_WEIGHTS = 256, 1 << 26


@dataclass
class Forest:
    """Trees, their nodes one after the other.

    Attributes:
        roots: of each tree.
        features, splits, modes, lefts, rights: of each node; `lefts` are where its answer is yes.
        missing: whether the answer is yes for NaN.
        weights: of each node and target; NaN where a node, such as one that is no leaf, has none.
    """

    roots: np.ndarray
    features: np.ndarray
    splits: np.ndarray
    modes: np.ndarray
    lefts: np.ndarray
    rights: np.ndarray
    missing: np.ndarray
    weights: np.ndarray

    @property
    def lacks_weights(self) -> bool:
        """Whether a leaf has no weight of a target."""
        return bool(np.isnan(self.weights[self.lefts == np.arange(len(self.lefts))]).any())

    def __post_init__(self) -> None:
        """See that all nodes are whole, and lead to nodes that there are.

        Raises:
            Refusal: they are not.
        """
        count = len(self.modes)
        parts = (self.features, self.splits, self.lefts, self.rights, self.missing, self.weights)
        if any(len(part) != count for part in parts):
            raise Refusal(f"{count} nodes, of which attributes state {sorted({len(part) for part in parts})}")
        places = np.concatenate([self.roots, self.lefts, self.rights])
        if not len(self.roots) or ((places < 0) | (places >= count)).any():
            raise Refusal(f"{len(self.roots)} trees, and nodes that lead to some that there are not")

    @property
    def levels(self) -> int:
        """Steps to the deepest leaf.

        Raises:
            Refusal: a tree is too deep, or leads back to a node of its own.
        """
        level = np.unique(self.roots)
        for steps in range(_MOST_LEVELS):
            inner = level[(self.lefts[level] != level) | (self.rights[level] != level)]
            if not inner.size:
                return steps
            level = np.unique(np.concatenate([self.lefts[inner], self.rights[inner]]))
        raise Refusal(f"trees of more than {_MOST_LEVELS} levels, or whose nodes lead in a circle")


def numbered(attributes: Attributes, name: str) -> np.ndarray:
    """An attribute of integers."""
    return np.array(attributes.get(name, ()), np.int64)


def reals(attributes: Attributes, name: str) -> np.ndarray:
    """An attribute of floats, which may be a tensor `name`_as_tensor."""
    tensor = attributes.get(f"{name}_as_tensor", attributes.get(name))
    if hasattr(tensor, "data_type"):
        return np.asarray(numpy_helper.to_array(tensor)).reshape(-1)
    return np.array(attributes.get(name, ()), np.float32)


def forest(attributes: Attributes, kind: str, targets: int) -> Forest:
    """The trees of TreeEnsembleRegressor (`kind` "target") or TreeEnsembleClassifier ("class").

    Raises:
        Refusal: nodes that there are not, or weights of targets that there are not.
    """
    trees, nodes = numbered(attributes, "nodes_treeids"), numbered(attributes, "nodes_nodeids")
    place = {pair: i for i, pair in enumerate(zip(trees.tolist(), nodes.tolist(), strict=True))}
    own = np.arange(len(trees))
    names = [n.decode() if isinstance(n, bytes) else str(n) for n in attributes.get("nodes_modes", ())]
    leaf = np.array([n == "LEAF" for n in names])
    if unknown := [n for n in names if n not in MODES[:-1] and n != "LEAF"]:
        raise Refusal(f"nodes_modes {unknown[0]!r}; known are {', '.join(MODES[:-1])} and LEAF")
    ways = (enumerate(numbered(attributes, f"nodes_{side}nodeids")) for side in ("true", "false"))
    left, right = (np.array([i if leaf[i] else place.get((int(trees[i]), int(to)), -1) for i, to in w]) for w in ways)
    ids = zip(*(numbered(attributes, f"{kind}_{part}") for part in ("treeids", "nodeids", "ids")), strict=True)
    if len(trees) * targets > _MOST_WEIGHTS:
        raise Refusal(f"{len(trees)} nodes for {targets} targets; tables of up to {_MOST_WEIGHTS} weights work")
    weights = np.full((len(trees), targets), np.nan)
    for (tree, node, target), weight in zip(ids, reals(attributes, f"{kind}_weights"), strict=True):
        at = place.get((int(tree), int(node)), -1)
        if at < 0 or not 0 <= target < targets:
            raise Refusal(f"a weight of node {node} of tree {tree} for target {target} of {targets}")
        weights[at, target] = weight + (0 if np.isnan(weights[at, target]) else weights[at, target])
    first = np.setdiff1d(own, np.concatenate([left[~leaf], right[~leaf]]))  # what no node leads to
    missing = numbered(attributes, "nodes_missing_value_tracks_true")
    return Forest(
        first, numbered(attributes, "nodes_featureids"), reals(attributes, "nodes_values"),
        np.array([0 if n == "LEAF" else MODES.index(n) for n in names]), left, right,
        missing if missing.size else np.zeros(len(trees), np.int64), weights,
    )  # fmt: skip


# ------------------------------------------------------------ what is computed
def leaves(x: Any, trees: Forest) -> Any:
    """The leaf that each row (rows, features) arrives at in each tree: (rows, trees), int32."""
    rows, width = static_shape(x, "the rows")
    levels, dtype = trees.levels, dtype_of(x)
    if len(trees.features) and not 0 <= trees.features.min() <= trees.features.max() < width:
        raise Refusal(f"features up to {trees.features.max()} of rows of {width}")
    modes = sorted(set(trees.modes[trees.lefts != trees.rights].tolist())) or [0]
    parts = [trees.features, trees.lefts, trees.rights, trees.modes, trees.missing, trees.roots]
    arrays = [constant(part, "int32") for part in parts]
    asks_nan = bool(trees.missing.any())

    def compute(data: te.Tensor, split: te.Tensor, *tables: te.Tensor) -> te.Tensor:
        feature, left, right, mode, missing, root = tables

        def step(before: te.Tensor, name: str) -> te.Tensor:
            def element(n: Any, t: Any) -> Any:
                node = before(n, t)
                value, bound = data(n, feature(node)), split(node)
                answer = _ASKS[modes[-1]](value, bound)
                for number in modes[:-1]:
                    answer = tirx.Select(mode(node) == number, _ASKS[number](value, bound), answer)
                if asks_nan:
                    answer = tirx.any(answer, tirx.all(tirx.isnan(value), missing(node) == 1))
                return tirx.Select(answer, left(node), right(node))

            return te.compute((rows, len(trees.roots)), element, name=name)

        places = te.compute((rows, len(trees.roots)), lambda n, t: root(t), name="level0")
        for level in range(levels):
            places = step(places, f"level{level + 1}")
        return places

    return emit(kernel(compute, x, constant(trees.splits, dtype), *arrays, name="tree_ensemble"))


def aggregated(places: Any, trees: Forest, how: str, dtype: str) -> Any:
    """The sum, average, least or largest weight over trees of each target: (rows, targets); 0 where there is none."""
    table = trees.weights
    empty = {"SUM": 0.0, "AVERAGE": 0.0, "MIN": np.inf, "MAX": -np.inf}
    if how not in empty:
        raise Refusal(f"aggregate_function {how!r}; known are {', '.join(empty)}")
    used = np.unique(np.concatenate([np.flatnonzero(trees.lefts == np.arange(len(table))), trees.roots]))
    filled = constant(np.where(np.isnan(table), empty[how], table), dtype)
    picked = emit(relax.op.take(filled, places, 0, mode="wrap"))  # (rows, trees, targets)
    reduce = {"MIN": relax.op.min, "MAX": relax.op.max}.get(how, relax.op.sum)
    y = emit(reduce(picked, [1]))
    if how == "AVERAGE":
        y = emit(y / relax.const(float(len(trees.roots)), dtype))
    if how in ("MIN", "MAX") and np.isnan(table[used]).any():
        y = emit(relax.op.where(relax.op.isinf(y), relax.const(0.0, dtype), y))
    return y

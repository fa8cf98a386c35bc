"""TreeEnsembleRegressor, TreeEnsembleClassifier and TreeEnsemble: what becomes of the scores of trees."""

from typing import Any

import numpy as np
from tvm import relax

from ....core.graph.relax_graph import dtype_of
from ...checks.refusal import Refusal
from ..base import ML, Attributes, constant, converts, emit, scalar, text
from .features import floats
from .scores import TRANSFORMS, best_label, both, label_above, labels_of, post_transform, transformed
from .trees import MODES, Forest, aggregated, forest, leaves, numbered, reals


@converts("TreeEnsembleRegressor", ML)
def regressor(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """TreeEnsembleRegressor(x) -> (rows, targets) of float32; a single target is not transformed, as in onnxruntime."""
    targets = int(attributes.get("n_targets", 1))
    how = text(attributes, "aggregate_function", "SUM")
    trees, base = forest(attributes, "target", targets), reals(attributes, "base_values")
    y = _scores(inputs[0], trees, how, base)
    if base.size and targets > 1 and trees.lacks_weights:  # a target without any weight has no base either
        y = emit(relax.op.where(_has_weights(inputs[0], trees), y, scalar(0.0, y)))
    kind = post_transform(attributes)
    y = y if targets == 1 and kind != "PROBIT" else transformed(y, kind)
    return floats(y)


def _scores(x: Any, trees: Forest, how: str, base: np.ndarray) -> Any:
    """Aggregated weights of each target, in float64 where x is."""
    targets = trees.weights.shape[1]
    if base.size not in (0, targets):
        raise Refusal(f"{base.size} base_values for {targets} targets")
    dtype = "float64" if dtype_of(x) == "float64" else "float32"
    y = aggregated(leaves(x if dtype == "float64" else floats(x), trees), trees, how, dtype)
    return emit(y + constant(base, dtype)) if base.size else y


def _has_weights(x: Any, trees: Forest) -> Any:
    """(rows, targets), true where a row reaches a leaf with a weight of the target."""
    there = Forest(**{**trees.__dict__, "weights": np.where(np.isnan(trees.weights), 0.0, 1.0)})
    votes = _scores(x, there, "SUM", np.zeros(0))
    return emit(relax.op.greater(votes, scalar(0.0, votes)))


@converts("TreeEnsembleClassifier", ML)
def classifier(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """TreeEnsembleClassifier(x) -> label and scores of each row.

    Weights of one class alone, of two, give one score: the label is the second where it is above 1/2 if no weight is
    negative, else above 0. In all other cases it is that of the largest score, also of two classes, for which
    onnxruntime gives 0 or 1, whatever the labels are.
    """
    labels = labels_of(attributes, "classlabels_int64s")
    if labels.size < 2:
        raise Refusal(f"{labels.size} labels in 'classlabels_int64s'")
    trees, base = forest(attributes, "class", len(labels)), reals(attributes, "base_values")
    weighted = np.flatnonzero(~np.isnan(trees.weights).all(0))
    if len(labels) == 2:
        return _of_two(inputs[0], trees, base, weighted, labels, post_transform(attributes))
    scores = _scores(inputs[0], trees, "SUM", base)
    judged = scores
    if not base.size and trees.lacks_weights:  # a class without any weight is no candidate
        low = relax.const(-np.inf, dtype_of(scores))
        judged = emit(relax.op.where(_has_weights(inputs[0], trees), scores, low))
    return relax.Tuple([best_label(judged, labels), floats(transformed(scores, post_transform(attributes)))])


def _of_two(x: Any, trees: Forest, base: np.ndarray, weighted: np.ndarray, labels: np.ndarray, kind: str) -> Any:
    if base.size and (base.size > 1 or weighted.tolist() != [0]):
        raise Refusal("base_values of two classes: onnxruntime does not add them to their scores")
    if len(weighted) == 2:
        if trees.lacks_weights:
            raise Refusal("leaves with a weight of one of two classes: onnxruntime makes up the other score")
        scores = _scores(x, trees, "SUM", base)
        return relax.Tuple([best_label(scores, labels), floats(transformed(scores, kind))])
    single = Forest(**{**trees.__dict__, "weights": trees.weights[:, weighted]})
    score = _scores(x, single, "SUM", base)
    positive = not (np.nan_to_num(trees.weights) < 0).any()
    label = label_above(score, labels, 0.5 if positive else 0.0)
    if weighted.tolist() == [1]:
        zero = emit(relax.op.zeros_like(score))
        return relax.Tuple([label, floats(transformed(both(zero, score), kind))])
    return relax.Tuple([label, floats(of_one(score, kind, 1.0 if positive else 0.0))])


def of_one(score: Any, kind: str, whole: float) -> Any:
    """Scores of two classes of that of the second: its opposites' logistic, or what is left of `whole`."""
    if kind == "PROBIT":
        raise Refusal("post_transform 'PROBIT' of one score for two classes: onnxruntime leaves the other out")
    first = emit(scalar(0.0 if kind == "LOGISTIC" else whole, score) - score)
    return transformed(both(first, score), "LOGISTIC" if kind == "LOGISTIC" else "NONE")


# ------------------------------------------------------------ version 5
@converts("TreeEnsemble", ML)
def ensemble(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """TreeEnsemble(x) -> (rows, targets): inner nodes and leaves apart; a node may ask for membership in a set."""
    targets = int(attributes.get("n_targets", 1))
    how = ("AVERAGE", "SUM", "MIN", "MAX")[int(attributes.get("aggregate_function", 1))]
    y = _scores(inputs[0], _apart(attributes, targets), how, np.zeros(0))
    kind = TRANSFORMS[int(attributes.get("post_transform", 0))]
    return y if targets == 1 and kind != "PROBIT" else transformed(y, kind)


def _apart(attributes: Attributes, targets: int) -> Forest:
    """The trees with leaves behind inner nodes, and a chain of nodes for each one that asks for membership."""
    splits, modes = reals(attributes, "nodes_splits"), reals(attributes, "nodes_modes").astype(np.int64)
    features, inner = numbered(attributes, "nodes_featureids"), len(modes)
    weights, ids = reals(attributes, "leaf_weights"), numbered(attributes, "leaf_targetids")
    ways = []
    for side in ("true", "false"):
        to, is_leaf = (numbered(attributes, f"nodes_{side}{part}") for part in ("nodeids", "leafs"))
        if (to < 0).any() or (to >= np.where(is_leaf == 1, len(ids), inner)).any():
            raise Refusal(f"nodes_{side}nodeids leads to a node that there is not")
        ways.append(np.where(is_leaf == 1, inner + to, to))
    missing = numbered(attributes, "nodes_missing_value_tracks_true")
    missing = missing if missing.size else np.zeros(inner, np.int64)
    own = inner + np.arange(len(ids))
    table = np.full((inner + len(ids), targets), np.nan)
    if ids.size and not 0 <= ids.min() <= ids.max() < targets:
        raise Refusal(f"leaf_targetids up to {ids.max()} of {targets} targets")
    table[own, ids] = weights
    zeros = np.zeros(len(ids), np.int64)
    trees = Forest(
        numbered(attributes, "tree_roots"), np.concatenate([features, zeros]), np.concatenate([splits, zeros]),
        np.concatenate([modes, zeros]), np.concatenate([ways[0], own]), np.concatenate([ways[1], own]),
        np.concatenate([missing, zeros]), table,
    )  # fmt: skip
    return _without_members(trees, reals(attributes, "membership_values"))


def _without_members(trees: Forest, values: np.ndarray) -> Forest:
    """Each node that asks for membership as a chain of nodes that ask for one value each."""
    member, equal = MODES.index("BRANCH_MEMBER"), MODES.index("BRANCH_EQ")
    askers = np.flatnonzero(trees.modes == member)
    ends = np.flatnonzero(np.isnan(values))
    sets = [part[~np.isnan(part)] for part in np.split(values, ends)]
    if len(sets) < len(askers) or any(not part.size for part in sets[: len(askers)]):
        wrong = f"{len(askers)} nodes ask for membership, and there are {len(sets)} sets"
        raise Refusal(f"{wrong}, none of which may be empty")
    for asker, members in zip(askers, sets, strict=False):
        count, more = len(trees.modes), len(members) - 1
        chain = np.concatenate([[asker], count + np.arange(more)])
        last = trees.rights[asker]
        trees.modes[asker] = equal
        for name in ("features", "splits", "modes", "lefts", "rights", "missing"):
            array = getattr(trees, name)
            setattr(trees, name, np.concatenate([array, np.full(more, array[asker], array.dtype)]))
        trees.weights = np.concatenate([trees.weights, np.full((more, trees.weights.shape[1]), np.nan)])
        trees.splits[chain] = members
        trees.rights[chain] = [*chain[1:], last]
    return trees

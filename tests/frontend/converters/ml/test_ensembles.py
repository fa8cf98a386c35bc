"""Ensembles of random trees against onnxruntime."""

from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from tests.frontend.converters.microsoft.cases import agree, built, case, rng_of, typed
from tests.frontend.graphs import imported
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.core.errors import UnsupportedError

ML = "ai.onnx.ml"
TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]
FEATURES, ROWS = 7, 50


class Trees:
    """Random trees as attributes of TreeEnsembleRegressor and TreeEnsembleClassifier."""

    def __init__(self, rng: np.random.Generator, trees: int, depth: int, modes: list[str], missing: bool) -> None:
        self.rng, self.modes, self.leaves = rng, modes, [(0, 0)][:0]
        self.parts: dict[str, list[Any]] = {f"nodes_{n}": [] for n in (
            "treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
            "missing_value_tracks_true")}  # fmt: skip
        self.missing = missing
        for tree in range(trees):
            self._grow(tree, 0, depth, 1)

    def _grow(self, tree: int, node: int, depth: int, free: int) -> int:
        """Add a node and all below it; returns the next free number."""
        leaf = depth == 0 or (node and self.rng.random() < 0.25)
        left, right = (0, 0) if leaf else (free, free + 1)
        value = 0.0 if leaf else float(np.float32(np.round(self.rng.normal(), 1)))
        mode = "LEAF" if leaf else str(self.rng.choice(self.modes))
        tracks = int(self.missing and self.rng.random() < 0.5)
        row = [tree, node, int(self.rng.integers(FEATURES)), value, mode, left, right, tracks]
        for column, entry in zip(self.parts.values(), row, strict=True):
            column.append(entry)
        if leaf:
            self.leaves.append((tree, node))
            return free
        free = self._grow(tree, left, depth - 1, free + 2)
        return self._grow(tree, right, depth - 1, free)

    def weighted(self, kind: str, ids: list[int], low: float = -1.0) -> dict[str, Any]:
        """All attributes, each leaf with a weight of each of these targets."""
        at = [(tree, node, i) for tree, node in self.leaves for i in ids]
        names = [f"{kind}_{part}" for part in ("treeids", "nodeids", "ids")]
        weights = self.rng.uniform(low, 1, len(at)).astype(np.float32).tolist()
        return {
            **self.parts,
            **dict(zip(names, map(list, zip(*at, strict=True)), strict=True)),
            f"{kind}_weights": weights,
        }


def rows(rng: np.random.Generator, dtype: str = "float32", missing: bool = False) -> np.ndarray:
    """Some lie on a split, which are multiples of a tenth, too."""
    x = np.where(rng.random((ROWS, FEATURES)) < 0.3, np.round(rng.normal(size=(ROWS, FEATURES)), 1),
                 rng.normal(size=(ROWS, FEATURES)))  # fmt: skip
    x = np.where(rng.random(x.shape) < 0.2, np.nan, x) if missing else x
    return x.astype(dtype)


MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_a_target_without_a_weight_has_no_base(how: str) -> None:
    rng = rng_of(21)
    trees = Trees(rng, 3, 2, MODES, False)
    parts = trees.weighted("target", [0])
    parts["target_ids"] = [int(i) for i in rng.integers(0, 3, len(parts["target_ids"]))]
    more = {"n_targets": 3, "base_values": [0.5, -0.25, 0.125], "aggregate_function": how}
    agree("TreeEnsembleRegressor", case(rows(rng), **parts, **more), domain=ML)


@pytest.mark.parametrize(
    ("how", "modes", "missing"),
    [("SUM", MODES[:1], False), ("AVERAGE", MODES, True), ("MIN", MODES, False), ("MAX", MODES[:1], True),
     ("SUM", MODES, True)],
)  # fmt: skip
def test_regressors(how: str, modes: list[str], missing: bool) -> None:
    rng = rng_of(1, len(modes), missing)
    trees = Trees(rng, 13, 5, modes, missing)
    more: dict[str, Any] = {"n_targets": 3, "aggregate_function": how}
    parts = trees.weighted("target", [0, 1, 2])
    agree(
        "TreeEnsembleRegressor",
        case(rows(rng, missing=missing), **parts, **more, base_values=[0.5, -0.25, 0.125]),
        case(rows(rng, "float64"), **parts, **more),
        domain=ML, atol=1e-5,
    )  # fmt: skip


def test_rows_of_integers() -> None:
    """onnxruntime takes floats only: they are the same numbers."""
    rng = rng_of(8)
    parts, x = Trees(rng, 5, 4, MODES, False).weighted("target", [0]), rng.integers(-2, 3, (ROWS, FEATURES))
    parts["n_targets"] = 1
    wanted = onnxruntime_outputs(*built("TreeEnsembleRegressor", [case(np.float32(x), **parts)], ML)).values()
    agree("TreeEnsembleRegressor", case(x, **parts), domain=ML, wanted=list(wanted), atol=1e-5)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_of_a_regressor(transform: str) -> None:
    rng = rng_of(2)
    trees = Trees(rng, 5, 4, MODES[:1], False)
    two, one = trees.weighted("target", [0, 1]), trees.weighted("target", [0])
    agree("TreeEnsembleRegressor", case(rows(rng), **two, n_targets=2, post_transform=transform),
          case(rows(rng), **one, n_targets=1, post_transform=transform), domain=ML, atol=1e-5)  # fmt: skip


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_classifiers(transform: str) -> None:
    rng = rng_of(3)
    trees = Trees(rng, 9, 4, MODES[:1], False)
    many, some = trees.weighted("class", [0, 1, 2, 3]), trees.weighted("class", [1, 3])
    labels: dict[str, Any] = {"classlabels_int64s": [5, 3, 9, 11], "post_transform": transform}
    agree(
        "TreeEnsembleClassifier",
        case(rows(rng), **many, **labels, outputs=2),
        case(rows(rng), **many, **labels, base_values=[0.5, -0.25, 0.125, 1.0], outputs=2),
        case(rows(rng), **some, **labels, outputs=2),
        domain=ML, atol=1e-5,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("transform", "low"), [*((transform, 0.0) for transform in TRANSFORMS), ("NONE", -1.0), ("LOGISTIC", -1.0)]
)
def test_classifiers_of_one_score(transform: str, low: float) -> None:
    rng = rng_of(4, int(low < 0))
    trees = Trees(rng, 1, 4, MODES[:1], False)
    labels: dict[str, Any] = {"classlabels_int64s": [5, 3], "post_transform": transform}
    first, second = trees.weighted("class", [0], low), trees.weighted("class", [1], low)
    agree(
        "TreeEnsembleClassifier",
        case(rows(rng), **first, **labels, outputs=2),
        case(rows(rng), **first, **labels, base_values=[0.125], outputs=2),
        case(rows(rng), **second, **labels, outputs=2),
        domain=ML, atol=1e-5, varied=False,
    )  # fmt: skip


def test_quantiles_of_scores() -> None:
    """Near one half sqrt(h^2 - l) - h of h = 4.3 is half the square of the quantile q, in steps of a float of 4.3:
    4.8e-7 / q of the quantile, 2.4e-4 of the least one here, 0.002, in onnxruntime as here."""
    rng, more = rng_of(8), {"post_transform": "PROBIT"}
    trees = Trees(rng, 3, 4, MODES[:1], False)
    two, one = trees.weighted("target", [0, 1], 0.0), trees.weighted("target", [0], 0.0)
    agree("TreeEnsembleRegressor", case(rows(rng), **two, n_targets=2, aggregate_function="AVERAGE", **more),
          case(rows(rng), **one, n_targets=1, **more), domain=ML, atol=2.5e-4)  # fmt: skip
    labels = {"classlabels_int64s": [5, 3, 9]}
    agree("TreeEnsembleClassifier", case(rows(rng), **trees.weighted("class", [0, 1, 2], 0.0), **labels, **more,
          outputs=2), domain=ML, atol=2.5e-4)  # fmt: skip


def test_the_quantile_of_one_score_is_refused() -> None:
    parts = Trees(rng_of(4, 0), 1, 2, MODES[:1], False).weighted("class", [0])
    node = case(rows(rng_of(6)), **parts, classlabels_int64s=[5, 3], post_transform="PROBIT", outputs=2)
    with pytest.raises(UnsupportedError, match="'PROBIT' of one score"):
        results = {"y0_0": np.zeros(ROWS, np.int64), "y0_1": np.zeros((ROWS, 2), np.float32)}
        imported(typed(built("TreeEnsembleClassifier", [node], ML)[0], results))


def test_two_classes_with_scores_of_their_own() -> None:
    """The label is ONNX's; onnxruntime gives 0 or 1 by the sign of the second score."""
    rng = rng_of(5)
    parts = Trees(rng, 5, 4, MODES[:1], False).weighted("class", [0, 1])
    x = rows(rng)
    labels: dict[str, Any] = {"classlabels_int64s": [5, 3]}
    node = case(x, **parts, **labels, outputs=2)
    _, scores = onnxruntime_outputs(*built("TreeEnsembleClassifier", [node], ML)).values()
    agree("TreeEnsembleClassifier", node, domain=ML, wanted=[np.where(scores[:, 1] > scores[:, 0], 3, 5), scores],
          atol=1e-5)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inner_nodes_and_leaves_apart(dtype: str) -> None:
    """Version 5: two trees; one asks for membership."""
    rng = rng_of(6)
    tensors = {
        "nodes_splits": np.array([0.5, 0.0, -0.25, 1.0], dtype), "nodes_modes": np.uint8([0, 6, 3, 5]),
        "leaf_weights": np.array([1.0, 10.0, 100.0, 1000.0, -5.0, 0.25, 7.0], dtype),
        "membership_values": np.array([1.0, 2.0, -4.0, np.nan], dtype),
    }  # fmt: skip
    parts: dict[str, Any] = {name: numpy_helper.from_array(x, name) for name, x in tensors.items()}
    parts |= {"tree_roots": [0, 3], "nodes_featureids": [0, 2, 1, 3], "n_targets": 2, "aggregate_function": 1,
              "nodes_truenodeids": [1, 0, 2, 4], "nodes_trueleafs": [0, 1, 1, 1], "nodes_falsenodeids": [2, 1, 3, 5],
              "nodes_falseleafs": [0, 1, 1, 1], "leaf_targetids": [0, 1, 0, 1, 0, 1, 0]}  # fmt: skip
    x = rows(rng, dtype)
    x[:, 2] = rng.choice([1.0, 2.0, -4.0, 3.0], ROWS)  # onnxruntime asks of whole numbers only
    agree("TreeEnsemble", case(x, **parts), domain=ML)


CIRCLE = {
    "nodes_treeids": [0] * 4, "nodes_nodeids": [0, 1, 2, 3], "nodes_featureids": [0] * 4,
    "nodes_values": [0.0] * 4, "nodes_modes": [*["BRANCH_LEQ"] * 3, "LEAF"], "nodes_truenodeids": [1, 2, 1, 0],
    "nodes_falsenodeids": [3, 3, 3, 0], "target_treeids": [0], "target_nodeids": [3], "target_ids": [0],
    "target_weights": [1.0],
}  # fmt: skip


@pytest.mark.parametrize(
    ("damage", "text"),
    [(CIRCLE, "lead in a circle"), ({"nodes_falsenodeids": [9, 0, 0]}, "lead to some that there are not"),
     ({"nodes_featureids": [0]}, r"state \[1, 3\]"),
     ({"nodes_featureids": [FEATURES, 0, 0]}, "features up to 7 of rows of 7"),
     ({"target_ids": [0, 3]}, "for target 3 of 1"), ({"base_values": [1.0, 2.0]}, "2 base_values for 1 targets"),
     ({"nodes_modes": ["BRANCH_UP", "LEAF", "LEAF"]}, "BRANCH_UP"), ({"target_nodeids": [1, 5]}, "a weight of node 5")],
)  # fmt: skip
def test_damaged_trees_are_refused(damage: dict[str, list[Any]], text: str) -> None:
    parts: dict[str, Any] = {
        "nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0] * 3, "nodes_values": [0.0] * 3,
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0],
    }  # fmt: skip
    node = case(rows(rng_of(9)), **{**parts, **damage})
    with pytest.raises(UnsupportedError, match=text):
        imported(built("TreeEnsembleRegressor", [node], ML, "float32")[0])

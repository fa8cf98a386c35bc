"""What detectors do with their boxes and scores behind the network, as exporters write it, against onnxruntime."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvm_ext
from tests.frontend.graphs import run_onnxruntime
from tests.onnx_graphs import model, node, value

I64 = TensorProto.INT64
BOXES, CLASSES = 12, 3
WEIGHTS: dict[str, Any] = {
    "each": np.array([5]), "overlap": np.array([0.4], np.float32), "low": np.array([0.3], np.float32),
    "zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), "three": np.array([3]), "first": np.array(0),
    "most": np.array([4]), "spread": np.array(10, np.float32), "minus": np.array([-1]),
}  # fmt: skip
#: NonMaxSuppression over classes, boxes and scores of what it selects, and the best four of them by their scores.
SELECTED = [
    node("NonMaxSuppression", "boxes scores each overlap low", "selected"),
    node("Slice", "selected two three one", "column"), node("Squeeze", "column one", "places"),
    node("Squeeze", "boxes zero", "image"), node("Gather", "image places", "kept_boxes"),
    node("Transpose", "scores", "scores_by_place", perm=[0, 2, 1]),
    node("Gather", "selected order", "selected_by_place", axis=1),
    node("GatherND", "scores_by_place selected_by_place", "kept_scores"),
    node("Shape", "kept_scores", "there"), node("Concat", "there most", "both", axis=0),
    node("ReduceMin", "both", "k", axes=[0], keepdims=1), node("TopK", "kept_scores k", "best ranks"),
    node("Gather", "kept_boxes ranks", "best_boxes"), node("Slice", "selected one two one", "class_column"),
    node("Squeeze", "class_column one", "classes"), node("Gather", "classes ranks", "best_classes"),
    node("Pad", "kept_boxes behind", "padded_boxes"), node("ArgMax", "padded_boxes", "widest", axis=0),
]  # fmt: skip
#: Boxes of scores above a threshold, moved apart by their classes, suppressed together, and the first four of them.
FILTERED = [
    node("Squeeze", "scores zero", "by_class"), node("ReduceMax", "by_class", "top", axes=[0], keepdims=0),
    node("ArgMax", "by_class", "label", axis=0, keepdims=0), node("Greater", "top low", "is_high"),
    node("NonZero", "is_high", "high"), node("Squeeze", "high zero", "high_places"),
    node("Squeeze", "boxes zero", "image"), node("Gather", "image high_places", "high_boxes"),
    node("NonZero", "is_high", "high_again"), node("Transpose", "high_again", "high_rows", perm=[1, 0]),
    node("GatherND", "top high_rows", "high_scores"), node("Gather", "label high_places", "high_labels"),
    node("Cast", "high_labels", "offsets", to=TensorProto.FLOAT), node("Mul", "offsets spread", "apart"),
    node("Unsqueeze", "apart one", "apart_rows"), node("Add", "high_boxes apart_rows", "moved"),
    node("Unsqueeze", "moved zero", "nms_boxes"), node("Unsqueeze", "high_scores zero_one", "nms_scores"),
    node("NonMaxSuppression", "nms_boxes nms_scores all overlap", "selected"),
    node("Gather", "selected two", "column", axis=1), node("Squeeze", "column one", "keep"),
    node("Slice", "keep zero most zero", "first_few"), node("Gather", "high_boxes first_few", "final_boxes"),
    node("Gather", "high_scores first_few", "final_scores"), node("Gather", "high_labels first_few", "final_labels"),
    node("Softmax", "final_scores", "shares", axis=0), node("CumSum", "shares first", "cumulated"),
]  # fmt: skip
TAILS: dict[str, tuple[list[onnx.NodeProto], dict[str, int]]] = {
    "selected": (SELECTED, {"best": 1, "best_boxes": 1, "best_classes": I64, "widest": I64, "kept_boxes": 1}),
    "filtered": (FILTERED, {"final_boxes": 1, "final_scores": 1, "final_labels": I64, "cumulated": 1}),
}


def drawn(seed: int, level: float) -> dict[str, np.ndarray]:
    """Boxes of which some overlap; scores, of which as many as the level says are above the threshold."""
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 6, (1, BOXES, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(1, 3, (1, BOXES, 2))], 2).astype(np.float32)
    return {"boxes": boxes, "scores": rng.uniform(0, level, (1, CLASSES, BOXES)).astype(np.float32)}


@pytest.mark.parametrize("name", TAILS)
def test_they_make_what_onnxruntime_makes(name: str) -> None:
    nodes, outputs = TAILS[name]
    more = {"behind": np.array([0, 0, 1, 0]), "order": np.array([0, 2, 1]), "zero_one": np.array([0, 1])}
    inputs = [value("boxes", [1, BOXES, 4]), value("scores", [1, CLASSES, BOXES])]
    weights = {**WEIGHTS, **more, "all": np.array([BOXES])}
    proto = model(nodes, inputs, [value(n, None, kind) for n, kind in outputs.items()], weights)
    program, counts = tvm_ext.compile(proto, cache=False, threads=1), set()
    for seed, level in enumerate((0.2, 0.305, 0.32, 0.35, 0.4, 0.5, 1, 1, 1)):
        feeds = drawn(seed, level)
        results = program.run(feeds)
        for (output, mine), reference in zip(results.items(), run_onnxruntime(proto, feeds), strict=True):
            assert (mine.shape, mine.dtype) == (reference.shape, reference.dtype), output
            np.testing.assert_allclose(mine, reference, rtol=2e-6, err_msg=output)
        counts.add(len(results[next(iter(outputs))]))
    assert {0, 4} < counts  # nothing, all that are asked for, and less

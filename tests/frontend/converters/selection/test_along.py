"""What works along an axis whose size values decide, or by such indices, against onnxruntime with every count."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvm_ext
from tests.frontend.graphs import imported, run_onnxruntime
from tests.onnx_graphs import model, node, value
from tvm_ext.core.errors import UnsupportedError
from tvm_ext.runtime.model import CompiledModel

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
ROWS = 7
#: c: rows of x (7, 3); i: their numbers, first as indices of 7 rows, then from the end; w: whole numbers with ties.
BEFORE = [
    node("Compress", "x keep", "c", axis=0), node("Transpose", "c", "ct", perm=[1, 0]),
    node("Compress", "ties keep", "w", axis=0),
    node("NonZero", "keep", "nz"), node("Transpose", "nz", "t"), node("Squeeze", "nz zero", "i"),
    node("Sub", "t seven", "tback"), node("Compress", "mixed keep", "ranks", axis=0),
    node("Sub", "i seven", "iback"), node("Expand", "t three_wide", "wide"),
    node("CumSum", "ones_c first", "up"), node("Cast", "w", "wi", to=I64), node("Greater", "c half", "gt"),
]  # fmt: skip
WEIGHTS: dict[str, Any] = {
    "zero": np.array([0]), "seven": np.array([7]), "first": np.array(0), "second": np.array(1), "two": np.array([2]),
    "five": np.array([5]), "table": np.arange(28, dtype=np.float32).reshape(7, 4), "half": np.array(0.1, np.float32),
    "three_wide": np.array([1, 3]), "pads": np.array([2, 0, 1, 0]), "side": np.array([0, 1, 0, 2]),
    "thrice": np.array([3, 1]), "broader": np.array([1, 2]), "pad_value": np.array(4.5, np.float32),
    "scale": np.array([1, 2, 3], np.float32), "bias": np.array([0.5, 0, 1], np.float32),
    "mixed": np.arange(ROWS), "columns": np.array([[2], [0], [1]]), "parts": np.array([1, 2]),
    "sevens": np.arange(21, dtype=np.float32).reshape(7, 3), "line": np.arange(7, dtype=np.float32),
    "one": np.array([1]), "minus": np.array([-1]), "pick": np.array([0, -1]), "corner": np.array([[0, 1], [-1, -1]]),
    "some": np.array([[0, -1, 0]]), "ones": np.ones((7, 1), np.int64), "minus_one": np.array(-1),
}  # fmt: skip
BEFORE.insert(0, node("Compress", "ones keep", "ones_c", axis=0))
OF_ANY = [
    node("Softmax", "c", "softmax", axis=0), node("Softmax", "c", "softmax_rows", axis=1),
    node("LogSoftmax", "ct", "log_softmax", axis=-1), node("Hardmax", "w", "hardmax", axis=0),
    node("CumSum", "c first", "sums"), node("CumSum", "c first", "sums_back", reverse=1, exclusive=1),
    node("CumSum", "c second", "sums_rows"), node("LayerNormalization", "c scale bias", "normed", axis=-1),
    node("Pad", "c pads pad_value", "padded"), node("Pad", "c side", "padded_sides"),
    node("Tile", "c thrice", "tiled"), node("Tile", "c broader", "tiled_rows"),
    node("ArgMax", "c", "best_columns", axis=1), node("TopK", "c two", "top_columns top_columns_i", axis=1),
    node("Split", "c parts", "left right", axis=1), node("Where", "gt c sum_of", "chosen"),
    node("TopK", "ct count", "all_down all_down_i", axis=1, largest=0),
    node("TopK", "wi count", "all_up all_up_i", axis=0),
    node("Gather", "table i", "rows"), node("Gather", "table iback", "rows_back"),
    node("Gather", "c ups", "again", axis=0), node("Gather", "ct ups_back", "again_back", axis=1),
    node("GatherND", "c upt", "again_nd"), node("GatherElements", "c all_i", "sorted", axis=0),
    node("GatherElements", "sevens wide", "elements", axis=0),
    node("NonZero", "gt", "where"), node("NonZero", "w", "where_w"), node("Compress", "c column_gt", "fewer", axis=0),
    node("Compress", "table keep2", "by_mask", axis=0),
    node("ScatterND", "line t values", "placed"), node("ScatterND", "sevens t c", "placed_rows"),
    node("ScatterND", "line tback values", "added", reduction="add"),
    node("ScatterElements", "sevens wide c", "scattered", axis=0),
    node("ScatterElements", "sevens wide c", "most", axis=0, reduction="max"),
    node("ScatterElements", "c upt_back w", "turned", axis=0),
]  # fmt: skip
BETWEEN = [
    node("Add", "c c", "sum_of"), node("Shape", "c", "count", end=1), node("Sub", "up ones_c", "upt"),
    node("Squeeze", "upt one", "ups"), node("Sub", "ups count", "ups_back"),
    node("TopK", "c count", "unused all_i", axis=0), node("Sub", "upt count", "upt_back"),
    node("Gather", "gt first", "column_gt", axis=1), node("Not", "keep", "keep2"),
    node("Gather", "c second", "values", axis=1), node("Reshape", "w minus", "flat"),
]  # fmt: skip
#: What onnxruntime has no result of where there is nothing.
OF_SOME = [
    node("ArgMax", "w", "largest", axis=0), node("ArgMax", "w", "last", axis=0, select_last_index=1),
    node("ArgMin", "ct", "least", axis=1, keepdims=0), node("ArgMin", "flat", "least_flat", axis=0, keepdims=0),
    node("Gather", "c pick", "ends"), node("Gather", "c minus_one", "end"), node("GatherND", "c corner", "corners"),
    node("GatherElements", "c some", "some_of"),
]  # fmt: skip


def compiled(nodes: list[onnx.NodeProto]) -> tuple[onnx.ModelProto, CompiledModel]:
    """A model of nodes behind BEFORE and BETWEEN, with all their outputs."""
    integers = ("_i", "best_columns", "where", "largest", "last", "least", "least_flat", "where_w", "all_up")
    names = [name for each in nodes for name in each.output]
    outputs = [value(n, None, I64 if n.endswith("_i") or n in integers else F32) for n in names]
    inputs = [value("x", [ROWS, 3]), value("ties", [ROWS, 1])]
    proto = model([*BEFORE, *BETWEEN, *nodes], [*inputs, value("keep", [ROWS], BOOL)], outputs, WEIGHTS)
    return proto, tvm_ext.compile(proto, cache=False, threads=1)


def agree(proto: onnx.ModelProto, program: CompiledModel, feeds: dict[str, Any]) -> None:
    for (name, mine), reference in zip(program.run(feeds).items(), run_onnxruntime(proto, feeds), strict=True):
        assert (mine.shape, mine.dtype) == (reference.shape, reference.dtype), name
        np.testing.assert_allclose(mine, reference, rtol=2e-6, atol=1e-6, err_msg=name)


def feeds_of(count: int) -> dict[str, Any]:
    rng = np.random.default_rng(count)
    x = rng.standard_normal((ROWS, 3)).astype(np.float32)
    keep = rng.permutation(np.arange(ROWS) < count)
    x[~keep] = np.array([1e9, -1e9, 7], np.float32)  # what is left out is not small
    return {"x": x, "ties": rng.integers(-2, 2, (ROWS, 1)).astype(np.float32), "keep": keep}


@pytest.mark.parametrize("nodes", [OF_ANY, OF_SOME], ids=["any", "some"])
def test_they_make_what_onnxruntime_makes(nodes: list[onnx.NodeProto]) -> None:
    proto, program = compiled(nodes)
    for count in range(0 if nodes is OF_ANY else 1, ROWS + 1):
        agree(proto, program, feeds_of(count))


def test_k_may_be_an_attribute() -> None:
    """Before opset 10."""
    nodes = [node("Compress", "x keep", "c", axis=0), node("TopK", "c", "high high_i", axis=0, k=2)]
    inputs = [value("x", [ROWS, 3]), value("keep", [ROWS], BOOL)]
    proto = model(nodes, inputs, [value("high", None), value("high_i", None, I64)], opset=9)
    program = tvm_ext.compile(proto, cache=False, threads=1)
    for count in range(2, ROWS + 1):
        feeds = feeds_of(count)
        agree(proto, program, {name: feeds[name] for name in ("x", "keep")})


def test_the_first_k_of_fewer_are_all() -> None:
    """Of which onnxruntime has no result; nothing is not a number of what is left out."""
    _, program = compiled([node("TopK", "c five", "low low_i", axis=0, largest=0)])
    for count in range(ROWS + 1):
        feeds = feeds_of(count)
        feeds["x"][0, 1] = np.nan
        rows = feeds["x"][feeds["keep"]]
        order = np.argsort(rows, axis=0, kind="stable")[:5]
        low, places = program.run(feeds).values()
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(low, np.take_along_axis(rows, order, 0))


@pytest.mark.parametrize(
    "last",
    [
        node("LayerNormalization", "c scale_c bias_c", "y", axis=0), node("Split", "c parts", "y z", axis=0),
        node("Pad", "c pads", "y", mode="reflect"), node("Gather", "c other_i", "y", axis=1),
        node("ScatterND", "line t others", "y"), node("Unique", "c", "y", axis=0),
        node("NonMaxSuppression", "boxes_c scores five", "y"),
    ],
    ids=lambda last: last.op_type,
)  # fmt: skip
def test_what_has_no_such_form_is_refused(last: onnx.NodeProto) -> None:
    others = [node("NonZero", "ties", "other_nz"), node("Gather", "other_nz one", "other_2"),
              node("Squeeze", "other_2 zero", "other_i"), node("Gather", "line other_i", "others"),
              node("Compress", "boxes keep", "boxes_c", axis=1)]  # fmt: skip
    inputs = [value("x", [ROWS, 3]), value("ties", [ROWS, 1]), value("keep", [ROWS], BOOL),
              value("boxes", [1, ROWS, 4]), value("scores", [1, 1, ROWS])]  # fmt: skip
    wide = {"scale_c": np.ones((1, 3), np.float32), "bias_c": np.ones((1, 3), np.float32)}
    kind = I64 if last.op_type == "NonMaxSuppression" else F32
    proto = model([*BEFORE, *others, last], inputs, [value("y", None, kind)], {**WEIGHTS, **wide})
    with pytest.raises(UnsupportedError, match=rf"'{last.name}'.*at most"):
        imported(proto)

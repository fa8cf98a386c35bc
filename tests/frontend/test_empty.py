"""Nodes over no elements, and slices whose start is behind their end: numpy's results, none of them by chance."""

from typing import Any

import numpy as np
import pytest

from tests.frontend.converters.typed import compiled
from tests.frontend.graphs import node
from tvm_ext.core.errors import UnsupportedError


def empty(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape, dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, "int64")


ROWS = np.arange(12).reshape(3, 4)
#: operator, operands, which of them are known, attributes, opset, result; of the type of the first operand.
CASES: list[tuple[str, list[Any], str, dict[str, Any], int, Any]] = [
    ("Expand", [np.ones((1, 4)), ints(0, 4)], "b", {}, 13, empty(0, 4)),
    ("Expand", [empty(0, 1), ints(3, 0, 4)], "b", {}, 13, empty(3, 0, 4)),
    ("Tile", [np.ones((1, 4)), ints(0, 1)], "b", {}, 13, empty(0, 4)),
    ("Tile", [empty(0, 4), ints(3, 2)], "b", {}, 13, empty(0, 8)),
    ("TopK", [ROWS, ints(0)], "b", {}, 11, empty(3, 0)),
    ("Pad", [empty(0, 2), ints(1, 0, 2, 0)], "b", {}, 13, np.zeros((3, 2))),
    ("Pad", [np.ones((3, 2)), ints(-2, 0, -1, 0)], "b", {}, 13, empty(0, 2)),
    ("Concat", [empty(0, 4), ROWS], "", {"axis": 0}, 13, ROWS),
    ("Concat", [ROWS, empty(3, 0)], "b", {"axis": 1}, 13, ROWS),
    ("Gather", [ROWS, empty(0, dtype="int64")], "", {}, 13, empty(0, 4)),
    ("GatherND", [ROWS, empty(0, 1, dtype="int64")], "", {}, 13, empty(0, 4)),
    ("ScatterND", [ROWS, empty(0, 1, dtype="int64"), empty(0, 4)], "", {}, 16, ROWS),
    ("ScatterND", [ROWS, empty(2, 0, 2, dtype="int64"), empty(2, 0)], "b", {"reduction": "add"}, 16, ROWS),
    ("ScatterElements", [ROWS, empty(0, 4, dtype="int64"), empty(0, 4)], "", {"axis": 1}, 16, ROWS),
    ("Scatter", [ROWS, empty(0, 4, dtype="int64"), empty(0, 4)], "", {"axis": 1}, 9, ROWS),
    ("DepthToSpace", [empty(0, 4, 2, 2)], "", {"blocksize": 2}, 13, empty(0, 1, 4, 4)),
    ("SpaceToDepth", [empty(0, 4, 2, 2)], "", {"blocksize": 2}, 13, empty(0, 16, 1, 1)),
    ("CumSum", [empty(3, 0), ints(0).reshape(())], "b", {}, 14, empty(3, 0)),
    ("Transpose", [empty(0, 4)], "", {}, 13, empty(4, 0)),
]
FLOAT_CASES: list[tuple[str, list[Any], str, dict[str, Any], int, Any]] = [
    ("Resize", [empty(0, 1, 3, 3), None, np.float32([1, 1, 2, 2])], "c", {}, 13, empty(0, 1, 6, 6)),
    ("Resize", [empty(1, 1, 0, 3), None, np.float32([1, 1, 2, 2])], "c", {"mode": "linear"}, 13, empty(1, 1, 0, 6)),
    ("Resize", [np.ones((1, 1, 3, 3)), None, None, ints(1, 1, 0, 6)], "d", {"mode": "cubic"}, 13, empty(1, 1, 0, 6)),
    ("Upsample", [empty(0, 1, 3, 3), np.float32([1, 1, 2, 2])], "b", {}, 9, empty(0, 1, 6, 6)),
    ("MaxPool", [empty(0, 2, 4, 4)], "", {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1}, 12,
     empty(0, 2, 2, 2)),
    ("GlobalAveragePool", [empty(1, 2, 0, 3)], "", {}, 13, np.full((1, 2, 1, 1), np.nan)),
    ("ReduceMean", [empty(3, 0, 2)], "", {"axes": [1], "keepdims": 0}, 13, np.full((3, 2), np.nan)),
    ("GlobalMaxPool", [empty(1, 2, 0, 3)], "", {}, 13, np.full((1, 2, 1, 1), -np.inf)),
    ("Hardmax", [empty(3, 0)], "", {}, 13, empty(3, 0)),
    ("LayerNormalization", [empty(0, 3), np.ones(3)], "", {}, 17, empty(0, 3)),
    ("RoiAlign", [np.ones((1, 1, 4, 4)), empty(0, 4), empty(0, dtype="int64")], "", {}, 16, empty(0, 1, 1, 1)),
    ("RNN", [empty(3, 1, 0), empty(1, 2, 0), np.ones((1, 2, 2))], "", {"hidden_size": 2}, 14, np.zeros((3, 1, 1, 2))),
    ("LSTM", [empty(0, 2, 3), np.ones((1, 8, 3)), np.ones((1, 8, 2))], "", {"hidden_size": 2}, 14, empty(0, 1, 2, 2)),
]  # fmt: skip


def named(case: Any) -> str:
    return f"{case[0]}-{'-'.join(str(getattr(operand, 'shape', '')) for operand in case[1])}"


def check(case: Any, dtype: str) -> None:
    op_type, operands, known, attributes, opset, wanted = case
    arrays = {}
    for name, operand in zip("abcd", operands, strict=False):
        if operand is not None:
            scales = op_type in ("Resize", "Upsample") and name in known
            kept = scales or (operand.dtype == np.int64 and operand is not ROWS)
            arrays[name] = operand if kept else operand.astype(dtype)
    names = [name if name in arrays else "" for name in "abcd"[: len(operands)]]
    outputs = {"y": dtype, "i": "int64"} if op_type == "TopK" else {"y": dtype}
    weights = {name: arrays.pop(name) for name in known}
    got = compiled([node(op_type, names, list(outputs), **attributes)], arrays, outputs, opset, weights)["y"]
    np.testing.assert_array_equal(got, wanted.astype(dtype))
    assert got.shape == wanted.shape


def in_two_types(cases: list[Any], *others: str) -> list[Any]:
    """Each in float32 and in one of the others, in turn."""
    return [pytest.param(c, ("float32", others[i % len(others)]), id=named(c)) for i, c in enumerate(cases)]


@pytest.mark.parametrize(
    ("case", "dtypes"),
    [*in_two_types(CASES, "int64", "float64", "int32", "float16"),
     *in_two_types(FLOAT_CASES, "float16", "float64", "float64")],
)  # fmt: skip
def test_operators(case: Any, dtypes: tuple[str, str]) -> None:
    for dtype in dtypes:
        check(case, dtype)


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
def test_nothing_to_pick(op_type: str) -> None:
    with pytest.raises(UnsupportedError, match=r"node .*ArgM.*nothing to pick"):
        compiled([node(op_type, ["x"], ["y"], axis=0)], {"x": empty(0, 4)}, {"y": "int64"}, 13)
    (got,) = compiled([node(op_type, ["x"], ["y"], axis=1)], {"x": empty(0, 4)}, {"y": "int64"}, 13).values()
    assert got.shape == (0, 1)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_nothing_to_repeat(mode: str) -> None:
    pads = {"p": ints(1, 0, 1, 0)}
    with pytest.raises(UnsupportedError, match=r"node .*Pad.*nothing to repeat"):
        compiled([node("Pad", ["x", "p"], ["y"], mode=mode)], {"x": empty(0, 4)}, {"y": "float32"}, 19, pads)
    got = compiled(
        [node("Pad", ["x", "p"], ["y"], mode=mode)], {"x": np.ones((2, 0), "f4")}, {"y": "float32"}, 19, pads
    )
    assert got["y"].shape == (4, 0)


def test_an_empty_list_of_axes_is_no_empty_operand() -> None:
    x = np.float32([[1, 2], [3, 6]])
    feeds, weights = {"x": x}, {"a": ints()}
    got = compiled([node("ReduceMean", ["x", "a"], ["y"], keepdims=0)], feeds, {"y": "float32"}, 18, weights)["y"]
    assert got == 3


@pytest.mark.parametrize(("dtype", "start", "end", "step"), [
    *(("float32", *of) for of in (
        (7, 3, 1), (0, 5, -1), (-1, -5, 1), (3, 3, 1), (20, 30, 1), (2, 7, -2), (5, -100, 2), (-100, 100, 3),
        (100, -100, -3), (8, -10, -1), (8, -11, -1), (-2, -9, -4))),
    *((dtype, *of) for dtype in ("float16", "int64") for of in ((7, 3, 1), (2, 7, -2), (8, -11, -1), (-2, -9, -4))),
])  # fmt: skip
def test_slices_as_python_makes_them(dtype: str, start: int, end: int, step: int) -> None:
    x = np.arange(20).reshape(2, 10).astype(dtype)
    weights = {"s": ints(start), "e": ints(end), "a": ints(-1), "t": ints(step)}
    opset = 10 if dtype == "int64" else 13
    got = compiled([node("Slice", ["x", *"seat"], ["y"])], {"x": x}, {"y": dtype}, opset, weights)["y"]
    np.testing.assert_array_equal(got, x[:, start:end:step])
    if step == 1:
        got = compiled([node("Slice", ["x"], ["y"], axes=[1], starts=[start], ends=[end])], {"x": x}, {"y": dtype}, 9)
        np.testing.assert_array_equal(got["y"], x[:, start:end])


def test_what_comes_behind_an_empty_slice() -> None:
    x = np.arange(12, dtype="float32").reshape(3, 4)
    weights = {"s": ints(2), "e": ints(1), "a": ints(0)}
    nodes = [node("Slice", ["x", "s", "e"], ["z"]), node("Concat", ["z", "x"], ["y"], axis=0)]
    nodes += [node("ReduceSum", ["z", "a"], ["t"], keepdims=0)]
    got = compiled(nodes, {"x": x}, {"y": "float32", "t": "float32"}, 13, weights)
    np.testing.assert_array_equal(got["y"], x)
    np.testing.assert_array_equal(got["t"], np.zeros(4))

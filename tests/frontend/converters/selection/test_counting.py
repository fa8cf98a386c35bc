"""Operators of which values decide how much they make, against onnxruntime, numpy, and by what nobody else does."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvm_ext
from tests.frontend.graphs import imported, run_onnxruntime
from tests.onnx_graphs import model, node, value
from tvm_ext.core.errors import UnsupportedError
from tvm_ext.runtime.model import CompiledModel

Array = np.ndarray
Draw = Callable[[np.random.Generator, int], Array]
F32, I64 = TensorProto.FLOAT, TensorProto.INT64


def whole(*shape: int, dtype: str = "float32") -> Draw:
    """Whole numbers of which many are equal; by the second argument all are 0, or none is."""

    def draw(rng: np.random.Generator, kind: int) -> Array:
        values = np.asarray(rng.integers(0, 4, shape) if kind > 1 else np.full(shape, kind))
        signs = rng.choice([-1, 1], shape) if dtype == "float32" else 1
        return np.asarray(values * signs, dtype)

    return draw


def boxes(count: int) -> Draw:
    """Corners in any order, on a grid, so that boxes touch, are equal, and are empty."""
    return lambda rng, kind: rng.integers(0, 4, (2, count, 4)).astype(np.float32)


def scores(count: int) -> Draw:
    """With ties."""
    return lambda rng, kind: (rng.integers(0, 6, (2, 3, count)) / 6).astype(np.float32)


SOME = {"most": np.array([3]), "many": np.array([100]), "none": np.array([0]), "less": np.array([-1]),
        "half": np.array([0.5], np.float32), "low": np.array([0.2], np.float32)}  # fmt: skip
#: Operator, attributes, inputs that are drawn, further ones, and outputs.
CASES: tuple[tuple[str, dict[str, Any], tuple[Draw, ...], str, int], ...] = (
    ("NonZero", {}, (whole(3, 1, 4),), "", 1),
    ("NonZero", {}, (whole(9, dtype="bool"),), "", 1),
    ("Unique", {}, (whole(3, 5),), "", 4),
    ("Unique", {"sorted": 0}, (whole(19, dtype="int64"),), "", 4),
    ("Unique", {"axis": 0}, (whole(9, 2),), "", 4),
    ("Unique", {"axis": -2, "sorted": 0}, (whole(2, 7, 1),), "", 4),
    ("Unique", {"axis": 1}, (lambda rng, kind: np.zeros((0, 3), np.float32),), "", 4),
    ("Compress", {"axis": -1}, (whole(2, 7), whole(5, dtype="bool")), "", 1),
    ("Compress", {}, (whole(2, 3, dtype="int64"), whole(9, dtype="bool")), "", 1),
    ("NonMaxSuppression", {}, (boxes(11), scores(11)), " most half low", 1),
    ("NonMaxSuppression", {"center_point_box": 1}, (boxes(7), scores(7)), " many half", 1),
    ("NonMaxSuppression", {}, (boxes(6), scores(6), lambda rng, kind: np.array([kind])), "", 1),
    ("NonMaxSuppression", {}, (boxes(4), scores(4)), " less", 1),
    ("NonMaxSuppression", {}, (boxes(4), scores(4)), "", 1),
)


def drawn(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    draws = {f"x{at}_{i}": draw for at, case in enumerate(CASES) for i, draw in enumerate(case[2])}
    return {name: draw(rng, seed) for name, draw in draws.items()}


def dtype_of(op: str, number: int, x: Array) -> int:
    own = op == "Compress" or (op == "Unique" and number == 0)
    return int(helper.np_dtype_to_tensor_dtype(x.dtype)) if own else int(I64)


@pytest.fixture(scope="module")
def all_cases() -> tuple[onnx.ModelProto, CompiledModel]:
    """A model with the nodes of all CASES, compiled."""
    feeds, nodes, outputs = drawn(0), [], []
    for at, (op, attributes, draws, more, count) in enumerate(CASES):
        names = [f"y{at}_{i}" for i in range(count)]
        inputs = " ".join(f"x{at}_{i}" for i in range(len(draws)))
        nodes.append(node(op, inputs + more, " ".join(names), **attributes))
        outputs += [value(name, None, dtype_of(op, i, feeds[f"x{at}_0"])) for i, name in enumerate(names)]
    inputs = [value(name, x.shape, helper.np_dtype_to_tensor_dtype(x.dtype)) for name, x in feeds.items()]
    proto = model(nodes, inputs, outputs, SOME)
    return proto, tvm_ext.compile(proto, cache=False, threads=1)


@pytest.mark.parametrize("seed", range(12))
def test_they_make_what_onnxruntime_makes(seed: int, all_cases: Any) -> None:
    proto, program = all_cases
    feeds = drawn(seed)
    for (name, mine), reference in zip(program.run(feeds).items(), run_onnxruntime(proto, feeds), strict=True):
        assert (mine.shape, mine.dtype) == (reference.shape, reference.dtype), name
        np.testing.assert_array_equal(mine, reference, err_msg=name)
        assert mine.flags.c_contiguous and mine.flags.writeable


def ours(op: str, feeds: Mapping[str, Array], outputs: int = 1, **attributes: Any) -> list[Array]:
    inputs = [value(name, x.shape, helper.np_dtype_to_tensor_dtype(x.dtype)) for name, x in feeds.items()]
    kinds = [dtype_of(op, number, next(iter(feeds.values()))) for number in range(outputs)]
    ys = [value(f"y{number}", None, kind) for number, kind in enumerate(kinds)]
    proto = model([node(op, " ".join(feeds), " ".join(y.name for y in ys), **attributes)], inputs, ys)
    return list(tvm_ext.compile(proto, cache=False, threads=1).run(feeds).values())


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint64"])
def test_unique_has_one_nan_and_one_zero_and_keeps_large_numbers(dtype: str) -> None:
    """As numpy: onnxruntime takes NaN for equal to everything, and has no unsigned numbers."""
    if dtype == "uint64":
        x = np.array([2**64 - 1, 3, 2**63, 0, 2**64 - 1, 2**63 - 1], dtype)
    else:
        x = np.array([np.nan, 3, -np.inf, -0.0, np.nan, 0, np.inf, 3, -1], dtype)
    outputs, first, inverse, counts = ours("Unique", {"x": x}, 4)
    for mine, reference in zip((outputs, first, counts), _of_numpy(x), strict=True):
        np.testing.assert_array_equal(mine, reference)
    np.testing.assert_array_equal(outputs[inverse], x)


def _of_numpy(x: Array) -> tuple[Array, Array, Array]:
    values, first, counts = np.unique(x, return_index=True, return_counts=True)
    return values, first, counts


def test_non_zero_of_what_is_no_number_and_of_nothing() -> None:
    for number in (0, 3):  # a scalar has no coordinates; ONNX says so, and folds do it
        assert ours("NonZero", {"x": np.array(number, np.float32)})[0].shape == (0, int(number != 0))
    (output,) = ours("NonZero", {"x": np.array([np.nan, -0.0, 1e-45, 0, -np.inf], np.float32)})
    np.testing.assert_array_equal(output, [[0, 2, 4]])
    assert ours("NonZero", {"x": np.zeros((0, 3), np.float32)})[0].shape == (2, 0)


@pytest.mark.parametrize("shape", [(1, 13, 0), (0, 1), (0,)])
@pytest.mark.parametrize("known", [False, True])
def test_nothing_is_picked_from_nothing(shape: tuple[int, ...], known: bool) -> None:
    for axis in (None, 0):
        keep = np.zeros(min(3, shape[0] if axis == 0 else 3), bool)
        nodes = [node("Compress", "x keep", "y", **({} if axis is None else {"axis": axis})), node("Unique", "x", "u")]
        fed = [] if known else [value("keep", keep.shape, TensorProto.BOOL)]
        proto = model(
            nodes, [value("x", shape), *fed], [value("y", None), value("u", None)], {"keep": keep} if known else {}
        )
        feeds = {"x": np.zeros(shape, np.float32), **({} if known else {"keep": keep})}
        y, u = tvm_ext.compile(proto, cache=False, threads=1).run(feeds).values()
        assert y.shape == ((0,) if axis is None else (0, *shape[1:])) and u.shape == (0,)


PLACES = [node("NonZero", "x", "nz"), node("Transpose", "nz", "t"), node("NonZero", "other", "nz2")]
#: Output -> its node, and type.
CARRIED = {
    "v": (node("GatherND", "x t", "v"), F32), "w": (node("Mul", "v v", "w"), F32),
    "f": (node("Cast", "nz", "f", to=F32), F32), "a": (node("Add", "f column", "a"), F32),
    "r": (node("Gather", "nz one", "r"), I64), "p": (node("Gather", "row r", "p"), F32),
    "u": (node("Unsqueeze", "r one", "u"), I64), "i": (node("Identity", "u", "i"), I64),
}  # fmt: skip
WEIGHTS = {"one": np.array([1]), "column": np.array([[1], [2]], np.float32), "row": np.arange(5, dtype=np.float32)}


def test_what_works_element_by_element_may_stand_behind() -> None:
    nodes = [*PLACES[:2], *(behind for behind, _ in CARRIED.values())]
    outputs = [value("t", None, I64), *(value(name, None, kind) for name, (_, kind) in CARRIED.items())]
    proto = model(nodes, [value("x", [2, 5])], outputs, WEIGHTS)
    program = tvm_ext.compile(proto, cache=False, threads=1)
    assert len({dim for spec in program.outputs for dim in spec.shape if isinstance(dim, str)}) == 1
    for kind in (0, 1, 2, 3):
        feeds = {"x": whole(2, 5)(np.random.default_rng(kind), kind)}
        for mine, reference in zip(program.run(feeds).values(), run_onnxruntime(proto, feeds), strict=True):
            np.testing.assert_array_equal(mine, reference)
            assert mine.dtype == reference.dtype


@pytest.mark.parametrize(
    "last",
    [
        node("Add", "nz nz2", "y"), node("Concat", "nz nz2", "y", axis=0), node("Squeeze", "nz", "y"),
    ],
    ids=lambda last: last.op_type,
)  # fmt: skip
def test_what_does_more_is_refused(last: onnx.NodeProto) -> None:
    proto = model([*PLACES, last], [value("x", [2, 5]), value("other", [2, 5])], [value("y", None, I64)], WEIGHTS)
    with pytest.raises(UnsupportedError, match=rf"'{last.name}'.*at most 10.*'nonzero_nz' \(NonZero\)"):
        imported(proto)


def test_a_step_of_a_loop_has_one_size() -> None:
    body = helper.make_graph(
        [helper.make_node("NonZero", ["s"], ["z"]), helper.make_node("Identity", ["go"], ["on"]),
         helper.make_node("Add", ["s", "s"], ["t"])],
        "body", [value("i", [], I64), value("go", [], TensorProto.BOOL), value("s", [4])],
        [value("on", [], TensorProto.BOOL), value("t", [4]), value("z", None, I64)],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["n", "", "x"], ["last", "all"], "loop", body=body)
    proto = model([loop], [value("x", [4])], [value("last", [4]), value("all", None, I64)], {"n": np.array(10_000)})
    with pytest.raises(UnsupportedError, match="'z' of a step of a loop"):
        tvm_ext.compile(proto, cache=False)

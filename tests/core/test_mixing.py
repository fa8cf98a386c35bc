"""Which axes of run-time size an anchor mixes: what the rows of the operator table say of it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tvm import relax, tirx

from tests.schedules.any_size import symbols, with_extents
from tests.schedules.kernels import make_group
from tvm_ext.core.group import Group
from tvm_ext.core.mixing import mixes_symbolic

N, S = symbols("NS")
op = relax.op


def take(table: Any, indices: Any) -> Any:
    """The one operator here of an operand of integers."""
    return op.take(table, indices, axis=0)


def group(shapes: Sequence[Sequence[Any]], result: Sequence[Any], call: Callable[..., Any]) -> Group:
    """A group of one call; sizes of shapes that are symbols are 8 at most."""
    bounds = [tuple(d if isinstance(d, int) else 8 for d in shape) for shape in shapes]
    types = ["float32", "int64"] if call is take else ["float32"] * len(bounds)
    params = [relax.Var("p", relax.TensorType(*tensor)) for tensor in zip(bounds, types, strict=True)]

    def body(*operands: Any) -> Any:
        yield call(*operands)

    anchor = str(call(*params).op.name)
    return with_extents(make_group(anchor, bounds, body, dtype=types), *shapes, result)


KEPT = {
    "rows of a matmul": ([(N, S, 4), (4, 6)], (N, S, 6), op.matmul),
    "scores of queries and keys": ([(N, 2, S, 4), (N, 2, 4, S)], (N, 2, S, S), op.matmul),
    "softmax of rows": ([(N, S, 4)], (N, S, 4), lambda x: op.nn.softmax(x, -1)),
    "mean of rows": ([(N, S, 4)], (N, S), lambda x: op.mean(x, -1)),
    "batch of a convolution": ([(N, 4, 9, 9), (6, 4, 3, 3)], (N, 6, 7, 7), op.nn.conv2d),
    "batch of a pool": ([(N, 4, 9, 9)], (N, 4, 8, 8), lambda x: op.nn.max_pool2d(x, (2, 2))),
    "beside one another": ([(N, S, 4), (N, S, 2)], (N, S, 6), lambda x, y: op.concat([x, y], axis=2)),
    "a slice of columns": ([(N, 8)], (N, 3), lambda x: op.strided_slice(x, [1], [2], [5])),
    "looked up by rows": ([(9, 4), (N, S)], (N, S, 4), take),
    "padded columns": ([(N, 8)], (N, 9), lambda x: op.nn.pad(x, (0, 0, 0, 1))),
    "normalized rows": ([(N, S, 4), (4,), (4,)], (N, S, 4), lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1])),
}
MIXED = {
    "the sum of a matmul": ([(2, 4, S), (2, S, 6)], (2, 4, 6), op.matmul, 2),
    "softmax of keys": ([(N, 4, S)], (N, 4, S), lambda x: op.nn.softmax(x, -1), 2),
    "mean of rows": ([(N, S, 4)], (N, 4), lambda x: op.mean(x, 1), 1),
    "all": ([(4, S)], (), op.sum, 1),
    "an image": ([(N, 4, S, 9), (6, 4, 3, 3)], (N, 6, S - 2, 7), op.nn.conv2d, 2),
    "a pool": ([(N, 4, 9, S)], (N, 4, 8, S - 1), lambda x: op.nn.avg_pool2d(x, (2, 2)), 3),
    "one behind the other": ([(N, S, 4), (N, 2, 4)], (N, S + 2, 4), lambda x, y: op.concat([x, y], axis=1), 1),
    "a slice of rows": ([(N, S, 4)], (N, S - 1, 4), lambda x: op.strided_slice(x, [1], [1], [8]), 1),
    "picked rows": ([(S, 4), (3,)], (3, 4), take, 0),
    "padded rows": ([(N, S)], (N, S + 1), lambda x: op.nn.pad(x, (0, 0, 0, 1)), 1),
    "normalized over rows": ([(4, S), (S,), (S,)], (4, S), lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]), 1),
    "keys of attention": ([(2, 8, 2, 4), (2, S, 2, 4), (2, S, 2, 4)], (2, 8, 2, 4), op.nn.attention, 1),
}


@pytest.mark.parametrize("case", KEPT)
def test_an_axis_that_is_kept(case: str) -> None:
    assert mixes_symbolic(group(*KEPT[case])) is None


@pytest.mark.parametrize("case", MIXED)
def test_an_axis_that_is_mixed(case: str) -> None:
    *call, axis = MIXED[case]
    why = mixes_symbolic(group(*call))
    assert why is not None and f"over axis {axis}" in why


def test_known_sizes_are_not_asked() -> None:
    static = make_group("relax.mean", [(4, 8)], lambda x: (yield op.mean(x, 1)))
    assert static.extents is None and mixes_symbolic(static) is None
    assert static.extent(static.params[0], 1) == 8


def test_extents_are_as_wide_as_indices() -> None:
    abs_group = group([(N, 4)], (N * 2, 4), op.abs)
    assert abs_group.extent(abs_group.params[0], 1) == 4 and abs_group.extent(None, 0).ty.dtype == "int32"
    assert isinstance(abs_group.extent(abs_group.params[0], 0), tirx.Min)

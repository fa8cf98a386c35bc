"""Forms against numpy's own broadcasting: every element of every matrix lies where the form says."""

import itertools

import numpy as np
import pytest

from tvm_ext.byoc.region import Value
from tvm_ext.byoc.systolic.lowering.matrices import Form, conv2d_form, matmul_forms
from tvm_ext.byoc.systolic.lowering.operands import View
from tvm_ext.core.errors import ProgramError

FORMS = [*matmul_forms((2, 3, 4, 5)), *matmul_forms((4, 5)), conv2d_form((2, 6, 3, 4), 1), conv2d_form((2, 6, 3, 4), 3)]


def matrices(array: np.ndarray, form: Form) -> np.ndarray:
    """The tensor, broadcast, as [batch, rows, columns]."""
    split = np.broadcast_to(array, form.shape).reshape(form.split)
    order = (*form.batch, *form.rows, *form.cols)
    return split.transpose(order).reshape(form.size(form.batch), form.size(form.rows), form.size(form.cols))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_views_that_broadcast(form: Form) -> None:
    """All ways to leave an axis out; where there is no such matrix, an error says so."""
    views = 0
    for kept in itertools.product((True, False), repeat=len(form.shape)):
        shape = tuple(size if keep else 1 for size, keep in zip(form.shape, kept, strict=True))
        array = np.arange(int(np.prod(shape))).reshape(shape)
        try:
            matrix = form.matrix(View.of(Value("x", shape, "float32")))
        except ProgramError as error:
            assert "no load walks through it" in error.message
            continue
        views += 1
        wanted = matrices(array, form)
        result = [[[matrix.at(b, r, c) for c in range(wanted.shape[2])] for r in range(wanted.shape[1])]
                 for b in range(wanted.shape[0])]  # fmt: skip
        np.testing.assert_array_equal(result, wanted)
    assert views >= 4


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_rows(form: Form) -> None:
    for kept in itertools.product((True, False), repeat=len(form.shape)):
        shape = tuple(size if keep else 1 for size, keep in zip(form.shape, kept, strict=True))
        array = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
        row, wanted = form.row(array), matrices(array, form)
        if row is None:
            assert (wanted != wanted[:, :1]).any()
            continue
        turns = row.reshape(-1, wanted.shape[2])
        for batch, matrix in enumerate(wanted):
            np.testing.assert_array_equal(matrix, np.broadcast_to(turns[batch % len(turns)], matrix.shape))


def test_what_is_no_row() -> None:
    form = matmul_forms((4, 5))[1]
    assert form.row(np.ones((3, 4, 5), np.float32)) is None
    assert form.row(np.ones(4, np.float32)) is None
    with pytest.raises(ProgramError, match=r"x: float32\[3\] does not broadcast to \[4, 5\]"):
        form.matrix(View.of(Value("x", (3,), "float32")))
    with pytest.raises(ProgramError, match="does not broadcast"):
        form.matrix(View.of(Value("x", (1, 4, 5), "float32")))


def test_views() -> None:
    view = View.of(Value("x", (2, 3, 4), "float32"))
    assert view.permuted((2, 0, 1)).strides == (1, 12, 4)
    assert view.reshaped((6, 4)).strides == (4, 1)
    assert View.of(Value("x", (2, 1, 4), "float32")).permuted((1, 0, 2)).reshaped((8,)).strides == (1,)
    with pytest.raises(ProgramError, match="transposed and then reshaped"):
        view.permuted((1, 0, 2)).reshaped((24,))

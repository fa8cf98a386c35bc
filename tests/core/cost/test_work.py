"""Operations of a group, counted by closed forms."""

import pytest
from tvm import relax

from tests.schedules.kernels import make_group
from tvm_ext.core.cost.work import bytes_of, flops_of, read_in_part


def flops(op, shapes, constants=(), anchor="elementwise"):
    def body(*args):
        yield op(*args)

    return flops_of(make_group(anchor, list(shapes), body, list(constants)))


def conv(groups=1, strides=1, padding=0):
    return lambda x, w: relax.op.nn.conv2d(x, w, strides=strides, padding=padding, groups=groups)


@pytest.mark.parametrize(
    ("op", "shapes", "expected"),
    [
        (conv(padding=1), [(2, 3, 7, 11), (5, 3, 3, 3)], 2 * (2 * 5 * 7 * 11) * (3 * 9)),
        (conv(strides=2), [(1, 3, 7, 11), (5, 3, 3, 3)], 2 * (5 * 3 * 5) * (3 * 9)),
        (conv(groups=3), [(1, 6, 5, 5), (9, 2, 1, 1)], 2 * (9 * 25) * 2),
        (conv(groups=6, padding=1), [(1, 6, 5, 5), (6, 1, 3, 3)], 2 * (6 * 25) * 9),  # depthwise
        (lambda a, b: relax.op.matmul(a, b), [(7, 13), (13, 5)], 2 * 7 * 5 * 13),
        (lambda a, b: relax.op.matmul(a, b), [(3, 7, 13), (3, 13, 5)], 2 * 3 * 7 * 5 * 13),
        (lambda a, b: relax.op.add(a, b), [(3, 37), (37,)], 3 * 37),
        (lambda x: relax.op.nn.max_pool2d(x, (3, 3), (2, 2)), [(1, 4, 9, 9)], 4 * 4 * 4 * 9),
        (lambda x: relax.op.mean(x, [2, 3]), [(1, 4, 9, 7)], 4 * 9 * 7),  # each element is read once
    ],
)
def test_sums_of_products_count_twice_and_others_once(op, shapes, expected):
    assert flops(op, shapes) == expected


@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_convolution_meets_each_weight_with_each_input(groups):
    def op(x, w):
        return relax.op.nn.conv2d_transpose(x, w, strides=2, groups=groups)

    assert flops(op, [(1, 4, 5, 7), (4, 6 // groups, 3, 3)]) == 2 * (4 * 5 * 7) * (6 // groups * 9)


@pytest.mark.parametrize("mask", [(), ((2, 3, 5, 11),)])
def test_attention_is_two_products_whose_head_sizes_may_differ(mask):
    shapes = [(2, 5, 3, 8), (2, 11, 3, 8), (2, 11, 3, 4), *mask]  # batch, sequence, heads, size
    scores, sums = 2 * (2 * 3 * 5 * 11) * 8, 2 * (2 * 3 * 5 * 11) * 4
    assert flops(lambda q, k, v, *bias: relax.op.nn.attention(q, k, v, *bias), shapes) == scores + sums


def test_an_epilogue_counts_too():
    def body(x, w, b):
        y = yield relax.op.matmul(x, w)
        z = yield relax.op.add(y, b)
        yield relax.op.nn.relu(z)

    group = make_group("relax.matmul", [(7, 13), (13, 5), (5,)], body, [1, 2])
    assert flops_of(group) == 2 * 7 * 5 * 13 + 7 * 5 + 7 * 5
    assert read_in_part(group) == {} and bytes_of(group.result) == 4 * 7 * 5


def test_of_a_table_only_the_rows_that_are_taken_count():
    def body(table, at):
        yield relax.op.take(table, at, axis=0)

    group = make_group("relax.take", [(1000, 8), (5,)], body, [0], "int64")
    assert read_in_part(group) == {0: 8 * 5 * 8}


@pytest.mark.parametrize(("dtype", "size"), [("int8", 1), ("float16", 2), ("float64", 8)])
def test_bytes_follow_the_dtype(dtype, size):
    assert bytes_of(relax.Var("x", relax.TensorType((37,), dtype))) == 37 * size

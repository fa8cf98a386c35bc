"""Operations and bytes of operators, groups and kernels, by closed forms."""

from __future__ import annotations

import pytest
from tvm import relax

from tests.schedules.kernels import make_group
from tvm_ext.inspection.work import NOTHING, Work, total, work_of_call, work_of_group, work_of_kernels


def normalized(call):
    return relax.BlockBuilder().normalize(call)


def var(name, shape, dtype="float32"):
    return relax.Var(name, relax.TensorType(shape, dtype))


def test_a_matmul_reads_both_operands_and_writes_its_result():
    call = normalized(relax.op.matmul(var("a", (7, 13)), var("b", (13, 5))))
    assert work_of_call(call) == Work(2 * 7 * 13 * 5, 4 * (7 * 13 + 13 * 5 + 7 * 5))


def test_what_moves_values_does_no_operation():
    joined = normalized(relax.op.concat([var("a", (1, 3)), var("b", (1, 4))], axis=1))
    assert work_of_call(joined) == Work(0, 4 * 2 * (3 + 4))


def test_of_a_table_only_the_rows_that_are_taken_count():
    rows = normalized(relax.op.take(var("table", (1000, 8), "int64"), var("at", (5,), "int64"), axis=0))
    assert work_of_call(rows) == Work(0, 8 * (5 * 8 + 5 + 5 * 8))

    def body(table, at):
        yield relax.op.take(table, at, axis=0)

    group = make_group("relax.take", [(1000, 8), (5,)], body, [0], "int64")
    assert work_of_group(group) == work_of_call(rows)


def test_a_group_is_read_and_written_once():
    def body(x, w, b):
        y = yield relax.op.matmul(x, w)
        z = yield relax.op.add(y, b)
        yield relax.op.nn.relu(z)

    group = make_group("relax.matmul", [(3, 8), (8, 5), (5,)], body, [1, 2])
    assert work_of_group(group) == Work(2 * 3 * 8 * 5 + 15 + 15, 4 * (24 + 40 + 5 + 15))


def test_what_is_not_known_stays_unknown():
    assert total([Work(1, 2), Work(3, 4)]) == Work(4, 6)
    assert total([Work(1, 2), Work(None, 4)]) == Work(None, 6)
    assert total([]) == NOTHING
    assert Work(8, 2).intensity == 4 and Work(None, 2).intensity is None and Work(8, 0).intensity is None
    report = {"kernels": [{"name": "a", "flops": 8.0, "bytes": 2}, {"name": "older"}]}
    assert work_of_kernels(report) == {"a": Work(8.0, 2), "older": Work(None, None)}


@pytest.mark.parametrize("dtype", ["int8", "float16", "float64"])
def test_bytes_follow_the_dtype(dtype):
    size = {"int8": 1, "float16": 2, "float64": 8}[dtype]
    assert work_of_call(normalized(relax.op.nn.relu(var("x", (37,), dtype)))) == Work(37, 2 * 37 * size)

"""Take against numpy: every axis, indices out of bounds, epilogues, refusals."""

from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.group import CONSTANTS, GROUP, Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.recipes.take import Take

from ..kernels import make_group, random, run_kernel

RECIPE = Take()


def take_group(
    data: Any, indices: Any, axis: int | None, mode: str = "wrap", dtype: str = "float32", kind: str = "int64",
    extra: Any = None,
) -> Group:  # fmt: skip
    """take(data, indices) [+ extra], as grouping writes it."""
    shapes = [(data, dtype), (indices, kind), *([(extra, dtype)] if extra is not None else [])]
    params = [relax.Var(f"p{i}", relax.TensorType(s, d)) for i, (s, d) in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("g", params):
        with builder.dataflow():
            taken = relax.op.take(params[0], params[1], axis, mode=mode)
            result = taken if extra is None else relax.op.add(builder.emit(taken), params[2])
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    function = builder.get()["g"].with_attr({GROUP: "relax.take", CONSTANTS: []})
    return Group("g", function)


#: (data, indices, axis)
PICKS: list[Any] = [
    ((13, 24), (1, 7), 0), ((3, 7, 2, 19), (2, 2), -3), ((17,), (), 0), ((13, 37), (2, 3), 0), ((5, 1), (4,), 0),
    ((3, 7, 33), (5,), 1), ((4, 9), (6,), -1), ((4, 9, 16), (), 1), ((17,), (5,), None), ((30, 384), (3, 64), 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "indices", "axis", "kind"), [*((*of, "int64") for of in PICKS), *((*of, "int32") for of in PICKS[:3])]
)
def test_picks_rows(
    data: Any, indices: Any, axis: int | None, kind: str, case_machine: Machine, rng: np.random.Generator
) -> None:
    rows = data[axis or 0]
    at = rng.integers(-rows, rows, indices).astype(kind)
    table = random(rng, *data)
    got = run_kernel(RECIPE, take_group(data, indices, axis, kind=kind), [table, at], case_machine)
    np.testing.assert_array_equal(got, np.take(table, at, axis))


@pytest.mark.parametrize("mode", ["wrap", "clip"])
def test_no_index_leaves_the_table(mode: str, machine: Machine, rng: np.random.Generator) -> None:
    at = np.array([-1, 5, 1 << 40, -(1 << 62), 3, 4], np.int64)
    table = random(rng, 5, 18)
    got = run_kernel(RECIPE, take_group(table.shape, at.shape, 0, mode), [table, at], machine)
    inside = at % 5 if mode == "wrap" else np.clip(at, 0, 4)
    np.testing.assert_array_equal(got, table[inside])


@pytest.mark.parametrize("dtype", ["float64", "int64", "int8", "uint8", "float16"])
def test_any_dtype(dtype: str, rng: np.random.Generator) -> None:
    table, at = rng.integers(0, 2, (6, 21)).astype(dtype), np.array([[5, 0], [-6, 2]])
    got = run_kernel(RECIPE, take_group(table.shape, at.shape, 0, dtype=dtype), [table, at], Machine.detect())
    np.testing.assert_array_equal(got, table[at])


@pytest.mark.parametrize("extra", [(1, 7, 24), (24,), (1, 7, 1)])
def test_epilogue(extra: Any, case_machine: Machine, rng: np.random.Generator) -> None:
    table, at, other = random(rng, 13, 24), rng.integers(0, 13, (1, 7)), random(rng, *extra)
    got = run_kernel(RECIPE, take_group((13, 24), (1, 7), 0, extra=extra), [table, at, other], case_machine)
    np.testing.assert_array_equal(got, table[at] + other)


@pytest.mark.parametrize("index", [0, -1])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_one_fixed_row(index: int, shape: Any, case_machine: Machine, rng: np.random.Generator) -> None:
    def body(x: Any) -> Any:
        yield relax.op.take(x, relax.const(np.full(shape, index, "int64"), "int64"), 1, mode="wrap")

    x = random(rng, 3, 5, 18)
    got = run_kernel(RECIPE, make_group("relax.take", [x.shape], body), [x], case_machine)
    np.testing.assert_array_equal(got, np.take(x, np.full(shape, index), 1))


def test_one_thread_for_few_rows_and_all_for_many() -> None:
    machine = Machine.detect(None, 2)
    for rows, threads in ((4, 1), (4096, 2)):
        match = RECIPE.match(take_group((100, 384), (rows,), 0), machine)
        assert RECIPE.default(match, machine) == {"threads": threads}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("group", "reason"),
    [(take_group((5, 4), (3,), 0, "fast"), "foreign memory"), (take_group((5, 0), (3,), 0), "empty")],
)
def test_refuses(group: Group, reason: str) -> None:
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and reason in miss.reason

"""Concatenation along axes of run-time sizes: each operand behind what is in use of those before."""

from collections.abc import Sequence

import numpy as np
import pytest
from tvm import relax

from tests.schedules.any_size import AnySize, symbols, with_extents
from tests.schedules.kernels import make_group, random
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.passes.tir.partial_stores import without_copy
from tvm_ext.schedules.recipes.concat import Concat, ConcatAnySize


def group_of(shapes: Sequence[Sequence[int]], axis: int) -> object:
    def body(*params: relax.Var) -> object:
        value = yield relax.op.concat(list(params), axis)
        yield relax.op.nn.relu(value)

    return make_group("relax.concat", shapes, body)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("axis", "rest"), [(1, 16), (1, 7), (0, 8), (2, 6)])
def test_operands_of_run_time_sizes(axis: int, rest: int, threads: int, case_machine: Machine) -> None:
    rng, (p, s) = np.random.default_rng(axis), symbols("PS")

    def shape(size: object) -> list[object]:
        dims: list[object] = [4, 6, rest]
        return [*dims[:axis], size, *dims[axis + 1 :]]

    group = group_of([shape(9), shape(3), shape(5)], axis)
    sized = with_extents(group, shape(p), shape(3), shape(s), shape(p + 3 + s))
    kernel = AnySize(ConcatAnySize(), sized, case_machine.with_threads(threads))
    for past, steps in ((9, 5), (1, 1), (7, 2)):
        arrays = [random(rng, *shape(size)) for size in (past, 3, steps)]
        outputs = kernel({"P": past, "S": steps}, shape(past + 3 + steps), *arrays)
        assert np.array_equal(outputs, np.maximum(np.concatenate(arrays, axis), 0))


def test_sizes_that_are_known_are_another_recipes(machine: Machine) -> None:
    group = group_of([(4, 9, 8), (4, 5, 8)], 1)
    assert isinstance(ConcatAnySize().match(group, machine), Miss)
    assert not isinstance(Concat().match(group, machine), Miss)


def test_the_first_copy_goes_where_the_result_begins_with_it(machine: Machine) -> None:
    def body(*params: relax.Var) -> object:
        yield relax.op.concat(list(params), 1)

    p, s = symbols("PS")
    group = with_extents(make_group("relax.concat", [(4, 9, 8), (4, 5, 8)], body), (4, p, 8), (4, s, 8), (4, p + s, 8))
    recipe = ConcatAnySize()
    match = recipe.match(group, machine)
    assert not isinstance(match, Miss)
    config = recipe.default(match, machine)
    function = recipe.compute(match, config, recipe.layouts(match, config, []))
    assert without_copy(function, 0) is not None and without_copy(function, 1) is None

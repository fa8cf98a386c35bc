"""Kernels of caches against numpy: odd sizes, every option, run-time extents; nothing behind the length is read."""

from collections.abc import Sequence

import numpy as np
import pytest
from tvm import tirx
from tvm.ir.expr import TensorLoad

from tests.schedules.any_size import AnySize, symbols, with_extents
from tests.schedules.caches import CacheCase
from tests.schedules.kernels import run_kernel
from tvm_ext.core.graph.nodes import nodes_of
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.passes.tir.kernel_passes import lower_to_loops
from tvm_ext.passes.tir.partial_stores import without_copy
from tvm_ext.schedules.cache.append import CacheAppend
from tvm_ext.schedules.cache.recipe import CachedAttention

TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}
#: (batch, steps, heads, heads of keys, size, capacity), further operands and attributes, lengths, total.
CASES = [
    ((1, 1, 3, 1, 64, 31), "total cos sin", {}, [31], 31),
    ((1, 1, 1, 1, 64, 31), "", {}, [1], 0),
    ((3, 1, 9, 3, 80, 67), "total cos sin", {"interleaved": True}, [5, 67, 1], 67),
    ((2, 7, 9, 3, 16, 37), "total cos sin", {}, [7, 3], 7),
    ((2, 5, 4, 4, 20, 37), "cos sin positions", {}, [20, 37], 0),
    ((2, 3, 4, 2, 15, 23), "total cos sin positions", {"softcap": 0.7}, [3, 2], 3),
    ((2, 1, 6, 2, 32, 200), "", {"window": 70}, [150, 200], 0),
    ((1, 20, 6, 2, 32, 200), "sink", {"window": 9}, [150], 0),
    ((2, 4, 6, 2, 8, 30), "total", {"smooth": True, "causal": False}, [30, 12], 30),
]


@pytest.mark.parametrize("threads", [1, 2, 3, 12])
@pytest.mark.parametrize(("sizes", "more", "attributes", "lengths", "total"), CASES)
def test_kernels(
    sizes: Sequence[int], more: str, attributes: dict[str, object], lengths: list[int], total: int, threads: int,
    case_machine: Machine,
) -> None:  # fmt: skip
    case, machine = CacheCase(*sizes, more=more, **attributes), case_machine.with_threads(threads)
    operands = case.operands(case.append_says, lengths, total)
    present = run_kernel(CacheAppend(), case.append, operands, machine)
    np.testing.assert_allclose(present, case.present(lengths, total), **TOLERANCE)
    query, keys, values, *rest = case.operands(case.says, lengths, total)
    for b, length in enumerate(lengths):  # what stands behind the length may be anything
        last = max(length, sizes[1])
        keys[b, :, last:], values[b, :, last:] = np.nan, np.inf
    recipe, match = CachedAttention(), CachedAttention().match(case.attention, machine)
    assert not isinstance(match, Miss)
    config = {**recipe.default(match, machine), "threads": threads}
    outputs = run_kernel(recipe, case.attention, [query, keys, values, *rest], machine, config)
    np.testing.assert_allclose(outputs, case.attended(lengths, total), **TOLERANCE)


#: (batch, steps, heads, heads of keys, size, capacity), dtype, length, rows of a page or 0 for a whole cache.
STORED = [
    ((1, 1, 9, 3, 64, 301), "float16", 299, 0), ((2, 1, 8, 1, 128, 70), "bfloat16", 69, 0),
    ((1, 1, 4, 1, 80, 131), "float16", 131, 0), ((1, 6, 6, 3, 32, 150), "bfloat16", 77, 0),
    ((1, 7, 5, 5, 64, 90), "float16", 61, 0), ((1, 3, 14, 2, 48, 66), "float16", 65, 0),
    ((2, 1, 9, 3, 64, 160), "float16", 150, 32), ((2, 1, 8, 2, 80, 66), "float32", 66, 6),
    ((2, 1, 2, 2, 32, 80), "bfloat16", 79, 40),
]  # fmt: skip


@pytest.mark.parametrize(("sizes", "dtype", "length", "rows"), STORED)
def test_caches_of_narrow_floats_and_in_pages(
    sizes: Sequence[int], dtype: str, length: int, rows: int, case_machine: Machine
) -> None:
    case, lengths = CacheCase(*sizes, dtype=dtype), [length] * sizes[0]
    wanted = case.attended(lengths)
    group, operands = case.in_pages(rows, lengths) if rows else (case.attention, case.operands(case.says, lengths))
    outputs = run_kernel(CachedAttention(), group, operands, case_machine)
    np.testing.assert_allclose(outputs, wanted, **TOLERANCE)


def test_values_of_another_size_than_keys(case_machine: Machine) -> None:
    case = CacheCase(1, 2, 4, 2, 16, 40, width=24)
    outputs = run_kernel(CachedAttention(), case.attention, case.operands(case.says, [33]), case_machine)
    np.testing.assert_allclose(outputs, case.attended([33]), **TOLERANCE)


@pytest.mark.parametrize("threads", [1, 2])
def test_steps_and_sequences_known_at_run_time(threads: int, case_machine: Machine) -> None:
    machine = case_machine.with_threads(threads)
    rows, steps = symbols("NS")
    bound = CacheCase(3, 24, 6, 2, 16, 50, "total cos sin")
    free = {"past": (rows, 2, 50, 16), "new": (rows, steps, 2, 16), "query": (rows, steps, 6, 16), "lengths": (rows,)}
    free |= {"keys": free["past"], "values": free["past"], "total": (1,), "cos": (50, 7), "sin": (50, 7)}

    def kernel(recipe: CacheAppend | CachedAttention, case: CacheCase, result: str) -> AnySize:
        group, says = (case.append, case.append_says) if result == "past" else (case.attention, case.says)
        return AnySize(recipe, with_extents(group, *(free[role] for role in says.roles), free[result]), machine)

    append, attention = kernel(CacheAppend(), bound, "past"), kernel(CachedAttention(), bound, "query")
    for n, s, lengths, total in (
        (3, 24, [24, 9, 24], 24), (1, 1, [50], 50), (2, 17, [17, 49], 49), (3, 1, [1, 9, 50], 50),
    ):  # fmt: skip
        case = CacheCase(n, s, 6, 2, 16, 50, "total cos sin")
        outputs = append({"N": n, "S": s}, (n, 2, 50, 16), *case.operands(case.append_says, lengths, total))
        np.testing.assert_allclose(outputs, case.present(lengths, total), **TOLERANCE)
        outputs = attention({"N": n, "S": s}, (n, s, 6, 16), *case.operands(case.says, lengths, total))
        np.testing.assert_allclose(outputs, case.attended(lengths, total), **TOLERANCE)
    loops = lower_to_loops({"main": attention.kernel}, machine.target(scheduled=True))["main"]
    indices = [index for access in nodes_of(loops.body, (TensorLoad, tirx.BufferStore)) for index in access.indices]
    assert max(len(nodes_of(index, tirx.Var)) for index in indices) < 10, "expressions of sizes are in each index"


def test_an_append_writes_new_rows_only(machine: Machine) -> None:
    case, recipe = CacheCase(2, 3, 4, 2, 16, 50, "total cos sin"), CacheAppend()
    match = recipe.match(case.append, machine)
    assert not isinstance(match, Miss)
    config = recipe.default(match, machine)
    function = recipe.compute(match, config, recipe.layouts(match, config, []))
    kept = without_copy(function, case.append_says.roles.index("past"))
    assert kept is not None and len(kept.params) == len(function.params) - 1


def test_a_size_of_the_cache_that_is_known_at_run_time_is_none_of_these(machine: Machine) -> None:
    case, (rows,) = CacheCase(1, 1, 2, 1, 16, 50), symbols("C")
    assert isinstance(rows, tirx.Var)
    shapes = [(1, 1, rows, 16), (1, 1, 1, 16), (1,), (1, 1, rows, 16)]
    assert isinstance(CacheAppend().match(with_extents(case.append, *shapes), machine), Miss)

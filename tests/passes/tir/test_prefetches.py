"""Prefetches of packed weights: as many as were computed, in the machine code; results are equal to the bit."""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, sym, tirx
from tvm.s_tir import Schedule

from tests.schedules.convolutions import conv_group
from tests.schedules.kernels import make_group, matched, scheduled
from tests.schedules.narrow import BF16, TYPES, narrow_group
from tests.schedules.narrow import _tensor as tensor
from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Recipe
from tvm_ext.core.records.schedule_database import normalized
from tvm_ext.driver.build import compile_kernels
from tvm_ext.driver.machine_code import code_of
from tvm_ext.passes.tir import kernel_passes, prefetches
from tvm_ext.passes.tir.kernel_passes import lower_to_loops
from tvm_ext.runtime.cpu import why_not_here
from tvm_ext.schedules.blocked.prefetch import INPUTS, INTO_L1, INTO_L2, LINE_BYTES, LINES, SHARED_BY, buffer_name
from tvm_ext.schedules.blocked.problem import Problem
from tvm_ext.schedules.recipes.batch_matmul import BatchMatmul
from tvm_ext.schedules.recipes.convolution.conv2d_dot import Conv2dDot
from tvm_ext.schedules.recipes.convolution.conv2d_grouped import Conv2dGrouped
from tvm_ext.schedules.recipes.convolution.conv2d_nchwc import Conv2dNCHWc
from tvm_ext.schedules.recipes.convolution.conv2d_transpose import Conv2dTranspose
from tvm_ext.schedules.recipes.convolution.conv2d_winograd import Conv2dWinograd
from tvm_ext.schedules.recipes.dense import Dense
from tvm_ext.schedules.recipes.dense_dot import DenseDot
from tvm_ext.tuning.metaschedule import Workload
from tvm_ext.tuning.metaschedule.context import space_of

MACHINES = {name: Machine.described(name) for name in ("zen5", "zen3-avx2", "xeon-skylake")}


def conv(x: Any, w: Any, **attrs: Any) -> Group:
    return conv_group(x, w, padding=(1, 1, 1, 1), **attrs)


def matmul(x: tuple[int, ...], w: tuple[int, ...], constants: tuple[int, ...] = (1,)) -> Group:
    def body(x: Any, w: Any) -> Any:
        yield relax.op.matmul(x, w)

    return make_group("relax.matmul", [x, w], body, constants)


def narrow_conv(types: Any) -> Group:
    anchor = functools.partial(relax.op.nn.conv2d, padding=1)
    return narrow_group(anchor, types, (1, 32, 9, 11), (48, 32, 3, 3), 48, 0, (1, 48, 1, 1))


def narrow_matmul(types: Any) -> Group:
    return narrow_group(relax.op.matmul, types, (33, 64), (64, 80), 80, 1, (80,))


transposed = functools.partial(conv, operator=relax.op.nn.conv2d_transpose)
#: name -> (recipe, group) of kernels that stream packed weights.
STREAMING: dict[str, tuple[Recipe, Callable[[], Group]]] = {
    "conv2d_nchwc": (Conv2dNCHWc(), lambda: conv((1, 32, 9, 9), (48, 32, 3, 3))),
    "conv2d_nchwc, few channels": (Conv2dNCHWc(), lambda: conv((1, 3, 20, 20), (33, 3, 3, 3), residual=True)),
    "conv2d_nchwc, 1x1": (Conv2dNCHWc(), lambda: conv_group((1, 64, 7, 9), (48, 64, 1, 1))),
    "conv2d_winograd": (Conv2dWinograd(), lambda: conv((1, 32, 29, 29), (40, 32, 3, 3))),
    "dense": (Dense(), lambda: matmul((37, 64), (64, 80))),
    "conv2d_grouped": (Conv2dGrouped(), lambda: conv((1, 64, 7, 7), (64, 32, 3, 3), groups=2)),
    "conv2d_transpose": (Conv2dTranspose(), lambda: transposed((1, 16, 8, 7), (16, 32, 4, 4), strides=(2, 2))),
    "conv2d_transpose, odd": (Conv2dTranspose(), lambda: transposed((1, 16, 5, 6), (16, 8, 3, 3), strides=(2, 2))),
    "conv2d_dot, int8": (Conv2dDot(), lambda: narrow_conv(TYPES["uint8"])),
    "conv2d_dot, bf16": (Conv2dDot(), lambda: narrow_conv(BF16)),
    "dense_dot, int8": (DenseDot(), lambda: narrow_matmul(TYPES["int8"])),
    "dense_dot, bf16": (DenseDot(), lambda: narrow_matmul(BF16)),
}
CASES = [
    pytest.param(kernel, machine, id=f"{kernel}, {machine}")
    for kernel in STREAMING
    for machine in MACHINES
    if "dot" not in kernel or machine == "zen5"
]


class Made:
    """A kernel of a recipe at its default configuration.

    Attributes:
        match, config, layouts: what it is of.
        function: scheduled, with annotations.
    """

    def __init__(self, recipe: Recipe, group: Group, machine: Machine) -> None:
        self.match = matched(recipe, group, machine)
        self.config = recipe.default(self.match, machine)
        offered = [Layout.plain(len(p.shape)) for p in group.params]
        if group.anchor == "relax.nn.conv2d" and isinstance(recipe, Conv2dWinograd):
            offered[0] = Layout.blocked(4, machine.lanes)
        self.layouts, mod = scheduled(recipe, self.match, self.config, machine, offered)
        self.function = mod["main"]


@functools.cache
def building(kernel: str, machine: str) -> Made:
    recipe, group = STREAMING[kernel]
    return Made(recipe, group(), MACHINES[machine])


def loops_of(function: tirx.PrimFunc) -> Iterator[tirx.For]:
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(function.body, (tirx.For, loops.append))
    return iter(loops)


def annotations_of(function: tirx.PrimFunc) -> list[tuple[str, int, int]]:
    """(buffer, elements ahead, lines) of each annotated loop; no cache keeps the weights of a kernel alone."""
    values = [loop.annotations[LINES] for loop in loops_of(function) if LINES in loop.annotations]
    assert all(int(passing) for *_, passing in values)
    return [(str(name), int(ahead), int(lines)) for name, ahead, lines, _ in values]


def prefetches_of(statement: Any) -> list[Any]:
    calls: list[Any] = []

    def see(call: Any) -> None:
        if str(getattr(call.op, "name", "")) == "tirx.prefetch":
            calls.append(call)

    tvm_ffi.structural_walk(statement, (tvm.ir.Call, see))
    return calls


@pytest.mark.parametrize(("kernel", "machine"), CASES)
def test_tiles_share_the_lines_of_a_chunk(kernel: str, machine: str) -> None:
    """An iteration reads a step of the panel: `tile_o` vectors of outputs for each of `inner` steps."""
    one = building(kernel, machine)
    problem, config = one.match.problem, one.config
    assert {name for name, _, _ in annotations_of(one.function)} == {buffer_name(one.match, one.match.weight)}
    taps = 1 if isinstance(STREAMING[kernel][0], Conv2dWinograd) else math.prod(problem.taps)
    step = problem.inner * problem.lanes * config["tile_o"] * 4
    width = tvm.DataType(one.match.weight.dtype).bits // 8 if "dot" in kernel else 4
    tiles = [loop for loop in loops_of(one.function) if SHARED_BY in loop.annotations]
    for loop in tiles:
        (share,) = annotations_of(tirx.PrimFunc([], loop))
        spread = int(loop.extent) * iterations_of(problem, taps)
        each = spread if step % (LINE_BYTES * spread) == 0 else int(loop.extent)
        assert share[1:] == (step * taps * config["chunk"] // width, -(-step // (LINE_BYTES * each)))
    assert tiles


def iterations_of(problem: Problem, taps: int) -> int:
    """Iterations of the unrolled steps of a block, over which its lines are spread if it has one tap."""
    return problem.inner // math.gcd(problem.inner, 4) if taps == 1 else 1


@pytest.mark.parametrize(("kernel", "machine"), CASES)
def test_inputs_that_are_read_once_a_tile_are_prefetched_into_l1(kernel: str, machine: str) -> None:
    """A block ahead, of few lines each; an image of several taps is read several times, rows of a matmul are long."""
    one = building(kernel, machine)
    expected = {"conv2d_nchwc, 1x1": [("p0", 63)], "conv2d_winograd": [("v", None)]}.get(kernel, [])
    loops = [loop for loop in loops_of(one.function) if INPUTS in loop.annotations]
    assert bool(loops) == bool(expected)
    for loop, (name, pixels) in zip(loops, expected * len(loops), strict=True):
        inner, extent = one.match.problem.inner, loop.annotations[INPUTS]
        assert str(extent[0]) == name
        assert pixels is None or int(extent[1]) == pixels * inner
        assert int(extent[2]) == -(-one.config["tile_p"] * inner * 4 // LINE_BYTES)


@pytest.mark.parametrize(("kernel", "machine"), CASES)
def test_loops_prefetch_as_many_lines_as_they_are_to(kernel: str, machine: str) -> None:
    """Each non-temporal where that pays, else into L2, for reading; no annotation is left."""
    one = building(kernel, machine)
    expected = [share for _, _, share in annotations_of(one.function)]
    lowered = lower_to_loops({"main": one.function}, MACHINES[machine].target())["main"]
    calls = prefetches_of(lowered.body)
    # loops that are cut in parts, full and rest, have those of each part
    weights = [call for call in calls if int(call.args[2]) != INTO_L1]
    assert expected and len(weights) >= sum(expected) and len(weights) % math.gcd(*expected) == 0
    locality = 0 if MACHINES[machine].mcpu == "znver5" else INTO_L2
    assert {tuple(int(v) for v in call.args[1:]) for call in weights} == {(0, locality, 1)}
    inputs = [int(loop.annotations[INPUTS][2]) for loop in loops_of(one.function) if INPUTS in loop.annotations]
    assert len(calls) - len(weights) >= sum(inputs) and bool(inputs) == (len(calls) > len(weights))
    assert not any({LINES, INPUTS, SHARED_BY} & set(loop.annotations) for loop in loops_of(lowered))


@pytest.mark.parametrize(("rows", "prefetched"), [(1, False), (6, True)])
def test_a_tile_that_is_all_of_a_chunk_prefetches_where_load_slots_are_free(rows: int, prefetched: bool) -> None:
    """A vector of weights is a load, and a prefetch another one, for as many multiply-adds as the tile has rows."""
    recipe, machine = Dense(), MACHINES["zen5"]
    match = matched(recipe, matmul((rows, 64), (64, 80)), machine)
    config = {**recipe.default(match, machine), "tile_o": 2, "tile_p": rows, "parts": 1, "chunk": 1}
    _, mod = scheduled(recipe, match, config, machine, [Layout.plain(len(p.shape)) for p in match.group.params])
    assert bool(annotations_of(mod["main"])) == prefetched


@pytest.mark.parametrize("machine", MACHINES)
def test_weights_that_a_cache_keeps_do_not_pass_it_by(machine: str) -> None:
    one, here = building("conv2d_nchwc", machine), MACHINES[machine]
    problem = replace(one.match.problem, weights_in="l3")
    kept = replace(one.match, problem=problem)
    offered = [Layout.plain(len(p.shape)) for p in kept.group.params]
    _, mod = scheduled(STREAMING["conv2d_nchwc"][0], kept, one.config, here, offered)
    calls = prefetches_of(lower_to_loops({"main": mod["main"]}, here.target())["main"].body)
    assert {int(call.args[2]) for call in calls} == {2}


@pytest.mark.parametrize(("kernel", "machine"), CASES)
def test_machine_code_has_them(kernel: str, machine: str) -> None:
    code = code_of({"main": building(kernel, machine).function}, MACHINES[machine], "asm")["main"]
    assert ("prefetchnta" if MACHINES[machine].mcpu == "znver5" else "prefetcht1") in code


def without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves a pass out, from the call on."""
    rest = tuple(loop for loop in kernel_passes.LOOPS if loop.name != name)
    monkeypatch.setattr(kernel_passes, "LOOPS", rest)


@pytest.fixture
def no_prefetches(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: without("insert-prefetches", monkeypatch)


def operands(built: Made) -> list[np.ndarray]:
    rng, group = np.random.default_rng(5), built.match.group
    arrays = []
    for parameter, layout in zip(group.params, built.layouts.params, strict=True):
        values = rng.standard_normal(parameter.shape) * (30 if "int8" in parameter.dtype else 1)
        arrays.append(layout.pack(values.astype("int8").view(parameter.dtype) if "int8" in parameter.dtype
                                  else values.astype(np.dtype(parameter.dtype))))  # fmt: skip
    return arrays


def output_of(built: Made, arrays: list[np.ndarray], machine: Machine) -> bytes:
    function = compile_kernels({"main": built.function}, machine)["main"]
    shape = built.layouts.output.physical_shape(built.match.group.shape)
    out = tensor(np.full(shape, 77).astype(np.dtype(built.match.group.dtype)))
    function(*map(tensor, arrays), out)
    return out.numpy().tobytes()


@pytest.mark.parametrize(("kernel", "machine"), CASES)
def test_results_are_equal_to_the_bit(kernel: str, machine: str, no_prefetches: Callable[[], None]) -> None:
    here = MACHINES[machine]
    if why := why_not_here(here.as_dict()):
        pytest.skip(why)
    one = building(kernel, machine)
    arrays = operands(one)
    prefetched = output_of(one, arrays, here)
    no_prefetches()
    assert "prefetch" not in code_of({"main": one.function}, here, "asm")["main"]
    assert output_of(one, arrays, here) == prefetched
    assert len(set(np.frombuffer(prefetched, "uint8"))) > 9  # numbers, not poison


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("recipe", "operands"), [(BatchMatmul(), ((3, 19, 24), (3, 24, 40), ())), (Dense(), ((1, 51), (51, 70)))]
)
def test_operands_that_are_computed_or_walked_once_are_not_prefetched(recipe: Any, operands: Any, machine: str) -> None:
    """One tile of the dense layer is all of a chunk: the stream is as long as the weights, and the hardware prefetches
    it."""
    one = Made(recipe, matmul(*operands), MACHINES[machine])
    assert annotations_of(one.function) == []
    assert "prefetch" not in code_of({"main": one.function}, MACHINES[machine], "asm")["main"]


@pytest.mark.parametrize("kernel", ["conv2d_nchwc", "dense"])
def test_designs_of_sampled_sizes_have_none(kernel: str) -> None:
    """A design is replayed with other sizes: there is no chunk yet to be ahead of."""
    recipe, group = STREAMING[kernel]
    machine = MACHINES["zen5"]
    workload = Workload.of(recipe, matched(recipe, group(), machine), machine)
    mod = Schedule(normalized(workload.function), seed=3).mod
    designs = [s for d in workload.designs for s in space_of([d], 3).generate_design_space(mod)]
    assert designs and all(annotations_of(s.mod["main"]) == [] for s in designs)
    assert all(SHARED_BY not in loop.annotations for s in designs for loop in loops_of(s.mod["main"]))


def test_a_kernel_without_annotations_is_left_alone() -> None:
    one = Made(BatchMatmul(), matmul((2, 5, 8), (2, 8, 16), ()), MACHINES["zen5"])
    tvm.ir.assert_structural_equal(prefetches.insert_prefetches(one.function), one.function)


def test_a_buffer_that_the_loop_does_not_read_is_an_error() -> None:
    one = building("dense", "zen5")
    (loop, *_) = [each for each in loops_of(one.function) if LINES in each.annotations]
    with pytest.raises(AssertionError, match="p9"):
        prefetches._first_load(loop, "p9")


@pytest.mark.parametrize(("total", "shares"), [(7, [7, 4, 3, 2]), (-7, [0, 4, 3, 2])])
def test_tiles_of_a_call_share_its_lines(total: int, shares: list[int]) -> None:
    """All of them, whatever the number of tiles; of a total below 0 one tile alone asks for none."""
    each = [prefetches._share(total, tirx.const(count, "int32")) for count in (1, 2, 3, 4)]
    assert [int(sym.Analyzer().simplify(share)) for share in each] == shares


def test_tiles_are_numbered_through_the_rows_that_they_were_split_in() -> None:
    """Else each row would ask for the same lines again, and for no others."""
    row, tile, count = (tirx.Var(name, "int32") for name in ("row", "tile", "count"))
    body: Any = tirx.Evaluate(tirx.const(0, "int32"))
    for var, extent in ((tile, count), (row, tirx.const(5, "int32"))):
        body = tirx.For(var, tirx.const(0, "int32"), extent, tirx.ForKind.SERIAL, body, None, {SHARED_BY: 1})
    numbers = prefetches.numbers_of(body)
    assert numbers[row][0].same_as(row)
    assert tvm_ffi.structural_equal(numbers[tile][0], row * count + tile)
    assert tvm_ffi.structural_equal(numbers[tile][1], 5 * count)

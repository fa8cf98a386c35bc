"""Matmuls by packed weights against float64: few rows, many rows, rows of any number."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.ir import Call

from tvm_ext.core.graph.nodes import nodes_of
from tvm_ext.core.group import WEIGHTS_IN, Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.ops.block_weights import NAME
from tvm_ext.schedules.blocked.prefetch import LINES
from tvm_ext.schedules.recipes.blocks.dense_blocks import DenseBlocks
from tvm_ext.schedules.recipes.blocks.matmul_blocks import MatmulBlocks

from ...any_size import AnySize, each_size, symbols, with_extents
from ...block_weights import BlockCase
from ...kernels import ROUNDOFF, make_group, matched, random, run_kernel

FEW, MANY = MatmulBlocks(), DenseBlocks()
CASES = {
    "one row": ((1, 96), 64, {}),
    "prime outputs": ((1, 1, 80), 37, {"block": 16, "points": "integers"}),
    "no whole block": ((2, 100), 50, {"block": 64, "points": "floats", "scales": "float32"}),
    "8 bits": ((1, 256), 33, {"bits": 8, "block": 128}),
    "8 bits, points": ((3, 130), 16, {"bits": 8, "block": 16, "points": "integers"}),
    "2 bits": ((1, 64), 48, {"bits": 2, "block": 32, "points": "floats"}),
    "one output": ((1, 32), 1, {"scales": "float32"}),
}
#: Rows that stream a weight where they are rounded only: some at a time, and one that is left.
MORE = {
    "rows": ((3, 3, 96), 70, {"points": "integers"}), "rows of 8 bits": ((16, 64), 33, {"bits": 8}),
    "seven rows": ((7, 100), 150, {"points": "floats"}), "rows of 2 bits": ((11, 80), 20, {"bits": 2, "block": 16}),
}  # fmt: skip


def check(recipe: Any, name: str, machine: Machine, digits: int = 0, config: Any = None) -> None:
    rng = np.random.default_rng(3)
    shape, outputs, how = {**CASES, **MORE}[name]
    case = BlockCase(rng, outputs, shape[-1], digits=digits, **how)

    def epilogue(y: Any, bias: Any) -> Any:
        z = yield relax.op.add(y, bias)
        yield relax.op.nn.relu(z)

    x, bias = random(rng, *shape), random(rng, outputs)
    got = run_kernel(recipe, case.group(shape, epilogue), [x, *case.operands, bias], machine, config)
    weight = case.weight()
    wanted = np.maximum(x.astype(np.float64) @ weight.T + bias, 0)
    sums = np.abs(x).astype(np.float64) @ np.abs(weight).T + abs(bias)
    code = max(float(1 << case.says.bits), case.says.zero) * np.abs(case.scales.astype(np.float64)).max()
    rounded = {0: 0, 1: 0.5 / 127, 2: 0.5 / 32639}[digits] * np.abs(x).max() * np.sqrt(shape[-1]) * code
    bound = 4 * (shape[-1] + 8) * ROUNDOFF * (sums + np.abs(x).sum(-1, keepdims=True) * code) + 2 * rounded
    assert np.all(np.abs(got - wanted) <= bound)
    assert np.abs(wanted).max() > 10 * bound.max()


@pytest.mark.parametrize("name", CASES)
def test_few_rows_agree_with_float64(name: str, case_machine: Machine) -> None:
    check(FEW, name, case_machine)


@pytest.mark.parametrize("name", CASES)
def test_many_rows_agree_with_float64(name: str, case_machine: Machine) -> None:
    check(MANY, name, case_machine)


@pytest.mark.parametrize("digits", [1, 2])
@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_rounded_rows_are_within_their_rounding(name: str, digits: int) -> None:
    machine = Machine.detect(None, 2)
    if "avx512vnni" not in machine.features:
        pytest.skip("no VNNI")
    check(FEW, name, machine, digits)


def test_rows_of_any_number(rng: np.random.Generator) -> None:
    """What lies behind the rows in use is garbage, and reaches no result."""
    machine, (rows,) = Machine.detect(None, 2), symbols("S")
    case = BlockCase(rng, 37, 100, points="integers")
    static = [list(a.shape) for a in case.operands]
    group = with_extents(case.group((1, 24, 100)), [1, rows, 100], *static, [1, rows, 37])
    assert isinstance(FEW.match(with_extents(case.group((1, 4, 100)), [1, rows, 100], *static, [1, rows, 37]), machine),
                      Miss)  # fmt: skip
    kernel, x = AnySize(MANY, group, machine), random(rng, 1, 24, 100)
    for sizes in each_size(S=(1, 5, 23, 24)):
        some = x[:, : sizes["S"]]
        got = kernel(sizes, (1, sizes["S"], 37), some, *case.operands)
        np.testing.assert_allclose(got, some.astype(np.float64) @ case.weight().T, rtol=0, atol=2e-5)


def test_what_is_no_number_reaches_its_row() -> None:
    machine, rng = Machine.detect(None, 2), np.random.default_rng(0)
    for digits in {0, 2} if "avx512vnni" in machine.features else {0}:
        case = BlockCase(rng, 20, 64, digits=digits)
        x = random(rng, 2, 64)
        x[1, 40] = np.nan
        got = run_kernel(FEW, case.group((2, 64)), [x, *case.operands], machine)
        assert np.isfinite(got[0]).all() and np.isnan(got[1]).all()


def test_threads_share_vectors_of_outputs_that_do_not_divide() -> None:
    for threads in (1, 2, 3):
        for name in ("prime outputs", "one row"):
            check(FEW, name, Machine.detect("haswell", 3), config={"threads": threads, "digits": 0, "rows": 1})


def test_blocks_whose_sums_would_wrap_are_left_to_the_plain_kernel(rng: np.random.Generator) -> None:
    machine = Machine.detect(None, 2)
    for block, taken in ((256, True), (512, False), (2048, False)):
        group = BlockCase(rng, 20, 2048, bits=8, block=block, digits=2).group((1, 2048))
        assert all(isinstance(recipe.match(group, machine), Miss) != taken for recipe in (FEW, MANY))


def joined(cases: list[BlockCase], shape: tuple[int, ...], norm: bool) -> Group:
    """silu(h gate) * (h up), h being x or its RMS norm; parameters are x, perhaps the norm's weight, up, gate."""
    counts = [len(case.operands) for case in cases]
    shapes = [shape, *([(shape[-1],)] if norm else []), *(a.shape for case in cases for a in case.operands)]
    dtypes = ["float32"] * (1 + norm) + [str(a.dtype) for case in cases for a in case.operands]

    def body(x: Any, *params: Any) -> Any:
        h, first = x, 0
        if norm:
            h, first = (yield relax.op.nn.rms_norm(x, params[0], [-1], 1e-5)), 1
        up = yield cases[0].says.matmul(h, *params[first : first + counts[0]])
        gate = yield cases[1].says.matmul(h, *params[first + counts[0] :])
        opened = yield relax.op.nn.silu(gate)
        yield relax.op.multiply(opened, up)

    return make_group(NAME, shapes, body, list(range(1, len(shapes))), dtypes)


@pytest.mark.parametrize(
    ("name", "norm"), [("one row", False), ("no whole block", True), ("8 bits, points", True), ("seven rows", True)]
)
def test_products_that_meet_behind_a_norm_agree_with_float64(name: str, norm: bool) -> None:
    machine, rng = Machine.detect(None, 2), np.random.default_rng(5)
    shape, outputs, how = {**CASES, **MORE}[name]
    for digits in ({0} if name in CASES else set()) | ({2} if "avx512vnni" in machine.features else set()):
        cases = [
            BlockCase(rng, outputs, shape[-1], digits=digits, **{**how, **more}) for more in ({}, {"points": "none"})
        ]
        group, x, weight = joined(cases, shape, norm), random(rng, *shape), random(rng, shape[-1])
        operands = [array for case in cases for array in case.operands]
        got = run_kernel(FEW, group, [x, *([weight] if norm else []), *operands], machine)
        h = x.astype(np.float64)
        if norm:
            h = h / np.sqrt((h**2).mean(-1, keepdims=True) + 1e-5) * weight
        (up, gate), errors = (h @ case.weight().T for case in cases), []
        for case in cases:
            code = max(float(1 << case.says.bits), case.says.zero) * np.abs(case.scales.astype(np.float64)).max()
            rounded = 2 * (0.5 / 32639 if digits else 0) * np.abs(h).max() * np.sqrt(shape[-1]) * code
            errors.append(8 * (shape[-1] + 8) * ROUNDOFF * np.abs(h).sum(-1, keepdims=True) * code + rounded)
        opened = gate / (1 + np.exp(-gate))
        assert np.all(
            np.abs(got - opened * up) <= 1.2 * errors[1] * np.abs(up) + (np.abs(opened) + errors[1]) * errors[0]
        )


@pytest.mark.parametrize("outputs", [37, 96])
def test_scales_and_points_that_come_from_memory_are_asked_for(rng: np.random.Generator, outputs: int) -> None:
    """As often in the loop over blocks as a group of vectors has cache lines of them."""
    machine, asked = Machine.described("zen4", 2), {}
    group = BlockCase(rng, outputs, 576, points="floats", digits=2).group((1, 576))
    for level in ("l2", "memory"):
        match = matched(FEW, Group("g", group.function.with_attr(WEIGHTS_IN, level)), machine)
        config = FEW.default(match, machine)
        body = FEW.compute(match, config, match.layouts()).body
        calls = [call for call in nodes_of(body, Call) if str(getattr(call.op, "name", "")) == "tirx.prefetch"]
        asked[level] = Counter(call.args[0].args[0].source.name for call in calls)
        assert match.side in (2, 3)
    assert not asked["l2"]
    assert asked["memory"] == {"p1": 1, "p2": 2, "p3": 2}  # at the beginning, and in the loop; words in the loop later


@pytest.mark.parametrize(
    ("bits", "rows", "digits", "asks"),
    [(8, 1, 2, False), (8, 2, 2, False), (8, 3, 2, True), (4, 1, 1, True), (4, 1, 2, True), (8, 1, 0, True)],
)
def test_words_are_asked_for_where_much_is_computed_of_a_line(
    rng: np.random.Generator, bits: int, rows: int, digits: int, asks: bool
) -> None:
    """Where little is, the core itself is far enough ahead; scales, of which there is a line a block, are asked for."""
    case = BlockCase(rng, 96, 576, bits=bits, digits=digits)
    match = matched(FEW, case.group((rows, 576)), Machine.described("zen4", 2))
    assert match.group.weights_in == "memory"
    body = FEW.compute(match, FEW.default(match, Machine.described("zen4", 2)), match.layouts()).body
    annotated = [loop for loop in nodes_of(body, tirx.For) if LINES in loop.annotations]
    assert {str(loop.annotations[LINES][0]) for loop in annotated} == ({"p1"} if asks else set())
    calls = [call for call in nodes_of(body, Call) if str(getattr(call.op, "name", "")) == "tirx.prefetch"]
    assert Counter(call.args[0].args[0].source.name for call in calls)["p2"] == 2


def test_products_that_do_not_go_together_are_refused(rng: np.random.Generator) -> None:
    machine, one = Machine.detect(None, 2), BlockCase(rng, 32, 64, digits=2)
    assert isinstance(MANY.match(joined([one, one], (1, 64), False), machine), Miss)
    assert isinstance(MANY.match(joined([one, one], (1, 64), True), machine), Miss)
    for other in (
        BlockCase(rng, 32, 64, 8, digits=2),
        BlockCase(rng, 32, 64, block=16, digits=2),
        BlockCase(rng, 32, 64),
    ):
        assert isinstance(FEW.match(joined([one, other], (1, 64), False), machine), Miss)
    assert not isinstance(FEW.match(joined([one, one], (1, 64), True), machine), Miss)

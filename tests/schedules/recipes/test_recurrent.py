"""Recurrences as one kernel against float64."""

from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout, PackedGates
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.ops.recurrence import NAME
from tvm_ext.schedules.recipes.recurrent import Recurrent

from ..any_size import AnySize, each_size, symbols, with_extents
from ..kernels import make_group, matched, run_kernel
from ..recurrences import Case

RECIPE = Recurrent()
Shape = tuple[int, ...]
EVERYTHING = "hidden cell peepholes lengths"


@pytest.mark.parametrize(
    ("kind", "sizes", "roles", "backwards", "attributes"),
    [
        ("LSTM", (1, 1, 1), "", (False,), {}),
        ("LSTM", (2, 3, 3), EVERYTHING, (False, True), {}),
        ("LSTM", (33, 1, 40), "hidden cell", (True,), {}),
        ("LSTM", (100, 3, 16), "lengths", (False,), {"finals": 0}),
        ("LSTM", (7, 5, 128), "peepholes", (False, True), {"sequence": False}),
        ("RNN", (100, 1, 3), "lengths", (False, True), {}),
        ("RNN", (7, 3, 128), "hidden", (True,), {"finals": 0}),
        ("GRU", (33, 3, 16), "hidden lengths", (False, True), {}),
        ("GRU", (7, 1, 40), "", (False,), {"finals": 0}),
        ("GRU", (2, 3, 40), "hidden bias lengths", (True,), {"reset_behind": True}),
        ("GRU", (100, 1, 1), "bias", (False,), {"reset_behind": True}),
    ],
)
def test_agrees_with_float64(
    kind: str, sizes: Shape, roles: str, backwards: tuple[bool, ...], attributes: Any, case_machine: Machine, rng: Any
) -> None:
    Case(kind, sizes, rng, roles, backwards, **attributes).check(case_machine)


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_points_of_the_space_agree(kind: str, rng: np.random.Generator) -> None:
    """Threads share rows and directions, or units; tiles that do not divide what they cover."""
    machine = Machine.detect(None, 3)
    case = Case(kind, (4, 5, 7 * machine.lanes - 3), rng, "hidden lengths", (False, True))
    point = RECIPE.default(matched(RECIPE, case.group, machine), machine)
    for tile in ({"share": "units", "blocks": 2, "rows": 2}, {"share": "rows", "blocks": 3, "rows": 4}):
        case.check(machine, config={**point, "threads": 3, **tile})


def test_float64(rng: np.random.Generator) -> None:
    Case("LSTM", (9, 2, 20), rng, "hidden cell", dtype="float64").check(Machine.detect(None, 2), atol=1e-14)


def test_a_weight_that_is_computed_is_packed_by_the_kernel(rng: np.random.Generator) -> None:
    case, machine = Case("GRU", (3, 2, 21), rng), Machine.detect(None, 1)
    case.group = make_group(NAME, list(case.shapes.values()), case.body)
    assert matched(RECIPE, case.group, machine).packed is None  # type: ignore[attr-defined]
    case.check(machine)


def test_a_stored_weight_is_decoded_once(rng: np.random.Generator) -> None:
    case = Case("GRU", (3, 2, 21), rng)
    scale = rng.uniform(0.001, 0.002, 63).astype("float32")
    stored = rng.integers(-128, 128, (1, 63, 21)).astype("int8")

    def body(x: Any, q: Any, s: Any) -> Any:
        zero = relax.const(3, "int8")
        r = yield relax.op.dequantize(q, s, zero, axis=1)
        yield case.says.call({"input": x, "recurrent": r})

    shapes = [case.shapes["input"], stored.shape, scale.shape]
    group = make_group(NAME, shapes, body, [1, 2], ["float32", "int8", "float32"])
    got = run_kernel(RECIPE, group, [case.arrays["input"], stored, scale], Machine.detect(None, 1))
    real = (stored.astype("float32") - 3) * scale[:, None]
    np.testing.assert_allclose(got, case.wanted(recurrent=real), rtol=0, atol=2e-6)


def test_the_input_lies_batch_first_and_an_epilogue_follows(rng: np.random.Generator) -> None:
    case, machine = Case("RNN", (5, 3, 10), rng, finals=0), Machine.detect(None, 2)

    def body(x: Any, r: Any) -> Any:
        y = yield case.says.call({"input": x, "recurrent": r})
        yield relax.op.nn.relu(y)

    case.group = make_group(NAME, list(case.shapes.values()), body, [1])
    got = run_kernel(
        RECIPE, case.group, list(case.arrays.values()), machine, offered=[Layout((1, 0, 2)), Layout((0, 1, 2))]
    )
    np.testing.assert_allclose(got, np.maximum(case.wanted(), 0), rtol=0, atol=2e-6)


@pytest.mark.parametrize("first", [2, 3])
def test_packed_gates_are_where_the_kernel_reads_them(first: int, rng: np.random.Generator) -> None:
    weight, array = PackedGates((0, 1, 2), None, 3, 4, first), rng.standard_normal((2, 15, 5))
    packed = weight.pack(array)
    assert packed.shape == weight.physical_shape(array.shape)
    for start, count in weight.phases:
        for gate, unit, k in np.ndindex(count, 5, 5):
            at = packed[:, unit // 4, 5 * start + k * count + gate, unit % 4]
            assert np.array_equal(at, array[:, (start + gate) * 5 + unit, k])


#: kind, operands, which sizes are known at run time
ANY_SIZE = {
    "steps": ("LSTM", "", "S", (False, True)), "rows": ("RNN", "hidden", "N", (True,)),
    "both": ("GRU", "hidden lengths", "SN", (False, True)),
}  # fmt: skip


@pytest.mark.parametrize("share", ["rows", "units"])
@pytest.mark.parametrize("case", ANY_SIZE)
def test_any_size(case: str, share: str, rng: np.random.Generator) -> None:
    """One kernel of 9 steps and 5 rows at most; NaN behind the extents."""
    kind, roles, names, backwards = ANY_SIZE[case]
    machine, bound = Machine.detect(None, 2), {"S": 9, "N": 5}
    used = {**bound, **dict(zip(names, symbols(names), strict=True))}
    whole = Case(kind, (9, 5, 2 * machine.lanes + 3), rng, roles, backwards)

    def shapes(d: dict[str, Any]) -> list[Shape]:
        cut = {9: d["S"], 5: d["N"]}
        return [tuple(cut.get(size, size) for size in shape) for shape in whole.shapes.values()]

    finals, (d, _, hidden) = whole.says.finals, whole.shapes["recurrent"]
    group = with_extents(whole.group, *shapes(used), (used["S"] + finals, d, used["N"], hidden))
    match = matched(RECIPE, group, machine)
    config = {**RECIPE.default(match, machine), "threads": 2, "share": share, "blocks": 2, "rows": 2}
    kernel = AnySize(RECIPE, group, machine, config)
    for size in each_size(**{name: {1, bound[name] - 2, bound[name]} for name in names}):
        arrays = {
            role: array[tuple(map(slice, shape))]
            for (role, array), shape in zip(whole.arrays.items(), shapes({**bound, **size}), strict=True)
        }
        wanted = whole.wanted(**arrays)
        np.testing.assert_allclose(kernel(size, wanted.shape, *arrays.values()), wanted, rtol=0, atol=2e-6)


def test_refuses() -> None:
    rng, machine = np.random.default_rng(0), Machine.detect(None, 1)
    miss = RECIPE.match(Case("RNN", (3, 2, 4), rng, dtype="float16").group, machine)
    assert isinstance(miss, Miss) and "float16" in miss.reason
    (hidden,), case = symbols("H"), Case("RNN", (3, 2, 4), rng)
    group: Group = with_extents(case.group, (3, 2, hidden), (1, hidden, hidden), (4, 1, 2, hidden))
    miss = RECIPE.match(group, machine)
    assert isinstance(miss, Miss) and "run time" in miss.reason


def test_few_rows_of_many_units_are_shared_by_units() -> None:
    """What a step costs is a launch and a share of the weight, or all of the weight."""
    machine, rng = Machine.described("zen4", threads=8), np.random.default_rng(0)
    small, large = (
        RECIPE.default(matched(RECIPE, Case("LSTM", (10, 1, hidden), rng).group, machine), machine)
        for hidden in (32, 2048)
    )
    assert small["threads"] == 1 and (large["share"], large["threads"]) == ("units", 8)

"""Features of loops and configurations against counts made by hand."""

import math

import numpy as np
import pytest
from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.tuning.features import LOOP_FEATURES, config_features, loop_features
from tvm_ext.tuning.loop_analysis import statements
from tvm_ext.tuning.templates.space import ConfigSpace

from .small_templates import direct, matmul


def scheduled_matmul() -> Schedule:
    """for yo 8: for xo 2: for r 32: for yi 4 unrolled: for xi 16 vectorized"""
    sch = Schedule(te.create_prim_func(matmul(32, 32, 32)))
    y, x, r = sch.get_loops(sch.get_sblock("C"))
    yo, yi = sch.split(y, [None, 4])
    xo, xi = sch.split(x, [None, 16])
    sch.reorder(yo, xo, r, yi, xi)
    sch.parallel(yo)
    sch.unroll(yi)
    sch.vectorize(xi)
    return sch


def named(function: tirx.PrimFunc) -> dict[str, float]:
    """Features by name, counts as counts again."""
    row = loop_features(function)
    assert row.shape == (len(LOOP_FEATURES),) and row.dtype == np.float32
    return dict(zip(LOOP_FEATURES, row.tolist(), strict=True))


def count(value: float) -> int:
    return round(2**value - 1)


def test_loops_of_a_statement() -> None:
    features = named(scheduled_matmul().mod["main"])
    assert {name: count(features[f"0_{name}_extent"]) for name in ("vec", "unroll", "parallel", "serial")} == {
        "vec": 16, "unroll": 4, "parallel": 8, "serial": 64,
    }  # fmt: skip
    assert [count(features[f"0_extent_{level}"]) for level in range(6)] == [16, 4, 32, 2, 8, 0]
    assert count(features["0_iterations"]) == pytest.approx(32**3, rel=1e-3)
    assert (count(features["0_add"]), count(features["0_mul"]), count(features["0_div"])) == (1, 1, 0)
    assert (features["0_innermost_vec"], features["0_innermost_unroll"], features["0_guarded"]) == (1, 0, 0)


def test_bytes_touched_inside_each_loop() -> None:
    (one,) = statements(scheduled_matmul().mod["main"])
    want = [
        4 * (1 + 1 + 1),
        4 * (16 + 1 + 16),  # xi: a row of C and of B, one of A
        4 * (4 * 16 + 4 + 16), 4 * (4 * 16 + 4 * 32 + 32 * 16), 4 * (4 * 32 + 4 * 32 + 32 * 32), 4 * 3 * 32 * 32,
    ]  # fmt: skip
    assert [one.touched(inner) for inner in range(6)] == want


def test_curve_tells_how_much_fits() -> None:
    features = named(scheduled_matmul().mod["main"])
    assert count(features["0_curve_1k"]) == 4 * 16
    assert count(features["0_curve_4k"]) == 32 * 4 * 16
    assert count(features["0_curve_16k"]) == pytest.approx(32**3, rel=1e-3)


def test_strides_in_the_vectorized_loop() -> None:
    features = named(scheduled_matmul().mod["main"])
    assert (features["0_stride_0"], features["0_stride_1"], features["0_stride_more"]) == (
        1,
        3,
        0,
    )  # A; the load of C, C, B
    plain = named(te.create_prim_func(matmul(5, 7, 9)))
    assert (plain["0_stride_0"], plain["0_stride_1"], plain["0_stride_more"]) == (2, 1, 1)  # C twice; A; B


def test_statements_are_ordered_by_their_work() -> None:
    config = {"tile_o": [4, 1], "tile_j": [3, 4], "pad": "rows", "taps": ["none", "unroll"]}
    features = named(direct.build(config, 3, 9, 4, 3))
    assert count(features["statements"]) == 2
    assert count(features["0_mul"]) == 1 and count(features["1_mul"]) == 0 and count(features["1_select"]) == 1
    assert count(features["0_iterations"]) > count(features["1_iterations"])
    assert features["0_guarded"] == 1  # 9 columns in three parts of 4


def test_divided_and_wrapped_indices_touch_less() -> None:
    x = te.placeholder((64,), name="X")
    y = te.compute((64,), lambda i: x[tirx.indexdiv(i, 8)] + x[tirx.indexmod(i, 4)], name="Y")
    (one,) = statements(te.create_prim_func([x, y]))
    extents = {one.loops[0].var: 64}
    assert [access.touched(extents) for access in one.accesses] == [4 * 64, 4 * 8, 4 * 4]


def test_a_function_without_loops() -> None:
    x = te.placeholder((), name="X")
    features = named(te.create_prim_func([x, te.compute((), lambda: x() * 2.0, name="Y")]))
    assert count(features["0_iterations"]) == 1 and features["0_innermost_vec"] == 0


def test_configurations_become_numbers() -> None:
    space = ConfigSpace()
    space.define_split("tile", 32, num_outputs=3)
    space.define_reorder("order", ["x", "y"])
    space.define_annotate("ann", ["x", "y"], "try_unroll_vec")
    space.define_knob("size", [-3, 0, 7])
    space.define_knob("layout", ["plain", "packed", None])
    config = {"tile": [2, 16, 1], "order": [1, 0], "ann": ["none", "vec"], "size": 7, "layout": "packed"}
    want = [1, 4, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 3, 0, 1, 0]
    assert config_features(space, config).tolist() == want
    negative = config_features(space, {**config, "size": -3})
    assert negative[13] == -math.log2(4)


def test_many_choices_that_are_no_numbers_are_numbered() -> None:
    space = ConfigSpace.of({"name": [f"choice {i}" for i in range(40)]})
    assert config_features(space, {"name": "choice 33"}).tolist() == [33]

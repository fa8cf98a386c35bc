"""Schedules without TVM's checks of Python types: the same kernels, and wrong types are refused all the same."""

import pytest
import tvm_ffi
from tvm import te
from tvm.s_tir import Schedule

from tvm_ext.schedules.steps.unchecked import UncheckedSchedule


def scheduled(kind: type[Schedule]) -> Schedule:
    """y[i] = sum of x[i, k], tiled and vectorized."""
    x, k = te.placeholder((12, 64), "float32", "x"), te.reduce_axis((0, 64), "k")
    sch = kind(te.create_prim_func([x, te.compute((12,), lambda i: te.sum(x[i, k], axis=k), "y")]))
    i, inner = sch.get_loops(sch.get_sblock("y"))
    outer, lanes = sch.split(i, factors=[None, 4])
    sch.reorder(outer, inner, lanes)
    sch.vectorize(lanes)
    sch.decompose_reduction(sch.get_sblock("y"), inner)
    return sch


def test_kernels_are_the_same() -> None:
    assert tvm_ffi.structural_equal(scheduled(Schedule).mod, scheduled(UncheckedSchedule).mod)


def test_no_method_checks_types_in_python() -> None:
    assert hasattr(Schedule.split, "__wrapped__")
    assert not [name for name in dir(Schedule) if hasattr(vars(UncheckedSchedule).get(name), "__wrapped__")]
    assert {"split", "reorder", "compute_at", "vectorize", "__init__"} <= {*vars(UncheckedSchedule)}


def test_what_has_the_wrong_type_is_refused() -> None:
    sch = scheduled(UncheckedSchedule)
    with pytest.raises((TypeError, AttributeError)):
        sch.vectorize("i")

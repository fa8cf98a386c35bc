"""Whole quotients without a division, against division, around every half."""

from fractions import Fraction

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.group import Group
from tvm_ext.core.machine import Machine
from tvm_ext.driver.build import compile_kernels
from tvm_ext.driver.machine_code import code_of
from tvm_ext.passes.tir.quotients import is_exact
from tvm_ext.runtime.cpu import why_not_here
from tvm_ext.schedules.recipes.convolution.conv2d_dot import Conv2dDot

from ...schedules.amx_cases import conv_group
from ...schedules.kernels import matched, scheduled


def _fma(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """a b + c in one rounding."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    near = np.float32(float(exact))
    choices = [np.nextafter(near, np.float32(end)) for end in (-np.inf, np.inf)]
    return min([near, *choices], key=lambda f: abs(Fraction(float(f)) - exact))


def _quotient(x: np.float32, scale: np.float32) -> np.float32:
    inverse = np.float32(1) / scale
    q = x * inverse
    return _fma(_fma(q, -scale, x), inverse, q)


def test_equals_division() -> None:
    rng = np.random.default_rng(5)
    scales = [*rng.uniform(0.5, 1, 6).astype("float32"), np.float32(0.1), np.float32(1 / 255), np.float32(2.0**-7)]
    for scale in filter(is_exact, scales):
        for half in (*range(8), 61, 62, 63, 64, 127, 128, 254, 255):
            middle = np.float32(half + 0.5) * scale
            for x in middle + np.spacing(middle) * np.arange(-3, 4, dtype="float32"):
                assert np.rint(_quotient(x, scale)) == np.rint(x / scale)


def test_nearly_every_scale_is_taken() -> None:
    rng = np.random.default_rng(5)
    scales = np.exp(rng.uniform(-12, 3, 500)).astype("float32")
    assert sum(map(is_exact, scales)) >= 490


@pytest.mark.parametrize("scale", [0.0, -0.1, 1e-38, float("inf"), float("nan")])
def test_leaves_out(scale: float) -> None:
    assert not is_exact(scale)


def _whole(x: object, least: float, most: float, scale: float) -> object:
    """int32(rint(x / scale)), of x limited to least and most."""
    limited = tirx.min(tirx.max(x, tirx.const(least, "float32")), tirx.const(most, "float32"))
    return tirx.round(limited / tirx.const(scale, "float32")).astype("int32")


def _kernel(least: float, most: float, scale: float) -> tirx.PrimFunc:
    x = te.placeholder((4096,), name="x")
    return te.create_prim_func([x, te.compute(x.shape, lambda i: _whole(x[i], least, most, scale))])


def _vectorized(kernel: tirx.PrimFunc, lanes: int) -> tirx.PrimFunc:
    sch = Schedule(kernel)
    (block,) = sch.get_child_blocks(sch.get_sblock("root"))
    sch.vectorize(sch.split(*sch.get_loops(block), [None, lanes])[1])
    return sch.mod["main"]


def _numbers(scale: np.float32) -> np.ndarray:
    """Random ones, and all halves."""
    x = (np.random.default_rng(7).uniform(-20, 280, 4096) * scale).astype("float32")
    x[:512] = (np.arange(512) / 2).astype("float32") * scale
    return x


def _run(kernel: tirx.PrimFunc, machine: Machine, x: np.ndarray, dtype: str) -> np.ndarray:
    out = tvm.runtime.tensor(np.full(x.shape, 77, dtype))
    compile_kernels({"main": kernel}, machine)["main"](tvm.runtime.tensor(x), out)
    return out.numpy()


@pytest.mark.parametrize("lanes", [1, 8, 32])
def test_machine_code_of_a_limited_quotient_multiplies_and_converts_at_once(lanes: int) -> None:
    machine, scale = Machine.detect("haswell", 1), np.float32(0.27)
    kernel = _vectorized(_kernel(-3.0, float(255 * scale), float(scale)), lanes)
    text = code_of({"main": kernel}, machine, "asm")["main"]
    assert "div" not in text and "vround" not in text and "vcvtt" not in text
    x = _numbers(scale)
    expected = np.rint(np.clip(x, np.float32(-3), 255 * scale) / scale).astype("int32")
    assert np.array_equal(_run(kernel, machine, x, "int32"), expected)


@pytest.mark.parametrize(("most", "narrow"), [(128.0, False), (127.0, True)])
def test_what_is_read_at_once_stays_wide_if_8_bits_hold_it(most: float, narrow: bool) -> None:
    """(int32(int8(int32(rint(x)) - 1)) + 1) * scale: a number that 8 bits do not hold wraps."""
    x, scale = te.placeholder((4096,), name="x"), np.float32(0.5)

    def value(i: object) -> object:
        stored = (_whole(x[i], -63.0, float((most + 1) * scale), float(scale)) + tirx.const(-1, "int32")).astype("int8")
        return (stored.astype("int32") + tirx.const(1, "int32")).astype("float32") * tirx.const(0.25, "float32")

    kernel = _vectorized(te.create_prim_func([x, te.compute(x.shape, value)]), 16)
    machine = Machine.detect("x86-64-v4", 1)
    assert ("vpmov" not in code_of({"main": kernel}, machine, "asm")["main"]) == narrow
    if not why_not_here(machine.as_dict()):
        numbers = _numbers(scale)
        stored = (np.rint(np.clip(numbers, -63, (most + 1) * scale) / scale) - 1).astype("int32").astype("int8")
        expected = (stored.astype("float32") + 1) * np.float32(0.25)
        assert np.array_equal(_run(kernel, machine, numbers, "float32"), expected)


@pytest.mark.parametrize(("least", "most"), [(0.0, 1e3), (-1e3, 1.0)])
def test_a_quotient_that_may_be_large_is_divided(least: float, most: float) -> None:
    assert "div" in code_of({"main": _kernel(least, most, 0.27)}, Machine.detect("haswell", 1), "asm")["main"]


def test_kernels_of_bytes_do_not_divide() -> None:
    """By a scale that is a constant, as ONNX models have it."""
    machine = Machine.detect("cascadelake", 1)
    group: Group = conv_group((1, 16, 6, 6), (16, 16, 3, 3), ("uint8", "int8"), 3, residual=True)
    recipe = Conv2dDot()
    match = matched(recipe, group, machine)
    _, mod = scheduled(recipe, match, recipe.default(match, machine), machine, None)
    assert "vdiv" not in code_of({"main": mod["main"]}, machine, "asm")["main"]

"""The stated errors of vector_math over all of float32, on every instruction set this CPU runs."""

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.s_tir import Schedule

from tvm_ext.core.machine import Machine
from tvm_ext.ops.scalars import vector_math

from ..minimax import POLYNOMIALS

_ERF = np.vectorize(math.erf, otypes=[float])
#: Below this, exp_flushed gives 0.
FLUSHED = -87.3


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


#: Function -> (in float64, largest error in units of the last place that its docstring states).
STATED: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "exp": (np.exp, 1.5),
    "sigmoid": (_sigmoid, 2.5),
    "tanh": (np.tanh, 2.5),
    "erf": (_ERF, 1.5),
    "log": (np.log, 1.5),
    "softplus": (lambda x: np.logaddexp(0.0, x), 2.5),
}
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1.1754942e-38, 1.0, -1.0, 0.875, 3.4028235e38]


@functools.cache
def samples() -> np.ndarray:
    """Every 4,093rd float32 of each sign, so all exponents; and all the range where a result is neither 0 nor 1."""
    positive = np.arange(0, 0x7F800000, 4093, dtype=np.int64).astype(np.uint32)
    everywhere = np.concatenate([positive, positive | np.uint32(1 << 31)]).view(np.float32)
    dense = [np.linspace(-limit, limit, 150_001) for limit in (1.0, 10.0, 110.0)]
    return np.concatenate([np.float32(SPECIAL), everywhere, *(d.astype("float32") for d in dense)])


@functools.cache
def exact(name: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return STATED[name][0](samples().astype("float64"))


def run(name: str, x: np.ndarray, machine: Machine) -> np.ndarray:
    """The function on whole vectors; x is filled up with ones."""
    size = -(-len(x) // machine.lanes) * machine.lanes
    data = te.placeholder((size,), "float32", name="x")
    sch = Schedule(
        te.create_prim_func([data, te.compute((size,), lambda i: getattr(vector_math, name)(data(i)), name="y")])
    )
    (loop,) = sch.get_loops(sch.get_sblock("y"))
    sch.vectorize(sch.split(loop, [None, machine.lanes])[1])
    function = tvm.compile(sch.mod, target=machine.target()).jit()["main"]
    out = tvm.runtime.tensor(np.full(size, np.nan, "float32"))
    function(tvm.runtime.tensor(np.concatenate([x, np.ones(size - len(x), "float32")])), out)
    return out.numpy()[: len(x)]


def units(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Errors in units of the last place of the float32 result; infinite where NaN or infinity is not the same."""
    with np.errstate(all="ignore"):
        nearest = want.astype("float32")
        finite = np.isfinite(nearest)
        error = np.abs(got.astype("float64") - want) / np.spacing(np.abs(np.where(finite, nearest, 0.0)))
    same = (got == nearest) | (np.isnan(got) & np.isnan(nearest))
    return np.where(same & ~finite, 0.0, np.where(finite & np.isfinite(got), error, np.inf))


@pytest.mark.parametrize("name", STATED)
def test_error_is_at_most_the_stated_one(name: str, machine: Machine) -> None:
    bound = STATED[name][1]
    assert f"at most {bound:g} ulp" in getattr(vector_math, name).__doc__
    error = units(run(name, samples(), machine), exact(name))
    worst = int(np.argmax(error))
    assert error[worst] <= bound, f"{error[worst]:.2f} ulp at {samples()[worst]!r}"


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_odd_functions_keep_the_sign_of_zero(name: str, machine: Machine) -> None:
    assert np.array_equal(np.signbit(run(name, np.float32([0.0, -0.0, -1e-45]), machine)), [False, True, True])


def test_flushed_exponential(machine: Machine) -> None:
    x = samples()[samples() <= 0]
    got, want = run("exp_flushed", x, machine), np.exp(x.astype("float64"))
    assert np.all(got[x < FLUSHED] == 0)
    assert units(got, want)[x >= np.float32(FLUSHED)].max() <= 1.5
    assert np.isnan(run("exp_flushed", np.float32([math.nan]), machine)).all()


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_coefficients_are_as_good_as_the_derived_ones(name: str) -> None:
    """The exchange ends at other coefficients with another numpy or processor: the error is what counts."""
    fit, written = POLYNOMIALS[name](), [float(np.float32(c)) for c in getattr(vector_math, name)]
    derived = fit.rounded()
    assert len(written) == len(derived) and max(fit.error(written), fit.error(derived)) < 2.0**-25.9
    np.testing.assert_allclose(written, derived, rtol=1e-3)

"""The register-by-register array: its values against numpy, its clocks against the closed forms."""

from typing import Any

import numpy as np
import pytest

from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.byoc.systolic.simulation.cost import gemm_cost
from tvm_ext.byoc.systolic.simulation.cycles import gemm_cycles
from tvm_ext.byoc.systolic.simulation.output_array import OutputRun
from tvm_ext.byoc.systolic.simulation.stationary_array import StationaryRun
from tvm_ext.byoc.systolic.simulation.stepper import step_gemm
from tvm_ext.core.errors import InputError, OptionError

DATAFLOWS = ("ws", "os", "is")


def int8(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape).astype("int8")


def wrapped(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a.astype("int64") @ b.astype("int64")).astype("int32")


def check_one(rng: np.random.Generator, largest: int) -> None:
    """One random GEMM: int8, float32 or integers in float32, all dataflows, folds in sequence and overlapped."""
    m, k, n = (int(v) for v in rng.integers(1, largest + 1, 3))
    rows, cols = (int(v) for v in rng.integers(1, 9, 2))
    a, b = int8(rng, m, k), int8(rng, k, n)
    kind = rng.integers(3)
    if kind == 1:
        a, b = (rng.standard_normal(shape).astype("float32") for shape in ((m, k), (k, n)))
    elif kind == 2:
        a, b = a.astype("float32"), b.astype("float32")
    exact = a.astype("float64") @ b.astype("float64")
    bound = np.abs(a.astype("float64")) @ np.abs(b.astype("float64")) * k * 2.0**-24 * (kind == 1)
    for dataflow in DATAFLOWS:
        for overlapped in (False, True):
            c, cycles = step_gemm(a, b, dataflow, rows, cols, overlapped=overlapped)
            model = "overlapped" if overlapped else "physical"
            assert cycles == gemm_cycles(dataflow, m, k, n, rows, cols, model), (dataflow, model, m, k, n, rows, cols)
            hardware = Accelerator(rows, cols, str(a.dtype), compute_model=model)
            assert cycles == gemm_cost(hardware, dataflow, 0, m, k, n).cycles  # what the timing view takes
            assert np.all(np.abs(c - exact) <= bound), (dataflow, model, m, k, n, rows, cols)


@pytest.mark.parametrize(("count", "largest"), [(40, 12), pytest.param(60, 20, marks=pytest.mark.long)])
def test_random_gemms(count: int, largest: int) -> None:
    rng = np.random.default_rng(count)
    for _ in range(count):
        check_one(rng, largest=largest)


@pytest.mark.parametrize("dataflow", DATAFLOWS)
@pytest.mark.parametrize("size", [1, 3, 4, 8, 11])
def test_four_by_four_array(dataflow: str, size: int) -> None:
    rng = np.random.default_rng(size)
    a, b = int8(rng, size, size), int8(rng, size, size)
    for model in ("physical", "overlapped"):
        c, cycles = step_gemm(a, b, dataflow, 4, 4, overlapped=model == "overlapped")
        assert np.array_equal(c, wrapped(a, b))
        assert cycles == gemm_cycles(dataflow, size, size, size, 4, 4, model)


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_integer_valued_floats_are_exact(dataflow: str) -> None:
    rng = np.random.default_rng(3)
    a, b = int8(rng, 9, 14), int8(rng, 14, 5)
    c, _ = step_gemm(a.astype("float32"), b.astype("float32"), dataflow, 4, 3)
    assert c.dtype == np.float32
    assert np.array_equal(c, wrapped(a, b))


@pytest.mark.parametrize("dataflow", DATAFLOWS)
@pytest.mark.parametrize("overlapped", [False, True])
def test_accumulates_onto_what_is_there(dataflow: str, overlapped: bool) -> None:
    rng = np.random.default_rng(4)
    a, b = int8(rng, 7, 10), int8(rng, 10, 6)
    acc = rng.integers(-1000, 1000, (7, 6)).astype("int32")
    before = acc.copy()
    c, cycles = step_gemm(a, b, dataflow, 3, 4, acc=acc, overlapped=overlapped)
    assert np.array_equal(c, before + wrapped(a, b))
    assert np.array_equal(acc, before)
    assert cycles == step_gemm(a, b, dataflow, 3, 4, overlapped=overlapped)[1]


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_int32_accumulators_wrap(dataflow: str) -> None:
    a, b = np.full((2, 5), -128, "int8"), np.full((5, 3), -128, "int8")
    acc = np.full((2, 3), 2**31 - 1, "int32")
    c, _ = step_gemm(a, b, dataflow, 2, 2, acc=acc)
    assert np.all(c == 2**31 - 1 + 5 * 128 * 128 - 2**32)


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_an_infinity_reaches_its_own_row_and_column_only(dataflow: str) -> None:
    """Idle slots and padding multiply zeros, and 0 * inf is NaN: none of it may leave the array."""
    a, b = np.ones((3, 3), "float32"), np.ones((3, 5), "float32")
    a[1, 2], b[0, 4] = np.inf, np.inf
    c, _ = step_gemm(a, b, dataflow, 4, 4, overlapped=True)
    assert np.array_equal(c, (a[:, :, None] * b[None]).sum(axis=1))


def test_loading_any_earlier_spoils_the_shadow_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """max(T, R) a fold is what the registers allow: without the wait the values are wrong."""
    rng = np.random.default_rng(5)
    a, b = int8(rng, 9, 12), int8(rng, 12, 8)
    assert np.array_equal(step_gemm(a, b, "ws", 4, 4, overlapped=True)[0], wrapped(a, b))
    monkeypatch.setattr(StationaryRun, "_may_load", lambda self: True)
    assert not np.array_equal(step_gemm(a, b, "ws", 4, 4, overlapped=True)[0], wrapped(a, b))


def test_folds_closer_than_a_drain_spoil_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    a, b = int8(rng, 8, 3), int8(rng, 3, 8)
    assert np.array_equal(step_gemm(a, b, "os", 4, 4, overlapped=True)[0], wrapped(a, b))
    monkeypatch.setattr(OutputRun, "_may_begin", lambda self: self._since_begin >= self._rows - 1)
    with pytest.raises(AssertionError, match="has not finished"):
        step_gemm(a, b, "os", 4, 4, overlapped=True)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"a": np.zeros((2, 4), "int8")}, InputError, r"\(2, 4\) and b \(3, 5\)"),
        ({"a": np.zeros((0, 3), "int8")}, InputError, "each 1 or more"),
        ({"a": np.zeros((2, 3), "float32")}, InputError, "both int8, bfloat16 or float32"),
        ({"acc": np.zeros((2, 5), "int64")}, InputError, "acc is int64"),
        ({"acc": np.zeros((5, 2), "int32")}, InputError, r"int32 \(2, 5\) is needed"),
        ({"dataflow": "rs"}, OptionError, "not of a systolic array"),
        ({"rows": 0}, OptionError, "0 x 4 PEs"),
    ],
)
def test_refusals(wrong: dict[str, Any], error: type[Exception], message: str) -> None:
    good: dict[str, Any] = {"a": np.zeros((2, 3), "int8"), "b": np.zeros((3, 5), "int8"), "dataflow": "ws"}
    with pytest.raises(error, match=message):
        step_gemm(**{**good, "rows": 4, "cols": 4, **wrong})

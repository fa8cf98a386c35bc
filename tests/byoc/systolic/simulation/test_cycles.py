"""Closed forms of the array's cycles, against SCALE-Sim's printed results and against counting by hand."""

import itertools

import pytest

from tests.byoc.systolic.cases import gemm_of, scalesim_rows
from tvm_ext.byoc.systolic.simulation.cycles import (
    fold_count,
    gemm_cycles,
    mapping_efficiency,
    spatial_and_temporal,
    utilization,
)
from tvm_ext.core.errors import OptionError

MODELS = ("scalesim", "paper", "physical", "overlapped")


def test_every_printed_row_of_scalesim() -> None:
    rows = scalesim_rows()
    assert len(rows) == 96
    wrong = [row for row in rows if gemm_cycles(*gemm_of(row), "scalesim") - 1 != int(row["printed_compute_cycles"])]
    assert wrong == []


def test_printed_utilization_and_mapping_efficiency() -> None:
    for row in scalesim_rows():
        dataflow, *gemm = gemm_of(row)
        percent = 100 * utilization(*gemm, cycles=int(row["printed_compute_cycles"]))
        assert percent == pytest.approx(float(row["overall_utilization_pct"]), abs=0.00501)
        percent = 100 * mapping_efficiency(dataflow, *gemm)
        assert percent == pytest.approx(float(row["mapping_efficiency_pct"]), abs=0.00501)


@pytest.mark.parametrize(("dataflow", "spatial"), [("ws", (3, 5, 2)), ("os", (2, 5, 3)), ("is", (3, 2, 5))])
def test_dimensions_in_space_and_time(dataflow: str, spatial: tuple[int, int, int]) -> None:
    assert spatial_and_temporal(dataflow, 2, 3, 5) == spatial


def test_one_pe_does_one_product_at_a_time() -> None:
    """On a 1 x 1 array every fold is load (or drain) of one value, and T products."""
    assert gemm_cycles("ws", 7, 3, 5, 1, 1, "physical") == 3 * 5 * (1 + 7)
    assert gemm_cycles("os", 7, 3, 5, 1, 1, "physical") == 7 * 5 * (3 + 1)
    assert gemm_cycles("is", 7, 3, 5, 1, 1, "overlapped") == 7 * 3 * 5 + 1


def test_four_by_four_by_hand() -> None:
    """4 x 4 PEs, 8x8x8: 4 folds; fill or drain of 4, 8 steps, and 3 + 3 clocks to the far corner."""
    assert fold_count("ws", 8, 8, 8, 4, 4) == 4
    for dataflow in ("ws", "os", "is"):
        assert gemm_cycles(dataflow, 8, 8, 8, 4, 4, "physical") == 4 * (4 + 8 + 3 + 3)
        assert gemm_cycles(dataflow, 8, 8, 8, 4, 4, "overlapped") == 4 * 8 + 4 + 3 + 3
    assert gemm_cycles("os", 8, 8, 8, 4, 4, "scalesim") == 4 * (8 + 3 + 3)


def test_order_of_the_models() -> None:
    """No model is below the work; overlap never costs; the registers confirm the paper, drain of "os" included."""
    sizes = (1, 2, 5, 8, 13)
    for dataflow, m, k, n, (rows, cols) in itertools.product(
        ("ws", "os", "is"), sizes, sizes, sizes, [(1, 1), (4, 4), (8, 3), (3, 8)]
    ):
        scalesim, paper, physical, overlapped = (gemm_cycles(dataflow, m, k, n, rows, cols, name) for name in MODELS)
        assert m * k * n <= scalesim * rows * cols
        assert m * k * n <= overlapped * rows * cols
        assert overlapped <= physical == paper
        assert paper - scalesim == (fold_count(dataflow, m, k, n, rows, cols) * rows if dataflow == "os" else 0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dataflow": "rs"}, "choose one of 'ws', 'os', 'is'"),
        ({"model": "magic"}, "'overlapped'"),
        ({"m": 0}, "m=0"),
        ({"cols": -1}, "4 x -1 PEs"),
        ({"m": 1.5}, "m=1.5"),
        ({"k": float("nan")}, "k=nan"),
        ({"rows": "4"}, "on '4' x"),
    ],
)
def test_refusals(wrong: dict[str, object], message: str) -> None:
    good = {"dataflow": "ws", "m": 1, "k": 1, "n": 1, "rows": 4, "cols": 4}
    with pytest.raises(OptionError, match=message):
        gemm_cycles(**{**good, **wrong})  # type: ignore[arg-type]

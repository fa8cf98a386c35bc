"""Estimates by kernel: what they say of the plans of a compile for a described machine."""

import json
from dataclasses import replace

import pytest

import tvm_ext
from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine import Machine
from tvm_ext.frontend import zoo
from tvm_ext.inspection.estimates import Estimate, KernelEstimate

WIDE = "cluster64-xeon"


def mlp():
    return zoo.mlp(inputs=256, hidden=(512, 512), classes=10)


@pytest.fixture(scope="module")
def estimate() -> Estimate:
    return tvm_ext.estimate(mlp(), machine=WIDE, records=None)


def test_rows_are_the_kernels_of_the_compile(estimate: Estimate) -> None:
    compiled = tvm_ext.compile(mlp(), machine=WIDE, records=None, cache=False)
    kernels = {kernel["name"]: kernel for kernel in compiled.report["kernels"]}
    assert {row.name for row in estimate.rows} == set(kernels)
    for row in estimate.rows:
        assert row.recipe == kernels[row.name]["recipe"] and row.calls == kernels[row.name]["calls"]
        assert row.seconds * 1e6 == pytest.approx(row.calls * kernels[row.name]["estimated_us"], abs=0.06)
        assert 1 <= row.threads <= kernels[row.name]["config"]["threads"]
        assert row.idle == 1 - row.threads / 64 and row.rounding >= 0


def test_totals_and_fewer_threads(estimate: Estimate) -> None:
    assert estimate.threads == 64 and list(estimate.fewer) == [1, 2, 4, 8, 16, 32, 64]
    assert estimate.seconds == pytest.approx(sum(row.seconds for row in estimate.rows))
    assert estimate.fewer[64] == pytest.approx(estimate.seconds)
    for count, seconds in estimate.fewer.items():
        assert tvm_ext.estimate(mlp(), machine=WIDE, threads=count, records=None).seconds == pytest.approx(seconds)
    assert not estimate.worse


def test_what_is_faster_with_fewer_threads_is_named() -> None:
    row = KernelEstimate("conv", "conv2d_nchwc", 2, 64, 4e-5, 0.25, 0.0, {1: 2e-4, 8: 3e-5, 64: 4e-5})
    other = replace(row, name="dense", seconds=1.2e-4, rounding=0.05, idle=0.5, fewer={1: 2e-4, 8: 1.3e-4, 64: 1.2e-4})
    estimate = Estimate("m", WIDE, 64, (row, other))
    assert [row.name for row in estimate.worse] == ["conv"]
    assert estimate.rounding == pytest.approx(0.1) and estimate.idle == pytest.approx(0.375)
    assert "faster with fewer threads: conv" in str(estimate)
    assert estimate.as_dict()["worse"] == ["conv"] and estimate.fewer[8] == pytest.approx(1.6e-4)


def test_json_and_table(estimate: Estimate) -> None:
    plain = json.loads(json.dumps(estimate.as_dict()))
    assert plain["fewer"]["64"] == pytest.approx(plain["seconds"]) and len(plain["rows"]) == len(estimate.rows)
    assert len(estimate.table().rows) == len(estimate.rows) + 1
    assert all(row.name in str(estimate) for row in estimate.rows)


def test_a_machine_of_one_thread_has_nothing_to_compare() -> None:
    estimate = tvm_ext.estimate(mlp(), machine=WIDE, threads=1, records=None)
    assert list(estimate.fewer) == [1] and estimate.idle == 0 and all(row.threads == 1 for row in estimate.rows)
    assert Machine.described(WIDE).threads == 64


def test_an_unknown_machine() -> None:
    with pytest.raises(OptionError, match="neither a described machine nor a file"):
        tvm_ext.estimate(mlp(), machine="no-such-machine")

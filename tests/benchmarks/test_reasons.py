"""Reasons of missed bars are computed from a profile: profiles by hand, on a machine of 100 GFLOP/s and 10 GB/s."""

import pathlib
from typing import Any

import numpy as np
import pytest

from benchmarks.measuring import reasons
from tests.inspection.profile.fakes import launch, profile
from tests.onnx_graphs import model, node, random, value

COMPUTE = {"executed": 9e7, "bytes": 1_000_000}  # in 1 ms: 90 % of the peak, 10 % of the memory roof
MEMORY = {"executed": 1e7, "bytes": 9_000_000}
L2 = {"executed": 1e7, "bytes": 45_000_000}  # 50 GB/s
NEITHER = {"executed": 4e7, "bytes": 4_000_000}


def share(work: dict[str, Any], **changes: Any) -> reasons.Share:
    (only,) = reasons.shares(profile([launch(1, "k", ["n"], [1e-3], **work, **changes)]), [[1, 8, 7, 7]])
    return only


@pytest.mark.parametrize(
    ("work", "bound", "roofs"),
    [
        (COMPUTE, "multiply-add peak", {"multiply-add peak": 0.9, "memory roof": 0.1}),
        (MEMORY, "memory roof", {"multiply-add peak": 0.1, "memory roof": 0.9}),
        (L2, "L2 roof", {"multiply-add peak": 0.1, "L2 roof": 0.9}),
        (NEITHER, "", {"multiply-add peak": 0.4, "memory roof": 0.4}),
    ],
)
def test_a_kernel_is_near_a_roof_or_near_none(work: dict[str, Any], bound: str, roofs: dict[str, float]) -> None:
    part = share(work)
    assert part.bound == bound and dict(part.roofs) == pytest.approx(roofs) and part.label == "dense at 8x7x7"


def test_products_of_narrow_numbers_have_a_peak_of_their_own() -> None:
    """The profile knows float32's peak only: it says nothing of 8 bits, near or far."""
    assert set(share(COMPUTE, recipe="conv2d_dot").roofs) == {"memory roof"}
    assert share(COMPUTE, recipe="dense_amx").bound == ""


def test_above_a_roof_it_is_another_roof() -> None:
    assert share({"executed": 3.4e8, "bytes": 1_000_000}).bound == ""


def test_a_kernel_whose_work_is_not_known_is_near_no_roof() -> None:
    part = share({"executed": None, "bytes": None})
    assert part.roofs == {} and part.bound == ""


def test_launches_of_one_recipe_and_shape_are_told_together() -> None:
    launches = [launch(i, f"k{i}", [f"n{i}"], [1e-3], **work) for i, work in ((1, COMPUTE), (2, MEMORY), (3, COMPUTE))]
    parts = reasons.shares(profile(launches), [[4, 4], [1, 2], [4, 4]])
    assert [part.label for part in parts] == ["dense at 4x4 (2 launches)", "dense at 2"]
    assert [part.share for part in parts] == pytest.approx([2 / 3.3, 1 / 3.3])
    assert parts[0].roofs["multiply-add peak"] == pytest.approx(0.9)


def test_near_a_roof_is_an_explanation_and_near_none_is_unexplained() -> None:
    fast, slow = (launch(1, "k", ["n"], [1e-3], **work) for work in (COMPUTE, NEITHER))
    told = reasons.reason_of(profile([fast], [1.02e-3]), [[8]])
    assert told.startswith(
        "dense at 8: 98 % of the time at 90 % of the multiply-add peak, 10 % of the memory roof: compute"
    )
    assert "in all 98 % of 1.02 ms" in told and "outside" not in told
    assert reasons.reason_of(profile([slow], [1.02e-3]), [[8]]).startswith("unexplained: dense at 8: 98 % of the time")


def test_time_outside_of_kernels_is_told() -> None:
    told = reasons.reason_of(profile([launch(1, "k", ["n"], [1e-3], **COMPUTE)], [4e-3]), [[8]])
    assert told.startswith("unexplained: ") and "outside of kernels (call, VM): 75 % of the time" in told


def test_small_kernels_are_left_out() -> None:
    launches = [launch(1, "k", ["n"], [1e-3]), launch(2, "s", ["m"], [1e-5], recipe="pad")]
    assert "pad" not in reasons.reason_of(profile(launches), [[8], [8]])


def test_a_model_that_cannot_be_profiled_says_why(tmp_path: pathlib.Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    assert reasons.explained(tmp_path / "bad.onnx", 1, {}, {}).startswith("not profiled: ")


@pytest.mark.long
def test_a_profile_has_a_shape_a_launch(tmp_path: pathlib.Path) -> None:
    graph = model([node("MatMul", "x w", "h"), node("Softmax", "h", "y")], [value("x", (3, 7))], [value("y", (3, 5))],
                  {"w": random(7, 5)})  # fmt: skip
    (tmp_path / "m.onnx").write_bytes(graph.SerializeToString())
    profiled, shapes = reasons.profiled(
        tmp_path / "m.onnx", 1, {"precision": "float32"}, {"x": np.ones((3, 7), np.float32)}
    )
    assert len(shapes) == len(profiled.launches) and [3, 5] in shapes and profiled.threads == 1

"""The committed table has every model, all of them passed; how outputs are judged."""

import numpy as np
import pytest

from .models import MODELS
from .reference import judge
from .table import read_table, write_table


def test_the_table_has_every_model_and_all_agree() -> None:
    rows = read_table()
    assert list(rows) == list(MODELS)
    assert {name for name, row in rows.items() if row["ours"]["outcome"] != "pass"} == set()
    assert all(row["stock"]["outcome"] for row in rows.values())


def test_a_table_survives_a_file(tmp_path) -> None:
    rows = {
        "a": {"ours": {"outcome": "pass", "error": 1e-7, "note": "far"}, "stock": {"outcome": "failed: x | y"}},
        "b": {"ours": {"outcome": "refused: why"}},
    }  # fmt: skip
    write_table(rows, {"a": "1x3"}, "a machine", tmp_path / "t.json")
    assert read_table(tmp_path / "t.json") == rows
    text = (tmp_path / "t.md").read_text()
    assert "1 of 2 agree" in text and "| a | 1x3 | pass | 1.0e-07 |" in text
    assert "failed: x / y" in text and "a magnifies rounding errors: far." in text


@pytest.mark.parametrize("name", MODELS)
def test_inputs_are_the_same_each_time_and_of_all_sizes(name: str) -> None:
    model = MODELS[name]
    for size in model.sizes:
        one, again, other = (model.inputs(size, seed) for seed in (0, 0, 1))
        assert all(np.array_equal(one[key], again[key]) for key in one)
        assert any(not np.array_equal(one[key], other[key]) for key in one)
        assert {key: x.shape for key, x in one.items()} == {key: x.shape for key, x in other.items()}


X = np.linspace(-1, 1, 7, dtype=np.float32)


@pytest.mark.parametrize(
    ("outputs", "wanted", "part"),
    [
        ({"y": X}, {"y": X}, ""),
        ({"y": X + np.float32(1e-3)}, {"y": X}, "y: error"),
        ({"n": np.array([1])}, {"n": np.array([2])}, "n: 1 of 1"),
        ({"y": X}, {"z": X}, "outputs"),
    ],
)
def test_outputs_are_judged(outputs, wanted, part) -> None:
    verdict = judge(outputs, wanted)
    assert part in verdict.reason and bool(part) == bool(verdict.reason)


def test_a_difference_may_be_the_models_own() -> None:
    """float64 is as far from the reference as from the outputs: 1e-3; or it is not: 1e-6."""
    outputs, truth = {"y": X + np.float32(1e-3)}, {"y": X.astype(np.float64)}
    magnified = judge(outputs, {"y": X - np.float32(1e-3)}, lambda: truth)
    assert not magnified.reason and "float64 is" in magnified.note
    assert judge(outputs, {"y": X - np.float32(1e-6)}, lambda: truth).reason


def test_directions_are_compared_roughly() -> None:
    assert not judge({"y": X * np.float32(1.05)}, {"y": X}, roughly=True).reason
    assert "cosine" in judge({"y": X[::-1].copy()}, {"y": X}, roughly=True).reason

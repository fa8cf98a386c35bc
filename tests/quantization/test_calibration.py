"""Calibration samples: what is taken, how stacks are cut, and what is refused with which words."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests import onnx_graphs as graphs
from tests.quantization.models import residual
from tvm_ext.core.errors import InputError, OptionError
from tvm_ext.quantization.calibration import OneSample, read_samples

X = np.stack([graphs.random(5, 9, 11, seed=seed) for seed in range(4)])  # four rows of the model's input


def two_inputs(rows: int | str = 2) -> onnx.ModelProto:
    shape = (rows, 3)
    nodes = [graphs.node("Add", "a b", "y")]
    return graphs.model(nodes, [graphs.value("a", shape), graphs.value("b", shape)], [graphs.value("y", shape)])


def test_arrays_dicts_and_generators() -> None:
    for calibration in ([X[:1], X[1:2]], ({"x": x[None]} for x in X[:2]), {"x": X[:2]}, X[:2]):
        feeds = read_samples(calibration, residual())
        assert [sorted(feed) for feed in feeds] == [["x"], ["x"]]
        np.testing.assert_array_equal(np.concatenate([feed["x"] for feed in feeds]), X[:2])


def test_a_stack_is_cut_into_batches_of_the_model() -> None:
    stack = {"a": graphs.random(6, 3), "b": graphs.random(6, 3, seed=1)}
    feeds = read_samples(stack, two_inputs(2))
    assert [feed["a"].shape for feed in feeds] == [(2, 3)] * 3
    np.testing.assert_array_equal(feeds[2]["b"], stack["b"][4:])


def test_a_free_batch_is_cut_into_rows_and_other_free_axes_are_not() -> None:
    assert len(read_samples(X, residual("N"))) == 4
    shape = ("length", 3)
    mean = graphs.node("ReduceMean", "a", "y", axes=[0], keepdims=0)
    sums = graphs.model([mean], [graphs.value("a", shape)], [graphs.value("y", (3,))])
    assert [feed["a"].shape for feed in read_samples(graphs.random(6, 3), sums)] == [(6, 3)]


def test_files_and_folders(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", x=X[2:])
    np.save(tmp_path / "a.npy", X[:2])
    (tmp_path / "notes.txt").write_text("not a sample")
    for path, rows in ((tmp_path / "b.npz", X[2:]), (str(tmp_path / "a.npy"), X[:2]), (tmp_path, X)):
        feeds = read_samples(path, residual())
        np.testing.assert_array_equal(np.concatenate([feed["x"] for feed in feeds]), rows)


def test_one_sample_is_read_once() -> None:
    reader = OneSample({"x": X[:1]})
    assert reader.get_next() is not None and reader.get_next() is None


def test_nothing_is_no_calibration(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be known without inputs") as caught:
        read_samples(None, residual())
    assert ".npz" in caught.value.fix
    for calibration in ([], tmp_path, tmp_path / "images.tar", 3):
        with pytest.raises((InputError, OptionError)):
            read_samples(calibration, residual())


@pytest.mark.parametrize(
    ("calibration", "said"),
    [
        ([X[:1], X[:1, :4]], r"sample 1: input 'x' is float32\[1, 4, 9, 11\], and the model takes float32\[1, 5, 9"),
        ([X[0]], r"sample 0: input 'x' is float32\[5, 9, 11\]"),
        ([X[:1].astype(np.float64)], "float64"),
        ([{"y": X[:1]}], "'y' is no input of the model; inputs: x"),
        ([{}], "input 'x' is missing"),
        ([np.full_like(X[:1], np.nan)], "NaN or infinite"),
        ([X[:0]], r"float32\[0, 5, 9, 11\]"),
    ],
)
def test_what_does_not_fit_is_named(calibration: list, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_samples(calibration, residual())


def test_one_array_for_two_inputs() -> None:
    with pytest.raises(InputError, match="the model has inputs a, b"):
        read_samples([graphs.random(2, 3)], two_inputs())
    with pytest.raises(InputError, match=r"is float32\[3, 3\], and the model takes float32\[2, 3\]"):
        read_samples({"a": graphs.random(3, 3), "b": graphs.random(3, 3)}, two_inputs(2))

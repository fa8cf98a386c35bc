"""Weights that are stored smaller: the arithmetic, and artifacts that hold them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tvm_ext.core.errors import ArtifactError
from tvm_ext.runtime.artifact import read_artifact, write_artifact
from tvm_ext.runtime.expansion import Compact, Expansion
from tvm_ext.runtime.memory.arrays import aligned_empty, is_aligned
from tvm_ext.runtime.model import CompiledModel
from tvm_ext.runtime.spec import Metadata, TensorSpec

from . import programs

MATRIX = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])


@pytest.mark.parametrize("rest", [(1,), (5, 7), (3, 4099)])
def test_against_float64(rest: tuple[int, ...]) -> None:
    stored = np.random.default_rng(0).standard_normal((3, 3, *rest)).astype("float32")
    out = np.full((16, *rest), np.nan, "float32")
    Expansion.of(MATRIX).into(stored, out)
    exact = np.einsum("ai,bj,ij...->ab...", MATRIX, MATRIX, stored.astype("float64"))
    assert np.array_equal(out, exact.reshape(out.shape).astype("float32")), "sums of three halves are exact"


@pytest.fixture
def metadata() -> Metadata:
    weights = (TensorSpec("w0", (16, 5, 3), "float32"), TensorSpec("w1", (7,), "float32"))
    described = programs.metadata([("x", (2,), "float32")], [("y", (2,), "float32")])
    return replace(described, weights=weights, compact=(Compact(0, (3, 3, 5, 3), Expansion.of(MATRIX)),))


@pytest.fixture
def arrays(metadata: Metadata) -> tuple[list[np.ndarray], np.ndarray]:
    stored = np.random.default_rng(1).standard_normal((3, 3, 5, 3)).astype("float32")
    weight = aligned_empty((16, 5, 3), "float32")
    metadata.compact[0].expansion.into(stored, weight)
    return [weight, np.arange(7, dtype="float32")], stored


@pytest.mark.parametrize("expanded", [False, True])
def test_an_artifact_gives_the_same_weights_either_way(
    expanded: bool, metadata: Metadata, arrays: tuple[list[np.ndarray], np.ndarray], bias_model: CompiledModel,
    tmp_path: Path,
) -> None:  # fmt: skip
    weights, stored = arrays
    bias_model.export(tmp_path / "library.so")  # for its library
    write_artifact(
        tmp_path / "a.so", tmp_path / "library.so", weights, replace(metadata, expanded=expanded), {0: stored}
    )
    read = read_artifact(tmp_path / "a.so")
    assert all(np.array_equal(a, b) and is_aligned(a) for a, b in zip(read.weights, weights, strict=True))
    assert np.array_equal(read.compact[0], stored) and read.metadata == replace(metadata, expanded=expanded)
    held = sum(spec.nbytes for spec in read.metadata.stored())
    assert held == 4 * (9 * 15 + 7 + (16 * 15 if expanded else 0))


@pytest.mark.parametrize(
    "row",
    [
        [5, [3, 3, 5, 3], MATRIX.tolist()], [0, [3, 3, 5, 4], MATRIX.tolist()], [0, [3, 2, 5, 3], MATRIX.tolist()],
        [0, [3, 3, 5, 3], MATRIX[:2].tolist()], [0, [3, 3, 5, 3], [["a"]]], [0, [3]],
    ],
)  # fmt: skip
def test_metadata_that_does_not_fit_its_weights_is_refused(row: list[object], metadata: Metadata) -> None:
    fields = json.loads(metadata.to_json())
    assert fields["compact"] == [[0, [3, 3, 5, 3], MATRIX.tolist()]]
    with pytest.raises(ArtifactError, match="'compact'"):
        Metadata.from_json(json.dumps({**fields, "compact": [row]}))

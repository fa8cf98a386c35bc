"""Pickling and copying a compiled model: by the bytes of its artifact."""

import copy
import pickle

import numpy as np
import pytest

import tvm_ext
from tests.frontend.graphs import linear_model
from tvm_ext.core.errors import ArtifactError, ToolError
from tvm_ext.core.sample_inputs import seeded_inputs
from tvm_ext.runtime.model import CompiledModel


@pytest.fixture(params=[False, True], ids=["in memory", "from the cache"])
def compiled(request: pytest.FixtureRequest, tmp_path, monkeypatch: pytest.MonkeyPatch) -> CompiledModel:
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path))
    return tvm_ext.compile(linear_model(), cache=request.param)


@pytest.mark.parametrize("how", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy, copy.copy])
def test_the_other_model_is_the_same_program(compiled: CompiledModel, how) -> None:
    inputs = seeded_inputs(compiled.inputs, seed=3)
    expected = compiled.run(inputs)
    other = how(compiled)
    assert (other.inputs, other.outputs, other.report) == (compiled.inputs, compiled.outputs, compiled.report)
    del compiled
    for name, array in other.run(inputs).items():
        np.testing.assert_array_equal(array, expected[name])


def test_a_session_too(compiled: CompiledModel) -> None:
    session = tvm_ext.InferenceSession(linear_model())
    inputs = seeded_inputs(session.compiled.inputs, seed=3)
    for a, b in zip(pickle.loads(pickle.dumps(session)).run(None, inputs), session.run(None, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_without_a_linker_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tvm_ext.compile(linear_model(), cache=False)
    monkeypatch.setenv("CXX", "/no/such/compiler")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolError, match="linker"):
        pickle.dumps(model)


def test_altered_bytes_are_refused() -> None:
    make, (data,) = tvm_ext.compile(linear_model(), cache=False).__reduce__()
    with pytest.raises(ArtifactError):
        make(data[:-1])

"""InferenceSession against onnxruntime's: same calls, same answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from tvm import relax

from tests.onnx_graphs import model, node, value
from tests.oracles.reference import session_of
from tests.runtime import programs
from tvm_ext.core.errors import ArtifactError, InputError, ModelError, OptionError
from tvm_ext.driver.session import InferenceSession, NodeArg
from tvm_ext.runtime.model import CompiledModel
from tvm_ext.runtime.spec import TensorSpec

F32 = "float32"


def onnx_model() -> onnx.ModelProto:
    """total = a + b, product = a * b."""
    tensors = [value(name, [3, 5]) for name in ("a", "b", "total", "product")]
    return model([node("Add", "a b", "total"), node("Mul", "a b", "product")], tensors[:2], tensors[2:])


@pytest.fixture(scope="module")
def compiled() -> CompiledModel:
    """The same by hand, so that these tests need no compiler of ours."""
    return programs.model(
        lambda b, x, y: (relax.op.add(x, y), relax.op.multiply(x, y)),
        [("a", (3, 5), F32), ("b", (3, 5), F32)],
        [("total", (3, 5), F32), ("product", (3, 5), F32)],
    )


@pytest.fixture
def calls(compiled: CompiledModel, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, Any]]]:
    """What the session asked the compiler for."""
    seen: list[tuple[Any, dict[str, Any]]] = []

    def compile_model(model: Any, **options: Any) -> CompiledModel:
        seen.append((model, options))
        return compiled

    monkeypatch.setattr("tvm_ext.driver.compile.compile_model", compile_model)
    return seen


@pytest.fixture
def sessions(calls: list) -> tuple[InferenceSession, onnxruntime.InferenceSession]:
    model = onnx_model().SerializeToString()
    providers = ["CPUExecutionProvider"]
    return InferenceSession(model, providers=providers), onnxruntime.InferenceSession(model, providers=providers)


@pytest.fixture
def feed() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((3, 5)).astype(np.float32) for name in ("b", "a")}


@pytest.mark.parametrize("names", [None, [], ["total"], ["product", "total"], ["total", "total"]])
def test_run_gives_what_onnxruntime_gives(sessions, feed: dict[str, np.ndarray], names: list[str] | None) -> None:
    ours, theirs = (session.run(names, feed) for session in sessions)
    assert isinstance(ours, list) and len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
    assert len(sessions[0].run(None, feed, None)) == 2


def test_inputs_and_outputs_are_described_as_onnxruntime_does(sessions) -> None:
    ours, theirs = sessions
    for mine, other in ((ours.get_inputs(), theirs.get_inputs()), (ours.get_outputs(), theirs.get_outputs())):
        assert [(a.name, a.shape, a.type) for a in mine] == [(a.name, a.shape, a.type) for a in other]


def test_types_are_spelt_as_onnxruntime_spells_them() -> None:
    kinds = [
        "FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT8", "INT16", "INT32", "INT64",
        "UINT8", "UINT16", "UINT32", "UINT64", "BOOL",
    ]  # fmt: skip
    types = [getattr(TensorProto, kind) for kind in kinds]
    inputs, outputs = ([value(f"{name}{t}", [2], t) for t in types] for name in "xy")
    proto = model([node("Identity", f"x{t}", f"y{t}") for t in types], inputs, outputs)
    theirs = session_of(proto, optimized=True)
    for kind, arg in zip(types, theirs.get_inputs(), strict=True):
        dtype = str(helper.tensor_dtype_to_np_dtype(kind))
        assert NodeArg.of(TensorSpec(arg.name, (2,), dtype)) == NodeArg(arg.name, arg.shape, arg.type)


def test_errors_list_the_choices(sessions, feed: dict[str, np.ndarray]) -> None:
    session = sessions[0]
    with pytest.raises(InputError, match=r"no output \['sum'\].*\n.*\['total', 'product'\]"):
        session.run(["total", "sum"], feed)
    with pytest.raises(InputError, match="'total' is one name; give a list"):
        session.run("total", feed)
    with pytest.raises(InputError, match=r"missing \['b'\]"):
        session.run(None, {"a": feed["a"]})
    with pytest.raises(InputError, match="pass a dict"):
        session.run(None, [feed["a"], feed["b"]])


def test_about_the_session(sessions) -> None:
    assert sessions[0].get_providers() == ["TvmExtExecutionProvider"]
    meta = sessions[0].get_modelmeta()
    assert meta.graph_name == "tiny" and meta.custom_metadata_map == {"sha256": "0" * 64}
    assert sessions[0].compiled.threads == 1


def test_options_reach_the_compiler(calls: list) -> None:
    options = onnxruntime.SessionOptions()
    InferenceSession("model.onnx", options, fusion="none")
    assert calls.pop() == ("model.onnx", {"fusion": "none", "fallback": "onnxruntime"})
    options.intra_op_num_threads = 3
    InferenceSession("model.onnx", sess_options=options)
    InferenceSession("model.onnx", options, threads=3)
    InferenceSession("model.onnx", options, threads=None)
    assert [given for _, given in calls] == [{"threads": 3, "fallback": "onnxruntime"}] * 3
    with pytest.raises(OptionError, match=r"threads=2 and sess_options\.intra_op_num_threads=3"):
        InferenceSession("model.onnx", options, threads=2)


def test_an_exported_model(compiled: CompiledModel, calls: list, feed: dict[str, np.ndarray], tmp_path: Path) -> None:
    path = programs.export(compiled, tmp_path / "model.so")
    for given in (path, str(path)):
        total, product = InferenceSession(given).run(None, feed)
        np.testing.assert_array_equal(total, feed["a"] + feed["b"])
        np.testing.assert_array_equal(product, feed["a"] * feed["b"])
    assert calls == []
    with pytest.raises(OptionError, match=r"compiled already; no use for \['fusion'\]"):
        InferenceSession(path, fusion="none")
    with pytest.raises(ModelError, match="pass the artifact's path"):
        InferenceSession(path.read_bytes())
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match="cut off"):
        InferenceSession(path)

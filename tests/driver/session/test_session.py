"""InferenceSession against onnxruntime's: same calls, same answers."""

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
from tvm_ext.driver.session.node_args import dtype_of
from tvm_ext.driver.session.session import ABSENT
from tvm_ext.runtime.model import CompiledModel
from tvm_ext.runtime.spec import TensorSpec
from tvm_ext.runtime.values import plain_values

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
    keywords: dict[str, Any] = {"providers": ["CPUExecutionProvider"], "enable_fallback": 0}
    keywords |= {"disabled_optimizers": ["ConstantFolding"], "read_config_from_model": 0}
    return InferenceSession(model, **keywords), onnxruntime.InferenceSession(model, **keywords)


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
    kinds = """FLOAT DOUBLE FLOAT16 BFLOAT16 INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 BOOL
        FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ"""
    types = [getattr(TensorProto, kind) for kind in kinds.split()]
    inputs, outputs = ([value(f"{name}{t}", [2], t) for t in types] for name in "xy")
    proto = model([node("Identity", f"x{t}", f"y{t}") for t in types], inputs, outputs, opset=19)
    theirs = session_of(proto, optimized=True)
    for kind, arg in zip(types, theirs.get_inputs(), strict=True):
        dtype = str(helper.tensor_dtype_to_np_dtype(kind))
        specs = [TensorSpec(arg.name, (2,), dtype)]
        assert NodeArg.of(plain_values(specs)[0], specs) == NodeArg(arg.name, arg.shape, arg.type)
        assert dtype_of(arg.type) == dtype


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
    for wrong in (None, "text", feed["a"].astype(np.float64), feed["a"][:2], feed["a"][0], [[1.0], [1.0, 2.0]], 1.0):
        with pytest.raises(InputError, match="input 'a'"):
            session.run(None, {**feed, "a": wrong})


def test_names_in_an_array_and_shapes_of_the_one_program(sessions, feed: dict[str, np.ndarray]) -> None:
    ours, theirs = sessions
    names = np.array(["product", "total"])
    for got, wanted in zip(ours.run(names, feed), theirs.run(list(names), feed), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert ours.compile_for({name: x.shape for name, x in feed.items()}) is ours.compiled
    for wrong in ({"q": (1,)}, {"a": (99, 99)}, {"a": "N"}, None):
        with pytest.raises(InputError):
            ours.compile_for(wrong)


def test_about_the_session(sessions) -> None:
    ours, theirs = sessions
    assert ours.get_providers() == ["TvmExtExecutionProvider"] == list(ours.get_provider_options())
    meta = ours.get_modelmeta()
    assert meta.graph_name == theirs.get_modelmeta().graph_name
    assert meta.custom_metadata_map == {"sha256": "0" * 64}
    assert ours.compiled.threads == 1 and ours.compile_for({}) is ours.compiled
    assert ours.get_overridable_initializers() == theirs.get_overridable_initializers() == []


def test_providers_are_checked_and_ignored(sessions) -> None:
    for providers in (None, [], ["CPUExecutionProvider"], [("CUDAExecutionProvider", {}), "TvmExtExecutionProvider"]):
        sessions[0].set_providers(providers)
    for wrong in (["GpuExecutionProvider"], "CPUExecutionProvider"):
        with pytest.raises(OptionError, match="CPUExecutionProvider"):
            sessions[0].set_providers(wrong)
        with pytest.raises(OptionError, match="CPUExecutionProvider"):
            InferenceSession(b"", providers=wrong)


def test_what_is_not_here_says_what_is(sessions) -> None:
    ours, theirs = sessions
    public = {name for name in dir(theirs) if not name.startswith("_")}
    absent = public - set(dir(ours))
    assert absent == set(ABSENT), "each of onnxruntime's is there, or has an answer"
    for name in absent:
        with pytest.raises(AttributeError, match=f"no '{name}', as onnxruntime's has; "):
            getattr(ours, name)
    assert not hasattr(ours, "runn") and not hasattr(ours, "__array__")


def test_lists_and_values_of_onnxruntime_are_taken(sessions, feed: dict[str, np.ndarray]) -> None:
    ours, theirs = sessions
    mixed = {"a": feed["a"].tolist(), "b": onnxruntime.OrtValue.ortvalue_from_numpy(feed["b"])}
    for mine, other in zip(ours.run(None, mixed), theirs.run(None, mixed), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6)
    (row,) = ours.report().rows
    assert (row.compiled, row.onnxruntime, row.state) == (1, 0, "compiled")
    assert ours.wait_compiled() and "1 calls, 1 of them compiled" in str(ours.report())


def test_options_reach_the_compiler(calls: list) -> None:
    options = onnxruntime.SessionOptions()
    InferenceSession("model.onnx", options, fusion="none")
    assert calls.pop() == ("model.onnx", {"fusion": "none", "fallback": "onnxruntime"})
    options.intra_op_num_threads = 3
    InferenceSession("model.onnx", sess_options=options)
    InferenceSession("model.onnx", options, threads=3)
    InferenceSession("model.onnx", options, threads=None)
    assert [call for _, call in calls] == [{"threads": 3, "fallback": "onnxruntime"}] * 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    InferenceSession("model.onnx", options)
    InferenceSession("model.onnx", options, accuracy="default")
    assert [call["accuracy"] for _, call in calls[-2:]] == ["exact", "default"]
    with pytest.raises(OptionError, match=r"threads=2 and sess_options\.intra_op_num_threads=3"):
        InferenceSession("model.onnx", options, threads=2)


def test_an_exported_model(compiled: CompiledModel, calls: list, feed: dict[str, np.ndarray], tmp_path: Path) -> None:
    path = programs.export(compiled, tmp_path / "model.so")
    for source in (path, str(path)):
        total, product = InferenceSession(source).run(None, feed)
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

"""What no converter takes runs in onnxruntime: the same numbers, and the report says which nodes and why."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvm_ext
from tests.frontend.graphs import message, run_onnxruntime
from tests.onnx_graphs import model, node, random, value
from tests.runtime.processes import run_python
from tvm_ext.core.errors import DriverError, UnsupportedError
from tvm_ext.frontend.converters import FOREIGN
from tvm_ext.runtime.model import CompiledModel

F32, I64, S, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.BOOL
MS, ML = "com.microsoft", "ai.onnx.ml"


def compiled(proto: onnx.ModelProto, **options: Any) -> CompiledModel:
    return tvm_ext.compile(proto, fallback="onnxruntime", cache=False, **options)


def check(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], **options: Any) -> CompiledModel:
    """Compile, run, and compare with onnxruntime, bit by bit but for rounding of float kernels."""
    program = compiled(proto, **options)
    for mine, reference in zip(program.run(feeds).values(), run_onnxruntime(proto, feeds), strict=True):
        assert (mine.shape, mine.dtype) == (reference.shape, reference.dtype)
        np.testing.assert_allclose(mine, reference, rtol=1e-5, atol=1e-6)
    return program


def with_domains(proto: onnx.ModelProto, **versions: int) -> onnx.ModelProto:
    proto.opset_import.extend(helper.make_opsetid(domain.replace("_", "."), v) for domain, v in versions.items())
    return proto


def places(program: CompiledModel) -> dict[str, str]:
    """Node -> region, of the nodes that onnxruntime runs."""
    return {row.node: row.place for row in program.offload_report().offloaded}


# ------------------------------------------------------------ what may be in a region
def strings() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    nodes = [
        node("Mul", "x two", "a", "double"), node("Cast", "a", "s", "text", to=S),
        node("LabelEncoder", "s", "k", "label", domain=ML, keys_strings=["2", "4"], values_strings=["10", "20"],
             default_string="7"),
        node("Cast", "k", "z", "number", to=F32), node("Add", "z a", "y", "add"),
    ]  # fmt: skip
    proto = model(nodes, [value("x", [3])], [value("y", [3])], {"two": np.float32(2)})
    return with_domains(proto, ai_onnx_ml=3), {"x": np.array([1, 2, 3], np.float32)}


def sequence() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """e2 comes of a sequence into which exp(e) goes, e of the same: "exp" must come along."""
    nodes = [
        node("Relu", "x", "r", "relu"), node("SequenceConstruct", "x r", "s", "list"),
        node("SequenceAt", "s i", "e", "at"), node("Exp", "e", "ex", "exp"),
        node("SequenceInsert", "s ex", "s2", "insert"), node("SequenceAt", "s2 i", "e2", "again"),
        node("Add", "e2 ex", "y", "add"), node("Mul", "e e2", "z", "mul"),
    ]  # fmt: skip
    outputs = [value("y", [4, 6]), value("z", [4, 6])]
    proto = model(nodes, [value("x", [4, 6]), value("i", [], I64)], outputs)
    return proto, {"x": random(4, 6), "i": np.array(-1)}


def joined() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    nodes = [
        node("SequenceConstruct", "x w", "s", "list"), node("SequenceErase", "s i", "t", "erase"),
        node("ConcatFromSequence", "t", "c", "join", axis=0), node("ReduceSum", "c", "y", "sum", keepdims=0),
    ]  # fmt: skip
    proto = model(nodes, [value("x", [3, 5]), value("i", [], I64)], [value("y", [])], {"w": random(2, 5, seed=1)})
    return proto, {"x": random(3, 5), "i": np.array(0)}


def nonzero() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    nodes = [
        node("MatMul", "x w", "h", "dense"), node("NonZero", "h", "nz", "nonzero"),
        node("Shape", "nz", "n", "count"), node("Gather", "n one", "c", "second"),
        node("Cast", "c", "f", "float", to=F32),
        node("Transpose", "nz", "t", "turn"), node("GatherND", "h t", "v", "values"),
        node("LpNormalization", "v", "cs", "normalized", axis=0), node("ReduceMean", "cs", "m", "mean", keepdims=0),
        node("Div", "h f", "d", "div"),
        node("Add", "d m", "y", "add"),
    ]  # fmt: skip
    weights = {"w": random(6, 5, seed=1), "one": np.array(1)}
    return model(nodes, [value("x", [4, 6])], [value("y", [4, 5])], weights), {"x": random(4, 6)}


def unique() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    nodes = [
        node("Floor", "x", "f", "floor"), node("Unique", "f", "u", "unique"),
        node("LpNormalization", "u", "cs", "normalized", axis=0), node("ReduceMax", "cs", "m", "max", keepdims=0),
        node("Size", "u", "n", "size"),
        node("Cast", "n", "c", "float", to=F32), node("Mul", "m c", "y", "mul"),
    ]  # fmt: skip
    proto = model(nodes, [value("x", [20])], [value("y", [])])
    return proto, {"x": random(20, scale=3)}


def compress() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    nodes = [
        node("Compress", "x c", "k", "compress", axis=1), node("Trilu", "k", "cs", "triangle"),
        node("ReduceSum", "cs axes", "y", "sum", keepdims=0),
    ]  # fmt: skip
    weights = {"axes": np.array([1])}
    proto = model(nodes, [value("x", [3, 4]), value("c", [4], B)], [value("y", [3])], weights)
    return proto, {"x": random(3, 4), "c": np.array([True, False, True, False])}


def suppression() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    nodes = [
        node("Sigmoid", "l", "s", "scores"), node("NonMaxSuppression", "b s most iou", "sel", "nms"),
        node("Slice", "sel two three one", "col", "slice"), node("Squeeze", "col one", "id", "squeeze"),
        node("Squeeze", "s both", "flat", "flat"), node("Gather", "flat id", "g", "gather"),
        node("LpNormalization", "g", "gn", "normalized", axis=0), node("TopK", "gn three", "t ti", "top"),
        node("Mul", "t t", "y", "square"),
    ]  # fmt: skip
    weights = {"most": np.array([20]), "iou": np.array([0.9], np.float32), "two": np.array([2]), "one": np.array([1]),
               "three": np.array([3]), "both": np.array([0, 1])}  # fmt: skip
    inputs = [value("b", [1, 20, 4]), value("l", [1, 1, 20])]
    proto = model(nodes, inputs, [value("y", [3]), value("ti", [3], I64)], weights)
    return proto, {"b": np.sort(np.abs(random(1, 20, 4))), "l": random(1, 1, 20, seed=1)}


@pytest.fixture(autouse=True)
def _without_some_converters(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if these operators, which onnxruntime has, had no converter."""
    for domain, operator in ((MS, "Inverse"), (MS, "CDist"), (ML, "Normalizer")):
        monkeypatch.delitem(FOREIGN[domain], operator)


def contributed() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Two regions, with our kernels before, between and behind them; the first one's result is read twice."""
    nodes = [
        node("Add", "x x", "a", "twice"), node("Inverse", "a", "b", "inverse", domain=MS),
        node("Relu", "b", "c", "relu"), node("CDist", "c w", "d", "distance", domain=MS, metric="euclidean"),
        node("MatMul", "b d", "y", "product"),
    ]  # fmt: skip
    proto = model(nodes, [value("x", [4, 4])], [value("y", [4, 3])], {"w": random(3, 4, seed=2)})
    return with_domains(proto, com_microsoft=1), {"x": random(4, 4) + 4 * np.eye(4, dtype=np.float32)}


def learned() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """ONNX infers no shape of a Normalizer."""
    nodes = [node("Relu", "x", "r"), node("Normalizer", "r", "n", "norm", domain=ML, norm="L2"), node("Exp", "n", "y")]
    return with_domains(model(nodes, [value("x", [4, 6])], [value("y", None)]), ai_onnx_ml=3), {"x": random(4, 6)}


def loop() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """As many elements are collected as the trip count, which is computed, says."""
    inner = [helper.make_node("Add", ["a", "w"], ["b"]), helper.make_node("Identity", ["go"], ["on"])]
    inner += [helper.make_node("Identity", ["b"], ["each"])]
    body = helper.make_graph(
        inner,
        "body",
        [value("i", [], I64), value("go", [], B), value("a", [3, 4])],
        [value("on", [], B), value("b", [3, 4]), value("each", [3, 4])],
    )
    nodes = [node("Relu", "x", "r"), helper.make_node("Loop", ["n", "", "r"], ["last", "all"], "loop", body=body),
             node("ReduceSum", "all axes", "o", "total", keepdims=0)]  # fmt: skip
    proto = model([*nodes, node("Mul", "o r", "y")], [value("x", [3, 4]), value("n", [], I64)], [value("y", [3, 4])],
                  {"w": random(4, seed=3), "axes": np.array([0])})  # fmt: skip
    return proto, {"x": random(3, 4), "n": np.array(5)}


def branches() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Branches that read from outside what has no known shape."""
    graphs = [
        helper.make_graph([helper.make_node(f"Reduce{kind}", ["f"], [kind], keepdims=0)], kind, [], [value(kind, [])])
        for kind in ("Max", "Min")
    ]
    nodes = [
        node("NonZero", "x", "nz", "nonzero"), node("Cast", "nz", "whole", "float", to=F32),
        node("Trilu", "whole", "f", "triangle"),
        helper.make_node("If", ["c"], ["o"], "if", then_branch=graphs[0], else_branch=graphs[1]),
        node("Mul", "o x", "y"),
    ]  # fmt: skip
    return model(nodes, [value("x", [3, 4]), value("c", [], B)], [value("y", None)], {"one": np.array(1)}), {
        "x": random(3, 4), "c": np.array(False),
    }  # fmt: skip


def text_weights() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A string initializer, and equal names of nodes."""
    nodes = [node("Round", "x", "r", "n"), node("Cast", "r", "s", "n", to=S), node("Equal", "s k", "e", "n"),
             node("Cast", "e", "y", "n", to=F32)]  # fmt: skip
    proto = model(nodes, [value("x", [8])], [value("y", [8])])
    proto.opset_import[0].version = 19  # the first whose Equal takes strings
    proto.graph.initializer.append(helper.make_tensor("k", S, [1], [b"1.0"]))
    return proto, {"x": random(8)}


MODELS = {
    strings: "text label number", sequence: "list at exp insert again", joined: "list erase join sum",
    nonzero: "nonzero count turn values normalized mean", unique: "unique normalized max size",
    compress: "compress triangle sum",
    suppression: "nms slice squeeze gather normalized top", contributed: "inverse distance", learned: "norm",
    loop: "loop total", branches: "nonzero float triangle if",
}  # fmt: skip


@pytest.mark.parametrize(("make", "inside"), MODELS.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_it_gives_what_onnxruntime_gives(make: Any, inside: str) -> None:
    proto, feeds = make()
    before = proto.SerializeToString(deterministic=True)
    program = check(proto, feeds)
    assert set(places(program)) == set(inside.split())
    assert proto.SerializeToString(deterministic=True) == before
    with pytest.raises(UnsupportedError):
        tvm_ext.compile(proto, cache=False)


def test_strings_among_the_weights_and_equal_names() -> None:
    proto, feeds = text_weights()
    (got,) = compiled(proto).run(feeds).values()
    np.testing.assert_array_equal(got, (np.round(feeds["x"]) == 1).astype(np.float32))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "bool", "int32", "uint64"])
def test_dtypes_cross_the_border(dtype: str) -> None:
    code, x = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), (4 * random(3, 5)).astype(dtype)
    nodes = [node("SequenceConstruct", "x x", "s"), node("SequenceAt", "s i", "o"), node("Concat", "o o", "y", axis=0)]
    proto = model(nodes, [value("x", [3, 5], code), value("i", [], I64)], [value("y", [6, 5], code)])
    check(proto, {"x": x, "i": np.array(1)})


def test_a_region_without_inputs() -> None:
    nodes = [node("RandomNormal", "", "r", "random", shape=[4, 6]), node("Mul", "r zero", "z"), node("Add", "z x", "y")]
    nodes[0].ClearField("input")
    x = random(4, 6)
    program = compiled(model(nodes, [value("x", [4, 6])], [value("y", [4, 6])], {"zero": np.float32(0)}))
    np.testing.assert_array_equal(program.run({"x": x})["y"], x)


def test_a_region_that_nothing_needs_is_gone(tmp_path: Path) -> None:
    nodes = [node("Inverse", "x", "b", "inverse", domain=MS), node("Size", "b", "n"), node("Cast", "n", "f", to=F32)]
    proto = model([*nodes, node("Add", "x f", "y")], [value("x", [3, 3])], [value("y", [3, 3])])
    program = check(with_domains(proto, com_microsoft=1), {"x": random(3, 3)})
    assert not places(program) and not program.offload_programs()
    (row,) = (row for row in program.offload_report().ops if row.node == "inverse")
    assert row.place == "compile time"
    paths = tvm_ext.inspect(proto, fallback="onnxruntime").dump(tmp_path)
    for path in (path for path in paths if path.suffix == ".py" and "tir" not in path.name):
        np.testing.assert_array_equal(tvm_ext.resume(path).run({"x": random(3, 3)})["y"], random(3, 3) + 9)


def test_functions_of_the_model_are_inlined_first() -> None:
    inner = [node("NonZero", "a", "z"), node("Cast", "z", "f", to=F32), node("ReduceMean", "f", "b", keepdims=0)]
    proto = model([node("F", "x", "s", "call", domain="local"), node("Add", "s x", "y")], [value("x", [2, 3])],
                  [value("y", [2, 3])])  # fmt: skip
    proto.functions.append(helper.make_function("local", "F", ["a"], ["b"], inner, [helper.make_opsetid("", 17)]))
    check(with_domains(proto, local=1), {"x": random(2, 3)})


# ------------------------------------------------------------ reports, files and verbs
def test_the_report_names_nodes_and_reasons() -> None:
    program = compiled(strings()[0])
    report = program.offload_report()
    assert {row.node: row.reason for row in report.offloaded} == {
        "text": "it makes 's', which has elements of type STRING",
        "label": "it makes 'k', which has elements of type STRING",
        "number": "it reads 'k', which has elements of type STRING",
    }
    assert [(row.backend, row.seconds, row.host_seconds) for row in report.regions] == [("onnxruntime", None, None)]
    assert "3 of 5 nodes run on 'onnxruntime'" in str(report) and "it reads 'k'" in str(report)
    assert any("onnxruntime runs 'text'" in warning for warning in program.report["warnings"])
    owners = program.report["nodes"]["label"]["owners"]
    assert [owner["kind"] for owner in owners] == ["region"]


def test_an_artifact_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    proto, feeds = sequence()
    program = compiled(proto)
    program.export(tmp_path / "m.so")
    np.savez(tmp_path / "in.npz", **feeds)
    text = (
        "import sys, numpy as np, tvm_ext; got = tvm_ext.load(sys.argv[1]).run(dict(np.load(sys.argv[2])));"
        "np.savez(sys.argv[3], **got); print('onnx' in sys.modules)"
    )
    assert run_python(text, tmp_path / "m.so", tmp_path / "in.npz", tmp_path / "out.npz") == "False"
    for name, array in program.run(feeds).items():
        np.testing.assert_array_equal(np.load(tmp_path / "out.npz")[name], array)


def test_verify_each_layer_bisect_profile_and_analyze() -> None:
    proto, feeds = nonzero()
    program = compiled(proto)
    layers = tvm_ext.verify(program, proto, layers=True)
    assert layers.ok and {"n", "m"} <= {row.value for row in layers.rows}
    assert "nothing is wrong" in str(tvm_ext.bisect(proto, fallback="onnxruntime", cache=False))
    assert "onnxruntime_region_0" in str(tvm_ext.profile(program, feeds, seconds=0.1))
    analysis = tvm_ext.analyze(proto, fallback="onnxruntime")
    assert {row.node for row in analysis.nodes if row.becomes == "offload:onnxruntime"} == set(places(program))
    assert not analysis.unsupported


def test_a_compile_goes_on_from_its_stages(tmp_path: Path) -> None:
    proto, feeds = nonzero()
    inspection = tvm_ext.inspect(proto, fallback="onnxruntime")
    assert "NonZero (h)" in inspection.stage("program") and "NonZero (h)" in inspection.stage("onnx")
    expected = compiled(proto).run(feeds)["y"]
    paths = [path for path in inspection.dump(tmp_path) if path.suffix == ".py" and "tir" not in path.name]
    for path in paths:
        np.testing.assert_array_equal(tvm_ext.resume(path).run(feeds)["y"], expected)
    assert len(paths) == 4


def test_it_goes_with_another_back_end() -> None:
    proto, feeds = nonzero()
    program = check(proto, feeds, offload="systolic", offload_options={"when": "always"})
    assert {row.backend for row in program.offload_report().regions} == {"onnxruntime", "systolic"}
    assert places(program)["dense"].startswith("systolic") and places(program)["mean"].startswith("onnxruntime")


def test_the_cache_keeps_it_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TVM_EXT_CACHE_DIR", str(tmp_path))
    proto, feeds = compress()
    first = tvm_ext.compile(proto, fallback="onnxruntime").run(feeds)["y"]
    np.testing.assert_array_equal(tvm_ext.compile(proto, fallback="onnxruntime").run(feeds)["y"], first)
    with pytest.raises(UnsupportedError):
        tvm_ext.compile(proto)


def test_a_session_falls_back_unless_told_not_to() -> None:
    proto, feeds = compress()
    (got,) = tvm_ext.InferenceSession(proto, cache=False).run(None, feeds)
    np.testing.assert_allclose(got, run_onnxruntime(proto, feeds)[0], rtol=1e-6)
    with pytest.raises(UnsupportedError, match="Compress"):
        tvm_ext.InferenceSession(proto, cache=False, fallback="error")


def test_a_model_that_needs_none_has_no_region() -> None:
    proto = model([node("Relu", "x", "y")], [value("x", [2, 3])], [value("y", [2, 3])])
    assert "offload" not in compiled(proto).report


# ------------------------------------------------------------ what stays an error
REFUSED = {
    "elements of type STRING": ([node("Cast", "x", "y", "text", to=S)], S),
    "is a sequence": ([node("SequenceConstruct", "x", "s"), node("SequenceErase", "s i", "y", "erase")], None),
    "only known at run time": ([node("NonZero", "x", "h", "nz"), node("Trilu", "h", "y")], I64),
    "'Nonsense'": ([node("Nonsense", "x", "y", domain="nowhere")], F32),
}


@pytest.mark.parametrize("text", REFUSED)
def test_an_output_that_is_no_tensor_of_known_shape_is_refused(text: str) -> None:
    nodes, dtype = REFUSED[text]
    output = value("y", None, dtype) if dtype else helper.make_tensor_sequence_value_info("y", F32, None)
    proto = model(nodes, [value("x", [2, 3]), value("i", [], I64)], [output])
    with pytest.raises(UnsupportedError) as caught:
        compiled(with_domains(proto, nowhere=1))
    assert text in message(caught.value) and "output 'y'" in str(caught.value)


def test_a_stated_shape_is_taken_and_held() -> None:
    nodes = [node("NonZero", "x", "nz"), node("Trilu", "nz", "y")]
    proto = model(nodes, [value("x", [2, 3])], [value("y", [2, 6], I64)], {"axis": np.array(0)})
    x = np.abs(random(2, 3)) + 1
    check(proto, {"x": x})
    with pytest.raises(DriverError, match=r"value 'y' is int64\[2, 5\]; the model says that it is int64\[2, 6\]"):
        compiled(proto).run({"x": x * np.array([[1, 1, 1], [1, 1, 0]], np.float32)})


def test_a_failing_run_names_the_region_and_the_node() -> None:
    proto, feeds = sequence()
    with pytest.raises(DriverError, match=r"region onnxruntime_region_0.*Name:'at'"):
        compiled(proto).run({**feeds, "i": np.array(9)})


def test_what_onnxruntime_does_not_take_is_told() -> None:
    """It takes no Inverse of integers."""
    proto = model([node("Inverse", "x", "y", "inv", domain=MS)], [value("x", [2, 2], I64)], [value("y", [2, 2], I64)])
    with pytest.raises(UnsupportedError, match=r"'Inverse'.*onnxruntime does not take it"):
        compiled(with_domains(proto, com_microsoft=1))


def test_a_batch_of_any_size_is_refused() -> None:
    proto, _ = nonzero()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    with pytest.raises(UnsupportedError, match="node 'nonzero' runs in onnxruntime") as caught:
        compiled(proto, shapes={"x": ("N", 6)})
    assert "at one size only" in message(caught.value)

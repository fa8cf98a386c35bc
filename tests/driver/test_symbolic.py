"""A symbolic batch, from the ONNX model to artifact, session, verification and command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.oracles.reference import assert_agrees, session_of
from tvm_ext.cli.app import main
from tvm_ext.core.errors import InputError, OptionError
from tvm_ext.runtime.model import CompiledModel

from ..onnx_graphs import model, node, random, saved, value

SIZES = (1, 2, 3, 4, 7, 16, 21, 33)


def images() -> onnx.ModelProto:
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r"),
        node("GlobalAveragePool", "r", "g"), node("Flatten", "g", "f"), node("MatMul", "f v", "y"),
    ]  # fmt: skip
    weights = {"w": random(16, 3, 3, 3, scale=0.2), "b": random(16), "v": random(16, 5)}
    return model(nodes, [value("x", ("B", 3, 8, 9))], [value("y", ("B", 5))], weights)


def attention() -> onnx.ModelProto:
    """Two inputs that share the batch, sizes computed from shapes as exporters do, an output that is a reshape."""
    nodes = [
        node("MatMul", "x wq", "q0"), node("MatMul", "x wk", "k0"), node("Shape", "x", "shape"),
        node("Slice", "shape zero one", "n"), node("Concat", "n rest", "heads", axis=0),
        node("Reshape", "q0 heads", "q1"), node("Reshape", "k0 heads", "k1"),
        node("Transpose", "q1", "q", perm=[0, 2, 1, 3]), node("Transpose", "k1", "k", perm=[0, 2, 3, 1]),
        node("MatMul", "q k", "s"), node("Unsqueeze", "mask one", "m"), node("Add", "s m", "a"),
        node("Softmax", "a", "p", axis=-1), node("MatMul", "p q", "o"), node("Transpose", "o", "t", perm=[0, 2, 1, 3]),
        node("Reshape", "t back", "y"),
    ]  # fmt: skip
    weights = {
        "wq": random(12, 12), "wk": random(12, 12, seed=1), "zero": np.array([0]), "one": np.array([1]),
        "rest": np.array([7, 3, 4]), "back": np.array([-1, 7, 12]),
    }  # fmt: skip
    inputs = [value("x", ("B", 7, 12)), value("mask", ("B", 1, 7))]
    return model(nodes, inputs, [value("y", ("B", 7, 12)), value("p", ("B", 3, 7, 7))], weights)


def feeds(compiled: CompiledModel, batch: int) -> dict[str, np.ndarray]:
    specs = [spec.at(batch) for spec in compiled.inputs]
    return {s.name: random(*s.sizes, seed=batch) for s in specs}


def agrees(compiled: CompiledModel, proto: onnx.ModelProto, batch: int) -> None:
    assert_agrees(compiled, session_of(proto, optimized=False), feeds(compiled, batch), rtol=1e-4, where=batch)


@pytest.fixture(scope="module")
def compiled() -> dict[str, tuple[onnx.ModelProto, CompiledModel]]:
    programs = {}
    for name, proto, shapes in (("images", images(), ("N", 3, 8, 9)), ("attention", attention(), ("N", 7, 12))):
        programs[name] = proto, tvm_ext.compile(proto, shapes={"x": shapes}, cache=False, threads=2)
    return programs


@pytest.mark.parametrize("name", ["images", "attention"])
def test_every_batch_agrees_with_onnxruntime(compiled: Any, name: str) -> None:
    proto, program = compiled[name]
    for batch in SIZES:
        agrees(program, proto, batch)


def test_it_says_what_it_takes_and_holds(compiled: Any) -> None:
    _, program = compiled["attention"]
    assert program.batches == (1, 4, 16)
    assert [str(spec) for spec in program.inputs] == ["float32[N, 7, 12]", "float32[N, 1, 7]"], "by the model's name B"
    assert [str(spec) for spec in program.outputs] == ["float32[N, 7, 12]", "float32[N, 3, 7, 7]"]
    report = program.report
    assert json.loads(json.dumps(report)) == report
    assert [p["batch"] for p in report["programs"]] == [1, 4, 16]
    assert report["launches"] == report["programs"][-1]["launches"]
    moved = [p["bytes_moved"] for p in report["programs"]]
    assert moved[0] < moved[1] < moved[2] == report["bytes_moved"]
    assert {k["batch"] for k in report["kernels"]} == {1, 4, 16}


def test_equal_weights_are_kept_once(compiled: Any) -> None:
    """The classifier is small: its matmul packs its weight in one way for any batch."""
    _, program = compiled["images"]
    used = [set(p.weights) for p in program.metadata.programs]
    assert used[0] & used[1] & used[2]
    assert len(program.metadata.weights) < sum(len(p.weights) for p in program.metadata.programs)


def test_inputs_that_do_not_fit_are_told_the_batch(compiled: Any) -> None:
    _, program = compiled["attention"]
    good = feeds(program, 3)
    with pytest.raises(InputError, match=r"input 'x' \(3, 6, 12\): dimension 1 is 6; 7 is needed"):
        program.run({**good, "x": random(3, 6, 12)})
    with pytest.raises(InputError, match=r"'mask'.*N is 2 here and 3 in dimension 0 of input 'x'"):
        program.run({**good, "mask": good["mask"][:2]})


@pytest.mark.parametrize("name", ["images", "attention"])
def test_a_batch_of_no_rows_has_no_rows_of_outputs(compiled: Any, name: str) -> None:
    _, program = compiled[name]
    outputs = program.run(feeds(program, 0))
    assert all(outputs[spec.name].shape == spec.at(0).shape for spec in program.outputs)


def test_sizes_are_chosen_and_need_no_one() -> None:
    program = tvm_ext.compile(images(), shapes={"x": ("N", 3, 8, 9)}, specialize={"N": (5, 3)}, cache=False, threads=1)
    assert program.batches == (3, 5)
    for batch in (1, 2, 3, 5, 8, 11):
        agrees(program, images(), batch)


def test_rows_go_through_many_steps_of_a_recurrent_operator() -> None:
    weights = {"w": random(1, 8, 3), "r": random(1, 8, 2), "b": random(1, 16)}
    nodes = [node("LSTM", "x w r b", "y", hidden_size=2)]
    proto = model(nodes, [value("x", (40, "N", 3))], [value("y", (40, 1, "N", 2))], weights)
    options: dict[str, Any] = {"shapes": {"x": (40, "N", 3)}, "specialize": {"N": (1, 2)}}
    program = tvm_ext.compile(proto, **options, cache=False, threads=1)
    assert "bodies" not in program.report
    for batch in (1, 3):
        feed = {"x": random(40, batch, 3)}
        assert_agrees(program, session_of(proto, optimized=False), feed, rtol=1e-5, atol=1e-6)


def test_artifact_cache_session_and_verify(tmp_path: Path, cache_folder: Path, compiled: Any) -> None:
    proto, _ = compiled["attention"]
    options: dict[str, Any] = {"shapes": {"x": ("N", 7, 12)}, "specialize": {"N": (1, 4)}, "threads": 2}
    program, hit = tvm_ext.compile(proto, **options), tvm_ext.compile(proto, **options)
    program.export(tmp_path / "a.so")
    inputs = feeds(program, 6)
    session = tvm_ext.InferenceSession(tmp_path / "a.so")
    assert session.get_inputs()[0].shape == ["N", 7, 12]
    for other in (hit.run(inputs).values(), session.run(None, inputs)):
        assert all(np.array_equal(a, b) for a, b in zip(program.run(inputs).values(), other, strict=True))
    report = tvm_ext.verify(hit, proto)
    assert report.ok and [o.name for o in report.outputs] == [
        f"{name} (batch {n})" for n in (1, 4, 6) for name in ("y", "p")
    ]


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(images(), tmp_path / "m.onnx")
    arguments = [path, "--shape", "x=N,3,8,9", "--specialize", "N=1,2", "--no-cache"]
    assert main(["verify", *arguments]) == 0
    assert "batch 4" in capsys.readouterr().out
    assert main(["compile", *arguments, "--json", "-o", str(tmp_path / "m.so")]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"][0]["shape"] == ["N", 3, 8, 9]
    assert main(["run", str(tmp_path / "m.so")]) == 0 and "2x5" not in capsys.readouterr().err


def test_what_cannot_be_symbolic_is_refused() -> None:
    with pytest.raises(OptionError, match="fixes dimension 1 to 3, not N"):
        tvm_ext.compile(images(), shapes={"x": (1, "N", 8, 9)})
    mixing = model([node("Softmax", "x", "y", axis=0)], [value("x", ("B", 6))], [value("y", ("B", 6))])
    any_size = tvm_ext.compile(mixing, shapes={"x": ("N", 6)}, cache=False)  # one program, within bounds
    assert [symbol.name for symbol in any_size.symbols] == ["N"] and not any_size.batches

"""Sessions of models with free dimensions, against onnxruntime's: what is called, described and refused."""

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.onnx_graphs import model, node, random, saved, value
from tests.runtime.processes import run_python
from tvm_ext import InferenceSession
from tvm_ext.core.errors import InputError, OptionError, UnsupportedError
from tvm_ext.driver.session.compiling import Compiler

from .models import affine, agree, feed, session_of, theirs, uncompilable


@pytest.fixture(scope="module")
def waiting() -> InferenceSession:
    """A session that compiles in the call."""
    return session_of(affine(), on_miss="wait")


@pytest.fixture
def reference() -> onnxruntime.InferenceSession:
    return theirs(affine())


@pytest.fixture
def no_compile(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What would be compiled is refused instead."""

    def refuse(self: Compiler, shapes: Any, any_size: bool = False) -> Any:
        raise UnsupportedError("not in this test")

    monkeypatch.setattr(Compiler, "here", refuse)
    monkeypatch.setattr(Compiler, "elsewhere", refuse)
    yield


def test_a_program_for_each_shape(waiting: InferenceSession, reference) -> None:
    for rows, more in ((3, 1), (5, 2), (3, 1)):
        feeds = feed(rows, more)
        agree(waiting.run(["z", "y"], feeds), reference.run(["z", "y"], feeds))
    rows = {row.shapes[0][1][0]: (row.compiled, row.onnxruntime, row.state) for row in waiting.report().rows}
    assert rows == {5: (1, 0, "compiled"), 3: (2, 0, "compiled")}
    assert waiting.compile_for({"x": (3, 8), "b": (3, 4), "k": (1, 2)}).inputs[0].shape == (3, 8)
    with pytest.raises(InputError, match=r"compile_for"):
        _ = waiting.compiled


def test_threads_run_through_the_switch(tmp_path: Path, cache_folder: Path, reference) -> None:
    """From a file, with a process that compiles while four threads go on calling."""
    session = InferenceSession(saved(affine(), tmp_path / "model.onnx"), threads=1)
    feeds = feed(6)
    wanted, counts = reference.run(None, feeds), [0] * 4

    def call(index: int) -> None:
        while not session.wait_compiled(0) or counts[index] < 3:
            agree(session.run(None, feeds), wanted)
            counts[index] += 1

    agree(session.run(None, feeds), wanted)
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(call, range(4), timeout=100)] == [None] * 4
    agree(session.run(None, feeds), wanted)
    report = session.report()
    assert report.onnxruntime + report.compiled == sum(counts) + 2 and report.onnxruntime >= 2
    assert [row.state for row in report.rows] == ["compiled"] and report.model == "model.onnx"
    assert report.any_size is not None and report.any_size.compiled == report.compiled
    assert list(cache_folder.glob("*.so")), "the process has kept it in the cache"


def test_it_is_described_as_onnxruntime_does(waiting: InferenceSession, reference) -> None:
    for side in ("get_inputs", "get_outputs", "get_overridable_initializers"):
        mine, other = (getattr(session, side)() for session in (waiting, reference))
        assert [(a.name, a.shape, a.type) for a in mine] == [(a.name, a.shape, a.type) for a in other]
    meta, wanted = waiting.get_modelmeta(), reference.get_modelmeta()
    fields = ("graph_name", "producer_name", "domain", "description", "graph_description", "version")
    assert [getattr(meta, name) for name in fields] == [getattr(wanted, name) for name in fields]
    assert meta.custom_metadata_map.items() >= wanted.custom_metadata_map.items()
    assert waiting.end_profiling() == reference.end_profiling() == ""
    assert isinstance(waiting.get_session_options(), onnxruntime.SessionOptions)


def test_any_number_of_dimensions() -> None:
    proto = model([node("Identity", "x", "y")], [value("x", None)], [value("y", None)])
    session, other = session_of(proto, on_miss="wait"), theirs(proto)
    assert session.get_inputs()[0].shape == other.get_inputs()[0].shape == []
    for shape in ((2, 3), (), (0, 4)):
        feeds = {"x": np.full(shape, 2, np.float32)}
        agree(session.run(None, feeds), other.run(None, feeds))
    assert [row.state for row in session.report().rows] == ["compiled"] * 3


#: What is wrong, whether onnxruntime takes it, and what our error says.
BAD_FEEDS: list[tuple[dict[str, Any], str]] = [
    ({"x": None}, "input 'x' is None"),
    ({"x": random(3, 8).astype(np.float64)}, r"input 'x' has dtype float64, the model takes float32"),
    ({"x": random(8)}, r"input 'x' has 1 dimensions, \[8\]; the model takes \[N, 8\]"),
    ({"x": random(3, 7)}, r"'x' has shape \[3, 7\]; the model takes \[N, 8\]: dimension 1 is 7, not 8"),
    ({"x": random(2, 8)}, r"N is 2 in input 'x' \(dimension 0\) and 3 in 'b' \(0\)"),
    ({"x": random(0, 8)}, r"N is 0 in input 'x' \(dimension 0\) and 3 in 'b' \(0\)"),
    ({"k": np.zeros((1, 1, 2), np.int64)}, r"'k' has 3 dimensions, \[1, 1, 2\]; the model takes \[\?, 2\]"),
    ({"k": [["a", "b"]]}, "input 'k' has dtype <U1"),
    ({"k": [[1, 2], [3]]}, "input 'k': list is no array"),
    ({"x": "text"}, "input 'x' has dtype"),
    ({"x": 1.0}, "input 'x' has dtype"),
    ({"q": random(1)}, r"unknown \['q'\]"),
    ({1: random(1)}, r"unknown \[1\]"),
    ({"x": np.array([[None] * 8] * 3)}, "input 'x' has dtype object"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD_FEEDS, ids=[text[:40] for _, text in BAD_FEEDS])
def test_bad_inputs_are_refused_by_both(no_compile: None, reference, wrong: dict[str, Any], message: str) -> None:
    session, feeds = session_of(affine()), {**feed(3), **wrong}
    with pytest.raises(Exception):  # noqa: B017  (of classes of its own)
        reference.run(None, feeds)
    with pytest.raises(InputError, match=message):
        session.run(None, feeds)


def test_missing_inputs_and_outputs(no_compile: None, reference) -> None:
    session, feeds = session_of(affine()), feed(3)
    del feeds["b"]
    for runner in (session, reference):
        with pytest.raises(ValueError, match=r"missing.*'b'|'b'.*missing"):
            runner.run(None, feeds)
    for wrong in (None, [random(3, 8)], 3):
        with pytest.raises(InputError, match="pass a dict"):
            session.run(None, wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"no output \['q'\]"):
        session.run(["q"], feed(3))
    with pytest.raises(InputError, match="run_options is str"):
        session.run(None, feed(3), "fast")
    agree(session.run(["z"], feed(3), onnxruntime.RunOptions()), [-feed(3)["k"]])


def test_what_onnxruntime_takes_besides_arrays(no_compile: None, reference) -> None:
    """Lists, its own values, memory in steps, no rows, sizes that broadcast; it misreads the other byte order."""
    session = session_of(affine())
    plain = feed(3)
    wrapped = onnxruntime.OrtValue.ortvalue_from_numpy(plain["x"])
    for change in (
        {"x": plain["x"].tolist(), "k": [[1, 2.0]]}, {"x": wrapped},
        {"x": np.repeat(plain["x"], 2, 0)[::2]}, feed(0), feed(2, 0),
        {"b": random(1, 4)},
    ):  # fmt: skip
        feeds = {**plain, **change}
        agree(session.run(None, feeds), reference.run(None, feeds))
    agree(session.run(None, {**plain, "x": plain["x"].astype(">f4")}), session.run(None, plain))
    with pytest.raises(InputError, match="dtype float64, the model takes int64"):  # onnxruntime cuts it off
        session.run(None, {**plain, "k": [[1, 2.5]]})


def test_a_compile_that_fails_leaves_the_shape_to_onnxruntime(reference) -> None:
    proto = uncompilable("N", 2)
    session = session_of(proto, on_miss="wait")
    for array in (random(3, 2), random(3, 2, seed=1)):
        agree(session.run(None, {"x": array}), theirs(proto).run(None, {"x": array}))
    (row,) = session.report().rows
    assert (row.state, row.onnxruntime) == ("failed", 2) and row.reason.startswith("UnsupportedError")


def test_inputs_of_other_kinds_stay_in_onnxruntime() -> None:
    nodes = [node("Identity", "s", "t"), node("Neg", "x", "y")]
    inputs = [value("s", ["N"], TensorProto.STRING), value("x", ["N"])]
    proto = model(nodes, inputs, [value("t", ["N"], TensorProto.STRING), value("y", ["N"])])
    session = session_of(proto, on_miss="wait")
    text, negative = session.run(None, {"s": np.array(["a", "b"]), "x": random(2)})
    assert text.tolist() == ["a", "b"] and np.array_equal(negative, -random(2))
    (row,) = session.report().rows
    assert (row.state, row.reason) == ("onnxruntime", "input 's' is tensor(string)")


def test_small_floats_which_onnxruntime_has_no_arrays_of() -> None:
    for kind in ("BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2"):
        code = getattr(TensorProto, kind)
        dtype = helper.tensor_dtype_to_np_dtype(code)
        proto = model([node("Identity", "x", "y")], [value("x", ["N"], code)], [value("y", ["N"], code)], opset=19)
        array = np.arange(6).astype(dtype)
        session = session_of(proto)
        (result,) = session.run(None, {"x": array})
        assert result.dtype == dtype and np.array_equal(result, array), kind
        (value_of,) = session.run_with_ort_values(None, {"x": array})
        assert value_of.data_type() == session.get_inputs()[0].type
    assert np.array_equal(session_of(proto).run(None, {"x": value_of})[0], array)


def test_initializers_that_a_call_replaces() -> None:
    inputs, weights = [value("x", ["N"]), value("w", [1])], {"w": np.float32([2])}
    proto = model([node("Add", "x w", "y")], inputs, [value("y", ["N"])], weights)
    session, other = session_of(proto, on_miss="wait"), theirs(proto)
    assert [arg.name for arg in session.get_overridable_initializers()] == ["w"]
    for feeds in ({"x": random(3)}, {"x": random(3), "w": np.ones(1, np.float32)}):
        agree(session.run(None, feeds), other.run(None, feeds))
    assert [row.state for row in session.report().rows] == ["compiled", "onnxruntime"]


def test_options_that_bind_dimensions(reference) -> None:
    fixed = session_of(affine(), shapes={"x": (3, 8), "k": (1, 2)})
    assert fixed.compiled.inputs[1].shape == (3, 4)
    agree(fixed.run(None, feed(3)), reference.run(None, feed(3)))
    partly = session_of(affine(), shapes={"x": (3, 8)}, on_miss="wait")
    assert [arg.shape for arg in partly.get_inputs()] == [[3, 8], [3, 4], [None, 2]]
    agree(partly.run(None, feed(3)), reference.run(None, feed(3)))
    with pytest.raises(InputError, match=r"dimension 0 is 2, not 3"):
        partly.run(None, feed(2))
    assert [row.shapes for row in partly.report().rows] == [(("k", (1, 2)),)]
    with pytest.raises(OptionError, match="'q' is no input"):
        session_of(affine(), shapes={"q": (1,)})
    with pytest.raises(OptionError, match="no dimension of small is 'M'"):
        session_of(affine(), dims={"M": (1, 4)})


def test_frozen_inputs_are_inputs_no_more(reference) -> None:
    feeds = feed(3)
    session = session_of(affine(), freeze={"k": feeds.pop("k")}, on_miss="wait")
    assert [arg.name for arg in session.get_inputs()] == ["x", "b"]
    agree(session.run(None, feeds), reference.run(None, feed(3)))
    stand_in = session_of(affine(), freeze={"k": np.zeros((1, 2), np.int8)})
    assert not stand_in.run(["z"], feeds)[0].any() and stand_in.report().onnxruntime == 1
    with pytest.raises(OptionError, match="'q' is no input"):
        session_of(affine(), freeze={"q": 1})


def test_session_options() -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    options.add_free_dimension_override_by_name("N", 2)
    with pytest.warns(UserWarning, match="tvm_ext.profile"):
        session = session_of(affine(), options, on_miss="wait")
    assert [arg.shape for arg in session.get_inputs()] == [[2, 8], [2, 4], [None, 2]]
    session.run(None, feed(2))
    program = session.compile_for({"k": (1, 2)})
    assert program.inputs[0].shape == (2, 8) and program.threads == 1
    assert options.enable_profiling and session.get_session_options() is options
    with pytest.raises(Exception, match="does not have configuration"):
        options.get_session_config_entry("session.intra_op.allow_spinning")
    options.enable_profiling = False
    proto = model([node("Neg", "x", "y")], [value("x", ["N"])], [value("y", ["N"])])
    assert session_of(proto, options).compiled.inputs[0].shape == (2,), "all dimensions have sizes"
    with pytest.raises(OptionError, match="SessionOptions"):
        session_of(proto, 3)


@pytest.mark.parametrize(
    "option", [{"on_miss": "x"}, {"max_programs": 0}, {"compile_after": "2"}, {"fusoin": "none"}, {"any_size": 1}]
)
def test_bad_options(option: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(option))):
        session_of(affine(), **option)


def test_what_onnxruntime_does_not_take_needs_shapes() -> None:
    proto = model([node("Elephant", "x", "y")], [value("x", ["N"])], [value("y", ["N"])])
    with pytest.raises(UnsupportedError, match=r"free dimensions.*\n.*shapes="):
        session_of(proto)


def test_the_first_answer_waits_for_nothing_of_tvm(tmp_path: Path) -> None:
    text = """
import sys
import numpy as np
import tvm_ext
session = tvm_ext.InferenceSession(sys.argv[1])
session.run(None, {"x": np.ones((2, 8), "f4"), "b": np.ones((2, 4), "f4"), "k": np.ones((1, 2), "i8")})
print(*sorted({"tvm", "tvm_ffi", "onnx"} & set(sys.modules)))
"""
    assert run_python(text, saved(affine(), tmp_path / "model.onnx")) == ""


def test_a_forked_process_has_a_session_of_its_own() -> None:
    """onnxruntime's threads are not there any more: its session would wait for them for ever."""
    text = """
import os
from tests.driver.session.models import *
session, given = session_of(affine(), threads=2), feed(64)
wanted = session.run(None, given)
if (child := os.fork()) == 0:
    agree(session.run(None, given), wanted)
    del session
    os._exit(0)  # onnxruntime, whatever it is used by, does not get through the exit of a forked process
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_python(text) == "0"


def test_a_pickled_session_is_another_one(no_compile: None, reference) -> None:
    session = session_of(affine(), max_programs=3)
    agree(session.run(None, feed(3)), reference.run(None, feed(3)))
    again = pickle.loads(pickle.dumps(session))
    agree(again.run(None, feed(3)), reference.run(None, feed(3)))
    assert again.get_inputs() == session.get_inputs() and again.report().onnxruntime == 1

"""The session's program of any size: what it runs, what is beyond it, and when it is compiled."""

import gc
import os
import pickle
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.onnx_graphs import random
from tvm_ext.core.errors import InputError, UnsupportedError
from tvm_ext.core.options import CompileOptions
from tvm_ext.driver.session.compiling import Compiler, wide_enough
from tvm_ext.driver.session.programs import Programs
from tvm_ext.driver.session.report import ShapesRow
from tvm_ext.runtime.sizes.symbols import Symbol
from tvm_ext.runtime.spec import TensorSpec

from .models import affine, agree, feed, session_of, theirs, uncompilable
from .test_programs import Compiler as OneByOne
from .test_programs import Program, Shapes, length


class Free(Program):
    """Stands for a program of lengths from 1 to 8."""

    inputs = (TensorSpec("x", ("N", 4), "float32"),)
    symbols = (Symbol("N", 1, 8),)
    metadata = SimpleNamespace(symbols=())


class Fake(OneByOne):
    """Compiles programs of any size too, unless `refuses`; they are 0 in `compiled`."""

    refuses = False

    def here(self, shapes: Shapes, any_size: bool = False) -> Any:
        if not any_size:
            return super().here(shapes)
        if self.gate is not None:
            self.gate.wait(30)
        if self.stopped or self.refuses:
            raise UnsupportedError("N is a value")
        self.compiled.append(0)
        return Free(shapes)

    elsewhere = here


@pytest.fixture
def compiler() -> Fake:
    return Fake()


@pytest.fixture
def make(compiler: Fake) -> Callable[..., Programs]:
    def make(on_miss: str = "onnxruntime", most: int = 8, after: int = 2) -> Programs:
        return Programs(compiler, on_miss, most, after)  # type: ignore[arg-type]

    return make


def ask(programs: Programs, *lengths: int) -> list[str]:
    """What answers each call, all that it begins in the background finished before the next."""
    names = {Free: "any", Program: "own", type(None): "onnxruntime"}
    answers = []
    for n in lengths:
        answers.append(names[type(programs.program_for(length(n)))])
        assert programs.wait_compiled(30)
    return answers


def free_row(programs: Programs) -> ShapesRow:
    row = programs.report("m").any_size
    assert row is not None
    return row


def test_it_is_compiled_at_the_first_call_and_runs_what_is_within_its_bounds(make, compiler: Fake) -> None:
    programs = make()
    assert ask(programs, 3, 5, 8, 9, 0, 9, 9) == ["onnxruntime", "any", "any", *["onnxruntime"] * 3, "own"]
    assert compiler.compiled == [0, 9]
    free, *rows = programs.report("m").rows
    assert (free.onnxruntime, free.compiled, free.state, free.symbols) == (1, 2, "compiled", Free.symbols)
    assert [(row.shapes, row.onnxruntime, row.compiled, row.state) for row in rows] == [
        (length(0), 1, 0, "missed"), (length(9), 2, 1, "compiled"),
    ]  # fmt: skip
    assert "N is 0" in rows[0].reason and "N is 9" in rows[1].reason
    report = programs.report("m")
    assert (report.onnxruntime, report.compiled) == (4, 3) and "any size: N 1 to 8" in str(report)


def test_calls_go_on_while_it_is_compiled(make, compiler: Fake) -> None:
    compiler.gate = threading.Event()
    programs = make()
    assert [programs.program_for(length(n)) for n in (3, 3, 3, 9, 9)] == [None] * 5
    assert free_row(programs).state in ("waiting", "compiling") and free_row(programs).onnxruntime == 5
    compiler.gate.set()
    assert programs.wait_compiled(30)
    assert ask(programs, 3, 9) == ["any", "onnxruntime"] and compiler.compiled == [0]


def test_a_model_that_cannot_be_one_program_has_one_for_each_set_of_shapes(make, compiler: Fake) -> None:
    compiler.refuses = True
    programs = make()
    assert ask(programs, 3, 3, 3, 3) == ["onnxruntime"] * 3 + ["own"]
    assert (free_row(programs).state, free_row(programs).reason) == ("failed", "UnsupportedError: N is a value")
    assert ask(make("wait", after=1), 3, 4) == ["own"] * 2


def test_waiting_in_the_call_compiles_it_first_then_what_is_beyond(make, compiler: Fake) -> None:
    programs = make("wait", after=1)
    assert ask(programs, 9, 3, 4) == ["own", "any", "any"] and compiler.compiled == [0, 9]
    assert (free_row(programs).onnxruntime, free_row(programs).compiled) == (0, 2)


def test_shapes_that_were_compiled_for_keep_their_program(make, compiler: Fake) -> None:
    programs = make("error")
    programs.compile_any_size()
    assert isinstance(programs.compile_for(length(3)), Program) and compiler.compiled == [0, 3]
    assert ask(programs, 3, 4) == ["own", "any"]
    there = r"'x' \(9, 4\): dimension 0: N is 9; it can be 1 to 8\); compiled: any size: N 1 to 8; x \[3, 4\]"
    with pytest.raises(InputError, match=rf"{there}\n.*compile_for.*dims="):
        programs.program_for(length(9))


def test_it_counts_as_one_of_the_programs(make, compiler: Fake) -> None:
    programs = make(most=1)
    assert ask(programs, 3, 9, 3, 9, 3, 9) == ["onnxruntime", "onnxruntime", *["any", "onnxruntime"] * 2]
    held = weakref.ref(programs.program_for(length(3)))
    assert ask(programs, 9, 9, 9) == ["onnxruntime", "onnxruntime", "own"] and compiler.compiled == [0, 9]
    gc.collect()
    assert held() is None and free_row(programs).state == "evicted"
    assert ask(programs, 3, 3, 3) == ["onnxruntime", "onnxruntime", "any"] and compiler.compiled == [0, 9, 0]
    full = make(most=1)
    full.compile_for(length(9))
    assert ask(full, 3, 3, 3) == ["onnxruntime", "onnxruntime", "any"], "no free place: asked for twice, like all"


def test_what_no_program_can_take_does_not_begin_it(make, compiler: Fake) -> None:
    programs = make()
    assert programs.program_for(length(3), "N is 3 and 4") is None and programs.wait_compiled(30)
    assert compiler.compiled == [] and free_row(programs).state == "missed"


def test_closing_and_forking_leave_it_for_later(make, compiler: Fake) -> None:
    compiler.gate = threading.Event()
    programs = make()
    programs.program_for(length(3))
    if (child := os.fork()) == 0:
        code = 1
        try:
            code = 0 if ask(programs, 3, 3) == ["onnxruntime", "any"] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    programs.close()
    assert programs.wait_compiled(30) and free_row(programs).state == "missed"
    assert ask(programs, 3) == ["onnxruntime"]


def test_default_bounds_hold_the_first_call() -> None:
    options = CompileOptions(shapes={"x": ("N", "S", 4), "y": ("N", "T")}, dims={"T": (2, 5)})
    assert wide_enough(options, (("x", (8, 512, 4)), ("y", (8, 9)))) == {"T": (2, 5)}
    assert wide_enough(options, (("x", (9, 600, 4)), ("y", (9, 9)))) == {"T": (2, 5), "N": (1, 16), "S": (1, 1024)}
    assert wide_enough(CompileOptions(shapes={"x": ("N", 4)}), (("x", (100, 4)),)) == {}, "composed of several sizes"


# ------------------------------------------------------------------------------------------- models
@pytest.fixture(scope="module")
def waiting() -> Any:
    """A session that compiles in the call."""
    return session_of(affine(), on_miss="wait", any_size=True, dims={"N": (2, 20)})


def test_one_program_agrees_with_onnxruntime_at_all_sizes(waiting: Any) -> None:
    reference = theirs(affine())
    for rows, more in ((3, 1), (20, 8), (2, 5)):
        agree(waiting.run(["z", "y"], feed(rows, more)), reference.run(["z", "y"], feed(rows, more)))
    row = waiting.report().any_size
    assert (row.compiled, row.onnxruntime, row.state, row.reason) == (3, 0, "compiled", "") and row.seconds
    assert [(symbol.name, symbol.low, symbol.high) for symbol in row.symbols] == [("N", 2, 20), ("k_0", 1, 8)]
    assert waiting.report().as_dict()["rows"][0]["symbols"][0]["name"] == "N"
    agree(waiting.run(None, feed(21)), reference.run(None, feed(21)))
    assert [row.shapes[0][1] for row in waiting.report().rows[1:]] == [(21, 8)]
    for wrong in ({"x": random(3, 8)}, {"x": random(0, 8)}):  # contradicts the other input
        with pytest.raises(InputError, match=r"N is . in input 'x' \(dimension 0\) and 5 in 'b'"):
            waiting.run(None, {**feed(5), **wrong})
    for shape in ((-1, 8), (2.5, 8)):
        with pytest.raises(InputError, match=r"input 'x': .* is no shape"):
            waiting.compile_for({"x": shape, "b": (2, 4), "k": (1, 2)})


def test_a_pickled_session_compiles_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def refuse(self: Compiler, shapes: Any, any_size: bool = False) -> Any:
        asked.append(any_size)
        raise UnsupportedError("not in this test")

    monkeypatch.setattr(Compiler, "here", refuse)
    session = session_of(affine(), on_miss="error", any_size=True, dims={"N": (1, 4)})
    again = pickle.loads(pickle.dumps(session))
    assert asked == [True, True] and again.report().any_size.reason == "UnsupportedError: not in this test"


def test_a_session_says_why_a_model_is_no_program_of_any_size() -> None:
    proto = uncompilable("N")
    session, reference = session_of(proto, on_miss="wait", any_size=True), theirs(proto)
    agree(session.run(None, {"x": random(3)}), reference.run(None, {"x": random(3)}))
    free, own = session.report().rows
    assert (free.state, free.onnxruntime, own.state, own.onnxruntime) == ("failed", 0, "failed", 1)
    assert "Error: " in free.reason and session_of(proto).report().rows == ()

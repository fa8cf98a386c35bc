"""Which shapes are compiled, when, and what of them is kept: with programs that are no programs."""

import gc
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tvm_ext.core.errors import InputError, UnsupportedError
from tvm_ext.driver.session import programs as module
from tvm_ext.driver.session.programs import Programs

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class Program:
    """Stands for a compiled model of these shapes."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes


class Compiler:
    """Compiles at once, or where `gate` is set when that opens; refuses the lengths of `refused`."""

    def __init__(self) -> None:
        self.compiled: list[int] = []
        self.refused: set[int] = set()
        self.gate: threading.Event | None = None
        self.stopped = False

    def here(self, shapes: Shapes, any_size: bool = False) -> Any:
        length = shapes[0][1][0]
        if self.gate is not None:
            self.gate.wait(30)
        if self.stopped or length in self.refused:
            raise UnsupportedError(f"no program of length {length}")
        self.compiled.append(length)
        return Program(shapes)

    elsewhere = here

    def stop(self) -> None:
        self.stopped = True
        if self.gate is not None:
            self.gate.set()

    def rest(self) -> None:
        """Nothing is kept between compiles."""

    def forked(self) -> None:
        self.gate = None


def length(n: int) -> Shapes:
    return (("x", (n, 4)),)


@pytest.fixture
def compiler() -> Compiler:
    return Compiler()


@pytest.fixture
def make(compiler: Compiler) -> Callable[..., Programs]:
    def make(on_miss: str = "onnxruntime", most: int = 8, after: int = 2) -> Programs:
        return Programs(compiler, on_miss, most, after, any_size=False)  # type: ignore[arg-type]

    return make


def ask(programs: Programs, *lengths: int) -> list[bool]:
    """Whether a program answers each call, all that it begins in the background finished before the next."""
    answers = []
    for n in lengths:
        program = programs.program_for(length(n))
        assert program is None or program.shapes == length(n)  # type: ignore[attr-defined]
        answers.append(program is not None)
        assert programs.wait_compiled(30)
    return answers


def states(programs: Programs) -> dict[int, str]:
    return {row.shapes[0][1][0]: row.state for row in programs.report("m").rows}  # type: ignore[misc]


def test_shapes_that_come_again_are_compiled(make, compiler: Compiler) -> None:
    programs = make()
    assert ask(programs, 3, 3, 3, 3) == [False, False, True, True]
    assert ask(make(after=1), 5, 5) == [False, True]
    assert compiler.compiled == [3, 5]
    (row,) = programs.report("m").rows
    assert (row.shapes, row.onnxruntime, row.compiled, row.state, row.reason) == (length(3), 2, 2, "compiled", "")
    assert row.seconds is not None


def test_growing_lengths_compile_nothing(make, compiler: Compiler) -> None:
    programs = make()
    assert not any(ask(programs, *range(1, 40)))
    assert compiler.compiled == [] and set(states(programs).values()) == {"missed"}


def test_more_shapes_in_turn_than_places_do_not_compile_in_circles(make, compiler: Compiler) -> None:
    programs = make(most=3)
    answers = ask(programs, *(list(range(5)) * 6))
    assert compiler.compiled == [0, 1, 2]
    assert answers[-5:] == [True, True, True, False, False]


def test_shapes_that_are_not_used_make_room_and_are_freed(make, compiler: Compiler) -> None:
    programs = make(most=2)
    ask(programs, 1, 1, 2, 2, 1)
    held = weakref.ref(programs.program_for(length(2)))
    ask(programs, 1, 3, 1, 3)
    assert states(programs) == {1: "compiled", 2: "evicted", 3: "compiled"}
    gc.collect()
    assert held() is None
    assert ask(programs, 2, 1, 2, 1, 3) == [False, True, False, True, False], "as any other, when 3 is not asked for"
    assert compiler.compiled == [1, 2, 3, 2]


def test_while_a_program_is_compiled_onnxruntime_answers(make, compiler: Compiler) -> None:
    compiler.gate = threading.Event()
    programs = make()
    assert [programs.program_for(length(n)) for n in (1, 1, 1, 2, 2)] == [None] * 5
    assert not programs.wait_compiled(0)
    assert set(states(programs).values()) <= {"waiting", "compiling"}
    compiler.gate.set()
    assert programs.wait_compiled(30)
    assert compiler.compiled == [1, 2] and states(programs) == {1: "compiled", 2: "compiled"}


def test_what_fails_is_reported_and_not_tried_again(make, compiler: Compiler) -> None:
    compiler.refused = {3}
    programs = make()
    assert not any(ask(programs, 3, 3, 3, 3))
    (row,) = programs.report("m").rows
    assert (row.state, row.onnxruntime, row.seconds) == ("failed", 4, None)
    assert row.reason == "UnsupportedError: no program of length 3"
    compiler.refused = set()
    with pytest.raises(UnsupportedError, match="of length 3"):
        programs.compile_for(length(3))
    assert ask(programs, 4, 4, 4) == [False, False, True]


def test_a_model_that_always_fails_is_left_alone(make, compiler: Compiler) -> None:
    compiler.refused = {1, 2, 3}
    programs = make()
    assert not any(ask(programs, 1, 1, 2, 2, 3, 3, 4, 4, 4))
    assert compiler.compiled == [] and states(programs) == {1: "failed", 2: "failed", 3: "failed", 4: "missed"}
    assert programs.compile_for(length(4)) is not None
    assert ask(programs, 5, 5, 5) == [False, False, True]


def test_waiting_in_the_call_compiles_once_for_all_threads(make, compiler: Compiler) -> None:
    compiler.gate = threading.Event()
    programs = make("wait", after=1)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(programs.program_for, length(7)) for _ in range(4)]
        compiler.gate.set()
    results: list[Any] = [call.result(30) for call in calls]
    assert len(set(results)) == 1 and results[0].shapes == length(7) and compiler.compiled == [7]
    compiler.refused = {8}
    assert [programs.program_for(length(8)) for _ in range(2)] == [None, None]
    assert states(programs) == {7: "compiled", 8: "failed"}
    assert (programs.report("m").compiled, programs.report("m").onnxruntime) == (4, 2)


def test_an_error_names_the_shapes_and_those_that_are_compiled(make) -> None:
    programs = make("error")
    with pytest.raises(InputError, match=r"x \[3, 4\]; compiled: none"):
        programs.program_for(length(3))
    futures = [programs.compile_for(length(n)) for n in (1, 2)]
    with pytest.raises(InputError, match=r"x \[3, 4\]; compiled: x \[1, 4\]; x \[2, 4\]\n.*compile_for"):
        programs.program_for(length(3))
    assert [programs.program_for(length(n)) for n in (1, 2)] == futures


def test_what_no_program_can_take_is_not_compiled(make, compiler: Compiler) -> None:
    programs = make()
    assert [programs.program_for(length(1), "N is 1 and 2") for _ in range(4)] == [None] * 4
    (row,) = programs.report("m").rows
    assert (row.state, row.reason) == ("onnxruntime", "N is 1 and 2") and compiler.compiled == []


def test_closing_ends_the_background(make, compiler: Compiler) -> None:
    compiler.gate = threading.Event()
    programs = make()
    assert [programs.program_for(length(n)) for n in (1, 1, 2, 2)] == [None] * 4
    programs.close()
    assert programs.wait_compiled(30)
    assert states(programs) == {1: "missed", 2: "missed"} and compiler.compiled == []
    assert ask(programs, 1, 1, 1) == [False, False, False], "calls go on"


def test_rows_are_bounded(make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 5)
    programs = make()
    ask(programs, 100, 100, *range(20))
    report = programs.report("small")
    assert [row.shapes for row in report.rows] == [length(n) for n in (100, 15, 16, 17, 18, 19)]
    assert report.forgotten == (15, 15) and (report.onnxruntime, report.compiled) == (22, 0)
    assert "and 15 calls of 15 more sets of shapes" in str(report)
    assert report.as_dict()["rows"][0]["state"] == "compiled"


def test_a_forked_process_goes_on_by_itself(make, compiler: Compiler) -> None:
    """Fork while the background compiles, and holds its lock."""
    compiler.gate = threading.Event()
    programs = make()
    programs.program_for(length(1))
    programs.program_for(length(1))
    if (child := os.fork()) == 0:
        code = 1
        try:
            code = 0 if ask(programs, 1, 1) == [False, True] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    compiler.gate.set()
    assert programs.wait_compiled(30) and compiler.compiled == [1]

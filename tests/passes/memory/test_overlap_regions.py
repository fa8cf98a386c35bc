"""Asynchronous regions: in the order that lets the CPU go on, awaited before what reads them, equal to the bit."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.byoc import interpreter
from tests.onnx_graphs import model, node, random, value
from tests.state_graphs import HEADS, LENGTH, WIDTH, cached, position
from tvm_ext.byoc import register
from tvm_ext.core.errors import DriverError, OptionError, RunError
from tvm_ext.runtime import drivers
from tvm_ext.runtime.model import CompiledModel

NAME = "queued_test"
SHAPE = (4, 6)
Run = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]


@pytest.fixture(autouse=True)
def backend() -> Iterator[None]:
    register(interpreter.make(NAME))
    yield


def compiled(proto: onnx.ModelProto, asynchronous: bool = True, **options: Any) -> CompiledModel:
    settings = {"when": "always", "asynchronous": asynchronous}
    return tvm_ext.compile(proto, offload=NAME, offload_options=settings, cache=False, threads=1, **options)


def through(around: Callable[[Run], Run]) -> None:
    """Have models that are compiled from now on run their programs through a function around the runner."""
    register(interpreter.make(NAME, driver=lambda program: around(interpreter.driver(program))))


def slowly(runner: Run) -> Run:
    """Whatever its outputs held is gone at once, and the results are there a moment later."""

    def run(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        for output in outputs:
            output[...] = np.nan
        time.sleep(0.002)
        runner(inputs, outputs)

    return run


def two_branches() -> onnx.ModelProto:
    """y = softmax(matmul(x, w)) * softmax(softmax(x)): a region, and kernels beside it."""
    nodes = [
        node("MatMul", "x w", "a"),
        node("Softmax", "a", "b"),
        node("Softmax", "x", "c"),
        node("Softmax", "c", "d"),
    ]
    nodes.append(node("Mul", "b d", "y"))
    return model(nodes, [value("x", SHAPE)], [value("y", SHAPE)], {"w": random(6, 6)})


class Awaited:
    """Runs of regions that say when a call waits for them.

    Attributes:
        is_awaited: set by the first that does.
        failing: raised there instead, if it is not None.
    """

    def __init__(self, patch: pytest.MonkeyPatch, failing: Exception | None = None) -> None:
        self.is_awaited, self._failing, self._queue_of = threading.Event(), failing, drivers._queue_of
        patch.setattr(drivers, "_queue_of", lambda name: self)

    def submit(self, *run: Any) -> Any:
        future = self._queue_of(NAME).submit(*run)
        wait = future.result

        def result() -> None:
            self.is_awaited.set()
            if self._failing is not None:
                raise self._failing
            wait()

        future.result = result  # type: ignore[method-assign,assignment]
        return future

    def runner(self, runner: Run) -> Run:
        """One that ends once it is waited for."""

        def run(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
            if not self.is_awaited.wait(60):
                raise TimeoutError("nobody waits for this region")
            runner(inputs, outputs)

        return run


def graph(seed: int) -> onnx.ModelProto:
    """A random graph of products, which are offloaded, and of what the CPU does, with several outputs."""
    rng = np.random.default_rng(seed)
    names, nodes, constants = ["x"], [], {}
    for number in range(16):
        op, result = rng.choice(["MatMul", "MatMul", "Softmax", "Tanh", "Add", "Mul"]), f"v{number}"
        operands = [str(rng.choice(names[-6:]))]
        if op == "MatMul":
            operands.append(f"w{number}")
            constants[f"w{number}"] = random(6, 6, seed=number, scale=0.4)
        elif op in ("Add", "Mul"):
            operands.append(str(rng.choice(names)))
        nodes.append(node(str(op), " ".join(operands), result, f"n{number}"))
        names.append(result)
    read = {name for each in nodes for name in each.input}
    outputs = [name for name in names[1:] if name not in read or rng.random() < 0.2]
    return model(nodes, [value("x", SHAPE)], [value(name, SHAPE) for name in outputs], constants)


def passes(program: CompiledModel) -> dict[str, Any]:
    return {row["name"]: row for row in program.report["passes"]}


@pytest.mark.parametrize("seed", range(12))
def test_a_graph_of_branches_is_equal_to_the_bit(seed: int) -> None:
    through(slowly)
    proto, x = graph(seed), random(*SHAPE, seed=seed)
    apart, beside = (compiled(proto, asynchronous) for asynchronous in (False, True))
    wanted = apart.run(x)
    for _ in range(3):
        for name, array in beside.run(x).items():
            np.testing.assert_array_equal(array, wanted[name])
    assert tvm_ext.verify(beside, proto).ok


def test_what_a_run_does_beside_a_region() -> None:
    program = compiled(two_branches())
    ((name, text),) = passes(program)["order-regions"]["fired"]
    assert (name, int(text.split()[0])) == (f"{NAME}_region_0", 2)
    assert len(passes(program)["wait-for-regions"]["fired"]) == 1
    assert program.offload_report().asynchronous
    assert not compiled(two_branches(), asynchronous=False).offload_report().asynchronous


def test_a_region_whose_results_are_read_at_once_says_so() -> None:
    nodes = [node("MatMul", "x w", "a"), node("Softmax", "a", "y")]
    program = compiled(model(nodes, [value("x", SHAPE)], [value("y", SHAPE)], {"w": random(6, 6)}))
    assert [name for name, _ in passes(program)["order-regions"]["skipped"]] == [f"{NAME}_region_0"]


def test_the_cpu_goes_on_while_a_region_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """The region ends once the call has come to what reads its results."""
    proto, x = two_branches(), random(*SHAPE)
    wanted = compiled(proto, asynchronous=False).run(x)
    through(Awaited(monkeypatch).runner)
    np.testing.assert_array_equal(compiled(proto).run(x)["y"], wanted["y"])


def test_a_call_that_fails_ends_with_the_regions_it_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing writes to its memory later, and the model can be called again."""
    proto, x, ended = two_branches(), random(*SHAPE), []
    wanted = compiled(proto, asynchronous=False).run(x)
    awaited = Awaited(monkeypatch, OSError("interrupted"))

    def noted(runner: Run) -> Run:
        run = awaited.runner(runner)

        def slow(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
            run(inputs, outputs)
            time.sleep(0.02)
            ended.append(True)

        return slow

    through(noted)
    program = compiled(proto)
    with pytest.raises(RunError, match="interrupted"):
        program.run(x)
    assert ended == [True]
    monkeypatch.undo()
    np.testing.assert_array_equal(program.run(x)["y"], wanted["y"])


def test_an_error_of_a_driver_names_its_region_at_the_wait() -> None:
    settings = {"when": "always", "asynchronous": True, "fail": "out of paper"}
    program = tvm_ext.compile(two_branches(), offload=NAME, offload_options=settings, cache=False)
    for _ in range(2):
        with pytest.raises(DriverError, match=f"'{NAME}', region {NAME}_region_0: ValueError: out of paper"):
            program.run(random(*SHAPE))


def test_looks_at_single_calls_are_those_of_a_synchronous_run() -> None:
    proto, x = two_branches(), {"x": random(*SHAPE)}
    seen: dict[bool, list[str]] = {}
    for asynchronous in (False, True):
        program, names = compiled(proto, asynchronous), []
        program.run_observed(x, lambda name, before, names=names: names.append(name) if before else None)  # type: ignore[misc]
        seen[asynchronous] = sorted(names)
        assert not drivers._in_flight.regions
        assert tvm_ext.verify(program, proto, x, layers=True).ok
        assert len(tvm_ext.profile(program, x, rounds=1, seconds=0.001).launches) == len(program.offload_report().calls)
    assert seen[True] == seen[False]


def test_an_artifact_of_asynchronous_regions(tmp_path: Path) -> None:
    proto, x = two_branches(), random(*SHAPE)
    program = compiled(proto)
    program.export(tmp_path / "model.so")
    loaded = tvm_ext.load(tmp_path / "model.so")
    for name, array in program.run(x).items():
        np.testing.assert_array_equal(loaded.run(x)[name], array)


FORK = f"""
import os, sys
import numpy as np
from tests.byoc import interpreter
from tvm_ext.byoc import register
from tvm_ext.runtime.model import load

register(interpreter.make({NAME!r}))
program, x = load(sys.argv[1]), np.ones({SHAPE}, np.float32)
wanted = program.run(x)["y"]
if (child := os.fork()) == 0:
    os._exit(0 if np.array_equal(program.run(x)["y"], wanted) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("done")
"""


def test_a_forked_process_has_a_thread_of_its_own(tmp_path: Path) -> None:
    compiled(two_branches()).export(tmp_path / "model.so")
    command = [sys.executable, "-c", FORK, str(tmp_path / "model.so")]
    end = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert end.stdout.strip() == "done", end.stderr


def test_a_model_with_states_waits_at_once() -> None:
    proto = cached("ScatterND")
    program = compiled(proto, state={"present": "past"})
    facts = passes(program)["wait-for-regions"]
    assert facts["skipped"] and not facts["fired"]
    assert not program.offload_report().asynchronous
    inputs = {"x": random(HEADS, 1, WIDTH), "at": position("ScatterND", 3), "past": random(HEADS, LENGTH, WIDTH)}
    wanted = compiled(proto, asynchronous=False, state={"present": "past"}).run(inputs)
    for name, array in program.run(inputs).items():
        np.testing.assert_array_equal(array, wanted[name])


def test_the_option_is_a_switch() -> None:
    with pytest.raises(OptionError, match="asynchronous=1: choose True or False"):
        tvm_ext.compile(two_branches(), offload=NAME, offload_options={"asynchronous": 1}, cache=False)

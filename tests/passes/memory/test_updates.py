"""States that a kernel changes in part are updated in place, where nothing needs the old value any more."""

from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tests.state_graphs import HEADS, LENGTH, WIDTH, cached, expected, position
from tvm_ext.runtime.model import CompiledModel

UPDATES = ("ScatterND", "ScatterElements", "TensorScatter", "Where")
NAMES = ("scatter_nd", "scatter_elements", "tensor_scatter", "where")


def compiled(proto: onnx.ModelProto, state: Any = None, **options: Any) -> CompiledModel:
    return tvm_ext.compile(proto, state=state or {"present": "past"}, cache=False, threads=1, **options)


def said(program: CompiledModel) -> dict[str, Any]:
    return next(row for row in program.report["passes"] if row["name"] == "update-states")


@pytest.mark.parametrize("update", UPDATES)
def test_a_cache_is_updated_in_place_and_run_leaves_its_inputs_alone(update: str) -> None:
    updated = compiled(cached(update))
    (program,) = updated.metadata.programs
    assert program.updates == ((1, 2),) and len(said(updated)["fired"]) == 1 and not said(updated)["skipped"]
    x, past, at = random(HEADS, 1, WIDTH), random(HEADS, LENGTH, WIDTH), position(update, 5)
    before = past.copy()
    read: list[list[tuple[int, ...]]] = []
    outputs = updated.run_inspected(
        {"x": x, "at": at, "past": past},
        lambda name, first, arrays: read.append([a.shape for a in arrays]) if first else None,
    )
    y, present = expected(x, 5, past)
    assert np.allclose(outputs["y"], y, atol=1e-5) and np.allclose(outputs["present"], present, atol=1e-5)
    assert np.array_equal(past, before) and not np.shares_memory(outputs["present"], past)
    kernel = next(kernel for kernel in updated.report["kernels"] if kernel["name"] in NAMES)
    assert kernel["bytes"] < past.nbytes
    cache = {(HEADS, LENGTH, WIDTH), (1, HEADS, LENGTH, WIDTH)}
    assert sum(shape in cache for shapes in read for shape in shapes) == 2, "one kernel writes it, another one reads it"


def test_a_cache_whose_axis_goes_to_the_front_and_back_is_updated_in_place() -> None:
    """As exporters write cache[:, at] = key."""
    nodes = [
        node("Transpose", "past", "front", perm=[1, 0, 2]), node("Transpose", "key", "new", perm=[1, 0, 2]),
        node("ScatterND", "front at new", "written"), node("Transpose", "written", "present", perm=[1, 0, 2]),
        node("MatMul", "query present", "y"),
    ]  # fmt: skip
    ins = [value("query", (3, 1, 8)), value("key", (3, 2, 4)), value("at", (2, 1), onnx.TensorProto.INT64)]
    program = compiled(
        model(nodes, [*ins, value("past", (3, 8, 4))], [value("y", (3, 1, 4)), value("present", (3, 8, 4))])
    )
    assert program.metadata.programs[0].updates == ((1, 3),)
    session, past = program.session(), np.zeros((3, 8, 4), np.float32)
    for at in ([0, 1], [2, 3], [-1, 0]):
        key, query = random(3, 2, 4, seed=at[1]), random(3, 1, 8)
        past[:, at] = key
        y = session.step({"query": query, "key": key, "at": np.array(at)[:, None]})["y"]
        assert np.array_equal(session.state["past"], past) and np.allclose(y, query @ past, atol=1e-5)


def test_positions_outside_of_a_cache_change_nothing() -> None:
    program = compiled(cached("TensorScatter"))
    x, past = random(HEADS, 1, WIDTH), random(HEADS, LENGTH, WIDTH)
    for at in (-1, LENGTH, 1 << 40):
        assert np.array_equal(program.run({"x": x, "at": np.array([at]), "past": past})["present"], past)


@pytest.mark.parametrize("later", [node("Mul", "past highest", "z"), node("Identity", "past", "z")])
def test_an_old_value_that_is_read_later_is_kept(later: onnx.NodeProto) -> None:
    more = [node("ReduceMax", "scores", "highest", keepdims=1), later]
    program = compiled(cached("ScatterND", more, "y present z"))
    assert program.metadata.programs[0].updates == () and "z reads the old value" in said(program)["skipped"][0][1]
    x, past, at = random(HEADS, 1, WIDTH), random(HEADS, LENGTH, WIDTH), position("ScatterND", 3)
    outputs = program.run({"x": x, "at": at, "past": past})
    assert np.allclose(outputs["present"], expected(x, 3, past)[1], atol=1e-5)


def test_an_old_value_that_is_read_before_may_go() -> None:
    nodes = [
        node("ReduceSum", "past", "total", keepdims=0), node("Mul", "x total", "scaled"),
        node("ScatterND", "past at scaled", "present"),
    ]  # fmt: skip
    ins = [value("x", (1, 4)), value("at", (1, 1), onnx.TensorProto.INT64), value("past", (3, 4))]
    program = compiled(model(nodes, ins, [value("present", (3, 4))]))
    assert program.metadata.programs[0].updates == ((0, 2),)
    session, past = program.session({"past": random(3, 4)}), random(3, 4)
    for at in (0, 2, 0):
        session.step({"x": random(1, 4), "at": np.array([[at]])})
        past[at] = random(1, 4)[0] * past.sum()
    assert np.allclose(session.state["past"], past, rtol=1e-4)


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("Add", "past x", "present")], "a whole new value"),
        ([node("Where", "mask x past", "present")], "a whole new value"),  # another condition for each element
        ([node("Concat", "tail x1", "present", axis=0)], ""),
        ([node("Identity", "past", "present")], "a whole new value"),
        ([node("Identity", "fixed", "present")], "a whole new value"),
    ],
)
def test_a_new_value_is_no_update(nodes: list[onnx.NodeProto], reason: str) -> None:
    before = [
        node("Greater", "x zero", "mask"),
        node("Slice", "past one four", "tail"),
        node("Slice", "x zero1 one", "x1"),
    ]
    weights = {"zero": np.float32(0), "one": np.array([1]), "four": np.array([4]), "zero1": np.array([0]),
               "fixed": random(4, 3)}  # fmt: skip
    proto = model([*before, *nodes], [value("x", (4, 3)), value("past", (4, 3))], [value("present", (4, 3))], weights)
    program = compiled(proto)
    assert program.metadata.programs[0].updates == () and program.metadata.state == (("present", "past"),)
    assert reason in said(program)["skipped"][0][1]
    session, past = program.session(), np.zeros((4, 3), np.float32)
    for step in range(4):
        x = random(4, 3, seed=step)
        past = program.run({"x": x, "past": past})["present"]
        session.step({"x": x})
        assert np.array_equal(session.state["past"], past)


def test_a_kernel_that_also_runs_elsewhere_stays_as_it_is() -> None:
    nodes = [node("ScatterND", "past at x", "present"), node("ScatterND", "other at x", "y")]
    ins = [
        value("x", (1, 4)),
        value("at", (1, 1), onnx.TensorProto.INT64),
        value("past", (3, 4)),
        value("other", (3, 4)),
    ]
    proto = model(nodes, ins, [value("present", (3, 4)), value("y", (3, 4))])
    one, both = compiled(proto), compiled(proto, {"present": "past", "y": "other"})
    assert one.metadata.programs[0].updates == () and "what is no state" in said(one)["skipped"][0][1]
    assert both.metadata.programs[0].updates == ((0, 2), (1, 3))
    feeds = {"x": random(1, 4), "at": np.array([[1]]), "past": random(3, 4), "other": random(3, 4, seed=1)}
    for name, array in one.run(feeds).items():
        assert np.array_equal(both.run(feeds)[name], array)


def test_without_the_pass_a_state_has_two_buffers() -> None:
    from tvm_ext.core.instruments import Instruments, Switches
    from tvm_ext.core.options import CompileOptions
    from tvm_ext.driver.compile import compile_model

    options = CompileOptions(cache=False, threads=1, state=(("present", "past"),))
    compiled = compile_model(cached("Where"), options, Instruments(switches=Switches(passes={"update-states"})))
    assert compiled.metadata.programs[0].updates == () and compiled.state == {"present": "past"}
    session, past = compiled.session(), np.zeros((HEADS, LENGTH, WIDTH), np.float32)
    for at in (0, 1, 0):
        x = random(HEADS, 1, WIDTH, seed=at)
        y, past = expected(x, at, past)
        assert np.allclose(session.step({"x": x, "at": position("Where", at)})["y"], y, atol=1e-5)
    assert np.allclose(session.state["past"], past, atol=1e-5)

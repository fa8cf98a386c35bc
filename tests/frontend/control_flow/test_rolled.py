"""Loops that stay loops: compiled once for one step, run as often as onnxruntime runs them; others are refused."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvm_ext
from tvm_ext.core.errors import StageError, UnsupportedError
from tvm_ext.frontend.control_flow.rolled import _NO_LIMIT
from tvm_ext.runtime import control_flow

from ..graphs import imported, message, model, node, run_onnxruntime, value

INT, BOOL = TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(11)
X = RNG.standard_normal((3, 7)).astype(np.float32)
PASSED_ON = node("Identity", ["c"], ["go"])


def step(condition: list[onnx.NodeProto], *more: onnx.NodeProto, collect: bool = False) -> onnx.GraphProto:
    """One step: s -> tanh(s w) + outer, and with `collect` a row of it; `condition` makes "go" of what there is."""
    nodes = [node("MatMul", ["s", "w"], ["m"]), node("Tanh", ["m"], ["t"]), node("Add", ["t", "outer"], ["s_out"])]
    nodes += [node("ReduceSum", ["s_out"], ["row"], keepdims=0)] * collect
    outputs = [value("go", [], BOOL), value("s_out", [3, 7]), *([value("row", [])] if collect else [])]
    inputs = [value("i", [], INT), value("c", [], BOOL), value("s", [3, 7])]
    return helper.make_graph([*nodes, *more, *condition], "body", inputs, outputs)


def looping(body: onnx.GraphProto, trips: int | None, inputs: tuple[Any, ...] = (), **more: np.ndarray) -> Any:
    """outer = sin(x); y, rows = the loop; z = y + outer. Trips of -1 are an input "n"; None: there are none."""
    outputs = ["y", "rows"][: len(body.output) - 1]
    loop = node("Loop", ["" if trips is None else "n", "", "x"], outputs, "loop", body=body)
    nodes = [node("Sin", ["x"], ["outer"]), loop, node("Add", ["y", "outer"], ["z"])]
    weights = {"w": RNG.standard_normal((7, 7)).astype(np.float32) / 3, **more}
    arguments = [value("x", [3, 7]), *inputs, *([value("n", [], INT)] if trips == -1 else [])]
    if trips is not None and trips >= 0:
        weights["n"] = np.array(trips)
    return model(nodes, arguments, [value("z", [3, 7]), *([value("rows", None)] if "rows" in outputs else [])], weights)


def agree(proto: onnx.ModelProto, *feeds: dict[str, np.ndarray], **options: Any) -> Any:
    compiled = tvm_ext.compile(proto, cache=False, threads=2, **options)
    for inputs in feeds:
        outputs = compiled.run(inputs)
        for spec, wanted in zip(compiled.outputs, run_onnxruntime(proto, inputs), strict=True):
            assert (outputs[spec.name].shape, outputs[spec.name].dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(outputs[spec.name], wanted, rtol=1e-4, atol=1e-4)
    return compiled


def kernels(compiled: Any) -> list[str]:
    return [kernel["recipe"] for kernel in compiled.report["kernels"]]


def test_a_long_loop_is_compiled_once_and_exported(tmp_path: Any) -> None:
    proto = looping(step([PASSED_ON], collect=True), 1000)
    compiled = agree(proto, {"x": X}, {"x": -X})
    assert f"offload:{control_flow.NAME}" in kernels(compiled)
    (body,) = compiled.report["bodies"]
    assert len(body["kernels"]) < 8
    compiled.export(tmp_path / "loop.so")
    loaded = tvm_ext.load(tmp_path / "loop.so")
    for name, array in compiled.run({"x": X}).items():
        np.testing.assert_array_equal(loaded.run({"x": X})[name], array)


@pytest.mark.parametrize("values", [0, 1, 3, 700, -2])
def test_a_trip_count_that_is_an_input(values: int) -> None:
    agree(looping(step([PASSED_ON]), -1), {"x": X, "n": np.array(values)})


@pytest.mark.parametrize("trips", [None, 1000])
def test_a_condition_that_looks_at_values(trips: int | None) -> None:
    ends = [node("ReduceMax", ["s_out"], ["most"], keepdims=0), node("Less", ["most", "limit"], ["less"]),
            node("Less", ["i", "enough"], ["few"]), node("And", ["less", "few"], ["go"])]  # fmt: skip
    proto = looping(step(ends), trips, (value("limit", []),), enough=np.array(40))
    agree(proto, *({"x": X, "limit": np.array(limit, np.float32)} for limit in (-9, 1.5, 9)))


@pytest.mark.parametrize("trips", [None, 10_000])
def test_counters_decide_how_many_steps_there_are_and_so_what_is_collected(trips: int | None) -> None:
    proto = looping(step([node("Less", ["i", "last"], ["go"])], collect=True), trips, last=np.array(300))
    compiled = agree(proto, {"x": X})
    assert compiled.outputs[1].shape == (301,) and len(compiled.report["bodies"]) == 1


@pytest.mark.parametrize(("axis", "out", "back"), [(0, 0, [0, 0]), (1, 1, [1, 0]), (-1, -2, [0, 1])])
def test_a_long_scan(axis: int, out: int, back: list[int]) -> None:
    body = helper.make_graph(
        [node("Add", ["s", "r"], ["a"]), node("Tanh", ["a"], ["t"]), node("Mul", ["t", "k"], ["each"])], "body",
        [value("s", [3]), value("r", [3])], [value("t", [3]), value("each", [3])],
    )  # fmt: skip
    scan = node("Scan", ["s0", "x"], ["s", "z"], "scan", body=body, num_scan_inputs=1, scan_input_axes=[axis],
                scan_input_directions=back[:1], scan_output_axes=[out], scan_output_directions=back[1:])  # fmt: skip
    shape = (501, 3) if axis == 0 else (3, 501)
    proto = model([node("Exp", ["s0"], ["k"]), scan], [value("s0", [3]), value("x", shape)],
                  [value("s", [3]), value("z", None)])  # fmt: skip
    compiled = agree(proto, {"s0": X[:, 0].copy(), "x": RNG.standard_normal(shape).astype(np.float32)})
    assert f"offload:{control_flow.NAME}" in kernels(compiled)


def test_a_loop_in_a_loop_and_a_state_that_is_passed_through() -> None:
    inner = helper.make_graph(
        [node("Add", ["a", "s"], ["b"]), node("Mul", ["b", "half"], ["a_out"]), node("Identity", ["d"], ["d_out"])],
        "inner", [value("j", [], INT), value("d", [], BOOL), value("a", [3, 7])],
        [value("d_out", [], BOOL), value("a_out", [3, 7])],
    )  # fmt: skip
    nodes = [node("Loop", ["steps", "", "s"], ["deep"], "inner", body=inner), node("Identity", ["k"], ["k_out"])]
    body = helper.make_graph(
        [*nodes, node("Add", ["deep", "k"], ["s_out"]), PASSED_ON], "body",
        [value("i", [], INT), value("c", [], BOOL), value("s", [3, 7]), value("k", [7])],
        [value("go", [], BOOL), value("s_out", [3, 7]), value("k_out", [7])],
    )  # fmt: skip
    loop = node("Loop", ["n", "", "x", "k0"], ["y", "last"], "outer", body=body)
    proto = model([loop], [value("x", [3, 7]), value("k0", [7]), value("n", [], INT)],
                  [value("y", [3, 7]), value("last", [7])],
                  {"half": np.float32(0.4), "steps": np.array(150)})  # fmt: skip
    compiled = agree(proto, *({"x": X, "k0": X[0].copy(), "n": np.array(n)} for n in (0, 1, 5)))
    assert [body["name"] for body in compiled.report["bodies"]] == ["body0", "body0_body0"]


def test_what_cannot_stay_a_loop_is_refused_with_both_reasons() -> None:
    with pytest.raises(UnsupportedError) as info:
        imported(looping(step([PASSED_ON], collect=True), -1))
    text = message(info.value)
    for words in ("'loop' (Loop", "'n', is computed", "'rows' has an element for each step", "freeze={'n': ...}"):
        assert words in text
    grows = helper.make_graph(
        [node("Concat", ["s", "s"], ["s_out"], axis=0), PASSED_ON], "body",
        [value("i", [], INT), value("c", [], BOOL), value("s", None)], [value("go", [], BOOL), value("s_out", None)],
    )  # fmt: skip
    proto = model([node("Loop", ["n", "", "x"], ["y"], "loop", body=grows)],
                  [value("x", [3, 7]), value("n", [], INT)], [value("y", None)])  # fmt: skip
    with pytest.raises(UnsupportedError, match=r"'loop' \(Loop.*'x' is float32\[3, 7\] before a step"):
        imported(proto)


def test_what_fails_in_a_body_is_named() -> None:
    body = step([PASSED_ON], node("RandomNormalLike", ["s"], ["noise"], "odd"))
    with pytest.raises(UnsupportedError, match=r"'odd'.*RandomNormalLike"):
        imported(looping(body, 1000))


def test_the_program_of_a_loop_without_limit() -> None:
    """A step more than one can count: only the condition ends it."""
    flow = control_flow.Loop("body", 1)
    run = control_flow.driver(control_flow.program_of(flow), {"body": lambda xs: [np.array(xs[0] < 6), xs[2] + xs[0]]})
    last = np.zeros((), np.int64)
    run([np.array(_NO_LIMIT), np.array(True), np.array(5)], [last])
    assert last == 5 + sum(range(7))


def test_a_model_with_a_loop_verifies_and_is_profiled() -> None:
    proto = looping(step([PASSED_ON]), 300)
    compiled = tvm_ext.compile(proto, cache=False, threads=2)
    assert tvm_ext.verify(compiled, proto).ok and tvm_ext.verify(compiled, proto, layers=True).ok
    profile = tvm_ext.profile(proto, rounds=1, seconds=0.01, code=False, threads=2, cache=False)
    assert f"offload:{control_flow.NAME}" in {launch.recipe for launch in profile.launches}


def test_a_loop_and_a_symbolic_batch() -> None:
    proto = looping(step([PASSED_ON]), 300)
    for stated in (proto.graph.input[0], proto.graph.output[0]):
        stated.type.tensor_type.shape.dim[0].dim_param = "N"
    for stated in (*proto.graph.node[1].attribute[0].g.input[2:], *proto.graph.node[1].attribute[0].g.output[1:]):
        stated.type.tensor_type.shape.dim[0].dim_param = "N"
    with pytest.raises(UnsupportedError, match=r"the steps of node 'loop', a loop, depend on sizes"):
        tvm_ext.compile(proto, shapes={"x": ("N", 7)}, cache=False)


def test_no_compile_goes_on_from_a_stage_of_a_model_with_a_loop(tmp_path: Any) -> None:
    run = tvm_ext.inspect(looping(step([PASSED_ON]), 300), threads=1)
    run.dump(tmp_path)
    assert '"body": "body0"' in run.stage("program")
    for stage in ("relax", "scheduled"):
        with pytest.raises(StageError, match="bodies of its loops"):
            tvm_ext.resume(next(tmp_path.glob(f"*_{stage}.py")))


def test_a_loop_of_which_nothing_comes_out_but_what_went_in() -> None:
    body = helper.make_graph(
        [node("Identity", ["s"], ["s_out"]), PASSED_ON], "body",
        [value("i", [], INT), value("c", [], BOOL), value("s", [3, 7])],
        [value("go", [], BOOL), value("s_out", [3, 7])],
    )  # fmt: skip
    compiled = agree(looping(body, -1), {"x": X, "n": np.array(3)})
    assert "bodies" not in compiled.report


@pytest.mark.parametrize(("trips", "reason"), [(1 << 31, "2147483648 steps"), (None, "never ends")])
def test_what_would_run_for_ever_is_refused(trips: int | None, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=f"'loop'.*{reason}"):
        imported(looping(step([PASSED_ON]), trips))

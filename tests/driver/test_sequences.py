"""Programs whose inputs and outputs are sequences and optionals, against onnxruntime."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvm_ext
from tests.nested_models import OPTIONAL, OPTIONAL_SEQUENCE, SEQUENCE, TENSOR, feeds, mixed, shapes_of, typed
from tests.onnx_graphs import model, node, random, value
from tests.oracles.compare import close, difference
from tests.oracles.reference import compiled, onnxruntime_outputs
from tvm_ext.core.errors import InputError, TvmExtError

INT = TensorProto.INT64


def reference(proto: onnx.ModelProto, inputs: dict[str, Any]) -> dict[str, Any]:
    return onnxruntime_outputs(proto, {name: x for name, x in inputs.items() if x is not None})


def check(proto: onnx.ModelProto, inputs: dict[str, Any], **options: Any) -> Any:
    """The program, which gives what onnxruntime gives."""
    program = compiled(proto, threads=1, shapes={**shapes_of(inputs), **options.pop("shapes", {})}, **options)
    agree(program.run(inputs), reference(proto, inputs))
    return program


def agree(outputs: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(outputs) == list(expected)
    assert difference(list(outputs.values()), list(expected.values()), close(1e-5, 1e-5))[0] == ""


CASES = {
    "all there": feeds(3, 1), "one": feeds(2, more=2), "several": feeds(1, 4, 2, 3, opt=False),
    "absent": feeds(2, opt=False, more=None), "no tensors": feeds(1, 1, more=0),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_kinds_of_inputs_and_outputs(case: str) -> None:
    check(mixed(), CASES[case])


@pytest.fixture(scope="module")
def program() -> Any:
    return check(mixed(), CASES["all there"])


def test_what_a_program_says_of_itself(program: Any) -> None:
    assert [spec.name for spec in program.inputs] == ["seq[0]", "seq[1]", "opt", "more[0]", "x"]
    assert [spec.name for spec in program.outputs] == ["parts[0]", "parts[1]", "parts[2]", "same[0]", "maybe", "whole"]
    assert [v.type for v in program.arguments[:3]] == [
        "seq(tensor(float))", "optional(tensor(float))", "optional(seq(tensor(float)))",
    ]  # fmt: skip
    assert "seq: [float32[3, 4], float32[1, 4]]" in repr(program) and "none: []" in repr(program)


def test_tensors_by_position_and_by_their_own_names(program: Any) -> None:
    values = CASES["all there"]
    expected = program.run(values)
    agree(program.run(*values.values()), expected)
    agree(program.run(program.tensors_of(values)), expected)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seq": [random(3, 4)]}, ("'seq'", "1 elements", "takes 2")),
        ({"seq": [random(3, 4), random(2, 4)]}, ("'seq[1]'", "[1, 4]", "dimension 0 is 2")),
        ({"seq": [random(3, 4), np.zeros((1, 4))]}, ("'seq[1]'", "float64", "float32")),
        ({"opt": None}, ("'opt'", "None")),
        ({"more": random(3, 1)}, ("'more'", "a list of 1 arrays")),
    ],
)
def test_inputs_that_do_not_fit(program: Any, change: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        program.run({**CASES["all there"], **change})
    text = f"{caught.value.message} {caught.value.fix}"
    assert all(word in text for word in words), text


def test_artifacts_copies_and_cached_programs(program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = CASES["all there"]
    program.export(tmp_path / "m.so")
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path / "cache"))
    options = {"threads": 1, "shapes": shapes_of(values)}
    first = [tvm_ext.compile(mixed(), **options) for _ in range(2)]
    for other in (tvm_ext.load(tmp_path / "m.so"), pickle.loads(pickle.dumps(program)), *first):
        agree(other.run(values), program.run(values))
        assert (other.arguments, other.results) == (program.arguments, program.results)


def test_a_program_from_a_stage_file(tmp_path: Path) -> None:
    values = CASES["all there"]
    tvm_ext.inspect(mixed(), threads=1, shapes=shapes_of(values)).dump(tmp_path)
    (file,) = tmp_path.glob("*grouped*.py")
    agree(tvm_ext.resume(file).run(values), reference(mixed(), values))


def test_checks_and_reports_look_into_sequences(program: Any, tmp_path: Path) -> None:
    values = CASES["all there"]
    for inputs in (None, values):
        report = tvm_ext.verify(program, mixed(), inputs)
        assert report.ok and [o.name for o in report.outputs] == [spec.name for spec in program.outputs], report
        layers: Any = tvm_ext.verify(program, mixed(), inputs, layers=True)
        assert layers.ok and {o.name for o in layers.outputs.outputs} >= {"parts[0]", "parts[2]", "whole"}, layers
    wrong = {**program.run(values), "same": None, "parts": [*program.run(values)["parts"][:2], random(2, 5)]}
    report = tvm_ext.verify(program, reference=wrong, inputs=values)
    assert any("'same'" in problem for problem in report.problems) and not report.ok
    assert [o.name for o in report.outputs if not o.ok] == ["parts[2]"]
    profile = tvm_ext.profile(mixed(), values, rounds=2, seconds=0.01, threads=1, shapes=shapes_of(values))
    assert len(profile.launches) > 2
    outcome = tvm_ext.bisect(mixed(), inputs=values, threads=1, shapes=shapes_of(values))
    assert outcome.status == "agrees"
    page = tvm_ext.report(
        mixed(), None, values, profile=False, check=False, threads=1, shapes=shapes_of(values), cache=False
    )
    assert "none []" in page.outputs and "seq [float32[3, 4], float32[1, 4]]" in page.inputs


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tvm_ext.cli import main

    values = feeds(3, 1, more=None)
    onnx.save(mixed(), tmp_path / "m.onnx")
    shapes = ["--shape", "seq[0]=3,4", "--shape", "seq[1]=1,4", "--shape", "more=None", "--shape", "opt=2,3"]
    common = [str(tmp_path / "m.onnx"), *shapes, "--threads", "1", "--no-cache"]
    np.savez(tmp_path / "seq.npz", *values["seq"])
    for name in ("opt", "x"):
        np.save(tmp_path / f"{name}.npy", values[name])
    inputs = [
        w for n, end in (("seq", "npz"), ("opt", "npy"), ("x", "npy")) for w in ("--input", f"{n}={tmp_path}/{n}.{end}")
    ]
    assert main(["run", *common, *inputs, "-o", str(tmp_path / "out.npz"), "--json"]) == 0
    rows = {row["name"]: row["dtype"] for row in json.loads(capsys.readouterr().out)["outputs"]}
    assert rows["none"] == "empty sequence" and rows["same"] == "absent" and rows["parts[1]"] == "float32"
    expected = reference(mixed(), values)
    with np.load(tmp_path / "out.npz") as saved:
        assert set(saved.files) == {"parts[0]", "parts[1]", "parts[2]", "maybe", "whole"}
        np.testing.assert_allclose(saved["parts[2]"], expected["parts"][2], rtol=1e-5, atol=1e-5)
    assert main(["verify", *common, *inputs, "--layers"]) == 0
    capsys.readouterr()
    assert main(["compile", *common]) == 0
    text = capsys.readouterr().out
    assert "seq[1]: float32 (1, 4)" in text and "more: optional(seq(tensor(float))), absent" in text


# ------------------------------------------------------------ what makes them
def split(split: Any, axis: int = 0, keepdims: int = 1) -> onnx.ModelProto:
    weights = {} if split is None else {"n": np.asarray(split)}
    nodes = [node("SplitToSequence", " ".join(["x", *weights]), "s", axis=axis, keepdims=keepdims)]
    return model(nodes, [value("x", [5, 4])], typed(s=SEQUENCE), weights, opset=18)


@pytest.mark.parametrize(
    ("sizes", "axis", "keepdims"), [(None, 0, 1), (None, 1, 0), (2, 0, 1), ([3, 1, 1], 0, 1), ([4], -1, 1), (3, 1, 1)]
)
def test_splits(sizes: Any, axis: int, keepdims: int) -> None:
    check(split(sizes, axis, keepdims), {"x": random(5, 4)})


def test_a_program_without_a_tensor_among_its_outputs() -> None:
    nodes = [helper.make_node("SequenceEmpty", [], ["a"], dtype=INT), node("SequenceErase", "s zero", "b")]
    proto = model(nodes, typed(s=SEQUENCE), typed(a=SEQUENCE, b=SEQUENCE), {"zero": np.array(0)}, opset=18)
    proto.graph.output[0].type.sequence_type.elem_type.tensor_type.elem_type = INT
    program = check(proto, {"s": [random(2, 2)]})
    assert program.outputs == () and program.run({"s": [random(2, 2)]}) == {"a": [], "b": []}


def test_one_tensor_several_times() -> None:
    nodes = [node("SequenceConstruct", "x x y", "s"), node("Identity", "s", "t"), node("SequenceInsert", "t c", "u")]
    inputs = [value("x", [3]), value("y", [2])]
    proto = model(nodes, inputs, typed(s=SEQUENCE, t=SEQUENCE, u=SEQUENCE), {"c": random(4)}, opset=18)
    program = check(proto, {"x": random(3), "y": random(2)})
    outputs = program.run({"x": random(3), "y": random(2)})
    arrays = [x for sequence in outputs.values() for x in sequence]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def growing(steps: int | None) -> onnx.ModelProto:
    """A loop that appends x times the step to a sequence; of a computed number of steps with None."""
    body = [node("Cast", "i", "f", to=1), node("Mul", "x f", "p"), node("SequenceInsert", "s p", "t")]
    graph = helper.make_graph(
        [*body, node("Identity", "c", "d")], "body",
        [value("i", [], INT), value("c", [], TensorProto.BOOL), *typed(s=SEQUENCE)],
        [value("d", [], TensorProto.BOOL), *typed(t=SEQUENCE)],
    )  # fmt: skip
    nodes = [node("Loop", "n go first", "y", "grow", body=graph)]
    weights = {"go": np.array(True)} | ({} if steps is None else {"n": np.array(steps)})
    inputs = [value("x", [2, 3]), *typed(first=SEQUENCE)] + ([value("n", [], INT)] if steps is None else [])
    return model(nodes, inputs, typed(y=SEQUENCE), weights, opset=18)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_loops(steps: int) -> None:
    check(growing(steps), {"x": random(2, 3), "first": []})
    check(growing(steps), {"x": random(2, 3), "first": [random(2, 3), random(1)]})


def test_a_condition_that_is_computed_chooses_sequences_of_one_length() -> None:
    def branch(operator: str, name: str) -> Any:
        nodes = [node(operator, "x", f"{name}a"), node("SequenceConstruct", f"{name}a x", name)]
        return helper.make_graph(nodes, name, [], typed(**{name: SEQUENCE}))

    nodes = [node("ReduceSum", "x", "sum", keepdims=0), node("Greater", "sum zero", "c"),
             node("If", "c", "y", then_branch=branch("Neg", "p"), else_branch=branch("Exp", "q"))]  # fmt: skip
    proto = model(nodes, [value("x", [3, 2])], typed(y=SEQUENCE), {"zero": np.float32(0)}, opset=18)
    for sign in (1, -1):
        check(proto, {"x": sign * np.abs(random(3, 2))})


@pytest.mark.parametrize(("place", "wanted"), [(0, 0), (2, 2), (-1, 1), (None, 2)])
def test_positions_that_are_known(place: int | None, wanted: int) -> None:
    weights = {} if place is None else {"at": np.array(place)}
    nodes = [node("SequenceInsert", " ".join(["s", "x", *weights]), "y")]
    proto = model(nodes, [*typed(s=SEQUENCE), value("x", [1])], typed(y=SEQUENCE), weights, opset=18)
    program = check(proto, {"s": [random(2), random(3)], "x": random(1)})
    assert program.outputs[wanted].shape == (1,)


def test_what_is_refused_names_what_must_be_known() -> None:
    nodes = [node("SequenceInsert", "s x at", "y", "put")]
    proto = model(nodes, [*typed(s=SEQUENCE), value("x", [1]), value("at", [], INT)], typed(y=SEQUENCE), opset=18)
    shapes = {"s": [(2,), (3,)]}
    with pytest.raises(TvmExtError, match=r"(?s)'put'.*'at'.*freeze") as caught:
        tvm_ext.compile(proto, shapes=shapes, cache=False)
    assert "freeze={'at'" in caught.value.fix
    frozen = tvm_ext.compile(proto, shapes=shapes, freeze={"at": 1}, cache=False, threads=1)
    assert [x.shape for x in frozen.run({"s": [random(2), random(3)], "x": random(1)})["y"]] == [(2,), (1,), (3,)]
    with pytest.raises(TvmExtError, match="grow"):
        tvm_ext.compile(growing(None), shapes={"first": []}, cache=False)


# ------------------------------------------------------------ sizes, states, half precision
def test_any_size_of_elements() -> None:
    nodes = [node("SequenceConstruct", "a b", "s"), node("ConcatFromSequence", "s", "y", axis=0)]
    nodes = [node("SequenceAt", "seq zero", "a"), node("Exp", "a", "b"), *nodes]
    proto = model(nodes, typed(seq=SEQUENCE), typed(s=SEQUENCE, y=TENSOR), {"zero": np.array(0)}, opset=18)
    program = compiled(proto, threads=1, shapes={"seq": [("N", 3), ("M", 3)]}, dims={"N": (1, 8), "M": (1, 4)})
    for n, m in ((1, 4), (5, 2), (8, 1)):
        inputs = {"seq": [random(n, 3), random(m, 3)]}
        agree(program.run(inputs), reference(proto, inputs))
    assert tvm_ext.verify(program, proto).ok
    with pytest.raises(InputError, match="N"):
        program.run({"seq": [random(9, 3), random(1, 3)]})
    with pytest.raises(TvmExtError, match="how many tensors"):
        tvm_ext.compile(
            model([node("SplitToSequence", "x", "s")], [value("x", ["N", 3])], typed(s=SEQUENCE), opset=18),
            dims={"N": (1, 8)}, cache=False,
        )  # fmt: skip


def test_states_are_elements_too() -> None:
    nodes = [node("SequenceAt", "past zero", "a"), node("Add", "a x", "b"), node("SequenceAt", "past one", "c"),
             node("Mul", "c x", "d"), node("SequenceConstruct", "b d", "present")]  # fmt: skip
    weights = {"zero": np.array(0), "one": np.array(1)}
    proto = model(nodes, [*typed(past=SEQUENCE), value("x", [3])], typed(present=SEQUENCE), weights, opset=18)
    state = {"present[0]": "past[0]"}
    program = compiled(proto, threads=1, shapes={"past": [(3,), (3,)]}, state=state)
    x, scale = random(3), np.full(3, 2, np.float32)
    with program.session() as session:
        for step in (1, 2):
            outputs = session.step({"x": x, "past[1]": scale})
            np.testing.assert_allclose(session.state["past[0]"], step * x, rtol=1e-6)
            np.testing.assert_allclose(outputs["present[1]"], 2 * x, rtol=1e-6)


def test_narrow_floats_and_what_onnxruntime_runs() -> None:
    values = CASES["all there"]
    program = compiled(mixed(), threads=1, shapes=shapes_of(values), precision="bf16")
    assert tvm_ext.verify(program, mixed(), values).ok
    nodes = [node("SequenceAt", "s zero", "a"), node("NonZero", "a", "i"), node("Trilu", "i", "c"),
             node("ReduceMax", "c", "n", keepdims=0), node("Identity", "s", "t")]  # fmt: skip
    weights = {"zero": np.array(0)}
    outputs = [value("n", [], INT), *typed(t=SEQUENCE)]
    proto = model(nodes, typed(s=SEQUENCE), outputs, weights, opset=17)
    program = check(proto, {"s": [random(3, 2)]}, fallback="onnxruntime")
    assert program.offload_report().offloaded


def test_optionals_of_the_first_version() -> None:
    nodes = [node("OptionalHasElement", "o", "h"), node("OptionalGetElement", "o", "g"), node("Neg", "g", "y")]
    proto = model(nodes, typed(o=OPTIONAL), [value("h", [], TensorProto.BOOL), value("y", None)], opset=15)
    check(proto, {"o": random(2, 3)})
    nodes = [node("OptionalGetElement", "o", "g"), node("SequenceLength", "g", "n")]
    check(model(nodes, typed(o=OPTIONAL_SEQUENCE), [value("n", [], INT)], opset=15), {"o": [random(1), random(2)]})

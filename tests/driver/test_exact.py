"""Programs beside the one of any size: dimensions without elements, and sizes that `specialize` names."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.driver.test_any_size import feeds_of as feeds_at
from tests.driver.test_any_size import model_named
from tests.onnx_graphs import saved, text_model
from tests.oracles.reference import assert_agrees, session_of
from tvm_ext.cli.app import main
from tvm_ext.core.errors import InputError, OptionError
from tvm_ext.frontend import importer
from tvm_ext.frontend.importer import imported
from tvm_ext.runtime.model import CompiledModel

#: Kind of operator -> opset, inputs, outputs, nodes. The bounds of each symbol are 0 and 6.
KINDS: dict[str, tuple[int, str, str, str]] = {
    "elementwise": (17, "float[N, S] x", "float[N, S] y", "a = Exp(x)\n y = Add(a, x)"),
    "sum": (17, "float[N, S] x", "float[N] y",
            "a = Constant <value_ints = [1]> ()\n y = ReduceSum <keepdims = 0> (x, a)"),
    "mean": (17, "float[N, S] x", "float[N] y", "y = ReduceMean <keepdims = 0, axes = [1]> (x)"),
    "max": (17, "float[N, S] x", "float[N] y", "y = ReduceMax <keepdims = 0, axes = [1]> (x)"),
    "min of integers": (18, "int32[N, S] x", "int32[N] y",
                        "a = Constant <value_ints = [1]> ()\n y = ReduceMin <keepdims = 0> (x, a)"),
    "sum of all": (17, "float[N, S] x", "float y", "y = ReduceL2 <keepdims = 0> (x)"),
    "empty part": (17, "float[N, S] x, float[N, 4] z", "float[N, T] y", "y = Concat <axis = 1> (z, x)"),
    "inner dimension": (17, "float[N, S] x, float[S, 5] z", "float[N, 5] y", "y = MatMul(x, z)"),
    "softmax": (17, "float[N, S] x", "float[N, S] y", "y = Softmax <axis = 1> (x)"),
    "attention over no keys": (
        17, "float[2, N, 8] x, float[2, S, 8] z", "float[2, N, 8] y",
        "t = Transpose <perm = [0, 2, 1]> (z)\n s = MatMul(x, t)\n p = Softmax <axis = -1> (s)\n y = MatMul(p, z)",
    ),
    "reshape": (17, "float[N, S, 4] x", "float[A, 4] y", "s = Constant <value_ints = [-1, 4]> ()\n y = Reshape(x, s)"),
    "pad": (17, "float[N, S] x", "float[N, T] y", "p = Constant <value_ints = [0, 1, 0, 2]> ()\n y = Pad(x, p)"),
    "last hidden state": (
        17, "float[S, 2, N] x, float[1, 8, N] w, float[1, 8, 2] r", "float[S, 1, 2, 2] y, float[1, 2, 2] h",
        "y, h = LSTM <hidden_size = 2> (x, w, r)",
    ),
}  # fmt: skip


def model_of(opset: int, inputs: str, outputs: str, nodes: str) -> onnx.ModelProto:
    return text_model(f"m ({inputs}) => ({outputs}) {{ {nodes} }}", opset=opset)


def feeds_of(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    feeds = {}
    for value in model.graph.input:
        shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        feeds[value.name] = rng.standard_normal(shape).astype(dtype)
    return feeds


def agrees(compiled: CompiledModel, model: onnx.ModelProto, sizes: Mapping[str, int]) -> None:
    assert_agrees(compiled, session_of(model, optimized=True), feeds_of(model, sizes), rtol=1e-4, where=sizes)


@pytest.mark.parametrize("kind", KINDS)
def test_dimensions_without_elements_are_as_in_onnxruntime(kind: str) -> None:
    model = model_of(*KINDS[kind])
    compiled = tvm_ext.compile(model, dims={"N": (0, 6), "S": (0, 6)}, cache=False, records=None, threads=1)
    assert [symbol.low for symbol in compiled.symbols] == [0, 0] and not compiled.report["warnings"]
    for n, s in itertools.product((6, 0, 3), repeat=2):
        if kind == "mean" and not s:  # undefined in ONNX; 0 in onnxruntime
            assert np.array_equal(compiled.run(np.zeros((n, s), "float32"))["y"], np.full(n, np.nan), equal_nan=True)
        else:
            agrees(compiled, model, {"N": n, "S": s})


@pytest.mark.parametrize(
    ("outputs", "nodes"),
    [
        ("int64[N] y", "y = ArgMax <axis = 1, keepdims = 0> (x)"),
        ("float[N] y", "i = Constant <value_int = -1> ()\n y = Gather <axis = 1> (x, i)"),
        ("float[N, T] y", 'p = Constant <value_ints = [0, 1, 0, 2]> ()\n y = Pad <mode = "edge"> (x, p)'),
    ],
)
def test_where_no_elements_are_an_error_the_smallest_size_is_1(outputs: str, nodes: str) -> None:
    model = model_of(17, "float[N, S] x", outputs, nodes)
    compiled = tvm_ext.compile(model, dims={"N": (0, 4), "S": (0, 6)}, cache=False, records=None, threads=1)
    assert [(symbol.name, symbol.low) for symbol in compiled.symbols] == [("N", 0), ("S", 1)]
    assert any("S cannot be 0" in warning for warning in compiled.report["warnings"])
    with pytest.raises(InputError, match=r"input 'x' \(3, 0\): dimension 1: S is 0; it can be 1 to 6"):
        compiled.run(np.zeros((3, 0), "float32"))
    agrees(compiled, model, {"N": 0, "S": 5})


def test_nothing_in_a_file_and_in_verify(tmp_path: Path, cache_folder: Path) -> None:
    model = model_of(*KINDS["softmax"])
    for options in ({"dims": {"N": (0, 6), "S": (0, 6)}}, {"shapes": {"x": (3, 0)}}):
        compiled, hit = (tvm_ext.compile(model, records=None, threads=1, **options) for _ in range(2))
        compiled.export(tmp_path / "a.so")
        for program in (compiled, hit, tvm_ext.load(tmp_path / "a.so")):
            assert program.run(np.zeros((3, 0), "float32"))["y"].shape == (3, 0)
    sums = model_of(*KINDS["sum"])
    compiled = tvm_ext.compile(sums, dims={"N": (0, 6), "S": (0, 6)}, cache=False, threads=1)
    report = tvm_ext.verify(compiled, sums)
    assert report.ok and "S 0)" in str(report)


BOUNDS = {"N": (1, 4), "S": (1, 70)}
#: Sizes of a call of "tokens" -> what the names of the kernels that run end with.
RUNS = [({"N": 1, "S": 32}, "_S32"), ({"N": 3, "S": 64}, "_S64"), ({"N": 2, "S": 33}, "")]


@pytest.fixture(scope="module")
def exact() -> CompiledModel:
    return tvm_ext.compile(
        model_named("tokens"), dims=BOUNDS, specialize={"S": (64, 32)}, cache=False, records=None, threads=2
    )


def kernels_of(compiled: CompiledModel, sizes: Mapping[str, int]) -> set[str]:
    """The sizes that the names of kernels of a call end with."""
    names = {kernel["name"]: kernel.get("sizes", {}) for kernel in compiled.report["kernels"]}
    ran: set[str] = set()

    def note(kernel: str, before: bool) -> None:
        if kernel in names:
            ran.add("".join(f"_{name}{size}" for name, size in names[kernel].items()))

    compiled.run_observed(feeds_at(compiled, sizes), note)
    return ran


@pytest.mark.parametrize(("sizes", "program"), RUNS)
def test_a_call_runs_the_program_of_its_size(exact: CompiledModel, sizes: dict[str, int], program: str) -> None:
    assert kernels_of(exact, sizes) == {program}
    assert tvm_ext.verify(exact, model_named("tokens"), sizes=[sizes]).ok


def test_programs_of_fixed_sizes_say_so_and_share_weights(exact: CompiledModel) -> None:
    assert [row["sizes"] for row in exact.report["programs"]] == [{}, {"S": 32}, {"S": 64}]
    general, *others = exact.metadata.programs
    nbytes = [spec.nbytes for spec in exact.metadata.weights]
    added = {weight for program in others for weight in program.weights} - {*general.weights}
    assert len(others) == 2
    assert sum(nbytes[weight] for weight in added) <= sum(nbytes[weight] for weight in general.weights) / 2
    report = tvm_ext.verify(exact, model_named("tokens"))
    assert report.ok and all(f"S {size})" in str(report) for size in (1, 70, 32, 64))


def test_several_names_have_a_program_for_each_combination(tmp_path: Path, cache_folder: Path) -> None:
    model = model_named("rows")
    options = {"dims": {"N": (1, 5), "S": (0, 40)}, "specialize": {"N": (1,), "S": (16, 40)}, "records": None}
    compiles, hit = (tvm_ext.compile(model, **options, threads=2) for _ in range(2))
    compiles.export(tmp_path / "a.so")
    loaded = tvm_ext.load(tmp_path / "a.so")
    fixed = [dict(program.fixed) for program in compiles.metadata.programs]
    assert fixed == [{}, {"N": 1, "S": 16}, {"N": 1, "S": 40}, {"S": 0}]
    for sizes in ({"N": 1, "S": 16}, {"N": 1, "S": 40}, {"N": 2, "S": 16}, {"N": 1, "S": 0}, {"N": 5, "S": 39}):
        feeds = feeds_at(compiles, sizes)
        wanted = compiles.run(feeds)["y"]
        assert wanted.shape == (sizes["N"], sizes["S"], 40)
        assert all(np.array_equal(program.run(feeds)["y"], wanted) for program in (hit, loaded))
        assert tvm_ext.verify(compiles, model, sizes=[sizes]).ok
    session = tvm_ext.InferenceSession(tmp_path / "a.so")
    for _ in range(2):
        session.run(None, feeds_at(compiles, {"N": 1, "S": 40}))
    session.run(None, feeds_at(compiles, {"N": 3, "S": 40}))
    (row,) = session.report().rows
    assert row.compiled == 3 and row.fixed == (("N 1, S 40", 2),) and "of them N 1, S 40" in str(session.report())


def test_a_session_says_which_program_ran() -> None:
    options: dict[str, Any] = {"dims": BOUNDS, "specialize": {"S": (32,)}, "threads": 1, "cache": False}
    session = tvm_ext.InferenceSession(model_named("tokens").SerializeToString(), on_miss="wait", **options)
    for size in (32, 7, 32):
        session.run(None, {"ids": np.ones((2, size), "int64"), "mask": np.ones((2, size), "float32")})
    row = session.report().any_size
    assert row is not None and row.compiled == 3 and row.fixed == (("S 32", 2),)


def test_names_of_symbols_that_end_in_digits_are_told_apart() -> None:
    inputs, outputs = (f"float[S, 3] {first}, float[S1, 3] {second}" for first, second in ("xz", "ab"))
    model = model_of(17, inputs, outputs, "a = Relu (x) b = Sigmoid (z)")
    compiled = tvm_ext.compile(model, dims={"S": (1, 16), "S1": (0, 8)}, specialize={"S": (10,)}, cache=False)
    assert [program.function for program in compiled.metadata.programs] == ["main", "main_S10", "main_S1_0"]
    assert tvm_ext.verify(compiled, model).ok


def test_a_profile_is_of_the_programs_that_were_kept() -> None:
    """Of a slice from the second element on there is none of no elements."""
    nodes = "one = Constant <value_ints = [1]> () end = Constant <value_ints = [99]> () t = Slice (x, one, end, one)"
    model = model_of(17, "float[N, S] x", "float[N, M] y", f"{nodes} y = Relu (t)")
    profile = tvm_ext.profile(model, dims={"N": (1, 8), "S": (0, 64)}, rounds=1, seconds=0.0)
    assert profile.launches


def test_so_many_programs_are_not_made() -> None:
    model = model_named("rows")
    with pytest.raises(OptionError, match=r"specialize: 90 programs"):
        options = {"dims": {"N": (1, 40), "S": (1, 40)}, "specialize": {"N": range(1, 10), "S": range(2, 12)}}
        tvm_ext.compile(model, cache=False, **options)
    inputs, outputs = (", ".join(f"float[S{i}] {name}{i}" for i in "abcde") for name in "xy")
    many = model_of(17, inputs, outputs, " ".join(f"y{i} = Relu (x{i})" for i in "abcde"))
    with pytest.raises(OptionError, match=r"dims: 5 dimensions have a smallest size of 0"):
        tvm_ext.compile(many, dims={f"S{i}": (0, 8) for i in "abcde"}, cache=False)


def test_other_names_and_sizes_are_errors() -> None:
    model = model_named("rows")
    with pytest.raises(OptionError, match=r"specialize: no dimension of .* is 'T'"):
        tvm_ext.compile(model, dims={"S": (1, 8)}, specialize={"T": (1,)}, cache=False)
    with pytest.raises(OptionError, match=r"S is 41, and dims has 1 to 40"):
        tvm_ext.compile(model, dims={"S": (1, 40)}, specialize={"S": (41,)}, cache=False)
    with pytest.raises(OptionError, match=r"specialize: no dimension of .* is 'T'"):
        tvm_ext.InferenceSession(model.SerializeToString(), specialize={"T": (1,)})
    windows = model_of(17, "float[1, 1, H, 9] x", "float[1, 1, A, 7] y", "y = AveragePool <kernel_shape = [3, 3]> (x)")
    with pytest.raises(OptionError, match=r"specialize: H is 2; it can be 3 to 20"):
        tvm_ext.compile(windows, dims={"H": (1, 20)}, specialize={"H": (2,)}, cache=False)


def test_the_command_line_makes_exact_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, artifact = saved(model_named("rows"), tmp_path / "m.onnx"), str(tmp_path / "m.so")
    sizes = ["--dims", "N=1,4", "--dims", "S=1,40", "--specialize", "S=16,32"]
    assert main(["compile", path, *sizes, "--no-cache", "-o", artifact]) == 0
    said = capsys.readouterr().out
    assert all(f"\n{which}: " in said for which in ("any size", "S 16", "S 32"))
    assert main(["run", artifact, "--size", "N=2,S=16"]) == 0


@pytest.mark.parametrize(("size", "imports"), [(1, 0), (2, 1)])
def test_the_smallest_sizes_are_imported_once(size: int, imports: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof of any size imports them; the program of these sizes is made of that import."""
    read: list[tuple[int, ...]] = []

    def counted(checked: Any, trace: Any, model: str) -> Any:
        read.append(checked.inputs[0].shape)
        return imported(checked, trace, model)

    monkeypatch.setattr(importer, "imported", counted)
    model = model_of(17, "float[S, 4] x", "float[S, 4] y", "a = Exp(x)\n y = Add(a, x)")
    before = tvm_ext.compile(model, dims={"S": (1, 16)}, cache=False)
    any_size, _ = read.copy(), read.clear()
    compiled = tvm_ext.compile(model, dims={"S": (1, 16)}, specialize={"S": (size,)}, cache=False)
    assert before.outputs == compiled.outputs and read[: len(any_size)] == any_size
    assert read[len(any_size) :] == [(size, 4)] * imports
    agrees(compiled, model, {"S": size})

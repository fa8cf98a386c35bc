"""Running a compiled model: values, names, shapes, dtypes, memory."""

import os
import stat

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.errors import ArtifactError, InputError, RunError, ToolError
from tvm_ext.runtime.memory.arrays import is_aligned
from tvm_ext.runtime.model import CompiledModel, load

from . import programs
from .programs import BIAS, add_bias, aligned_copy, model, unaligned_copy

F32 = "float32"


@pytest.fixture
def x() -> np.ndarray:
    return aligned_copy(np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32))


def odd_inputs(x: np.ndarray) -> dict[str, np.ndarray]:
    """The same values in every kind of memory numpy has."""
    frozen = x.copy()
    frozen.flags.writeable = False
    wide = np.zeros((16, 64), np.float32)
    wide[:, ::2] = x
    return {
        "aligned": aligned_copy(x),
        "unaligned": unaligned_copy(x),
        "read-only": frozen,
        "fortran": np.asfortranarray(x),
        "strided": wide[:, ::2],
        "reversed": x[::-1].copy()[::-1],
        "big endian": x.astype(">f4"),
        "broadcast": np.broadcast_to(x[:1], x.shape),
        "subclass": x.view(np.matrix),
    }


@pytest.mark.parametrize("kind", odd_inputs(np.zeros((16, 32), np.float32)))
def test_any_memory_gives_the_same_values(bias_model: CompiledModel, x: np.ndarray, kind: str) -> None:
    inputs = odd_inputs(x)[kind]
    expected = np.asarray(inputs, np.float32) + BIAS
    for _ in range(4):  # the first two calls of a program look for outputs that are constants
        np.testing.assert_array_equal(bias_model.run({"x": inputs})["y"], expected)
    np.testing.assert_array_equal(bias_model.run(inputs)["y"], expected)


def test_outputs_are_writable_aligned_and_their_own(bias_model: CompiledModel, x: np.ndarray) -> None:
    for _ in range(3):
        bias_model.run(x)
    kept = bias_model.run(x)["y"]
    expected = x + BIAS
    assert kept.flags.writeable and kept.flags.c_contiguous and is_aligned(kept)
    others = [bias_model.run(x * 2)["y"] for _ in range(5)]
    np.testing.assert_array_equal(kept, expected)
    for other in others:
        assert not np.shares_memory(kept, other)
        other[...] = 0
    np.testing.assert_array_equal(bias_model.run(x)["y"], expected)


def test_outputs_outlive_the_model(x: np.ndarray) -> None:
    compiled = add_bias()
    outputs = [compiled.run(x)["y"] for _ in range(5)]
    del compiled
    for output in outputs:
        np.testing.assert_array_equal(output, x + BIAS)


def test_outputs_never_alias_inputs_weights_constants_or_each_other() -> None:
    weight, constant = np.arange(4, dtype=np.float32), np.full(4, 7, np.float32)

    def body(b: relax.BlockBuilder, x: relax.Var, w: relax.Var) -> tuple:
        total = b.emit(relax.op.add(x, w))
        return x, w, relax.const(constant), total, total

    names = ["same", "weight", "constant", "total", "total again"]
    compiled = model(body, [("x", (4,), F32)], [(n, (4,), F32) for n in names], {"w": weight})
    x = aligned_copy(np.ones(4, np.float32))
    for _ in range(5):
        outputs = compiled.run(x)
        for name, expected in zip(names, (x, weight, constant, x + weight, x + weight), strict=True):
            np.testing.assert_array_equal(outputs[name], expected, err_msg=name)
            outputs[name][...] = -1  # reaches neither the input, nor the model, nor the other outputs


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "int64", "float16", "float64", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 3), (5, 7)])
def test_dtypes_and_shapes(dtype: str, shape: tuple[int, ...]) -> None:
    operator = relax.op.logical_not if dtype == "bool" else relax.op.negative
    if dtype == "uint8":
        operator = relax.op.abs
    compiled = model(lambda b, x: b.emit(operator(x)), [("x", shape, dtype)], [("y", shape, dtype)])
    values = (np.arange(int(np.prod(shape))).reshape(shape) % 5).astype(compiled.inputs[0].numpy_dtype)
    expected = {"bool": np.logical_not, "uint8": np.abs}.get(dtype, np.negative)(values)
    for _ in range(3):
        output = compiled.run({"x": values})["y"]
        assert output.dtype == values.dtype and output.shape == shape and output.flags.writeable
        np.testing.assert_array_equal(output, expected)


def test_weights_of_odd_kinds(tmp_path) -> None:
    import ml_dtypes

    weights = {
        "scalar": np.array(2.5, np.float32),
        "empty": np.zeros((0, 3), np.float32),
        "flags": np.array([True, False, True]),
        "half": np.array([1, 2, 3], ml_dtypes.bfloat16),
    }
    specs = [(name, array.shape, str(array.dtype)) for name, array in weights.items()]
    compiled = model(lambda b, *w: tuple(w), [], specs, weights)
    for program in (compiled, load(programs.export(compiled, tmp_path / "m.so"))):
        for _ in range(3):
            outputs = program.run()
            for name, array in weights.items():
                assert outputs[name].dtype == array.dtype
                np.testing.assert_array_equal(outputs[name], array)


def test_lists_and_scalars_of_the_exact_dtype() -> None:
    compiled = model(
        lambda b, x, s: b.emit(relax.op.multiply(x, s)),
        [("x", (3,), "int64"), ("s", (), "int64")],
        [("y", (3,), "int64")],
    )
    np.testing.assert_array_equal(compiled.run({"s": 2, "x": [1, 2, 3]})["y"], [2, 4, 6])
    with pytest.raises(InputError, match=r"'s' has dtype float64.*takes int64\n.*np\.asarray\(x, np\.int64\)"):
        compiled.run([1, 2, 3], 2.0)
    with pytest.raises(InputError, match="'x': list is no array"):
        compiled.run([[1, 2], [3]], 2)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (({},), r"missing \['x'\]\n.*takes \['x'\]"),
        (({"X": 0},), r"missing \['x'\] and unknown \['X'\]"),
        (({"x": 0, "y": 1},), r"unknown \['y'\]"),
        ((), r"0 inputs were given, the model takes 1: x: float32\[16, 32\]"),
        ((1, 2), "2 inputs were given"),
        (({"x": 0}, 2), "inputs by name and 1 by position"),
        ((None,), "0 inputs were given"),
        ((np.zeros((16, 32)),), r"dtype float64, the model takes float32\n.*x\.astype\(np\.float32\)"),
        ((np.zeros((16, 33), "f4"),), r"takes \[16, 32\]: dimension 1 is 33, not 32\n.*shapes="),
        ((np.zeros((32, 16), "f4"),), r"shape \[32, 16\].*\n.*x\.reshape\(\(16, 32\)\)"),
        ((np.zeros((1, 16, 32), "f4"),), r"3 dimensions, \[1, 16, 32\]; the model takes \[16, 32\]"),
        (("x",), "has dtype <U1"),
    ],
)
def test_inputs_that_do_not_fit(bias_model: CompiledModel, inputs: tuple, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bias_model.run(*inputs)


def test_says_what_it_is(bias_model: CompiledModel) -> None:
    assert repr(bias_model) == "CompiledModel('tiny': (x: float32[16, 32]) -> (y: float32[16, 32]); scalar, 1 thread)"
    assert bias_model.report == {"kernels": 1}
    assert bias_model.threads == 1
    assert [spec.name for spec in (*bias_model.inputs, *bias_model.outputs)] == ["x", "y"]


def test_a_failing_call_leaves_the_model_usable(bias_model: CompiledModel, x: np.ndarray) -> None:
    """A kernel's own check fails in the VM; later calls are right."""
    pool = bias_model._callers
    for _ in range(10):
        with pytest.raises(RuntimeError, match="mismatch to specified constant"):
            pool.call([aligned_copy(np.zeros((2, 2), np.float32))])
    np.testing.assert_array_equal(bias_model.run(x)["y"], x + BIAS)


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        ({"isa": "sve", "mcpu": "a64fx", "triple": "", "features": ["no-such-feature"]}, "it needs no-such-feature"),
        ({"isa": "x", "mcpu": "y", "triple": "riscv64-linux-gnu", "features": []}, "y .x. of riscv64-linux-gnu, this"),
    ],
)
def test_a_program_for_another_machine_never_runs(x: np.ndarray, tmp_path, machine: dict, message: str) -> None:
    """Cross-compiled in this process: it can be exported; its instructions would be a SIGILL here."""
    compiled = add_bias(machine=machine)
    for _ in range(10):  # more often than there are callers
        with pytest.raises(ArtifactError, match=f"'tiny' cannot run here: compiled for .*{message}"):
            compiled.run(x)
    with pytest.raises(ArtifactError, match=message):
        load(programs.export(compiled, tmp_path / "model.so"))


# ------------------------------------------------------------------------------------------------ export
def test_export_and_load_agree(bias_model: CompiledModel, x: np.ndarray, tmp_path) -> None:
    loaded = load(programs.export(bias_model, tmp_path / "model.so"))
    assert loaded.metadata == bias_model.metadata
    np.testing.assert_array_equal(loaded.run(x)["y"], bias_model.run(x)["y"])


@pytest.mark.parametrize("name", ["model", "model.tvm", "model.o", "ein modell.so.1"])
def test_any_file_name_loads(bias_model: CompiledModel, x: np.ndarray, tmp_path, name: str) -> None:
    loaded = load(programs.export(bias_model, tmp_path / name))
    np.testing.assert_array_equal(loaded.run(x)["y"], x + BIAS)


def test_a_loaded_model_exports_again_without_a_linker(bias_model, x, tmp_path, monkeypatch) -> None:
    first = programs.export(bias_model, tmp_path / "first.so")
    monkeypatch.setenv("PATH", "")
    second = programs.export(load(first), tmp_path / "second.so")
    assert first.read_bytes() == second.read_bytes()


def test_a_replaced_file_is_loaded_anew(x: np.ndarray, tmp_path) -> None:
    """dlopen would return the library it knows by that path: with other weights, that is a wrong answer."""
    path = programs.export(add_bias(), tmp_path / "model.so")
    old = load(path)
    subtract = model(
        lambda b, x, w: b.emit(relax.op.subtract(x, w)), [("x", (16, 32), F32)], [("y", (16, 32), F32)], {"bias": BIAS}
    )
    new = load(programs.export(subtract, path))
    np.testing.assert_array_equal(new.run(x)["y"], x - BIAS)
    np.testing.assert_array_equal(old.run(x)["y"], x + BIAS)
    path.write_bytes(b"")  # a mapped file cut off under a running program would be a SIGBUS
    np.testing.assert_array_equal(old.run(x)["y"], x + BIAS)


def test_export_says_first_that_there_is_no_linker(bias_model, tmp_path, monkeypatch) -> None:
    for variable in ("CXX", "CC"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match=r"none of g\+\+, gcc, clang\+\+.*is on PATH\n.*apt install g\+\+"):
        bias_model.export(tmp_path / "no such folder" / "model.so")
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ToolError, match="CXX='no-such-compiler' is no program"):
        bias_model.export(tmp_path / "model.so")
    assert list(tmp_path.iterdir()) == []


def test_export_to_places_that_cannot_be(bias_model: CompiledModel, tmp_path) -> None:
    with pytest.raises(ToolError, match="is a folder"):
        bias_model.export(tmp_path)
    with pytest.raises(ToolError, match="there is no folder"):
        bias_model.export(tmp_path / "a" / "model.so")


def test_a_failing_link_leaves_the_old_file(bias_model: CompiledModel, tmp_path, monkeypatch) -> None:
    path = programs.export(bias_model, tmp_path / "model.so")
    before = path.read_bytes()
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(ToolError, match="making the library failed"):
        bias_model.export(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.so"]


@pytest.mark.parametrize("path", [None, 3, b"x", "", "a\0b"])
def test_what_is_no_path_is_refused(bias_model: CompiledModel, path: object) -> None:
    with pytest.raises(ToolError, match="the path to export to is"):
        bias_model.export(path)  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match="the artifact's path is"):
        load(path)  # type: ignore[arg-type]


def test_a_pipe_or_device_is_not_replaced_by_a_file(bias_model: CompiledModel, tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ToolError, match="no regular file"):
        bias_model.export(tmp_path / "pipe")
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode) and os.listdir(tmp_path) == ["pipe"]


def test_a_program_that_stops_is_an_error_of_ours(bias_model: CompiledModel, x: np.ndarray, monkeypatch) -> None:
    def stops(*_: object) -> None:
        raise ValueError("Check failed: no memory\n  stack")

    monkeypatch.setattr(bias_model._callers, "call", stops)
    with pytest.raises(RunError, match=r"^model '.*' stopped while it ran: ValueError: Check failed: no memory\n  fix"):
        bias_model.run(x)

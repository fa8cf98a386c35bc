"""verify against onnxruntime, with right and wrong programs."""

import json

import numpy as np
import pytest

import tvm_ext
from tvm_ext.core.errors import ArtifactError, InputError, ModelError, OptionError
from tvm_ext.runtime.spec import TensorSpec
from tvm_ext.verification.verify import verify

from .fakes import FakeCompiled, dense_model

X = TensorSpec("x", (3, 7), "float32")


def program(w, wrong=lambda y: y):
    def run(inputs):
        y = inputs["x"].astype(np.float64) @ w.astype(np.float64)
        return {"file": wrong(y).astype(np.float32), "/sum": (-y).astype(np.float32)}

    return FakeCompiled([X], run)


def test_a_right_program_agrees():
    model, w = dense_model()
    report = verify(program(w), model)
    assert report.ok and report.seed == 0 and report.reference.startswith("onnxruntime ")
    assert [o.name for o in report.outputs] == ["file", "/sum"]
    assert all(o.of_range < 1e-6 and o.cosine > 0.999999 for o in report.outputs)
    assert "ok: every output agrees" in str(report)


@pytest.mark.parametrize("source", ["path", "bytes"])
def test_models_by_path_and_bytes(tmp_path, source):
    model, w = dense_model()
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    assert verify(program(w), path if source == "path" else path.read_bytes()).ok


def test_the_worst_output_and_index_are_named():
    model, w = dense_model()

    def wrong(y):
        y = y.copy()
        y[2, 1] += 1e-2
        return y

    report = verify(program(w, wrong), model)
    assert not report.ok and report.worst.name == "file" and report.worst.worst_index == (2, 1)
    text = str(report)
    assert "worst: file[2, 1]" in text and "NOT OK" in text and "FAIL" in text
    assert verify(program(w, wrong), model, tolerance=0.1).ok


def test_outputs_of_nothing_but_nan_agree_with_a_warning():
    model, w = dense_model()
    nans = {name: np.full((3, 5), np.nan, np.float32) for name in ("file", "/sum")}
    report = verify(FakeCompiled([X], lambda inputs: nans), reference=nans)
    assert report.ok and [text.partition(":")[0] for text in report.warnings] == ["file", "/sum"]
    assert "warning: file: no element is finite" in str(report)
    assert not verify(program(w), model).warnings


def test_a_nan_is_found():
    model, w = dense_model()
    report = verify(program(w, lambda y: np.where(np.arange(y.size).reshape(y.shape) == 4, np.nan, y)), model)
    assert not report.ok and report.worst.nan_mismatch == 1 and report.worst.worst_index == (0, 4)


def test_missing_and_extra_outputs_are_problems():
    model, w = dense_model()
    right = program(w)
    renamed = FakeCompiled([X], lambda inputs: {"file": right.run(inputs)["file"], "extra": np.zeros(1)})
    report = verify(renamed, model)
    assert (
        not report.ok and any("'/sum'" in p for p in report.problems) and any("'extra'" in p for p in report.problems)
    )


def test_given_inputs_and_reference():
    model, w = dense_model()
    x = np.ones((3, 7), np.float32)
    report = verify(program(w), model, {"x": x})
    assert report.ok and report.seed is None and "given inputs" in str(report)
    y = x @ w
    assert verify(program(w), inputs={"x": x}, reference={"file": y, "/sum": -y}).ok
    assert not verify(program(w), inputs={"x": x}, reference={"file": y + 1, "/sum": -y}).ok


def test_seeds_differ_and_repeat():
    model, w = dense_model()
    seen = []

    def spy(inputs):
        seen.append(inputs["x"])
        return program(w).run(inputs)

    for seed in (0, 1, 0):
        assert verify(FakeCompiled([X], spy), model, seed=seed).ok
    assert np.array_equal(seen[0], seen[2]) and not np.array_equal(seen[0], seen[1])


def test_bad_calls_are_refused(tmp_path):
    model, w = dense_model()
    with pytest.raises(OptionError, match="compare with"):
        verify(program(w))
    with pytest.raises(OptionError, match="tolerance"):
        verify(program(w), model, tolerance=-1.0)
    with pytest.raises(InputError):
        verify(FakeCompiled([TensorSpec("x", (3, 8), "float32")], lambda inputs: {}), model)
    with pytest.raises(ModelError, match="no file"):
        verify(program(w), tmp_path / "missing.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"not onnx at all")
    with pytest.raises(ModelError):
        verify(program(w), tmp_path / "bad.onnx")


def test_as_dict_is_json():
    model, w = dense_model()
    plain = json.loads(json.dumps(verify(program(w), model).as_dict(), allow_nan=False))
    assert plain["ok"] and [o["name"] for o in plain["outputs"]] == ["file", "/sum"]


@pytest.mark.parametrize("operator", ["QuantizeLinear", "QLinearConv", "DynamicQuantizeLinear"])
def test_where_activations_are_rounded_to_8_bits_a_few_steps_are_allowed(operator):
    _, w = dense_model()
    step = 12.0 / 255  # about the range of an output

    def off_by(steps):
        compiled = program(w, lambda y: y + steps * step * np.eye(1, 5))
        compiled.report = {"nodes": {"q": {"op": operator}, "d": {"op": "MatMul"}}}
        return compiled

    x = {"x": np.linspace(-1, 2, 21, dtype=np.float32).reshape(3, 7)}
    reference = program(w).run(x)
    scale = np.ptp(reference["file"]) / 12.0
    assert verify(off_by(2 * scale), inputs=x, reference=reference).ok
    assert not verify(off_by(6 * scale), inputs=x, reference=reference).ok
    plain = program(w, lambda y: y + 2 * scale * step * np.eye(1, 5))
    assert not verify(plain, inputs=x, reference=reference).ok


@pytest.mark.parametrize(
    ("key", "damaged"),
    [
        ("frozen", 5), ("frozen", [{"name": "x"}]), ("frozen", [["x", "float31", [1], "AAAA"]]),
        ("frozen", [["x", "int8", [5], "AA=="]]), ("precision", {}), ("precision", 5), ("nodes", []),
        ("nodes", {"a": 1}),
    ],
)  # fmt: skip
def test_a_damaged_report_is_refused(key, damaged):
    model, w = dense_model()
    compiled = program(w)
    compiled.report = {key: damaged}
    with pytest.raises(ArtifactError, match=f"'{key}'"):
        verify(compiled, model)


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"seed": 1.5}, {"tolerance": float("inf")}, {"tolerance": True}])
def test_numbers_that_do_not_fit_are_refused(wrong):
    model, w = dense_model()
    with pytest.raises(OptionError, match=next(iter(wrong))):
        verify(program(w), model, **wrong)


def test_what_is_no_compiled_model_is_refused():
    with pytest.raises(OptionError, match="no compiled model"):
        tvm_ext.verify({}, dense_model()[0])

"""quantize as a whole: small models, every method, and what is refused."""

import json
import logging
from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_ext
from tests import onnx_graphs as graphs
from tests.quantization.models import mlp, residual, run, samples
from tests.runtime.processes import run_python
from tvm_ext.core.errors import InputError, ModelError, OptionError, UnsupportedError
from tvm_ext.core.machine import Machine
from tvm_ext.quantization.quantize import quantize

METHODS = ("minmax", "entropy", "percentile")


def weights_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("make", [residual, mlp])
def test_outputs_are_near_those_of_float32(make, method: str) -> None:
    model = make()
    result = quantize(model, samples(model), method=method)
    onnx.checker.check_model(result.model, full_check=True)
    errors = [np.abs(run(result.model, x) - run(model, x)).max() for x in samples(model)]
    span = np.ptp([run(model, x) for x in samples(model)])
    assert max(errors) < (0.15 if method == "entropy" else 0.05) * span
    assert result.outputs[0].of_range == pytest.approx(max(errors) / span, rel=1e-3)


def test_the_model_is_a_standard_qdq_model() -> None:
    model = residual()
    before = model.SerializeToString(deterministic=True)
    quantized = quantize(model, samples(model)).model
    assert model.SerializeToString(deterministic=True) == before
    assert {opset.domain for opset in quantized.opset_import} <= {"", "ai.onnx"}
    arrays = weights_of(quantized)
    conv = next(node for node in quantized.graph.node if node.name == "second")
    decode = {node.output[0]: node for node in quantized.graph.node if node.op_type == "DequantizeLinear"}
    x, w, b = (decode[name] for name in conv.input)
    assert arrays[x.input[2]].dtype == np.uint8 and arrays[x.input[1]].size == 1
    assert arrays[w.input[0]].dtype == np.int8 and arrays[w.input[1]].shape == (7,)  # a scale a channel
    assert not arrays[w.input[2]].any()
    assert arrays[b.input[0]].dtype == np.int32
    np.testing.assert_allclose(arrays[b.input[1]], arrays[x.input[1]] * arrays[w.input[1]], rtol=1e-6)


def test_scales_are_those_of_the_range() -> None:
    model = residual()
    feeds = samples(model)
    quantized = quantize(model, feeds).model
    low = min(float(x.min()) for x in feeds)
    high = max(float(x.max()) for x in feeds)
    scale = weights_of(quantized)[next(node for node in quantized.graph.node if node.input[0] == "x").input[1]]
    assert float(scale) == pytest.approx((high - low) / 255, rel=1e-6)


def test_options_change_the_model() -> None:
    model = residual()
    one = quantize(model, samples(model), per_channel=False, activations="int8", exclude="second").model
    arrays = weights_of(one)
    zeros = {a.dtype.name for name, a in arrays.items() if name.endswith("zero_point")}
    assert "int8" in zeros and "uint8" not in zeros
    assert arrays["w1_scale"].size == 1 and arrays["w2"].dtype == np.float32  # a name in exclude stays as it was
    seven = weights_of(quantize(model, samples(model), reduce_range=True).model)
    assert max(np.abs(a).max() for name, a in seven.items() if name.startswith("w") and a.dtype == np.int8) <= 64


def test_reduced_range_follows_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    model = mlp()
    detected = Machine.detect()
    for features, reduced in ((("avx2",), True), (("avx2", "avxvnni"), False), (("neon",), False)):
        machine = Machine(**{**detected.as_dict(), "features": features})
        monkeypatch.setattr(Machine, "detect", staticmethod(lambda machine=machine: machine))
        result = quantize(model, samples(model))
        assert result.settings.reduce_range is reduced
        assert any("VNNI" in note for note in result.notes) is reduced


def test_rows_name_nodes_values_and_what_is_left() -> None:
    model = residual()
    result = quantize(model, samples(model))
    rows = {row.nodes: row for row in result.layers}
    assert set(rows) == {
        ("first", "relu1"), ("second", "bn2"), ("sum", "relu2"), ("pool",), ("flat",), ("dense",), ("soft",)
    }  # fmt: skip
    assert rows["first", "relu1"].value == "r1" and rows["first", "relu1"].dtype == "uint8"
    assert rows["dense",].dtype == "float32" and not rows["dense",].reason
    assert rows["soft",].output and [name for name, *_ in result.left] == ["soft"]
    assert result.samples == 5 and result.compared == 5 and result.size[0] > 0


def test_an_old_opset_is_upgraded_and_weights_that_are_inputs_are_weights() -> None:
    model = residual()
    model.opset_import[0].version, model.ir_version = 11, 3
    for tensor in model.graph.initializer:
        model.graph.input.append(graphs.value(tensor.name, tensor.dims))
    result = quantize(model, samples(model))
    assert result.model.opset_import[0].version >= 13 and [value.name for value in result.model.graph.input] == ["x"]
    assert any("opset 11 was upgraded to 13" in note for note in result.notes)


def test_nodes_without_names_get_one() -> None:
    model = residual()
    for node in model.graph.node:
        node.name = ""
    assert quantize(model, samples(model)).layers[0].nodes == ("Conv:c1", "Relu:r1")


def test_a_free_batch() -> None:
    model = residual("N")
    stack = np.concatenate(samples(model, 12))
    result = quantize(model, stack)
    assert result.samples == 12 and result.compared == 8
    assert run(result.model, stack).shape == (12, 3)


def test_events_and_no_output(capfd: pytest.CaptureFixture[str]) -> None:
    model, events = mlp(), []
    handlers = list(logging.getLogger().handlers)
    quantize(model, samples(model), method="percentile", on_event=events.append)
    assert capfd.readouterr() == ("", "") and logging.getLogger().handlers == handlers
    steps = list(dict.fromkeys(event["step"] for event in events))
    assert steps == ["calibrating", "choosing ranges", "comparing layers"]
    assert {event["of"] for event in events} == {5}


def test_the_result_is_saved_and_printed(tmp_path: Path) -> None:
    model = residual()
    result = tvm_ext.quantize(model, samples(model))
    result.save(tmp_path / "q.onnx")
    assert onnx.load(tmp_path / "q.onnx") == result.model
    for text in (str(result), result.markdown(), result._repr_html_()):
        assert "first + relu1" in text and "8 bits are too coarse for it" in text
    plain = json.loads(json.dumps(result.as_dict()))
    assert plain["quantized"] == 8 and plain["left"][0]["node"] == "soft" and len(plain["layers"]) == 7
    assert result.worst[0].sqnr == min(row.sqnr for row in result.layers if not row.reason)


def test_it_compiles() -> None:
    model = mlp()
    quantized = quantize(model, samples(model)).model
    x = samples(model)[0]
    wanted = run(quantized, x)
    y = tvm_ext.compile(quantized, cache=False).run({"x": x})["y"]
    np.testing.assert_allclose(y, wanted, atol=1e-5 * np.ptp(wanted))


def test_refusals() -> None:
    model = residual()
    feeds = samples(model)
    ends = [graphs.value(name, (2, 3)) for name in "xy"]
    softmax = graphs.model([graphs.node("Softmax", "x", "y", "soft")], ends[:1], ends[1:])
    with pytest.raises(OptionError, match="quantize needs calibration="):
        quantize(model)
    with pytest.raises(ModelError, match="quantized already: node 'b2_DequantizeLinear' is DequantizeLinear"):
        quantize(quantize(model, feeds).model, feeds)
    with pytest.raises(ModelError, match="no node can be quantized: soft: operators= does not name it"):
        quantize(softmax, [graphs.random(2, 3)], operators=["Conv"])
    with pytest.raises(OptionError, match="'Convv' is none that can be quantized"):
        quantize(model, feeds, operators=["Convv"])
    with pytest.raises(TypeError, match="metod"):
        quantize(model, feeds, metod="minmax")


def test_values_without_a_range_are_named() -> None:
    nodes = [graphs.node("MatMul", "x w", "m", "big"), graphs.node("MatMul", "m v", "y", "next")]
    weights = {"w": np.full((3, 3), 1e38, np.float32), "v": graphs.random(3, 3)}
    model = graphs.model(nodes, [graphs.value("x", (2, 3))], [graphs.value("y", (2, 3))], weights)
    with pytest.raises(InputError, match=r"value '[my]' ranges from"):
        quantize(model, [np.full((2, 3), 10, np.float32)])


def test_a_sample_that_cannot_be_run() -> None:
    nodes = [graphs.node("Reshape", "x s", "r"), graphs.node("MatMul", "r w", "y", "dense")]
    weights = {"s": np.array([-1, 4]), "w": graphs.random(4, 3)}
    model = graphs.model(nodes, [graphs.value("x", ("n",))], [graphs.value("y", (None, 3))], weights)
    with pytest.raises(InputError, match="calibration sample 1: onnxruntime cannot run it"):
        quantize(model, [graphs.random(8), graphs.random(7)])


def test_an_operator_onnxruntime_does_not_have() -> None:
    nodes = [graphs.node("MatMul", "x w", "m", "dense"), graphs.node("Mystery", "m", "y", domain="ours")]
    ends = [graphs.value(name, (2, 3)) for name in "xy"]
    model = graphs.model(nodes, ends[:1], ends[1:], {"w": graphs.random(3, 3)}, domains=["ours"])
    with pytest.raises((UnsupportedError, ModelError), match="Mystery"):
        quantize(model, [graphs.random(2, 3)])


@pytest.mark.parametrize("method", METHODS)
def test_a_layer_that_is_always_zero_and_a_single_sample(method: str) -> None:
    model = residual()
    for tensor in model.graph.initializer:
        if tensor.name == "bn1.bias":  # relu1 gives zeros only
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.full(7, -100, np.float32), tensor.name))
    result = quantize(model, samples(model, 1), method=method)
    zero = next(row for row in result.layers if row.nodes == ("first", "relu1"))
    assert (zero.sqnr, zero.of_range, zero.cosine) == (np.inf, 0.0, 1.0)
    assert np.isfinite(run(result.model, samples(model)[0])).all() and "exact" in str(result)
    assert json.loads(json.dumps(result.as_dict()))["layers"][0]["sqnr_db"] is None


def test_external_data_is_read_and_too_much_of_it_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(residual(), path, save_as_external_data=True, location="m.data", size_threshold=0)
    assert quantize(path, samples(residual())).name == "m.onnx"
    monkeypatch.setattr("tvm_ext.quantization.preparation.LIMIT", 1000)
    with pytest.raises(UnsupportedError, match="bytes with its weights, and onnxruntime's tools take 2 GiB"):
        quantize(path, samples(residual()))


@pytest.mark.long
def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    model = residual()
    path, feeds = graphs.saved(model, tmp_path / "m.onnx"), tmp_path / "c.npz"
    np.savez(feeds, x=np.concatenate(samples(model)))
    code = "import sys, tvm_ext; tvm_ext.quantize(*sys.argv[1:3], method='entropy').save(sys.argv[3])"
    outputs = [tmp_path / f"{seed}.onnx" for seed in "12"]
    for seed, output in zip("12", outputs, strict=True):
        run_python(code, path, feeds, output, PYTHONHASHSEED=seed)
    assert outputs[0].read_bytes() == outputs[1].read_bytes()

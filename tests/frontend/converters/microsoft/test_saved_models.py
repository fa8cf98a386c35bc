"""Models that onnxruntime saved after its optimizations and quantizations: each compiles, and agrees with it."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_dynamic, quantize_static

import tvm_ext
from tests import onnx_graphs
from tests.oracles.reference import unsaturated
from tests.quantization.models import residual
from tests.test_half_models import inverted_residual
from tvm_ext.frontend.zoo.models import MODELS

_BERT = {"sequence": 24, "hidden": 96, "heads": 4, "intermediate": 160, "layers": 2, "mask": True}
BUILDERS: dict[str, Callable[[], onnx.ModelProto]] = {
    "batch norms": residual, "mlp": MODELS["mlp"], "bert": functools.partial(MODELS["bert"], **_BERT),
    "strides": functools.partial(onnx_graphs.residual_network, 32, 16), "depthwise": inverted_residual,
}  # fmt: skip
#: Model, quantization, level: blocks of channels, which ALL adds, are of convolutions; dynamically quantized ones round
#: what a float error moved, layer by layer.
SHORT = [
    ("batch norms", "float", "EXTENDED"), ("batch norms", "float", "ALL"), ("batch norms", "dynamic", "ALL"),
    ("batch norms", "static", "ALL"), ("mlp", "float", "ALL"), ("mlp", "dynamic", "ALL"), ("mlp", "static", "ALL"),
    ("bert", "float", "ALL"), ("bert", "dynamic", "ALL"), ("depthwise", "float", "ALL"),
]  # fmt: skip
LONG = [
    ("batch norms", "static", "EXTENDED"), ("bert", "static", "ALL"), ("strides", "float", "ALL"),
    ("strides", "static", "ALL"), ("depthwise", "static", "ALL"),
]  # fmt: skip


def feeds_of(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Random inputs; of a mask, the last five tokens of each sequence are padding."""
    rng, feeds = np.random.default_rng(3), {}
    for declared in proto.graph.input:
        shape = [d.dim_value for d in declared.type.tensor_type.shape.dim]
        feeds[declared.name] = np.float32(rng.standard_normal(shape))
        if declared.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            feeds[declared.name] = np.ones(shape, np.int64)
            feeds[declared.name][:, -5:] = 0
    return feeds


class _Reader(CalibrationDataReader):
    def __init__(self, feeds: dict[str, np.ndarray]) -> None:
        self._left = iter([feeds])

    def get_next(self) -> Any:
        return next(self._left, None)


def saved(path: pathlib.Path, level: str) -> pathlib.Path:
    """The model as onnxruntime saves it after its optimizations of a level."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(path.with_suffix(f".{level}.onnx"))
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return pathlib.Path(options.optimized_model_filepath)


def written(name: str, kind: str, folder: pathlib.Path) -> tuple[pathlib.Path, dict[str, np.ndarray]]:
    """A model in float32, or with dynamic or static quantization by onnxruntime's tools; and inputs."""
    proto = BUILDERS[name]()
    path, feeds = folder / f"{name}.onnx", feeds_of(proto)
    onnx.save(proto, path)
    if kind == "dynamic":
        quantize_dynamic(path, folder / "dynamic.onnx")
        return folder / "dynamic.onnx", feeds
    if kind == "static":
        quantize_static(path, folder / "static.onnx", _Reader(feeds), quant_format=QuantFormat.QOperator)
        return folder / "static.onnx", feeds
    return path, feeds


@pytest.mark.parametrize(
    ("name", "kind", "level"), [*SHORT, *(pytest.param(*case, marks=pytest.mark.long) for case in LONG)]
)
def test_saved(name: str, kind: str, level: str, tmp_path: pathlib.Path) -> None:
    path, feeds = written(name, kind, tmp_path)
    path = saved(path, level)
    assert {n.domain for n in onnx.load(path).graph.node} & {"com.microsoft", "com.microsoft.nchwc"}
    compiled = tvm_ext.compile(str(path), cache=False, threads=2)
    report = tvm_ext.verify(compiled, unsaturated(onnx.load(path)), feeds)
    assert report.ok, str(report)


def test_blocks_of_another_processor_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.frontend.graphs import imported, model, value
    from tvm_ext.core.errors import UnsupportedError
    from tvm_ext.frontend.converters.microsoft import nchwc

    monkeypatch.setattr(nchwc, "block_size", lambda: 16)
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], "conv", domain="com.microsoft.nchwc", kernel_shape=[1, 1])
    proto = model([node], [value("x", [1, 3, 5, 5])], [value("y", None)], {"w": np.zeros((8, 3, 1, 1), np.float32)},
                  domains=["com.microsoft.nchwc"])  # fmt: skip
    with pytest.raises(UnsupportedError, match=r"8 filters in blocks of 16.*another processor"):
        imported(proto)


def blocks_of_channels() -> onnx.ModelProto:
    """Convolutions of channels that fill no block of 16, grouped, depthwise, pooled, resized and summed."""
    g = onnx_graphs
    nodes = [
        g.node("Conv", "x w1 b1", "a", "first", pads=[1, 1, 1, 1]), g.node("Relu", "a", "r"),
        g.node("MaxPool", "r", "p", "pool", kernel_shape=[2, 2], strides=[2, 2]),
        g.node("Conv", "p w2", "c", "second", pads=[1, 1, 1, 1]), g.node("Add", "c p", "s"),
        g.node("Conv", "s w3", "d", "depthwise", group=24, pads=[1, 1, 1, 1]),
        g.node("Resize", "d none scales", "u", "resize", mode="nearest", coordinate_transformation_mode="asymmetric",
               nearest_mode="floor"),
        g.node("Conv", "u w4", "e", "grouped", group=2),
        g.node("AveragePool", "e", "v", "average", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 0]),
        g.node("Sigmoid", "v", "y", "sigmoid"),
    ]  # fmt: skip
    weights = {
        "w1": g.random(24, 3, 3, 3, scale=0.3), "b1": g.random(24), "w2": g.random(24, 24, 3, 3, scale=0.1),
        "w3": g.random(24, 1, 3, 3, scale=0.3), "w4": g.random(32, 12, 1, 1, scale=0.3),
        "scales": np.float32([1, 1, 2, 2]), "none": np.zeros(0, np.float32),
    }  # fmt: skip
    return g.model(nodes, [g.value("x", [2, 3, 10, 14])], [g.value("y", [2, 32, 5, 13])], weights)


def test_blocks_of_channels(tmp_path: pathlib.Path) -> None:
    proto = blocks_of_channels()
    onnx.save(proto, tmp_path / "blocks.onnx")
    path, feeds = saved(tmp_path / "blocks.onnx", "ALL"), feeds_of(proto)
    kinds = {n.op_type for n in onnx.load(path).graph.node if n.domain == "com.microsoft.nchwc"}
    assert {"AveragePool", "Conv", "ReorderInput", "ReorderOutput", "Upsample"} <= kinds
    report = tvm_ext.verify(tvm_ext.compile(str(path), cache=False, threads=2), str(path), feeds)
    assert report.ok, str(report)

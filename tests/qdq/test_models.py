"""A residual network quantized by onnxruntime's tools: every stored value of it."""

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

import tvm_ext
from tests.onnx_graphs import residual_network
from tests.oracles.reference import onnxruntime_outputs
from tests.qdq.exactness import Judge, exposed

SHAPE = (1, 3, 96, 96)


class _Images:
    """Random images for calibration."""

    def __init__(self, name: str, count: int) -> None:
        self._feeds: Iterator[dict[str, np.ndarray]] = iter([{name: _image(k)} for k in range(count)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def _image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, SHAPE).astype(np.float32)


def quantized(tmp_path: pathlib.Path, form: str) -> onnx.ModelProto:
    """A small ResNet in QDQ or QOperator form."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source, ready, target = (tmp_path / f"{name}.onnx" for name in ("float", "ready", "whole"))
    onnx.save(residual_network(SHAPE[-1], 32), source)
    quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)
    reader: Any = _Images(onnx.load(ready).graph.input[0].name, 2)
    quantize_static(str(ready), str(target), reader, quant_format=QuantFormat[form], per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)  # fmt: skip
    return onnx.load(target)


def test_stored_values_between_pairs_are_the_nearest_everywhere(tmp_path: pathlib.Path) -> None:
    proto = quantized(tmp_path, "QDQ")
    feeds, whole = {proto.graph.input[0].name: _image(9)}, exposed(proto)
    judge = Judge(proto, feeds)
    compiled = tvm_ext.compile(whole, cache=False, threads=2, accuracy="exact")  # by default Winograd may be faster
    ours, theirs = judge(compiled.run(feeds)), judge(onnxruntime_outputs(whole, feeds))
    assert ours.elements == theirs.elements > 150_000
    assert ours.off <= theirs.off + 1
    assert "generic" not in {k["recipe"] for k in compiled.report["kernels"]}


def test_integer_operators_have_the_same_bits(tmp_path: pathlib.Path) -> None:
    proto = quantized(tmp_path, "QOperator")
    known = {o.name for o in proto.graph.output}
    for node in list(proto.graph.node):
        if node.op_type.startswith(("QLinear", "QGemm", "QuantizeLinear")) and node.output[0] not in known:
            proto.graph.output.append(onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.UINT8, None))
    feeds = {proto.graph.input[0].name: _image(9)}
    wanted = onnxruntime_outputs(proto, feeds)
    compiled = tvm_ext.compile(proto, cache=False, threads=2)
    outputs = compiled.run(feeds)
    assert [name for name, want in wanted.items() if not np.array_equal(outputs[name], want)] == []
    assert "generic" not in {k["recipe"] for k in compiled.report["kernels"]}

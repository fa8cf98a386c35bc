"""Whole models offloaded: their errors, what reports say of each node, and an artifact in a process
of its own."""

import math
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import tvm_ext
from tvm_ext.core.sample_inputs import seeded_inputs
from tvm_ext.runtime.model import CompiledModel
from tvm_ext.verification.arrays import load_npz, save_npz

from benchmarks.measuring.processes import probe

ALL = {"when": "always"}
Make = Callable[[], onnx.ModelProto]


def _bert_block() -> onnx.ModelProto:
    return tvm_ext.zoo.bert(layers=1)


#: What is offloaded: a model of the zoo, and the options.
FLOAT32: Mapping[str, tuple[Make, Mapping[str, Any]]] = {
    "MLP": (tvm_ext.zoo.mlp, ALL),
    "ResNet-18, fc alone": (tvm_ext.zoo.resnet18, {**ALL, "skip": ("Conv",)}),
    "ResNet-18, fc and all convolutions": (tvm_ext.zoo.resnet18, ALL),
    "BERT block": (_bert_block, ALL),
}


def _quantized(make: Make) -> onnx.ModelProto:
    """QDQ, uint8, from two random images: what counts here is where nodes run."""
    model = make()
    shape = [size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim]
    images = np.random.default_rng(0).standard_normal((2, *shape), dtype=np.float32)
    return tvm_ext.quantize(model, calibration=list(images)).model


#: Whose reports are read: a model, and the dtype of the array.
REPORTED: Mapping[str, tuple[Make, str]] = {
    "ResNet-18": (tvm_ext.zoo.resnet18, "float32"),
    "MobileNetV2": (tvm_ext.zoo.mobilenet_v2, "float32"),
    "BERT block": (_bert_block, "float32"),
    "ResNet-18, int8": (lambda: _quantized(tvm_ext.zoo.resnet18), "int8"),
    "MobileNetV2, int8": (lambda: _quantized(tvm_ext.zoo.mobilenet_v2), "int8"),
}


def offloaded(model: onnx.ModelProto, options: Mapping[str, Any] = ALL) -> CompiledModel:
    """The model with regions on the accelerator, compiled now."""
    return tvm_ext.compile(model, offload="systolic", offload_options=options, cache=False)


def float32() -> list[dict[str, Any]]:
    """Errors of whole models against onnxruntime."""
    rows = []
    for name, (make, options) in FLOAT32.items():
        model = make()
        compiled = offloaded(model, options)
        report = compiled.offload_report()
        checks = [tvm_ext.verify(compiled, model, seed=seed) for seed in range(3)]
        rows.append({
            "model": name, "regions": len(report.regions), "nodes": len(report.ops),
            "there": len(report.offloaded),
            "error": max(check.of_range for check in checks),
        })  # fmt: skip
    return rows


def coverage() -> list[dict[str, Any]]:
    """Nodes of each model by place, those without a place or a reason, and the reasons of
    refusals."""
    rows = []
    for name, (make, dtype) in REPORTED.items():
        model = make()
        report = offloaded(model, {**ALL, "dtype": dtype}).offload_report()
        silent = [op.node for op in report.ops if not op.place or not op.reason]
        missing = len(model.graph.node) - len({op.node for op in report.ops})
        places = ("cpu", "compile time")
        rows.append({
            "model": name, "nodes": len(report.ops), "offloaded": len(report.offloaded),
            **{place: sum(op.place == place for op in report.ops) for place in places},
            "silent": len(silent) + missing, "regions": len(report.regions),
            "on the cpu": [op.node for op in report.ops if op.place == "cpu"],
        })  # fmt: skip
    return rows


def artifact() -> dict[str, Any]:
    """ResNet-18, all of it offloaded: exported, run by a fresh process with an empty PATH; bits and
    bytes."""
    model = tvm_ext.zoo.resnet18()
    compiled = offloaded(model)
    inputs = seeded_inputs(compiled.inputs)
    expected = compiled.run(inputs).values()
    with tempfile.TemporaryDirectory() as folder:
        path, *files = (
            pathlib.Path(folder, name) for name in ("model.so", "inputs.npz", "outputs.npz")
        )
        compiled.export(path)
        save_npz(files[0], inputs)
        answer = probe("reload", path, *files, env={"PATH": "/nonexistent"})
        pairs = zip(load_npz(files[1]).values(), expected, strict=True)
        same = all(a.tobytes() == e.tobytes() for a, e in pairs)
        sizes = {"file_bytes": path.stat().st_size, "weight_bytes": _weight_bytes(model)}
    return {"same_bits": same, **sizes, **answer}


def _weight_bytes(model: onnx.ModelProto) -> int:
    """Of all initializers of float32, which is what a model's weights are."""
    tensors = (tensor for tensor in model.graph.initializer if tensor.data_type == 1)
    return sum(4 * math.prod(tensor.dims) for tensor in tensors)

"""Whole models offloaded: their errors, what reports say of each node, and an artifact in a process of its own."""

from __future__ import annotations

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

import tvm_ext
from tvm_ext.core.sample_inputs import seeded_inputs

ALL = {"when": "always"}


def _bert_block() -> onnx.ModelProto:
    return tvm_ext.zoo.bert(layers=1)


#: What is offloaded: a model of the zoo, and the options.
FLOAT32: Mapping[str, tuple[Callable[[], onnx.ModelProto], Mapping[str, Any]]] = {
    "MLP": (tvm_ext.zoo.mlp, ALL),
    "ResNet-18, fc alone": (tvm_ext.zoo.resnet18, {**ALL, "skip": ("Conv",)}),
    "ResNet-18, fc and all convolutions": (tvm_ext.zoo.resnet18, ALL),
    "BERT block": (_bert_block, ALL),
}
REPORTED: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "ResNet-18": tvm_ext.zoo.resnet18, "MobileNetV2": tvm_ext.zoo.mobilenet_v2, "BERT block": _bert_block,
}  # fmt: skip
_RELOAD = """
import json, os, shutil, sys
import numpy as np
from tvm_ext.runtime.model import load
artifact, inputs, outputs = sys.argv[1:]
model = load(artifact)
with np.load(inputs) as stored:
    values = model.run({spec.name: stored[f"arr_{i}"] for i, spec in enumerate(model.inputs)})
np.savez(outputs, *values.values())
found = [name for name in ("gcc", "cc", "clang", "ld") if shutil.which(name)]
heavy = [name for name in ("onnx", "onnxruntime", "tvm_ext.driver", "tvm_ext.passes") if name in sys.modules]
print(json.dumps({"compilers": found, "imported": heavy}))
"""


def float32() -> list[dict[str, Any]]:
    """Errors of whole models against onnxruntime."""
    rows = []
    for name, (make, options) in FLOAT32.items():
        model = make()
        compiled = tvm_ext.compile(model, offload="systolic", offload_options=options, cache=False)
        report, checks = compiled.offload_report(), [tvm_ext.verify(compiled, model, seed=seed) for seed in range(3)]
        rows.append({
            "model": name, "regions": len(report.regions), "nodes": len(report.ops), "there": len(report.offloaded),
            "error": max(output.of_range for check in checks for output in check.outputs),
        })  # fmt: skip
    return rows


def coverage() -> list[dict[str, Any]]:
    """Nodes of each model by place, those without a place or a reason, and the reasons of refusals."""
    rows = []
    for name, make in REPORTED.items():
        report = tvm_ext.compile(make(), offload="systolic", offload_options=ALL, cache=False).offload_report()
        silent = [op.node for op in report.ops if not op.place or not op.reason]
        missing = len(make().graph.node) - len({op.node for op in report.ops})
        places = {place: sum(op.place == place for op in report.ops) for place in ("cpu", "compile time")}
        rows.append({
            "model": name, "nodes": len(report.ops), "offloaded": len(report.offloaded), **places,
            "silent": len(silent) + missing,
        })  # fmt: skip
    return rows


def artifact() -> dict[str, Any]:
    """ResNet-18, all of it offloaded: exported, run by a fresh process with an empty PATH; bits and bytes."""
    model = tvm_ext.zoo.resnet18()
    compiled = tvm_ext.compile(model, offload="systolic", offload_options=ALL, cache=False)
    inputs = seeded_inputs(compiled.inputs)
    expected = compiled.run(inputs)
    with tempfile.TemporaryDirectory() as folder:
        path, given, got = (pathlib.Path(folder, name) for name in ("model.so", "inputs.npz", "outputs.npz"))
        compiled.export(path)
        np.savez(given, *(inputs[spec.name] for spec in compiled.inputs))
        command = [sys.executable, "-c", _RELOAD, str(path), str(given), str(got)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, env={**os.environ, "PATH": "/nonexistent"}
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"the fresh process failed:\n{done.stderr}")
        with np.load(got) as stored:
            arrays = [stored[f"arr_{i}"] for i in range(len(expected))]
        same = all(a.tobytes() == e.tobytes() for a, e in zip(arrays, expected.values(), strict=True))
        return {
            "same_bits": same, "file_bytes": path.stat().st_size, "weight_bytes": _weight_bytes(model),
            **json.loads(done.stdout),
        }  # fmt: skip


def _weight_bytes(model: onnx.ModelProto) -> int:
    """Of all initializers of float32, which is what a model's weights are."""
    return sum(4 * math.prod(tensor.dims) for tensor in model.graph.initializer if tensor.data_type == 1)

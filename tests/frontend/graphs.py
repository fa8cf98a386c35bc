"""Small ONNX models for the tests of the frontend, and how they run in onnxruntime and in stock TVM."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.onnx_graphs import model, value
from tests.oracles.reference import module_outputs, onnxruntime_outputs
from tvm_ext.core.errors import TvmExtError
from tvm_ext.core.options import CompileOptions
from tvm_ext.frontend.importer import Imported, import_model
from tvm_ext.frontend.reading.reader import read_model


def node(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", **attributes: Any
) -> onnx.NodeProto:
    """A node."""
    return helper.make_node(op_type, inputs, outputs, name, **attributes)


def relu_model(shape: Sequence[int | str | None] | None = (2, 3)) -> onnx.ModelProto:
    """x -> Relu "act" -> y."""
    return model([node("Relu", ["x"], ["y"], "act")], [value("x", shape)], [value("y", shape)])


def linear_model(features: int = 3) -> onnx.ModelProto:
    """x [2, 5] -> MatMul "dense" with w -> Add "shift" with b -> y [2, features]."""
    rng = np.random.default_rng(7)
    weights = {"w": _f32(rng.standard_normal((5, features))), "b": _f32(rng.standard_normal(features))}
    nodes = [node("MatMul", ["x", "w"], ["h"], "dense"), node("Add", ["h", "b"], ["y"], "shift")]
    return model(nodes, [value("x", [2, 5])], [value("y", [2, features])], weights)


def _f32(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32)


def imported(proto: onnx.ModelProto, **options: Any) -> Imported:
    """The model through reader and importer."""
    return import_model(read_model(proto), CompileOptions(**options))


def message(error: TvmExtError) -> str:
    """All that a user sees of an error; a fix must be part of it."""
    assert error.fix, f"no fix in: {error}"
    return str(error)


def run_onnxruntime(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """All outputs, in graph order."""
    outputs = onnxruntime_outputs(proto, feeds, optimized=True)
    return [outputs[output.name] for output in proto.graph.output]  # one may be listed twice


def run_tvm(translated: Imported, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """All outputs of the imported module, compiled by stock TVM."""
    import tvm_ext.schedules  # brings kernels of operators that TVM has not  # noqa: F401

    return module_outputs(translated.mod, [feeds[spec.name] for spec in translated.inputs])


def check_numbers(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], **options: Any) -> Imported:
    """Import, run with both, compare values, shapes and dtypes."""
    translated = imported(proto, **options)
    ours, theirs = run_tvm(translated, feeds), run_onnxruntime(proto, feeds)
    assert len(ours) == len(theirs) == len(translated.outputs)
    for mine, reference, spec in zip(ours, theirs, translated.outputs, strict=True):
        assert (mine.shape, str(mine.dtype)) == (reference.shape, str(reference.dtype)) == (spec.shape, spec.dtype)
        np.testing.assert_allclose(mine, reference, rtol=1e-5, atol=1e-6)
    return translated

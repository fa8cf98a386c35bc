"""A tiny model through compile, run and verify: `python -m tvm_ext.verification.selftest` prints one line of JSON.

A process of its own, because what is wrong with an installation may be a crash.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def tiny_model() -> Any:
    """Convolution with bias, ReLU, global average pooling and a dense layer on odd shapes, as an `onnx.ModelProto`."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> Any:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["conv"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv"], ["relu"], "relu"),
        helper.make_node("GlobalAveragePool", ["relu"], ["pool"], "pool"),
        helper.make_node("Flatten", ["pool"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "fc.weight", "fc.bias"], ["y"], "fc", transB=1),
    ]
    constants = [
        weights("conv.weight", 8, 3, 3, 3), weights("conv.bias", 8), weights("fc.weight", 5, 8), weights("fc.bias", 5),
    ]  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 9, 7])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])
    graph = helper.make_graph(nodes, "selftest", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run() -> dict[str, Any]:
    """Compile without the cache, run, compare with onnxruntime; plain values."""
    from ..driver.compile import compile_model
    from .verify import verify

    model = tiny_model()
    report = verify(compile_model(model, cache=False), model)
    worst = report.worst
    return {"ok": report.ok, "of_range": worst.of_range if worst else None, "text": str(report)}


def main() -> int:
    """Print the result; whatever the libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    result = run()
    answers.write(json.dumps(result) + "\n")
    answers.close()
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())

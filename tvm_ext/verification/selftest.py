"""A tiny model through compile, run and verify: `python -m tvm_ext.verification.selftest` prints one line of JSON.

A process of its own, because what is wrong with an installation may be a crash.
"""

import json
import os
import sys
from typing import Any

_MODEL = """
<ir_version: 8, opset_import: ["": 17]>
selftest (float[1, 3, 9, 7] x) => (float[1, 5] y) {
    conv = Conv <pads = [1, 1, 1, 1]> (x, conv_weight, conv_bias)
    relu = Relu (conv)
    pool = GlobalAveragePool (relu)
    flat = Flatten (pool)
    y = Gemm <transB = 1> (flat, fc_weight, fc_bias)
}"""
_WEIGHTS = {"conv_weight": (8, 3, 3, 3), "conv_bias": (8,), "fc_weight": (5, 8), "fc_bias": (5,)}


def tiny_model() -> Any:
    """Convolution with bias, ReLU, global average pooling and a dense layer on odd shapes, as an `onnx.ModelProto`."""
    import numpy as np
    from onnx import numpy_helper, parser

    rng, model = np.random.default_rng(0), parser.parse_model(_MODEL)
    for name, shape in _WEIGHTS.items():
        weights = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weights, name))
    return model


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

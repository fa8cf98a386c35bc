"""A compiled model that is onnxruntime with a deliberate error, so that checks are tested without a compiler."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper


class FakeCompiled:
    """Runs `function` on named inputs."""

    threads = 1
    batches = ()

    def __init__(self, inputs, function):
        self.inputs, self.function, self.report = tuple(inputs), function, {}

    def run(self, inputs):
        return self.function(inputs)


def dense_model(free=False):
    """y = x W, odd shapes, one output called "file" and one called "/sum"."""
    rows = "n" if free else 3
    w = np.linspace(-1.0, 1.0, 7 * 5, dtype=np.float32).reshape(7, 5)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["file"], "dense"), helper.make_node("Neg", ["file"], ["/sum"])]
    graph = helper.make_graph(
        nodes, "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 7])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, 5]) for n in ("file", "/sum")],
        [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), w

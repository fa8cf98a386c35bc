"""A compiled model that is onnxruntime with a deliberate error, so that checks are tested without a compiler."""

import numpy as np

from tests.onnx_graphs import model, node, value


class FakeCompiled:
    """Runs `function` on named inputs."""

    threads = 1
    batches = ()
    symbols = ()
    state = {}  # noqa: RUF012
    arguments = results = ()

    def __init__(self, inputs, function):
        self.inputs, self.function, self.report = tuple(inputs), function, {}

    def run(self, inputs):
        return self.function(inputs)

    def tensors_of(self, inputs):
        return inputs

    nested = tensors_of


def dense_model(free=False):
    """y = x W, odd shapes, one output called "file" and one called "/sum"."""
    rows = "n" if free else 3
    w = np.linspace(-1.0, 1.0, 7 * 5, dtype=np.float32).reshape(7, 5)
    nodes = [node("MatMul", "x w", "file", "dense"), node("Neg", "file", "/sum")]
    return model(nodes, [value("x", [rows, 7])], [value(n, [rows, 5]) for n in ("file", "/sum")], {"w": w}), w

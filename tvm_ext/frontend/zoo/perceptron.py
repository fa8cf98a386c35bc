"""A multilayer perceptron: linear layers with ReLUs between."""

import os
from collections.abc import Sequence

import onnx

from .builder import GraphBuilder
from .parameters import Parameters, check_sizes


def mlp(
    batch: int = 1, seed: int = 0, hidden: Sequence[int] = (512, 512), inputs: int = 784, classes: int = 10,
    weights: str | os.PathLike[str] | None = None,
) -> onnx.ModelProto:  # fmt: skip
    """Linear layers "fc1", "fc2", ... with ReLUs between, torch's names: "fc1.weight" [hidden, inputs], "fc1.bias".

    Args:
        batch: rows per inference.
        seed: of the random weights.
        hidden: widths of the hidden layers; may be empty.
        inputs: width of the input.
        classes: width of the output.
        weights: a `.safetensors` file with tensors of these names, instead of random weights.

    Returns:
        A model from "input" [batch, inputs] to "output" [batch, classes], float32.

    Raises:
        OptionError: a size below 1.
        ModelError: `weights` cannot be read or do not fit; lists the tensors.
    """
    batch, inputs, classes = check_sizes(batch=batch, inputs=inputs, classes=classes)
    hidden = check_sizes(**{f"hidden[{i}]": n for i, n in enumerate(hidden)})
    g = GraphBuilder("mlp", Parameters(seed, weights))
    x = g.input("input", (batch, inputs))
    for i, width in enumerate(hidden, start=1):
        x = g.relu(g.linear(x, f"fc{i}", width), f"relu{i}")
    return g.build(output=g.linear(x, f"fc{len(hidden) + 1}", classes))

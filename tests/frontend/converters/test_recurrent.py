"""RNN, GRU and LSTM against onnxruntime."""

import numpy as np
import pytest
from onnx import TensorProto

from tvm_ext.core.errors import UnsupportedError

from ..graphs import check_numbers, imported, model, node, value

RNG = np.random.default_rng(7)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, INPUTS, HIDDEN = 5, 2, 3, 4


def weight(*shape):
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def recurrent(op_type, directions=1, inputs=("x", "w", "r", "b"), feeds=(), **attributes):
    gates = GATES[op_type] * HIDDEN
    weights = {"w": weight(directions, gates, INPUTS), "r": weight(directions, gates, HIDDEN),
               "b": weight(directions, 2 * gates), "h": weight(directions, BATCH, HIDDEN),
               "c": weight(directions, BATCH, HIDDEN), "p": weight(directions, 3 * HIDDEN)}  # fmt: skip
    state = [directions, BATCH, HIDDEN]
    outputs = [value("y", [STEPS, *state]), value("y_h", state), value("y_c", state)][: 3 if op_type == "LSTM" else 2]
    used = {name: w for name, w in weights.items() if name in inputs}
    graph_inputs = [value("x", [STEPS, BATCH, INPUTS])]
    if "n" in inputs:
        graph_inputs.append(value("n", [BATCH], TensorProto.INT32))
    nodes = [node(op_type, list(inputs), [o.name for o in outputs], hidden_size=HIDDEN, **attributes)]
    return model(nodes, graph_inputs, outputs, used)


def x():
    return {"x": RNG.standard_normal((STEPS, BATCH, INPUTS)).astype(np.float32)}


@pytest.mark.parametrize("op_type", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions(op_type, direction):
    check_numbers(recurrent(op_type, 2 if direction == "bidirectional" else 1, direction=direction), x())


@pytest.mark.parametrize("op_type", GATES)
def test_a_first_state(op_type):
    inputs = ("x", "w", "r", "b", "", "h", *(["c"] if op_type == "LSTM" else []))
    check_numbers(recurrent(op_type, inputs=inputs), x())


@pytest.mark.parametrize("op_type", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [[5, 2], [1, 4], [5, 5]])
def test_lengths_of_sequences(op_type, direction, lengths):
    directions = 2 if direction == "bidirectional" else 1
    state = () if lengths == [5, 2] else ("h",) if op_type != "LSTM" else ("h", "c")
    proto = recurrent(op_type, directions, inputs=("x", "w", "r", "b", "n", *state), direction=direction)
    check_numbers(proto, {**x(), "n": np.int32(lengths)})


def test_peepholes_and_a_coupled_forget_gate():
    check_numbers(recurrent("LSTM", inputs=("x", "w", "r", "b", "", "", "", "p")), x())
    check_numbers(recurrent("LSTM", input_forget=1), x())


def test_a_reset_gate_behind_the_matmul():
    check_numbers(recurrent("GRU", linear_before_reset=1), x())


def test_other_activations_and_a_clip():
    check_numbers(recurrent("RNN", activations=["Relu"], clip=0.5), x())
    check_numbers(recurrent("RNN", activations=["Affine"], activation_alpha=[0.5], activation_beta=[0.1]), x())
    with pytest.raises(UnsupportedError, match="activation 'Softmax'"):
        imported(recurrent("RNN", activations=["Softmax"]))

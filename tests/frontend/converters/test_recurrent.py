"""RNN, GRU and LSTM against onnxruntime."""

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

import tvm_ext
from tvm_ext.core.errors import UnsupportedError
from tvm_ext.core.instruments import Instruments, Switches
from tvm_ext.driver.compile import compile_model

from ..graphs import check_numbers, imported, model, node, run_onnxruntime, value

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


@pytest.mark.parametrize(
    ("op_type", "direction", "state"),
    [("RNN", "bidirectional", ()), ("GRU", "reverse", ("", "h")), ("LSTM", "forward", ("", "h", "c"))],
)
def test_without_lengths(op_type, direction, state):
    directions = 2 if direction == "bidirectional" else 1
    check_numbers(recurrent(op_type, directions, inputs=("x", "w", "r", "b", *state), direction=direction), x())


DIRECTIONS, LENGTHS = ("forward", "reverse", "bidirectional"), ([5, 2], [1, 4], [5, 5])


@pytest.mark.parametrize(
    ("op_type", "direction", "lengths"),
    [(op_type, DIRECTIONS[j], LENGTHS[(i + j) % 3]) for i, op_type in enumerate(GATES) for j in range(3)],
)
def test_lengths_of_sequences(op_type, direction, lengths):
    directions = 2 if direction == "bidirectional" else 1
    state = () if lengths == [5, 2] else ("h",) if op_type != "LSTM" else ("h", "c")
    proto = recurrent(op_type, directions, inputs=("x", "w", "r", "b", "n", *state), direction=direction)
    check_numbers(proto, {**x(), "n": np.int32(lengths)})


@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
def test_a_sequence_of_no_step_has_no_last_state(op_type):
    """Whatever its first one is, as in onnxruntime."""
    state = ("h", "c") if op_type == "LSTM" else ("h",)
    proto = recurrent(op_type, 2, inputs=("x", "w", "r", "b", "n", *state), direction="bidirectional")
    for lengths in ([0, 3], [0, 0]):
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


def sequence(op_type, number, directions, parts, **attributes):
    """A node, its weights and its outputs, which have its number in their names; `parts`: which inputs it has."""
    inputs = [name if name in parts else "" for name in "xwrbnhcp"[: "xwrbnhcp".index(parts[-1]) + 1]]
    graph = recurrent(op_type, directions, inputs=inputs, **attributes).graph
    (only,) = graph.node
    for names in (only.input, only.output):
        names[:] = [name if name in ("", "x", "n") else f"{name}{number}" for name in names]
    weights = {f"{tensor.name}{number}": numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return only, weights, [value(name, None) for name in only.output]


def test_several_in_one_program():
    """Weights that are computed, and one that is stored in 8 bits, among them."""
    sequences = (
        sequence("RNN", 0, 2, "xwrbn", direction="bidirectional", activations=["Relu", "Elu"], clip=0.9),
        sequence("GRU", 1, 1, "xwrbh", direction="reverse"),
        sequence("GRU", 2, 1, "xwrn", linear_before_reset=1),
        sequence("LSTM", 3, 2, "xwrbnhcp", direction="bidirectional"),
        sequence("LSTM", 4, 1, "xwr", input_forget=1),
    )
    nodes = [only for only, _, _ in sequences]
    outputs = [output for _, _, some in sequences for output in some]
    weights = {name: array for _, some, _ in sequences for name, array in some.items()}
    computed = weights.pop("w2"), weights.pop("r2")  # by the model, of what it gets
    inputs = [value("x", [STEPS, BATCH, INPUTS]), value("n", [BATCH], TensorProto.INT32)]
    inputs += [value(name, array.shape) for name, array in zip(["w2", "r2"], computed, strict=True)]
    r4 = weights.pop("r4")
    weights |= {"q": np.int8(np.round(r4 * 100)), "scale": np.float32(0.01), "zero": np.int8(0)}
    decoded = node("DequantizeLinear", ["q", "scale", "zero"], ["r4"])
    proto = model([decoded, *nodes], inputs, outputs, weights)
    feeds = {**x(), "n": np.int32([5, 2]), "w2": computed[0], "r2": computed[1]}
    compiled = tvm_ext.compile(proto, cache=False, threads=2)
    for name, wanted in zip([o.name for o in outputs], run_onnxruntime(proto, feeds), strict=True):
        np.testing.assert_allclose(compiled.run(feeds)[name], wanted, rtol=1e-5, atol=1e-6, err_msg=name)
    recipes = [kernel["recipe"] for kernel in compiled.report["kernels"]]
    assert recipes.count("recurrent") == len(sequences)
    assert recipes.count("dense") == len(sequences) - 1  # the weight of one is computed


@pytest.mark.parametrize(("outputs", "kernels"), [("y", 2), (" y_h", 2), ("y y_h", 3), ("y  y_c", 4)])
def test_any_number_of_steps_is_as_many_kernels(outputs, kernels):
    """What nothing reads is not computed, and not copied."""
    proto = recurrent("LSTM")
    proto.graph.node[0].output[:] = outputs.split(" ")
    kept = [output for output in proto.graph.output if output.name in outputs.split(" ")]
    del proto.graph.output[:]
    proto.graph.output.extend(kept)
    for steps in (2, 100):
        for tensor in (proto.graph.input[0], *(output for output in kept if output.name == "y")):
            tensor.type.tensor_type.shape.dim[0].dim_value = steps
        compiled, feeds = tvm_ext.compile(proto, cache=False, threads=1), {"x": weight(steps, BATCH, INPUTS)}
        assert len(compiled.report["kernels"]) == kernels
        for name, wanted in zip([o.name for o in kept], run_onnxruntime(proto, feeds), strict=True):
            np.testing.assert_allclose(compiled.run(feeds)[name], wanted, rtol=1e-5, atol=1e-6, err_msg=name)


def test_without_a_recipe_a_kernel_of_one_thread():
    proto, feeds = recurrent("GRU", inputs=("x", "w", "r", "b", "n")), {**x(), "n": np.int32([4, 5])}
    off = Instruments(switches=Switches(recipes=frozenset({"recurrent"})))
    compiled = compile_model(proto, instruments=off, cache=False, threads=2)
    (kernel,) = (k for k in compiled.report["kernels"] if "recurrence" in k["name"])
    assert kernel["recipe"] == "generic" and "switched off" in kernel["reason"]
    for name, wanted in zip(["y", "y_h"], run_onnxruntime(proto, feeds), strict=True):
        np.testing.assert_allclose(compiled.run(feeds)[name], wanted, rtol=1e-5, atol=1e-6, err_msg=name)

"""RNN, GRU and LSTM: the input's part of all steps in one matmul, then all steps in one operator.

Y, Y_h = RNN(X, W, R, B)   ->   A = X W^T + b;  r = tvm_ext.recurrence(A, R);  Y_h, Y = r[0], r[1:]

See :mod:`tvm_ext.ops.recurrence`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from ...core.graph.relax_graph import dtype_of
from ...ops.recurrence import CELLS, Recurrence
from ...ops.scalars.gates import ACTIVATIONS
from ..checks.refusal import Refusal
from .base import Attributes, Converter, converts, emit, graph_of, outputs_of, scalar, static_shape, text

_op = relax.op
_BACKWARDS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
#: The end of a slice: behind that of any axis.
_ALL = 2**31 - 1


@dataclass(frozen=True)
class Weights:
    """What inputs and states are multiplied by, in all directions.

    Attributes:
        of_input: x (steps, batch, inputs) -> x W^T (steps, batch, directions * gates * H).
        recurrent: R (directions, gates * H, H).
        quantized: whether states are quantized by their own range before they are multiplied.
    """

    of_input: Callable[[Any], Any]
    recurrent: Any
    quantized: bool = False


@dataclass(frozen=True)
class Operands:
    """The tensors of a node, steps and directions first.

    Attributes:
        data: X, (steps, batch, inputs).
        weights: W and R.
        bias: B, (directions, 2 * gates * H), or None.
        lengths: of the sequences of a batch; None if all are whole.
        states: the first ones, (directions, batch, H) each, by their roles; none for zeros.
        peepholes: of an LSTM, (directions, 3 * H), or None.
    """

    data: Any
    weights: Weights
    bias: Any
    lengths: Any
    states: Mapping[str, Any]
    peepholes: Any

    @classmethod
    def of(cls, kind: str, inputs: Any, weights: Weights, batch_first: bool) -> Operands:
        """Those of ONNX's inputs."""
        data = _swapped(inputs[0], batch_first)
        steps = static_shape(data, "the input of a recurrent operator")[0]
        roles = ("hidden", "cell")[: 2 if kind == "LSTM" else 1]
        first = {role: _swapped(inputs[5 + i], batch_first) for i, role in enumerate(roles) if not _zero(inputs[5 + i])}
        lengths = None if _is_whole(inputs[4], steps) else inputs[4]
        return cls(data, weights, inputs[3], lengths, first, inputs[7] if kind == "LSTM" else None)


def _converter(kind: str) -> Converter:
    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        return converted(kind, inputs, attributes, Weights(lambda x: _product(x, inputs[1]), inputs[2]))

    return converter


def converted(kind: str, inputs: Any, attributes: Attributes, weights: Weights) -> Any:
    """The outputs of a recurrent operator.

    Args:
        kind: "RNN", "GRU" or "LSTM".
        inputs: as ONNX has them; its second and third are not read.
        weights: instead of those.
    """
    batch_first = bool(attributes.get("layout", 0))
    operands, graph = Operands.of(kind, inputs, weights, batch_first), graph_of(attributes)
    read = [*(bool(name) and graph.is_read(name) for name in graph.node.output), False, False, False]
    finals = 2 if kind == "LSTM" and read[2] else int(read[1])
    sequence, *states = _all_steps(kind, operands, attributes, read[0], finals)
    if batch_first:
        sequence, states = _op.permute_dims(sequence, [2, 0, 1, 3]), [_op.permute_dims(x, [1, 0, 2]) for x in states]
    return relax.Tuple([sequence, *states][: outputs_of(attributes)])


def _all_steps(kind: str, operands: Operands, attributes: Attributes, sequence: bool, finals: int) -> list[Any]:
    """Y (steps, directions, batch, H) and two last states (directions, batch, H), zeros instead of what is not read.

    Args:
        sequence: whether Y is read.
        finals: how many states are.
    """
    backwards = _BACKWARDS[text(attributes, "direction", "forward")]
    activations = tuple(_activations(kind, attributes, len(backwards)))
    steps, batch, _ = static_shape(operands.data, "the input of a recurrent operator")
    directions, _, hidden = static_shape(operands.weights.recurrent, "the recurrent weight")
    if directions != len(backwards):
        raise Refusal(f"weights of {directions} directions; {len(backwards)} are needed")
    if attributes.get("clip", 1.0) <= 0:
        raise Refusal(f"clip={attributes['clip']}: a number above 0 is needed")
    zeros = emit(_op.zeros((directions, batch, hidden), dtype_of(operands.data)))
    states = [operands.states.get(role, zeros) for role in ("hidden", "cell")]
    nothing = emit(_op.zeros((steps, directions, batch, hidden), dtype_of(operands.data)))
    if not steps or not batch or not (sequence or finals):
        return [nothing, *states]
    behind = bool(attributes.get("linear_before_reset", 0)) and kind == "GRU"
    of_input, of_state = _biases(operands.bias, hidden, behind)
    product = operands.weights.of_input(operands.data)
    tensors = {
        "input": product if of_input is None else emit(product + of_input),
        "recurrent": operands.weights.recurrent, "bias": of_state,
        **operands.states, "peepholes": operands.peepholes, "lengths": operands.lengths,
    }  # fmt: skip
    # the last h of one direction of whole sequences is a step of Y, which is not copied then
    among = sequence and finals == 1 and directions == 1 and operands.lengths is None
    says = Recurrence(
        kind, tuple(role for role, x in tensors.items() if x is not None), backwards, activations,
        None if "clip" not in attributes else float(attributes["clip"]), behind,
        bool(attributes.get("input_forget", 0)) and kind == "LSTM", operands.weights.quantized, sequence,
        0 if among else finals,
    )  # fmt: skip
    result = emit(says.call(tensors))
    if among:
        last = 0 if backwards[0] else steps - 1
        return [result, emit(_op.squeeze(between(result, last, last + 1), [0])), states[1]]
    states[:finals] = [emit(_op.squeeze(between(result, number, number + 1), [0])) for number in range(finals)]
    if operands.states:
        states[:finals] = [_of_some(state, operands.lengths) for state in states[:finals]]
    return [(between(result, finals, _ALL) if finals else result) if sequence else nothing, *states]


def _of_some(state: Any, lengths: Any) -> Any:
    """A last state (directions, batch, H), zeros of sequences of no step, as in onnxruntime; ONNX does not say."""
    if lengths is None or (isinstance(lengths, GenericConst) and lengths.value.numpy().all()):
        return state
    some = emit(
        _op.reshape(emit(_op.greater(lengths, scalar(0, lengths))), (1, static_shape(lengths, "lengths")[0], 1))
    )
    return emit(_op.where(some, state, scalar(0.0, state)))


def _product(x: Any, weight: Any) -> Any:
    """x W^T of all steps and directions, (steps, batch, directions * gates * H)."""
    directions, gates, inputs = static_shape(weight, "the weight")
    if not inputs:
        return emit(_op.zeros((*static_shape(x, "the input")[:2], directions * gates), dtype_of(x)))
    matrix = emit(_op.permute_dims(emit(_op.reshape(weight, (directions * gates, inputs)))))
    return emit(_op.matmul(x, matrix))


def _biases(bias: Any, hidden: int, behind: bool) -> tuple[Any, Any]:
    """What is added to the input's part, (directions * gates * H), and what to the candidate's product of a GRU whose
    reset gate stands behind it, (directions, H); None each if there is none."""
    if bias is None:
        return None, None
    directions, both = static_shape(bias, "the bias")
    of_input, of_state = columns(bias, 0, both // 2), columns(bias, both // 2, both)
    if not behind:
        return emit(_op.reshape(of_input + of_state, (directions * both // 2,))), None
    candidate = columns(of_state, 2 * hidden, 3 * hidden)
    gates = emit(columns(of_input, 0, 2 * hidden) + columns(of_state, 0, 2 * hidden))
    joined = emit(_op.concat([gates, columns(of_input, 2 * hidden, 3 * hidden)], axis=1))
    return emit(_op.reshape(joined, (directions * both // 2,))), candidate


def _swapped(x: Any, batch_first: bool) -> Any:
    """Steps, or directions, first."""
    return emit(_op.permute_dims(x, [1, 0, 2])) if batch_first else x


def _zero(state: Any) -> bool:
    """Whether a first state is left out, or known to be zeros."""
    return state is None or (isinstance(state, GenericConst) and not np.any(state.value.numpy()))


def _is_whole(lengths: Any, steps: int) -> bool:
    """Whether all sequences of a batch are known to have all steps."""
    return lengths is None or (isinstance(lengths, GenericConst) and bool((lengths.value.numpy() == steps).all()))


def between(x: Any, start: int, stop: int) -> Any:
    """Elements of the first axis."""
    return emit(_op.strided_slice(x, [0], [start], [stop]))


def columns(x: Any, start: int, stop: int) -> Any:
    """Elements of the last axis."""
    return emit(_op.strided_slice(x, [int(x.ty.ndim) - 1], [start], [stop]))


def _activations(kind: str, attributes: Attributes, directions: int) -> Iterator[tuple[tuple[str, float, float], ...]]:
    """The activations of each direction; alphas and betas go to those that take them, in their order.

    Raises:
        Refusal: one of a kind that is not known here.
    """
    stated = [n.decode() if isinstance(n, bytes) else n for n in attributes.get("activations", ())]
    names, each = stated or [*CELLS[kind][1]] * directions, len(CELLS[kind][1])
    if unknown := [name for name in names if name.lower() not in ACTIVATIONS]:
        raise Refusal(f"activation {unknown[0]!r}; known are {', '.join(ACTIVATIONS)}")
    if len(names) != each * directions:
        raise Refusal(f"{len(names)} activations; {each} for each of {directions} directions are needed")
    parameters = [iter(attributes.get(name, ())) for name in ("activation_alpha", "activation_beta")]
    every = [_activation(name.lower(), parameters) for name in names]
    for number in range(directions):
        yield tuple(every[number * each :][:each])


def _activation(name: str, parameters: Sequence[Iterator[float]]) -> tuple[str, float, float]:
    """An activation with its alpha and beta, 0 where it takes none.

    Args:
        parameters: the alphas and betas that are left.
    """
    own = [float(next(left, default)) for left, default in zip(parameters, ACTIVATIONS[name][1], strict=False)]
    alpha, beta, *_ = [*own, 0.0, 0.0]
    return name, alpha, beta


for _kind in CELLS:
    converts(_kind)(_converter(_kind))

"""RNN, GRU and LSTM: the input's part of all steps in one matmul, then one step after the other.

Y, Y_h = RNN(X, W, R, B)   ->   A = X W^T + b;  h1 = f(A[0] + h0 R^T);  h2 = f(A[1] + h1 R^T);  ...

The steps of a short sequence stand in the graph. Those of a long one are calls of a function of some steps (see
:mod:`..control_flow.repeated`): it is compiled once, and a call costs little beside what it does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from ...core.graph.relax_graph import dtype_of
from ..checks.refusal import Refusal
from ..control_flow.repeated import repeat
from . import activations
from .base import Attributes, Converter, constant, emit, graph_of, outputs_of, scalar, static_shape, text

if TYPE_CHECKING:
    from ..control_flow.subgraph import Graph

#: Steps of a sequence that are written out; a longer one is a loop.
_UNROLLED = 32
#: Steps of a call of that loop: with 16, calls cost a twentieth of an LSTM with a state of 128.
_IN_A_CALL = range(16, 8, -1)
_op = relax.op


@dataclass(frozen=True)
class Weights:
    """What one direction multiplies by.

    Attributes:
        of_input: x (.., inputs) -> x W^T (.., gates * H).
        of_state: h (batch, H) -> h R^T (batch, gates * H).
        hidden: H.
        recurrent: R, transposed, (H, gates * H), of which a GRU takes some columns; None where it is not of floats.
    """

    of_input: Callable[[Any], Any]
    of_state: Callable[[Any], Any]
    hidden: int
    recurrent: Any = None


@dataclass(frozen=True)
class _Layer:
    """What is the same for all steps of one direction.

    Attributes:
        attributes: of the node.
        functions: activations, in ONNX's order.
        weights: what inputs and states are multiplied by.
        input_bias, bias: of the input's and the recurrent part, (gates * H); None if there is none.
        peepholes: of an LSTM: input, output, forget gate, (H) each; none if it has none.
    """

    attributes: Attributes
    functions: Sequence[Callable[[Any], Any]]
    weights: Weights
    input_bias: Any
    bias: Any
    peepholes: Sequence[Any]

    def gate(self, gates: Any, number: int) -> Any:
        """Columns of one gate."""
        return columns(gates, number * self.weights.hidden, (number + 1) * self.weights.hidden)


Step = Callable[[_Layer, Any, Sequence[Any]], list[Any]]
"""(layer, the input's part of all gates (batch, gates * H), state) -> new state; the first of it is the output."""


def rnn_step(layer: _Layer, x: Any, state: Sequence[Any]) -> list[Any]:
    """h = f(x + h R + b)."""
    return [layer.functions[0](x + _recurrent(layer, state[0]))]


def gru_step(layer: _Layer, x: Any, state: Sequence[Any]) -> list[Any]:
    """z, r = f(..); h' = g(x + (r h) R + b), or with linear_before_reset g(x + r (h R + b)); h = (1 - z) h' + z h."""
    (h,) = state
    f, g = layer.functions[:2]
    size, recurrent = layer.weights.hidden, layer.weights.recurrent
    if layer.attributes.get("linear_before_reset", 0):
        part = emit(_recurrent(layer, h))
        z, r = (emit(f(layer.gate(x, i) + layer.gate(part, i))) for i in (0, 1))
        candidate = g(layer.gate(x, 2) + r * layer.gate(part, 2))
    else:
        part = emit(_plus(_op.matmul(h, columns(recurrent, 0, 2 * size)), layer.bias, 0, 2 * size))
        z, r = (emit(f(layer.gate(x, i) + layer.gate(part, i))) for i in (0, 1))
        reset = _op.matmul(r * h, columns(recurrent, 2 * size, 3 * size))
        candidate = g(layer.gate(x, 2) + _plus(reset, layer.bias, 2 * size, 3 * size))
    return [(scalar(1, z) - z) * candidate + z * h]


def lstm_step(layer: _Layer, x: Any, state: Sequence[Any]) -> list[Any]:
    """i, f = f(..), c = f c + i g(..), o = f(.. + P c), h = o h(c); gates lie in the order i o f c."""
    h, c = state
    f, g, last = layer.functions
    gates = emit(x + _recurrent(layer, h))
    i = emit(f(_peep(layer, 0, layer.gate(gates, 0), c)))
    if layer.attributes.get("input_forget", 0):
        forget = scalar(1, i) - i
    else:
        forget = f(_peep(layer, 2, layer.gate(gates, 2), c))
    cell = emit(forget * c + i * g(layer.gate(gates, 3)))
    o = f(_peep(layer, 1, layer.gate(gates, 1), cell))
    return [o * last(cell), cell]


def _peep(layer: _Layer, number: int, gate: Any, cell: Any) -> Any:
    return gate + layer.peepholes[number] * cell if layer.peepholes else gate


def _recurrent(layer: _Layer, h: Any) -> Any:
    product = layer.weights.of_state(h)
    return product if layer.bias is None else product + layer.bias


def _plus(x: Any, bias: Any, start: int, stop: int) -> Any:
    return x if bias is None else x + columns(bias, start, stop)


def columns(x: Any, start: int, stop: int) -> Any:
    """Elements of the last axis."""
    return emit(_op.strided_slice(x, [int(x.ty.ndim) - 1], [start], [stop]))


# ------------------------------------------------------------ all steps, both directions
def _converter(
    step: Step, gates: int, states: int, defaults: Sequence[str], weights: Callable[[Any, int], Weights] | None = None
) -> Converter:  # fmt: skip
    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        batch_first = bool(attributes.get("layout", 0))
        x = _swapped(inputs[0], batch_first)
        directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[
            text(attributes, "direction", "forward")
        ]
        first = [None if s is None else _swapped(s, batch_first) for s in (inputs[5], inputs[6])[:states]]
        layers = [
            _layer(gates, defaults, inputs, attributes, number, weights or _of_floats)
            for number in range(len(directions))
        ]
        results = [
            _direction(step, layer, x, first, inputs[4], number, backwards)
            for number, (layer, backwards) in enumerate(zip(layers, directions, strict=True))
        ]
        sequence = emit(_op.stack([outputs for outputs, _ in results], axis=1))
        finals = [emit(_op.stack([final[i] for _, final in results], axis=0)) for i in range(states)]
        if batch_first:
            sequence = _op.permute_dims(sequence, [2, 0, 1, 3])
            finals = [_op.permute_dims(final, [1, 0, 2]) for final in finals]
        return relax.Tuple([sequence, *finals][: outputs_of(attributes)])

    return converter


def _swapped(x: Any, batch_first: bool) -> Any:
    """Steps, or directions, first."""
    return emit(_op.permute_dims(x, [1, 0, 2])) if batch_first else x


def _layer(
    gates: int, defaults: Sequence[str], inputs: Any, attributes: Attributes, number: int,
    weights: Callable[[Any, int], Weights],
) -> _Layer:  # fmt: skip
    """One direction."""
    own = weights(inputs, number)
    bias = [None, None] if inputs[3] is None else _parts(row(inputs[3], number), gates * own.hidden, 2)
    peepholes = [] if inputs[7] is None else _parts(row(inputs[7], number), own.hidden, 3)
    return _Layer(attributes, _functions(attributes, defaults, number), own, bias[0], bias[1], peepholes)


def _direction(
    step: Step, layer: _Layer, x: Any, first: Sequence[Any], lengths: Any, number: int, backwards: bool
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Outputs of all steps in the order of time, (steps, batch, H), and the state after the last one.

    Args:
        x: (steps, batch, inputs).
        first: the first state of all directions, (directions, batch, H) each; None for zeros.
        lengths: of the sequences of a batch; None if all are whole.
    """
    steps, batch, _ = static_shape(x, "the input of a recurrent operator")
    hidden = layer.weights.hidden
    state = [emit(_op.zeros((batch, hidden), dtype_of(x))) if s is None else row(s, number) for s in first]
    if not steps:
        return emit(_op.zeros((0, batch, hidden), dtype_of(x))), state
    product = layer.weights.of_input(x)
    scanned = [emit(product if layer.input_bias is None else product + layer.input_bias)]
    if not _is_whole(lengths, steps):
        times = constant(np.arange(steps).reshape(-1, 1), dtype_of(lengths))
        scanned.append(emit(_op.reshape(_op.less(times, lengths), (steps, batch, 1))))

    run = functools.partial(_run, functools.partial(step, layer), backwards)
    if steps <= _UNROLLED or (graph := graph_of(layer.attributes)).by_rows:
        return run(state, scanned)
    return _looped(graph, run, state, scanned, backwards)


def _looped(graph: Graph, run: Callable[..., Any], state: Any, scanned: Sequence[Any], backwards: bool) -> Any:
    """What `run`, which is :func:`_run` of one direction, makes of all steps: in calls of some each, and the rest."""
    steps = static_shape(scanned[0], "the input's part")[0]
    each = min(_IN_A_CALL, key=lambda each: steps % each)
    calls, left = divmod(steps, each)
    first, last = (left, steps) if backwards else (0, steps - left)
    parts = [_between(x, first, last) for x in scanned]
    parts = [emit(_op.reshape(x, (calls, each, *static_shape(x, "a slice")[1:]))) for x in parts]
    outputs, state = repeat(graph, run, state, parts, backwards)
    outputs = emit(_op.reshape(outputs, (last - first, *static_shape(outputs, "the output")[2:])))
    if not left:
        return outputs, state
    more, state = run(state, [_between(x, *((0, left) if backwards else (last, steps))) for x in scanned])
    return emit(_op.concat([more, outputs] if backwards else [outputs, more], axis=0)), state


def _between(x: Any, start: int, stop: int) -> Any:
    """Elements of the first axis."""
    return emit(_op.strided_slice(x, [0], [start], [stop]))


def _run(
    step: Callable[..., list[Any]], backwards: bool, state: Sequence[Any], scanned: Sequence[Any]
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Steps one after the other.

    Args:
        step: (the input's part of all gates, state) -> new state.
        scanned: the input's part, (steps, batch, gates * H), and, if not all sequences are whole, which of them still
            last, (steps, batch, 1): behind their end no step counts in either direction.

    Returns:
        The outputs in the order of time, (steps, batch, H), and the state after the last one.
    """
    steps = static_shape(scanned[0], "the input's part")[0]
    outputs = {}
    for t in range(steps)[:: -1 if backwards else 1]:
        part, *live = (row(x, t) for x in scanned)
        new = [emit(value) for value in step(part, state)]
        outputs[t] = new[0]
        if live:
            outputs[t] = emit(_op.where(live[0], new[0], scalar(0, new[0])))
            new = [emit(_op.where(live[0], value, old)) for value, old in zip(new, state, strict=True)]
        state = new
    return emit(_op.stack([outputs[t] for t in range(steps)], axis=0)), list(state)


def _of_floats(inputs: Any, number: int) -> Weights:
    weight, recurrent = (row(inputs[i], number) for i in (1, 2))
    hidden = static_shape(recurrent, "the recurrent weight")[1]
    of_input, of_state = (emit(_op.permute_dims(matrix)) for matrix in (weight, recurrent))
    return Weights(lambda x: _op.matmul(x, of_input), lambda h: _op.matmul(h, of_state), hidden, of_state)


def row(x: Any, number: int) -> Any:
    """x[number] of the first axis."""
    return emit(_op.squeeze(_between(x, number, number + 1), [0]))


def _parts(x: Any, size: int, count: int) -> list[Any]:
    """Columns of `size`, beside each other."""
    return [columns(x, i * size, (i + 1) * size) for i in range(count)]


def _is_whole(lengths: Any, steps: int) -> bool:
    """Whether all sequences of a batch are known to have all steps."""
    return lengths is None or (isinstance(lengths, GenericConst) and bool((lengths.value.numpy() == steps).all()))


def _functions(attributes: Attributes, defaults: Sequence[str], number: int) -> list[Callable[[Any], Any]]:
    """The activations of a direction, each after `clip`; alphas and betas go to those that take them, in their order.

    Raises:
        Refusal: one of a kind that is not known here.
    """
    names = [n.decode() if isinstance(n, bytes) else n for n in attributes.get("activations", ())] or [*defaults] * 2
    if unknown := [name for name in names if name.lower() not in (*_ACTIVATIONS, *_WITH_PARAMETERS)]:
        raise Refusal(f"activation {unknown[0]!r}; known are {', '.join((*_ACTIVATIONS, *_WITH_PARAMETERS))}")
    parameters = [iter(attributes.get(name, ())) for name in ("activation_alpha", "activation_beta")]
    limit = attributes.get("clip")
    functions = [_activation(name.lower(), parameters) for name in names]
    functions = functions[number * len(defaults) :][: len(defaults)]
    return [_clipped(function, float(limit)) if limit is not None else function for function in functions]


def _activation(name: str, parameters: Sequence[Iterator[float]]) -> Callable[[Any], Any]:
    """An activation with its parameters.

    Args:
        parameters: the alphas and betas that are left.
    """
    if name in _ACTIVATIONS:
        return _ACTIVATIONS[name]
    function, defaults = _WITH_PARAMETERS[name]
    values = [float(next(left, default)) for left, default in zip(parameters, defaults, strict=False)]
    return lambda x: function(emit(x), *values)


def _affine(x: Any, alpha: float, beta: float) -> Any:
    return x * scalar(alpha, x) + scalar(beta, x)


def _clipped(function: Callable[[Any], Any], limit: float) -> Callable[[Any], Any]:
    return lambda x: function(_op.clip(emit(x), -limit, limit))


def _softsign(x: Any) -> Any:
    x = emit(x)
    return x / (_op.abs(x) + scalar(1, x))


_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": _op.nn.relu, "tanh": _op.tanh, "sigmoid": _op.sigmoid, "softsign": _softsign, "softplus": _op.nn.softplus,
}  # fmt: skip
#: Activation -> function of x and its parameters, and what these are by default, as in onnxruntime.
_WITH_PARAMETERS: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "affine": (_affine, (1.0, 0.0)),
    "elu": (lambda x, alpha: activations.elu([x], {"alpha": alpha}, 0), (1.0,)),
    "hardsigmoid": (lambda x, alpha, beta: _op.clip(_affine(x, alpha, beta), 0, 1), (0.2, 0.5)),
    "leakyrelu": (_op.nn.leakyrelu, (0.01,)),
    "scaledtanh": (lambda x, alpha, beta: _op.tanh(_affine(x, beta, 0.0)) * scalar(alpha, x), (1.0, 1.0)),
    "thresholdedrelu": (lambda x, alpha: activations.thresholded_relu([x], {"alpha": alpha}, 0), (1.0,)),
}


def lstm(weights: Callable[[Any, int], Weights]) -> Converter:
    """An LSTM with weights of another kind.

    Args:
        weights: (inputs, number of the direction) -> what it multiplies by.
    """
    return _converter(lstm_step, 4, 2, ("Sigmoid", "Tanh", "Tanh"), weights)


#: Operator -> converter.
CONVERTERS: dict[str, Converter] = {
    "GRU": _converter(gru_step, 3, 1, ("Sigmoid", "Tanh")),
    "LSTM": lstm(_of_floats),
    "RNN": _converter(rnn_step, 1, 1, ("Tanh",)),
}

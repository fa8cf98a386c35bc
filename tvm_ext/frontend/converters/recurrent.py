"""RNN, GRU and LSTM: the input's part of all steps in one matmul, then one step after the other.

Y, Y_h = RNN(X, W, R, B)   ->   A = X W^T + b;  h1 = f(A[0] + h0 R^T);  h2 = f(A[1] + h1 R^T);  ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.ir import GenericConst

from ...core.graph.relax_graph import dtype_of
from ..checks.refusal import Refusal
from . import activations
from .base import Attributes, Converter, emit, outputs_of, scalar, static_shape, text

#: Steps that are written out; each is a handful of operators.
_MOST_STEPS = 4096
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
        bias: of the recurrent part, (gates * H); None if there is none.
        peepholes: of an LSTM: input, output, forget gate, (H) each; none if it has none.
    """

    attributes: Attributes
    functions: Sequence[Callable[[Any], Any]]
    weights: Weights
    bias: Any
    peepholes: Sequence[Any]

    def gate(self, gates: Any, number: int) -> Any:
        """Columns of one gate."""
        return columns(gates, number * self.weights.hidden, (number + 1) * self.weights.hidden)


Step = Callable[[_Layer, Any, Sequence[Any]], list[Any]]
"""(layer, the input's part of all gates (batch, gates * H), state) -> new state; the first of it is the output."""


def rnn_step(layer: _Layer, x: Any, state: Sequence[Any]) -> list[Any]:
    """h = f(x + h R + b)."""
    return [layer.functions[0](_op.add(x, _recurrent(layer, state[0])))]


def gru_step(layer: _Layer, x: Any, state: Sequence[Any]) -> list[Any]:
    """z, r = f(..); h' = g(x + (r h) R + b), or with linear_before_reset g(x + r (h R + b)); h = (1 - z) h' + z h."""
    (h,) = state
    f, g = layer.functions[:2]
    size, recurrent = layer.weights.hidden, layer.weights.recurrent
    if layer.attributes.get("linear_before_reset", 0):
        part = emit(_recurrent(layer, h))
        z, r = (emit(f(_op.add(layer.gate(x, i), layer.gate(part, i)))) for i in (0, 1))
        candidate = g(_op.add(layer.gate(x, 2), _op.multiply(r, layer.gate(part, 2))))
    else:
        part = emit(_plus(_op.matmul(h, columns(recurrent, 0, 2 * size)), layer.bias, 0, 2 * size))
        z, r = (emit(f(_op.add(layer.gate(x, i), layer.gate(part, i)))) for i in (0, 1))
        reset = _op.matmul(emit(_op.multiply(r, h)), columns(recurrent, 2 * size, 3 * size))
        candidate = g(_op.add(layer.gate(x, 2), _plus(reset, layer.bias, 2 * size, 3 * size)))
    return [_op.add(_op.multiply(_op.subtract(scalar(1, z), z), candidate), _op.multiply(z, h))]


def lstm_step(layer: _Layer, x: Any, state: Sequence[Any]) -> list[Any]:
    """i, f = f(..), c = f c + i g(..), o = f(.. + P c), h = o h(c); gates lie in the order i o f c."""
    h, c = state
    f, g, last = layer.functions
    gates = emit(_op.add(x, _recurrent(layer, h)))
    i = emit(f(_peep(layer, 0, layer.gate(gates, 0), c)))
    if layer.attributes.get("input_forget", 0):
        forget = _op.subtract(scalar(1, i), i)
    else:
        forget = f(_peep(layer, 2, layer.gate(gates, 2), c))
    cell = emit(_op.add(_op.multiply(forget, c), _op.multiply(i, g(layer.gate(gates, 3)))))
    o = f(_peep(layer, 1, layer.gate(gates, 1), cell))
    return [_op.multiply(o, last(cell)), cell]


def _peep(layer: _Layer, number: int, gate: Any, cell: Any) -> Any:
    return _op.add(gate, _op.multiply(layer.peepholes[number], cell)) if layer.peepholes else gate


def _recurrent(layer: _Layer, h: Any) -> Any:
    product = layer.weights.of_state(h)
    return product if layer.bias is None else _op.add(product, layer.bias)


def _plus(x: Any, bias: Any, start: int, stop: int) -> Any:
    return x if bias is None else _op.add(x, columns(bias, start, stop))


def columns(x: Any, start: int, stop: int) -> Any:
    """Elements of the last axis."""
    return emit(_op.strided_slice(x, [int(x.ty.ndim) - 1], [start], [stop]))


# ------------------------------------------------------------ all steps, both directions
def _converter(
    step: Step, gates: int, states: int, defaults: Sequence[str], weights: Callable[[Any, int], Weights] | None = None
) -> Converter:  # fmt: skip
    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        batch_first = bool(attributes.get("layout", 0))
        x = emit(_op.permute_dims(inputs[0], [1, 0, 2])) if batch_first else inputs[0]
        directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[
            text(attributes, "direction", "forward")
        ]
        given = [None if s is None else _batch_first(s, batch_first) for s in (inputs[5], inputs[6])[:states]]
        results = [
            _direction(step, gates, defaults, x, inputs, given, attributes, number, backwards, weights or _of_floats)
            for number, backwards in enumerate(directions)
        ]
        if results[0][0]:
            sequence = _op.stack([emit(_op.stack(hs, axis=0)) for hs, _ in results], axis=1)
        else:
            sequence = _op.zeros((0, len(results), *static_shape(results[0][1][0], "the state")), dtype_of(x))
        finals = [emit(_op.stack([final[i] for _, final in results], axis=0)) for i in range(states)]
        if batch_first:
            sequence = _op.permute_dims(emit(sequence), [2, 0, 1, 3])
            finals = [_op.permute_dims(final, [1, 0, 2]) for final in finals]
        return relax.Tuple([sequence, *finals][: outputs_of(attributes)])

    return converter


def _batch_first(state: Any, batch_first: bool) -> Any:
    return emit(_op.permute_dims(state, [1, 0, 2])) if batch_first else state


def _direction(
    step: Step, gates: int, defaults: Sequence[str], x: Any, inputs: Any, given: Sequence[Any], attributes: Attributes,
    number: int, backwards: bool, weights: Callable[[Any, int], Weights],
) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """Outputs of all steps in the order of time, and the state after the last one, of one direction."""
    steps, batch, _ = static_shape(x, "the input of a recurrent operator")
    if steps > _MOST_STEPS:
        raise Refusal(f"{steps} steps; up to {_MOST_STEPS} can be compiled")
    own = weights(inputs, number)
    hidden = own.hidden
    bias = [None, None] if inputs[3] is None else _halves(row(inputs[3], number), gates * hidden)
    peepholes = [] if inputs[7] is None else _thirds(row(inputs[7], number), hidden)
    layer = _Layer(attributes, _functions(attributes, defaults, number), own, bias[1], peepholes)
    parts = own.of_input(x)
    parts = emit(parts if bias[0] is None else _op.add(parts, bias[0]))
    state = [emit(_op.zeros((batch, hidden), dtype_of(x))) if s is None else row(s, number) for s in given]
    lengths = _lengths(inputs[4], steps)
    outputs = {}
    for t in range(steps)[:: -1 if backwards else 1]:
        new = [emit(value) for value in step(layer, row(parts, t), state)]
        outputs[t] = new[0]
        if lengths is not None:
            live = emit(_op.reshape(_op.greater(lengths, scalar(t, lengths)), (batch, 1)))
            outputs[t] = emit(_op.where(live, new[0], scalar(0, new[0])))
            new = [emit(_op.where(live, value, old)) for value, old in zip(new, state, strict=True)]
        state = new
    return [outputs[t] for t in range(steps)], state


def _of_floats(inputs: Any, number: int) -> Weights:
    weight, recurrent = (row(inputs[i], number) for i in (1, 2))
    hidden = static_shape(recurrent, "the recurrent weight")[1]
    of_input, of_state = (emit(_op.permute_dims(matrix)) for matrix in (weight, recurrent))
    return Weights(lambda x: _op.matmul(x, of_input), lambda h: _op.matmul(h, of_state), hidden, of_state)


def row(x: Any, number: int) -> Any:
    """x[number] of the first axis."""
    piece = emit(_op.strided_slice(x, [0], [number], [number + 1]))
    return emit(_op.squeeze(piece, [0]))


def _halves(bias: Any, size: int) -> list[Any]:
    return [columns(bias, 0, size), columns(bias, size, 2 * size)]


def _thirds(peepholes: Any, size: int) -> list[Any]:
    return [columns(peepholes, i * size, (i + 1) * size) for i in range(3)]


def _lengths(given: Any, steps: int) -> Any:
    """Lengths of the sequences, behind which no step counts in either direction; None if all are whole."""
    whole = given is None or (isinstance(given, GenericConst) and (given.value.numpy() == steps).all())
    return None if whole else given


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
    return _op.add(_op.multiply(x, scalar(alpha, x)), scalar(beta, x))


def _clipped(function: Callable[[Any], Any], limit: float) -> Callable[[Any], Any]:
    return lambda x: function(_op.clip(emit(x), -limit, limit))


def _softsign(x: Any) -> Any:
    x = emit(x)
    return _op.divide(x, _op.add(_op.abs(x), scalar(1, x)))


_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": _op.nn.relu, "tanh": _op.tanh, "sigmoid": _op.sigmoid, "softsign": _softsign, "softplus": _op.nn.softplus,
}  # fmt: skip
#: Activation -> function of x and its parameters, and what these are by default, as in onnxruntime.
_WITH_PARAMETERS: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "affine": (_affine, (1.0, 0.0)),
    "elu": (lambda x, alpha: activations.elu([x], {"alpha": alpha}, 0), (1.0,)),
    "hardsigmoid": (lambda x, alpha, beta: _op.clip(_affine(x, alpha, beta), 0, 1), (0.2, 0.5)),
    "leakyrelu": (_op.nn.leakyrelu, (0.01,)),
    "scaledtanh": (lambda x, alpha, beta: _op.multiply(_op.tanh(_affine(x, beta, 0.0)), scalar(alpha, x)), (1.0, 1.0)),
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

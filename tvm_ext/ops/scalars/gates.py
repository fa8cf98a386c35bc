"""The activations of gates, by their names in ONNX in lower case, with alpha and beta."""

from collections.abc import Callable
from typing import Any

from tvm import tirx

from . import functions
from .expressions import let, like
from .strict_floats import times


def _affine(x: Any, alpha: float, beta: float) -> Any:
    return times(x, like(alpha, x)) + like(beta, x)


def _elu(x: Any, alpha: float) -> Any:
    """x, or alpha (e^x - 1) below 0: e^x - 1 is 2 t / (1 - t) with t = tanh(x / 2), in which nothing cancels."""

    def curved(x: Any) -> Any:
        half = functions.tanh(tirx.Min(x, like(0, x)) * like(0.5, x))
        return times(let(half, lambda t: (t + t) / (like(1, x) - t)), like(alpha, x))

    return let(x, lambda x: tirx.Select(x < like(0, x), curved(x), x))


def _thresholded(x: Any, alpha: float) -> Any:
    return let(x, lambda x: tirx.Select(x > like(alpha, x), x, like(0, x)))


#: Name -> function of x and its parameters, and what these are by default, as in onnxruntime.
ACTIVATIONS: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "affine": (_affine, (1.0, 0.0)),
    "elu": (_elu, (1.0,)),
    "hardsigmoid": (lambda x, *ab: functions.clip(_affine(x, *ab), like(0, x), like(1, x)), (0.2, 0.5)),
    "leakyrelu": (functions.leakyrelu, (0.01,)),
    "relu": (functions.relu, ()),
    "scaledtanh": (lambda x, alpha, beta: times(functions.tanh(times(x, like(beta, x))), like(alpha, x)), (1.0, 1.0)),
    "sigmoid": (functions.sigmoid, ()),
    "softplus": (functions.softplus, ()),
    "softsign": (lambda x: let(x, lambda x: x / (tirx.abs(x) + like(1, x))), ()),
    "tanh": (functions.tanh, ()),
    "thresholdedrelu": (_thresholded, (1.0,)),
}


def activated(x: Any, name: str, alpha: float, beta: float) -> Any:
    """An activation of :data:`ACTIVATIONS`; parameters that it has not are not read."""
    function, defaults = ACTIVATIONS[name]
    return function(x, *(alpha, beta)[: len(defaults)])

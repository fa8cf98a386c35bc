"""Batch normalization in inference mode as what it is, y = scale x + shift, with constants in float64."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from ...core.graph.relax_graph import Rewriter, op_name, shape_of, tuple_item
from .constants import channel_vector
from .liveness import Readers

_PARAMETERS = ("gamma", "beta", "mean", "variance")


@dataclass(frozen=True)
class BatchNorm:
    """`out = scale * data + shift` over dimension `axis`.

    Attributes:
        out: the variable that takes item 0 of the batch norm's tuple.
        call: the variable that holds the tuple.
        data: the operand.
        axis: the channel dimension, 0 or more.
        scale: float64 (C,): gamma / sqrt(variance + epsilon).
        shift: float64 (C,): beta - mean * scale.
    """

    out: relax.Var
    call: relax.Var
    data: Any
    axis: int
    scale: np.ndarray
    shift: np.ndarray


def match_batch_norm(binding: relax.VarBinding, rw: Rewriter, readers: Readers) -> BatchNorm | str | None:
    """The batch norm whose result `binding` takes; why it cannot be written so; or None if it is something else."""
    item = tuple_item(binding.value)
    if item is None or item[1] != 0:
        return None
    call = rw.definition(item[0])
    if op_name(call) != "relax.nn.batch_norm":
        return None
    if call.attrs.training:
        return "batch norm in training mode"
    if not readers.only(item[0], [binding.var]):
        return "the batch norm's mean or variance is read, not only its result"
    return _constants_of(binding.var, item[0], call)


def _constants_of(out: relax.Var, var: relax.Var, call: Any) -> BatchNorm | str:
    shape, attrs = shape_of(call.args[1]), call.attrs
    rank = int(out.ty.ndim)
    if shape is None or len(shape) != 1 or rank < 1:
        return "batch norm over an unknown number of channels"
    vectors = []
    for name, argument in zip(_PARAMETERS, call.args[1:5], strict=True):
        if (vector := channel_vector(argument, 1, 0, shape[0])) is None:
            return f"the batch norm's {name} is not a constant"
        vectors.append(vector)
    gamma, beta, mean, variance = vectors
    with np.errstate(all="ignore"):
        scale = (gamma if attrs.scale else 1.0) / np.sqrt(variance + float(attrs.epsilon))
        shift = (beta if attrs.center else 0.0) - mean * scale
    return BatchNorm(out, var, call.args[0], int(attrs.axis) % rank, scale, shift)

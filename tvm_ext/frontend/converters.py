"""Converters for ONNX operators that TVM's importer lacks or converts in a way that costs something."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.ir import GenericConst

Converter = Callable[[Any, dict[str, Any]], Any]
"""(inputs, attributes) -> Relax expression, or a `relax.Tuple` of one expression an output.

Inputs are a list that gives None beyond its end; `attributes["tvm_custom"]["num_outputs"]` counts the outputs.
"""


def dropout(inputs: Any, attributes: dict[str, Any]) -> Any:
    """Dropout(x) -> x: in inference nothing is dropped. Stock TVM leaves a call that stands in fusion's way."""
    x, training = inputs[0], inputs[2]
    if training is not None and not (isinstance(training, GenericConst) and not training.value.numpy().any()):
        raise NotImplementedError("training_mode must be a constant false")
    if attributes["tvm_custom"]["num_outputs"] == 1:
        return x
    return relax.Tuple([x, relax.op.ones(x.ty.shape, "bool")])


def clip(inputs: Any, attributes: dict[str, Any]) -> Any:
    """Clip(x, min, max) -> relax.clip, maximum or minimum, which passes can fuse; stock TVM leaves opaque kernels.

    A bound that is NaN, or missing, does not bind. Before opset 11 the bounds are attributes.
    """
    x, dtype = inputs[0], str(inputs[0].ty.dtype)
    low = _bound(inputs[1], attributes.get("min"), dtype, -math.inf)
    high = _bound(inputs[2], attributes.get("max"), dtype, math.inf)
    if isinstance(low, float | int) and isinstance(high, float | int) and low <= high:
        return relax.op.clip(x, low, high)
    if low is not None:  # with the bounds crossed ONNX gives `max`, TVM's clip `min`
        x = relax.op.maximum(x, _tensor(low, dtype))
    return x if high is None else relax.op.minimum(x, _tensor(high, dtype))


def _bound(given: Any, attribute: float | None, dtype: str, unbound: float) -> Any:
    """A bound as a Python number, a Relax expression if it is computed, or None if it does not bind."""
    if isinstance(given, GenericConst):
        attribute = given.value.numpy().reshape(()).item()
    elif given is not None:
        if "float" not in dtype:
            return given
        return relax.op.where(relax.op.isnan(given), relax.const(unbound, dtype), given)
    return None if attribute is None or attribute != attribute else attribute


def _tensor(bound: Any, dtype: str) -> Any:
    return relax.const(bound, dtype) if isinstance(bound, float | int) else bound


#: Operator of the standard domain -> converter; these go before the stock ones.
CONVERTERS: dict[str, Converter] = {"Clip": clip, "Dropout": dropout}

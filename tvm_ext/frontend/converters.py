"""Converters for ONNX operators that TVM's importer lacks or converts in a way that costs something."""

from __future__ import annotations

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


#: Operator of the standard domain -> converter; these go before the stock ones.
CONVERTERS: dict[str, Converter] = {"Dropout": dropout}

"""The converter of an operator: the one written for it, or one made of its row in the table of operators.

A row makes it of what the operator is composed of, or of its name in Relax.
"""

import functools
from typing import Any

from tvm.ir import Call, Op
from tvm.relax.frontend.onnx import onnx_frontend

from ...ops import Kind, Operator, of
from ...ops.operator import imported
from .base import CONVERTERS, FOREIGN, Attributes, Converter


def own_converter(op_type: str, domain: str = "") -> Converter | None:
    """The converter of an operator that goes before TVM's: written for it, or made of its row in the table of
    operators; None if there is none."""
    written = FOREIGN.get(domain, CONVERTERS).get(op_type)
    return converter_of_row(op_type) if written is None and domain not in FOREIGN else written


def converter_of_row(op_type: str) -> Converter | None:
    """The converter that the row of an operator of the standard domain makes; None where TVM's own is the one.

    What a row is composed of goes before TVM's converter; the Relax operator of the same elements stands in for one.
    """
    row = of(op_type)
    if row.composed is not None:
        return functools.wraps(imported(row.composed))(functools.partial(_composed, row))
    named = row.kind is Kind.ELEMENTWISE and len(row.relax) == 1 and not row.attributes
    if named and op_type not in onnx_frontend._get_convert_map():
        return functools.partial(_as_relax, row)
    return None


def _composed(row: Operator, inputs: Any, attributes: Attributes, opset: int) -> Any:
    stated = {name: value for name, value in attributes.items() if name != "tvm_custom"}
    return imported(row.composed)(*inputs, **stated)


def _as_relax(row: Operator, inputs: Any, attributes: Attributes, opset: int) -> Any:
    """The Relax operator of the same operands."""
    return Call(Op.get(row.relax[0]), list(inputs))

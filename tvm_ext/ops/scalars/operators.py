"""Elementwise operators in kernels: the scalar expression of a call, and the types that it is computed for.

One row serves grouping (which operators are elementwise) and every recipe (what they compute).
"""

from collections.abc import Sequence
from typing import Any

from tvm.ir import Call

from tvm_ext.core.numbers.storage import STORED

from ..table import of
from .functions import LIMITS

FLOATS = ("float32", "float64")
TYPES = (*FLOATS, "int32", "int64", "bool")


def scalar_call(call: Call, operands: list[Any]) -> Any:
    """The scalar expression of an elementwise operator call on scalar operands."""
    row = of(str(call.op.name))
    return row.scalar(*operands, **{a: read(getattr(call.attrs, a)) for a, read in row.attributes.items()})


def takes(name: str, operands: Sequence[str], result: str) -> bool:
    """Whether an elementwise operator is computed for these types; what is one floating-point type fits an epilogue.

    Integers are divided by none: by zero it ends the process.
    """
    types = {*operands, result}
    match of(name).types:
        case "quantization":
            stored, real = (result, operands[0]) if name == "relax.quantize" else (operands[0], result)
            return real == operands[1] == "float32" and stored == operands[2] and stored in LIMITS
        case "conversion":
            return types <= {*TYPES, *STORED}
        case "comparison" | "logic":
            return types <= {*TYPES}
        case "numbers":
            return len(types) == 1 and types <= {*TYPES[:-1]}
    return len(types) == 1 and types <= {*FLOATS}

"""Integers of 2 and 4 bits: a byte each in numpy, and in the program, where TVM would pack them.

x: int4[n]            ->   x: uint8[n];  x' = int8((x & 15 ^ 8) - 8)
y = Cast(z, int4)     ->   y = int8((z & 15 ^ 8) - 8), returned as bytes that numpy reads as int4
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper
from tvm import relax

from ...ops.conversion import NARROW


def stored(dtype: str) -> str:
    """The dtype that holds one in a program's inputs and outputs."""
    return "uint8" if dtype in NARROW else dtype


def computed(dtype: str) -> str:
    """The dtype that holds one inside the program."""
    return ("uint8" if dtype.startswith("u") else "int8") if dtype in NARROW else dtype


def wrapped(x: Any, dtype: str) -> Any:
    """An integer tensor modulo the width of a narrow dtype, in the dtype that it is computed in."""
    bits = NARROW[dtype]
    low = relax.op.bitwise_and(relax.op.astype(x, "uint8"), relax.const((1 << bits) - 1, "uint8"))
    if dtype.startswith("u"):
        return low
    sign = relax.const(1 << (bits - 1), "int8")
    return relax.op.subtract(relax.op.bitwise_xor(relax.op.astype(low, "int8"), sign), sign)


def widened(array: np.ndarray) -> np.ndarray:
    """A constant as the program computes with it."""
    name = array.dtype.name
    return array.astype(computed(name)) if name in NARROW else array


def with_stated_dtype(node: onnx.NodeProto, narrow_types: Mapping[str, str]) -> onnx.NodeProto:
    """The node; with the dtype that an operand of 2 or 4 bits, which the program has in 8, says it makes."""
    narrow = [narrow_types[name] for name in node.input[1:] if name in narrow_types]
    if not narrow or node.op_type not in ("CastLike", "QuantizeLinear"):
        return node
    to = helper.np_dtype_to_tensor_dtype(np.dtype(narrow[0]))
    if node.op_type == "CastLike":
        return helper.make_node("Cast", node.input[:1], node.output, node.name, to=to)
    new = type(node)()
    new.CopyFrom(node)
    if not any(attribute.name == "output_dtype" for attribute in node.attribute):
        new.attribute.append(helper.make_attribute("output_dtype", to))
    return new

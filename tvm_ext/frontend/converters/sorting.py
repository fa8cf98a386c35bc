"""TopK of every dtype."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from ...core.relax_graph import dtype_of
from .base import Attributes, Converter, emit, kernel, stock

#: What TVM's sort takes.
_SORTED = ("float32", "float64", "int32", "int64")


def top_k(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """TopK of any dtype; `sorted=0` allows any order, so the sorted one. Stock TVM refuses it, and some integers."""
    x, dtype = inputs[0], dtype_of(inputs[0])
    given = {name: value for name, value in attributes.items() if name != "sorted"}
    opset = 11 if opset == 10 else opset  # of which stock TVM overlooks that k is an input
    if dtype in _SORTED:
        return stock("TopK", inputs, given, opset)
    if dtype == "uint64":  # in the same order as int64, the top bit turned
        wide = emit(_turned(x, "int64"))
    else:
        wide = emit(relax.op.astype(x, "float32" if "float" in dtype else "int64" if dtype == "uint32" else "int32"))
    both = emit(stock("TopK", [wide, *list(inputs)[1:]], given, opset))
    values, indices = (emit(relax.TupleGetItem(both, i)) for i in range(2))
    return relax.Tuple([_turned(values, dtype) if dtype == "uint64" else relax.op.astype(values, dtype), indices])


def _turned(x: Any, dtype: str) -> Any:
    """64 bits with the top one turned, as another dtype."""

    def compute(data: te.Tensor) -> te.Tensor:
        top = tirx.shift_left(tirx.const(1, "uint64"), tirx.const(63, "uint64"))
        return te.compute(
            data.shape, lambda *i: tirx.reinterpret(dtype, tirx.bitwise_xor(tirx.reinterpret("uint64", data(*i)), top)),
            name="out",
        )  # fmt: skip

    return kernel(compute, x, name="turned")


#: Operator -> converter.
CONVERTERS: dict[str, Converter] = {"TopK": top_k}

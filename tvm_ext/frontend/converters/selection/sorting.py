"""TopK of every dtype, by whole numbers that have its order.

x = [1, NaN, -0, 3]   ->   [0x3f800000, 0x7fffffff, 0, 0x40400000]      NaN is the largest, as in onnxruntime and numpy
"""

from typing import Any

from tvm import relax, tirx

from ....core.graph.relax_graph import dtype_of
from ..base import Attributes, converts, elementwise, emit, stock

#: What TVM's sort takes; of floats it has no order once one is NaN.
_SORTED = ("int32", "int64")


@converts("TopK")
def top_k(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """TopK of any dtype; `sorted=0` allows any order, so the sorted one. Stock TVM refuses it, and some dtypes."""
    x = inputs[0]
    plain = {name: value for name, value in attributes.items() if name != "sorted"}
    opset = 11 if opset == 10 else opset  # of which stock TVM overlooks that k is an input
    if dtype_of(x) in _SORTED:
        return stock("TopK", inputs, plain, opset)
    key = order_key(x)
    both = emit(stock("TopK", [key, *list(inputs)[1:]], plain, opset))
    indices = emit(relax.TupleGetItem(both, 1))
    axis = int(attributes.get("axis", -1)) % int(x.ty.ndim)
    return relax.Tuple([relax.op.gather_elements(x, indices, axis), indices])


def order_key(x: Any) -> Any:
    """Whole numbers, int32 or int64, of the order of the elements of a tensor."""
    dtype = dtype_of(x)
    if dtype in _SORTED:
        return x
    if "float" in dtype:
        return emit(_ordered(x))
    return emit(_turned(x) if dtype == "uint64" else relax.op.astype(x, "int64" if dtype == "uint32" else "int32"))


def _ordered(x: Any) -> Any:
    """float32 or float64 numbers as whole ones of the same order and width."""
    kind = dtype_of(x).replace("float", "int")

    def key(number: Any) -> Any:
        bits, most = tirx.reinterpret(kind, number), tirx.max_value(kind)
        signed = tirx.Select(bits < 0, tirx.bitwise_xor(bits, most), bits)
        finite = tirx.Select(number == tirx.const(0, dtype_of(x)), tirx.const(0, kind), signed)
        return tirx.Select(tirx.isnan(number), most, finite)

    return elementwise(key, x, name="ordered")


def _turned(x: Any) -> Any:
    """uint64 numbers, the top bit turned, as int64."""
    least = tirx.min_value("int64")
    return elementwise(lambda n: tirx.bitwise_xor(tirx.reinterpret("int64", n), least), x, name="turned")

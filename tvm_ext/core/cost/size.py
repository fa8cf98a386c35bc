"""Bytes of tensors."""

from __future__ import annotations

import math
from typing import Any


def bytes_of(value: Any) -> int:
    """Bytes of a tensor, or of all tensors of a tuple; 0 for what has no static shape."""
    from tvm import relax

    if isinstance(value.ty, relax.TupleType):
        return sum(_bytes_of_type(field) for field in value.ty.fields)
    return _bytes_of_type(value.ty)


def _bytes_of_type(ty: Any) -> int:
    import tvm
    from tvm import relax

    from ..graph.relax_graph import shape_of

    shape = shape_of(relax.Var("t", ty))
    if shape is None:
        return 0
    return math.prod(shape) * -(-tvm.DataType(str(ty.dtype)).bits // 8)

"""Operators of ONNX that are composed of Relax operators; rows name these."""

from typing import Any

from tvm import relax


def swish(x: Any, alpha: float = 1.0) -> Any:
    """x sigmoid(alpha x)."""
    if alpha == 1.0:
        return relax.op.nn.silu(x)
    return relax.op.multiply(x, relax.op.sigmoid(relax.op.multiply(x, relax.const(alpha, str(x.ty.dtype)))))

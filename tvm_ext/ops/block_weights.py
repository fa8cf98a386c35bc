"""Operators of Relax on weights of few bits with a scale for each block of neighbours, which stay packed in memory.

    w[n, k] = (code[n, k] - zero) * scale[n, k // block]                            zero: a number, the same for all
              (code[n, k] - points[n, k // block]) * scale[n, k // block]           points of uint8
              code[n, k] * scale[n, k // block] - points[n, k // block]             points of floats: zero times scale

    y = tvm_ext.matmul_blocks(x, codes, scales[, points])        x (.., K) by w (N, K) transposed: (.., N)
    y = tvm_ext.take_blocks(indices, codes, scales[, points])    rows of w (N, K): (.., K)

codes: (N, blocks, block * bits / 8) of uint8, the lowest bits first, as MatMulNBits and GatherBlockQuantized have them;
scales: (N, blocks) of float32, or of float16 where that is what they are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.ir import Call

from .own_operators import register

NAME, TAKE = "relax.tvm_ext.matmul_blocks", "relax.tvm_ext.take_blocks"


@dataclass(frozen=True)
class Blocks:
    """What a call of either operator says of its weight.

    Attributes:
        bits: of a code: 2, 4 or 8.
        block: neighbours of a row that have one scale.
        zero: the code that stands for 0, without points.
        depth: K; codes behind it stand for nothing.
        digits: of a matmul, how many digits of 8 bits a number of x may be rounded to, relative to the largest of its
            block; 0 where it may not be.
    """

    bits: int
    block: int
    zero: float
    depth: int
    digits: int = 0

    @classmethod
    def of(cls, call: Call) -> Blocks:
        """What a call says."""
        numbers = {name: int(call.attrs[name]) for name in ("bits", "block", "depth", "digits")}
        return cls(zero=float(call.attrs["zero"]), **numbers)

    def matmul(self, *operands: Any) -> Call:
        """x by the transposed weight; operands are x, codes, scales and perhaps points."""
        return matmul_blocks(*operands, **asdict(self))

    def take(self, *operands: Any) -> Call:
        """Rows of the weight; operands are indices, codes, scales and perhaps points."""
        return take_blocks(*operands, **asdict(self))


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """The numbers of `bits` bits in bytes, the lowest bits first, along the last axis."""
    parts = [(packed.view(np.uint8) >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*packed.shape[:-1], -1)


def _check(call: Call, depth: Any) -> None:
    """See that operands have the shapes that a call says, so that no kernel reads beyond them.

    Args:
        depth: numbers of a row that the weight is multiplied by; K where it is not.

    Raises:
        ValueError: a shape is another.
    """
    says, (codes, *tables) = Blocks.of(call), [list(operand.ty.shape.values) for operand in call.args[1:]]
    blocks = -(-says.depth // says.block)
    wanted = [codes[0], blocks, says.block * says.bits // 8]
    fits = codes == wanted and all(table == wanted[:2] for table in tables)
    if not fits or (isinstance(depth, int | tirx.IntImm) and int(depth) != says.depth):
        raise ValueError(f"{says}: rows of {depth}, codes {codes}, scales and points {tables}")


def _product_type(call: Call, _: Any) -> relax.TensorType:
    x, codes = (operand.ty for operand in call.args[:2])
    *lead, depth = list(x.shape.values)
    if not lead:
        raise ValueError("a matmul by blocks of a vector, which is of no rows")
    _check(call, depth)
    return relax.TensorType((*lead, codes.shape.values[0]), x.dtype)


def _rows_type(call: Call, _: Any) -> relax.TensorType:
    _check(call, int(call.attrs["depth"]))
    return relax.TensorType((*call.args[0].ty.shape.values, int(call.attrs["depth"])), "float32")


matmul_blocks = register(NAME, "A matmul by a weight of few bits in blocks.", _product_type)
take_blocks = register(TAKE, "Rows of a weight of few bits in blocks.", _rows_type)

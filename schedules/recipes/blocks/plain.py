"""The operators of weights in blocks as plain kernels, for any CPU, where no recipe takes them."""

from typing import Any

from tvm import relax, te, tirx
from tvm.ir import Call, Op

from tvm_ext.ops.block_weights import NAME, TAKE, Blocks


def _weight(says: Blocks, codes: te.Tensor, scales: te.Tensor, points: te.Tensor | None) -> te.Tensor:
    """(N, K) of float32, the stage "weight"."""
    each = 8 // says.bits

    def value(n: Any, k: Any) -> Any:
        block, rest = k // says.block, k % says.block
        byte = codes[n, block, rest // each].astype("int32")
        mask = tirx.const((1 << says.bits) - 1, "int32")
        code = tirx.bitwise_and(tirx.shift_right(byte, (rest % each * says.bits).astype("int32")), mask)
        number, scale = code.astype("float32"), scales[n, block].astype("float32")
        if points is None:
            return (number - tirx.const(says.zero, "float32")) * scale
        point = points[n, block].astype("float32")
        return (number - point) * scale if points.dtype == "uint8" else number * scale - point

    return te.compute((codes.shape[0], says.depth), value, name="weight")


def _product(builder: relax.BlockBuilder, call: Call) -> relax.Expr:
    says = Blocks.of(call)

    def compute(x: te.Tensor, codes: te.Tensor, scales: te.Tensor, *points: te.Tensor) -> te.Tensor:
        weight, k = _weight(says, codes, scales, next(iter(points), None)), te.reduce_axis((0, says.depth), "k")
        shape = (*list(x.shape)[:-1], codes.shape[0])
        return te.compute(shape, lambda *i: te.sum(x(*i[:-1], k) * weight[i[-1], k], axis=k), name="matmul_blocks")

    return builder.call_te(compute, *call.args, primfunc_name_hint="matmul_blocks")


def _rows(builder: relax.BlockBuilder, call: Call) -> relax.Expr:
    says = Blocks.of(call)

    def compute(indices: te.Tensor, codes: te.Tensor, scales: te.Tensor, *points: te.Tensor) -> te.Tensor:
        weight, rows = _weight(says, codes, scales, next(iter(points), None)), codes.shape[0]

        def value(*i: Any) -> Any:
            row = indices(*i[:-1])
            row = tirx.if_then_else(row < 0, row + rows.astype(row.ty.dtype), row)
            last = tirx.const(int(rows) - 1, row.ty.dtype)
            return weight[tirx.max(tirx.min(row, last), tirx.const(0, row.ty.dtype)), i[-1]]

        return te.compute((*indices.shape, says.depth), value, name="take_blocks")

    return builder.call_te(compute, *call.args, primfunc_name_hint="take_blocks")


Op.get(NAME).set_attr("FLegalize", _product)
Op.get(TAKE).set_attr("FLegalize", _rows)

"""Weights of 2, 4 and 8 bits with a scale for each block: they stay packed where kernels read them so.

MatMulNBits(x, w, s, z)               ->   tvm_ext.matmul_blocks(x, w, s, z s): x ((w - z) * s)^T
GatherBlockQuantized(w, i, s, z)      ->   tvm_ext.take_blocks(i, w, s, z s)
"""

from typing import Any

import numpy as np
from tvm import relax, tirx

from ....core.graph.relax_graph import dtype_of
from ....ops.block_weights import Blocks, unpacked
from ...checks.refusal import Refusal
from ..base import MICROSOFT, Attributes, constant, converts, emit, known, once, static_shape
from ..selection.indexing import gather

#: Numbers that the 16 codes of bitsandbytes mean: floats of 4 bits, and quantiles of a normal distribution.
_FP4: list[float] = [0.0, 0.005208333333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25]
_CODES = {
    0: np.array([*_FP4, *(-value for value in _FP4)], np.float32),
    1: np.array(
        [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
         -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
         0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0],
        np.float32,
    ),
}  # fmt: skip
#: Digits of 8 bits that numbers of x may be rounded to where a model allows int8 (`accuracy_level` 4).
_DIGITS = 2
#: A number of float16 stands for one of float32 that differs by its rounding.
_SAME = 2.0**-22


@converts("MatMulNBits", MICROSOFT)
def matmul_of_bits(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """MatMulNBits(x, w, scales, zero points, groups, bias) of a weight that is known; summed in float32, or in whole
    numbers where it allows that. With groups, or in other floats, the weight is decoded when the model is read."""
    rows, depth = int(attributes["N"]), int(attributes["K"])
    bits, block = int(attributes.get("bits", 4)), int(attributes["block_size"])
    if attributes.get("weight_prepacked", 0):
        raise Refusal("weight_prepacked: the weight lies as one processor wants it")
    _check_codes(bits, block)
    says = (inputs, rows, -(-depth // block), bits, block)
    x, is_vector = _as_rows(inputs[0], depth)
    if inputs[5] is not None and (shape := static_shape(inputs[5], "bias")) != (rows,):
        raise Refusal(f"its bias is of shape {shape}, where N says {(rows,)}")
    if inputs[4] is not None or dtype_of(x) != "float32":
        weight = _decoded_rows(*_operands(*says), inputs[4], depth, bits)
        y = relax.op.matmul(x, constant(weight.T, dtype_of(x)))
    else:
        digits = _DIGITS if int(attributes.get("accuracy_level", 0)) == 4 else 0
        zero, operands = once(attributes, (1, 2, 3), says[1:], lambda: _packed(*_operands(*says), bits))
        y = Blocks(bits, block, zero, depth, digits).matmul(x, *operands)
    if is_vector:
        y = relax.op.reshape(emit(y), (rows,))
    return y if inputs[5] is None else emit(y) + inputs[5]


def _as_rows(x: Any, depth: int) -> tuple[Any, bool]:
    """(x of two dimensions or more, whether it was a vector).

    Raises:
        Refusal: its rows are not known to be of so many numbers.
    """
    extents = list(x.ty.shape.values) if isinstance(x.ty.shape, relax.ShapeExpr) else []
    if not extents or not isinstance(extents[-1], tirx.IntImm) or int(extents[-1]) != depth:
        raise Refusal(f"its first operand has rows of {extents[-1] if extents else 'unknown length'}, and K is {depth}")
    is_vector = len(extents) == 1
    return emit(relax.op.reshape(x, (1, depth))) if is_vector else x, is_vector


def _operands(
    inputs: Any, rows: int, blocks: int, bits: int, block: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(codes (N, blocks, bytes), scales (N, blocks), zero points (N, blocks) or None) of a MatMulNBits.

    Raises:
        Refusal: a shape is not that of N, K, `bits` and `block_size`. Scales and points may be flat, as in onnxruntime.
    """
    codes, scales = known(inputs[1], "B").view(np.uint8), known(inputs[2], "scales")
    _check_shape("B", codes, (rows, blocks, block * bits // 8))
    _check_shape("scales", scales, (rows, blocks), (rows * blocks,))
    if inputs[3] is None:
        return codes, scales.reshape(rows, blocks), None
    points = known(inputs[3], "zero_points")
    size = -(-blocks * bits // 8) if points.dtype == np.uint8 else blocks
    _check_shape("zero_points", points, (rows, size), (rows * size,))
    points = points.reshape(rows, size)
    points = unpacked(points, bits)[:, :blocks] if points.dtype == np.uint8 else points
    return codes, scales.reshape(rows, blocks), points


def _check_shape(name: str, array: np.ndarray, *shapes: tuple[int, ...]) -> None:
    """Raises Refusal of an operand that has none of the shapes that the attributes say."""
    if array.shape not in shapes:
        raise Refusal(f"its {name} is of shape {array.shape}; its attributes say {' or '.join(map(str, shapes))}")


def _check_codes(bits: int, block: int) -> None:
    """Raises Refusal of numbers that cross bytes, and of blocks that the operators do not have."""
    if bits not in (2, 4, 8):
        raise Refusal(f"weights of {bits} bits; 2, 4 and 8 work")
    if block < 16 or block & (block - 1):
        raise Refusal(f"blocks of {block}; powers of two from 16 on work")


def _packed(codes: np.ndarray, scales: np.ndarray, points: np.ndarray | None, bits: int) -> tuple[float, list[Any]]:
    """(the code that stands for 0, constants) of :class:`Blocks`: without points, if all are one number."""
    narrow = scales.astype(np.float32)
    if points is None or (points == points.flat[0]).all():
        zero = float(1 << (bits - 1) if points is None else points.flat[0])
        return zero, [constant(codes), constant(_halved(narrow))]
    if points.dtype != np.uint8:
        points = _halved(points.astype(np.float32) * narrow)
    return 0.0, [constant(codes), constant(_halved(narrow)), constant(points)]


def _halved(array: np.ndarray) -> np.ndarray:
    """Numbers of float16, if those of float32 are such."""
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    return half if (abs(half.astype(np.float32) - array) <= _SAME * abs(array)).all() else array


def _decoded_rows(
    codes: np.ndarray, scales: np.ndarray, points: np.ndarray | None, groups: Any, depth: int, bits: int
) -> np.ndarray:
    """(rows, depth) of float32.

    Raises:
        Refusal: the groups of columns are not as many as those, or there is no such block.
    """
    rows, blocks, _ = codes.shape
    values = unpacked(codes.reshape(rows, -1), bits)[:, :depth].astype(np.float32)
    owner = np.arange(depth) * bits // (8 * codes.shape[2])
    if groups is not None:
        owner = known(groups, "g_idx").reshape(-1)[:depth]
        if len(owner) != depth or owner.min(initial=0) < 0 or owner.max(initial=0) >= blocks:
            raise Refusal(f"its g_idx does not name a block, below {blocks}, for each of {depth} columns")
    zeros = np.full_like(scales, 1 << (bits - 1)) if points is None else points
    return (values - zeros.astype(np.float32)[:, owner]) * scales.astype(np.float32)[:, owner]


@converts("MatMulBnb4", MICROSOFT)
def matmul_of_codes(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """MatMulBnb4(x, w, largest of each block) of a weight that is known: 16 codes, floats of 4 bits or quantiles."""
    x, rows, depth, block = inputs[0], int(attributes["N"]), int(attributes["K"]), int(attributes["block_size"])
    packed, kind = known(inputs[1], "B").reshape(-1), int(attributes["quant_type"])
    scales = known(inputs[2], "absmax").reshape(-1).astype(np.float32)
    if block < 1 or kind not in _CODES:
        raise Refusal(f"blocks of {block}, codes of kind {kind}")
    if 2 * packed.size < rows * depth or scales.size * block < rows * depth:
        raise Refusal(f"{packed.size} bytes and {scales.size} blocks of {block}, for {rows} x {depth} weights")
    _as_rows(x, depth)
    codes = np.stack([packed >> 4, packed & 15], -1).reshape(-1)[: rows * depth]
    values = _CODES[kind][codes] * np.repeat(scales, block)[: rows * depth]
    weight = values.reshape(rows, depth)
    weight = weight.T if attributes.get("transB", 1) else weight.reshape(depth, rows)
    return relax.op.matmul(x, constant(weight, dtype_of(x)))


@converts("GatherBlockQuantized", MICROSOFT)
def gather_blocks(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """GatherBlockQuantized(table, indices, scales, zero points): rows of a known table, decoded."""
    table, scales = known(inputs[0], "data"), known(inputs[2], "scales")
    bits, block = int(attributes.get("bits", 4)), int(attributes.get("block_size", 128))
    _check_codes(bits, block)
    axis = int(attributes.get("quantize_axis", 1))
    if not -table.ndim <= axis < table.ndim == scales.ndim:
        raise Refusal(f"quantize_axis {axis} of a table of {table.ndim} dimensions and scales of {scales.ndim}")
    axis %= table.ndim
    points: Any = np.int8(0) if inputs[3] is None else known(inputs[3], "zero_points")
    packed = _is_packed(table, scales.shape[axis], axis, bits, block)
    _check_table(table, scales, points, axis, block, 8 // bits if packed else 1)
    if packed:
        by_rows = table.ndim == 2 and axis == 1 and int(attributes.get("gather_axis", 0)) % 2 == 0
        if by_rows and scales.dtype == np.float32:
            rows = (table, scales, None if inputs[3] is None else points, bits, block)
            zero, operands = once(attributes, (0, 2, 3), (bits, block), lambda: _whole_blocks(*rows))
            return Blocks(bits, block, zero, table.shape[1] * 8 // bits).take(inputs[1], *operands)
        table = unpacked(table, bits)
        points = np.uint8(1 << (bits - 1)) if inputs[3] is None else unpacked(points, bits)
    owner = np.arange(table.shape[axis]) // block
    spread = [np.take(part, owner, axis) if part.ndim else part for part in (scales, points)]
    values = (table.astype(np.float32) - spread[1].astype(np.float32)) * spread[0].astype(np.float32)
    way = {"axis": int(attributes.get("gather_axis", 0))}
    return gather([constant(values, str(scales.dtype)), inputs[1]], way, opset)


def _check_table(table: np.ndarray, scales: np.ndarray, points: Any, axis: int, block: int, parts: int) -> None:
    """Raises Refusal of scales and zero points that are not those of a table.

    Args:
        points: of no dimension where there are none.
        parts: numbers of an element of the table, along its last axis.
    """
    if parts > 1 and axis != table.ndim - 1:
        raise Refusal(f"numbers that share bytes, and blocks along axis {axis} of {table.ndim}")
    blocks = -(-table.shape[axis] * parts // block)
    shapes = [(*table.shape[:axis], size, *table.shape[axis + 1 :]) for size in (blocks, -(-blocks // parts))]
    _check_shape("scales", scales, shapes[0])
    if points.ndim:
        _check_shape("zero_points", points, shapes[1])


def _whole_blocks(
    table: np.ndarray, scales: np.ndarray, points: np.ndarray | None, bits: int, block: int
) -> tuple[float, list[Any]]:
    """:func:`_packed` of a packed table of two dimensions, whose last block may not be whole."""
    rows, blocks = scales.shape
    codes = np.pad(table, ((0, 0), (0, blocks * block * bits // 8 - table.shape[1]))).reshape(rows, blocks, -1)
    if points is not None:
        points = unpacked(points, bits)[:, :blocks]
    return _packed(codes, scales, points, bits)


def _is_packed(table: np.ndarray, blocks: int, axis: int, bits: int, block: int) -> bool:
    """Whether a table holds bytes of several numbers each, and not one number of 4 bits in each, as a program does.

    Raises:
        Refusal: it can be read either way.
    """
    if table.dtype != np.uint8:
        return False
    length = table.shape[axis]
    ways = [-(-length * parts // block) == blocks for parts in (8 // bits, 1)]
    wide = table.max(initial=0) >= 1 << bits
    if all(ways) and bits < 8 and not wide:
        raise Refusal(f"a table of {length} bytes, all below {1 << bits}, which may be packed or not")
    return ways[0] or bool(wide)

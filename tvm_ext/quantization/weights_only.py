"""Weights of matmuls in 4 or 8 bits, with a scale for each block of inputs, as the standard operator MatMulNBits.

y = MatMul(x, w)                  ->   y = MatMulNBits(x, codes, scales)                  w (K, N) known, of float32
y = Gemm(x, w, b), transB or not  ->   y = MatMulNBits(x, codes, scales, , , b)
"""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ..core.errors import ModelError
from ..frontend.naming import node_label
from ..frontend.reading.walk import attribute
from ..frontend.zoo.language.weights import BlockMatrix, in_blocks
from .folding import drop_unused
from .preparation import Prepared
from .result import QuantizeResult
from .selection import check_excluded
from .settings import WEIGHED, WEIGHTS, QuantizeSettings

_MICROSOFT = "com.microsoft"


def weights_only(prepared: Prepared, settings: QuantizeSettings) -> QuantizeResult:
    """The model with weights of `settings.weights` where they are known matrices.

    Raises:
        OptionError: `exclude` names no node.
        ModelError: it has no such matmul, or a weight that is no number.
    """
    model, original = prepared.model, prepared.original.ByteSize()
    check_excluded(model, settings)
    known = {t.name: t for t in model.graph.initializer}
    left: list[tuple[str, str, str]] = []
    quantized = 0
    matrices: dict[tuple[str, bool], BlockMatrix] = {}
    for node in model.graph.node:
        if node.op_type not in WEIGHED:
            continue
        if why := _left_out(node, settings) or _why_not(node, known, settings.block):
            left.append((node.name, node.op_type, why))
            continue
        _replace(node, model.graph, known, settings, matrices)
        quantized += 1
    if not quantized:
        why = "; ".join(f"{name}: {reason}" for name, _, reason in left[:5]) or "it has none"
        raise ModelError(f"{prepared.name}: no matmul can be quantized: {why}")
    drop_unused(model.graph)
    if not any(opset.domain == _MICROSOFT for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid(_MICROSOFT, 1))
    return QuantizeResult(
        name=prepared.name, model=model, settings=settings, layers=(), left=tuple(left), quantized=quantized,
        samples=0, compared=0, notes=prepared.notes, size=(original, model.ByteSize()),
    )  # fmt: skip


def _left_out(node: onnx.NodeProto, settings: QuantizeSettings) -> str:
    """How the user left a node out; "" if not."""
    if node.name in settings.exclude:
        return "excluded"
    return "operators= does not name it" if settings.operators and node.op_type not in settings.operators else ""


def _why_not(node: onnx.NodeProto, known: Mapping[str, onnx.TensorProto], block: int) -> str:
    """Why a node keeps its weight; "" if it does not."""
    weight = known.get(node.input[1])
    if weight is None or len(weight.dims) != 2:
        return "its right operand is no known matrix"
    if weight.data_type != onnx.TensorProto.FLOAT:
        return "its weight is not of float32"
    if attribute(node, "transA", 0) or any(attribute(node, name, 1.0) != 1.0 for name in ("alpha", "beta")):
        return "transA, alpha or beta"
    outputs, depth = weight.dims if attribute(node, "transB", 0) else reversed(weight.dims)
    bias = known.get(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if len(node.input) > 2 and node.input[2] and (bias is None or list(bias.dims) != [outputs]):
        return "its third operand is no known vector"
    return f"{depth} inputs, fewer than a block" if depth < block else ""


def _replace(
    node: onnx.NodeProto, graph: onnx.GraphProto, known: Mapping[str, onnx.TensorProto], settings: QuantizeSettings,
    matrices: dict[tuple[str, bool], BlockMatrix],
) -> None:  # fmt: skip
    """Make a node a MatMulNBits."""
    weight, transposed = node.input[1], bool(attribute(node, "transB", 0))
    codes, scales = (f"{weight}.{part}{'^T' if transposed else ''}" for part in ("codes", "scales"))
    if (weight, transposed) not in matrices:
        array = numpy_helper.to_array(known[weight])
        if not np.isfinite(array).all():
            raise ModelError(
                f"node {node_label(node)!r}: its weight {weight!r} has NaN or infinity, which no scale reaches",
                fix="exclude= leaves a node as it is",
            )
        matrix = in_blocks(array if transposed else array.T, WEIGHTS[str(settings.weights)], settings.block)
        matrices[weight, transposed] = matrix
        graph.initializer.extend(
            [numpy_helper.from_array(matrix.codes, codes), numpy_helper.from_array(matrix.scales, scales)]
        )
    matrix, bias = matrices[weight, transposed], list(node.input[2:])
    operands = [node.input[0], codes, scales, *(["", "", *bias] if any(bias) else [])]
    node.CopyFrom(
        helper.make_node(
            "MatMulNBits", operands, list(node.output), node.name, domain=_MICROSOFT, K=matrix.depth, N=matrix.rows,
            bits=matrix.bits, block_size=matrix.block,
        )
    )  # fmt: skip

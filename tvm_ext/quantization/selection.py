"""Which nodes are quantized, and why the others are not."""

import difflib

import onnx

from ..core.errors import OptionError
from ..ops.table import of
from .settings import QuantizeSettings, check_operators, known_operators


def select(model: onnx.ModelProto, settings: QuantizeSettings) -> dict[str, str]:
    """Name of each node that makes floats -> why it stays in float32; "" if it is quantized.

    A matmul's result stays in float32, where its bias is added: to round it first would cost accuracy and save nothing.
    So 8-bit values are results of convolutions, what such layers read, and results of what stands between them.

    Args:
        model: prepared, with types; nodes in the order they run.
        settings: what the user asked.

    Raises:
        OptionError: an operator or a node of the settings does not exist.
    """
    check_operators(settings.operators)
    check_excluded(model, settings)
    types, weights = _types(model), {tensor.name for tensor in model.graph.initializer}
    bytes_ = {node.input[0] for node in model.graph.node if _is_product(node, weights, settings)}
    reasons = {}
    for node in model.graph.node:
        kinds = {types.get(name) for name in node.output if name}
        if kinds and kinds <= _NO_FLOATS:
            continue
        reason = _reason(node, kinds, weights, bytes_, settings)
        reasons[node.name] = reason
        if not reason and node.op_type not in FLOAT_RESULTS:
            bytes_.update(node.output)
    return reasons


#: Anchors whose results are not rounded, unless what reads them does.
FLOAT_RESULTS = ("Gemm", "MatMul")
_FLOAT, _HALF, _BFLOAT, _DOUBLE = 1, 10, 16, 11  # of onnx.TensorProto
_NO_FLOATS = frozenset({2, 3, 4, 5, 6, 7, 8, 9, 12, 13})


def _reason(
    node: onnx.NodeProto, kinds: set[int | None], weights: set[str], bytes_: set[str], settings: QuantizeSettings
) -> str:
    if node.name in settings.exclude:
        return "exclude= names it"
    if kinds != {_FLOAT}:
        known = {_HALF: "float16", _BFLOAT: "bfloat16", _DOUBLE: "float64"}
        return f"its values are {known.get(next(iter(kinds)) or 0, 'of unknown type')}, not float32"
    if settings.operators:
        return "" if node.op_type in settings.operators else "operators= does not name it"
    if node.domain not in ("", "ai.onnx"):
        return f"an operator of {node.domain}"
    if of(node.op_type).int8 == "anchor":
        computed = [name for name in list(node.input)[1:] if name and name not in weights]
        return "its second operand is computed, no constant weight" if computed else ""
    if of(node.op_type).int8 not in ("moved", "between"):
        hint = " (operators= can name it)" if node.op_type in known_operators() else ""
        return f"8 bits are too coarse for it, or save nothing{hint}"
    operands = list(node.input)[: None if node.op_type in ("Add", "Concat") else 1]
    floats = [name for name in operands if name and name not in weights and name not in bytes_]
    if floats:
        return "what it reads is float32, and rounding it here would save nothing"
    return "" if any(name in bytes_ for name in operands) else "all of its operands are constant"


def _is_product(node: onnx.NodeProto, weights: set[str], settings: QuantizeSettings) -> bool:
    """Whether a node is an anchor that will be quantized, so that its operand is rounded, whoever else reads that."""
    return (
        of(node.op_type).int8 == "anchor"
        and node.input[0] not in weights
        and not _reason(node, {_FLOAT}, weights, set(), settings)
    )


def _types(model: onnx.ModelProto) -> dict[str, int]:
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    types = {item.name: item.type.tensor_type.elem_type for item in values if item.type.HasField("tensor_type")}
    return types | {item.name: item.data_type for item in model.graph.initializer}


def check_excluded(model: onnx.ModelProto, settings: QuantizeSettings) -> None:
    """Raises OptionError for a node of `exclude` that the model does not have."""
    names = [node.name for node in model.graph.node]
    for name in settings.exclude:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=3) or names[:3]
            raise OptionError(
                f"exclude: the model has no node {name!r}", fix=f"nodes with such names: {', '.join(near)}"
            )

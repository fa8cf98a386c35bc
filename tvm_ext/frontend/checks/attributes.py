"""Attributes with a range that neither ONNX's checker nor its inference holds: yes or no, sizes, names of modes.

What a value out of it means, everybody reads in a way of his own.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import onnx
from onnx import defs

from ...core.errors import ModelError
from ...core.graph.relax_graph import dtype_of
from ..naming import node_label
from ..reading.walk import with_inner
from .refusal import Refusal

#: 0 or 1.
FLAGS = frozenset(
    ["align_corners", "allowzero", "antialias", "ceil_mode", "center_point_box", "count_include_pad", "exclude_outside"]
    + ["exclusive", "fmod", "input_forget", "interleaved", "inverse", "is_causal", "keepdims", "largest", "layout"]
    + ["linear_before_reset", "new_axis", "noop_with_empty_axes", "onesided", "periodic", "reverse", "saturate"]
    + ["select_last_index", "sorted", "storage_order", "training_mode", "transA", "transB", "upper"]
)
#: 1 or more, each of them where they are several.
_SIZES = frozenset(
    ["block_shape", "blocksize", "dilations", "group", "hidden_size", "kernel_shape", "kv_num_heads", "num_groups"]
    + ["num_heads", "num_outputs", "num_scan_inputs", "offset_group", "output_height", "output_width", "q_num_heads"]
    + ["p", "size", "strides"]
)
#: 0 or more: the inference of onnx ends the process by a negative one.
_COUNTS = frozenset(["batch_dims"])
#: Attribute, or operator and attribute -> names that it may be.
NAMES = {
    "auto_pad": "NOTSET SAME_UPPER SAME_LOWER VALID",
    "coordinate_transformation_mode": "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric "
    "tf_crop_and_resize tf_half_pixel_for_nn output_half_pixel",
    "direction": "forward reverse bidirectional LEFT RIGHT",
    "keep_aspect_ratio_policy": "stretch not_larger not_smaller",
    "nearest_mode": "round_prefer_floor round_prefer_ceil floor ceil",
    "padding_mode": "zeros border reflection",
    "reduction": "none mean sum add mul max min",
    "DepthToSpace.mode": "DCR CRD",
    "GridSample.mode": "bilinear linear nearest bicubic cubic",
    "Pad.mode": "constant reflect edge wrap",
    "Resize.mode": "nearest linear cubic",
    "RoiAlign.mode": "avg max",
    "TensorScatter.mode": "linear circular",
    "Upsample.mode": "nearest linear bilinear",
}


#: Operators whose axis may lie behind the last one.
_BEHIND = ("Flatten", "OneHot")


def check_attributes(nodes: Iterable[onnx.NodeProto], model: str) -> None:
    """See that of all nodes, inner ones too, flags are 0 or 1, sizes 1 or more, counts 0 or more, and modes known.

    Raises:
        ModelError: one is not; names the node.
    """
    for node in with_inner(nodes):
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                raise _wrong(node, attribute.name, f"that of a function, {attribute.ref_attr_name!r}", "a value", model)
            if node.domain in ("", "ai.onnx"):
                _check(node, attribute, model)


def check_axis(node: onnx.NodeProto, inputs: Sequence[Any]) -> None:
    """See that the first input has the dimension that `axis` of a standard operator names; a vector may have 1, too.

    Args:
        inputs: Relax expressions; None for one that is left out.

    Raises:
        Refusal: it has not; converters would take the rest of a division for it.
    """
    stated = [a.i for a in node.attribute if a.name == "axis"] if node.domain in ("", "ai.onnx") else []
    if not stated or not inputs or inputs[0] is None or not dtype_of(inputs[0]):
        return
    rank = int(inputs[0].ty.ndim)
    if rank > 0 and node.op_type not in _BEHIND and not -rank <= stated[0] < max(rank, 2):
        raise Refusal(f"axis {stated[0]} of a tensor of {rank} dimensions; {-rank} to {rank - 1} are there")


def is_stated(attribute: onnx.AttributeProto) -> bool:
    """Whether an attribute says anything: an empty list is as good as none, and TVM's importer refuses it."""
    lists = {attribute.INTS: attribute.ints, attribute.FLOATS: attribute.floats, attribute.STRINGS: attribute.strings}
    return bool(lists.get(attribute.type, (True,)))


def float_defaults(node: onnx.NodeProto, opset: int) -> dict[str, float]:
    """ONNX's defaults of a standard operator's numbers, as the float32 that they are of; not those of converters."""
    return _float_defaults(node.op_type, opset) if node.domain in ("", "ai.onnx") else {}


@functools.cache
def _float_defaults(operator: str, opset: int) -> dict[str, float]:
    if not defs.has(operator, opset):
        return {}
    attributes = defs.get_schema(operator, opset).attributes
    defaults = {name: attribute.default_value for name, attribute in attributes.items()}
    return {name: value.f for name, value in defaults.items() if value.type == value.FLOAT}


def _check(node: onnx.NodeProto, attribute: onnx.AttributeProto, model: str) -> None:
    name = attribute.name
    if name in FLAGS and attribute.type == attribute.INT and attribute.i not in (0, 1):
        raise _wrong(node, name, attribute.i, "0 or 1", model)
    numbers = (attribute.i,) if attribute.type == attribute.INT else attribute.ints
    if name in _SIZES and min(numbers, default=1) < 1:
        raise _wrong(node, name, min(numbers), "1 or more", model)
    if name in _COUNTS and attribute.i < 0:
        raise _wrong(node, name, attribute.i, "0 or more", model)
    if name == "num_scan_inputs" and attribute.i > len(node.input):
        raise _wrong(node, name, attribute.i, f"at most {len(node.input)}, the number of its inputs,", model)
    if name == "num_outputs" and attribute.i != len(node.output):  # else the inference of onnx writes beyond them
        raise _wrong(node, name, attribute.i, f"{len(node.output)}, the number of its outputs,", model)
    choices = (NAMES.get(f"{node.op_type}.{name}") or NAMES.get(name, "")).split()
    mode = attribute.s.decode(errors="replace")
    if choices and attribute.type == attribute.STRING and mode and mode not in choices:
        raise _wrong(node, name, repr(mode[:100]), f"one of {', '.join(choices)}", model)


def _wrong(node: onnx.NodeProto, name: str, value: object, wanted: str, model: str) -> ModelError:
    wrong = f"attribute {name!r} is {value}; {wanted} is needed"
    return ModelError(f"{model}: node {node_label(node)!r} ({node.op_type}): {wrong}", fix="export the model again")

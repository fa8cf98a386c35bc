"""Operators without a converter that ONNX itself defines by other operators: their nodes become that definition.

    y = Celu(x)   ->   a = Elu(x / alpha); y = a * alpha

ONNX keeps the definitions beside its schemas; some depend on the types of a node's inputs.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import onnx
from onnx import defs

from ..naming import Names, node_label
from ..reading.walk import Opsets
from .copies import Copies

TypeOf = Callable[[str], "onnx.TypeProto"]
"""Value -> its type; an empty one if it is not known."""


def has_definition(node: onnx.NodeProto, opsets: Opsets) -> bool:
    """Whether ONNX defines the node's operator by others.

    Args:
        node: of any domain.
        opsets: domain -> version that the model states; the standard domain is "".
    """
    return _schema(node, opsets) is not None


def definition(node: onnx.NodeProto, opsets: Opsets, type_of: TypeOf, names: Names) -> list[onnx.NodeProto] | None:
    """The nodes that define a node, in fresh names; None if the definition does not fit it (a type is not known)."""
    if (schema := _schema(node, opsets)) is None:
        return None
    whole = onnx.NodeProto()
    whole.CopyFrom(node)
    stated = {attribute.name for attribute in node.attribute}
    whole.attribute.extend(a.default_value for name, a in schema.attributes.items()
                           if name not in stated and a.default_value.name)  # fmt: skip
    data = _function(schema, whole, opsets, type_of)
    if not data:
        return None
    function = onnx.FunctionProto.FromString(data)
    inputs = [*node.input, *[""] * len(function.input)]
    renamed = dict(zip(function.input, inputs, strict=False))
    renamed |= {inner: outer for inner, outer in zip(function.output, node.output, strict=False) if outer}
    casts = _widened(schema, node, type_of, names)
    renamed |= {inner: casts[outer].output[0] for inner, outer in renamed.items() if outer in casts}
    attributes = {attribute.name: attribute for attribute in whole.attribute}
    own = {name for inner in function.node for name in inner.output}  # a graph of the node may read others
    nodes = Copies(node_label(node), names, renamed, own, attributes).nodes(function.node)
    return [*casts.values(), *(_of_one_type(node, nodes, type_of, names) if node.op_type == "Attention" else nodes)]


def _of_one_type(
    node: onnx.NodeProto, nodes: list[onnx.NodeProto], type_of: TypeOf, names: Names
) -> list[onnx.NodeProto]:
    """The definition of Attention for values of another float than queries, which ONNX allows and its definition
    multiplies as they are: in the wider one, as by ONNX's evaluator, and then in that of the queries."""
    query, value = (type_of(node.input[i]).tensor_type.elem_type for i in (0, 2))
    if query == value:
        return nodes
    sizes = {kind: onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize for kind in (query, value)}
    wide = max(sizes, key=lambda kind: sizes[kind]) if len({*sizes.values()}) > 1 else onnx.TensorProto.FLOAT
    at = max(number for number, node in enumerate(nodes) if node.op_type == "MatMul")
    product = nodes[at]
    casts = [
        onnx.helper.make_node("Cast", [name], [names.fresh(f"{name}/wide")], product.name, to=wide)
        for name in product.input
    ]
    result = names.fresh(f"{product.output[0]}/wide")
    multiplied = onnx.helper.make_node("MatMul", [cast.output[0] for cast in casts], [result], product.name)
    back = onnx.helper.make_node("Cast", [result], list(product.output), product.name, to=query)
    return [*nodes[:at], *casts, multiplied, back, *nodes[at + 1 :]]


def _widened(schema: Any, node: onnx.NodeProto, type_of: TypeOf, names: Names) -> dict[str, onnx.NodeProto]:
    """Input -> the cast to int64 of one that ONNX allows to be int32 and its definition reads with int64 (Tind)."""
    narrow = [
        name for name, formal in zip(node.input, schema.inputs, strict=False)
        if name and formal.type_str == "Tind" and type_of(name).tensor_type.elem_type == onnx.TensorProto.INT32
    ]  # fmt: skip
    cast = functools.partial(onnx.helper.make_node, "Cast", to=onnx.TensorProto.INT64)
    return {name: cast([name], [wide := names.fresh(f"{name}/int64")], wide) for name in narrow}


def _schema(node: onnx.NodeProto, opsets: Opsets) -> Any:
    """The node's schema, if it has a definition."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain not in opsets or not defs.has(node.op_type, opsets[domain], domain):
        return None
    schema = defs.get_schema(node.op_type, opsets[domain], domain)
    return schema if schema.has_function or schema.has_context_dependent_function else None


def _function(schema: Any, node: onnx.NodeProto, opsets: Opsets, type_of: TypeOf) -> bytes:
    """The serialized definition for the version nearest to the model's; empty if there is none."""
    standard = opsets.get("", schema.since_version)
    if schema.has_function:
        version = _nearest(schema.function_opset_versions, standard)
        return bytes(schema.get_function_with_opset_version(version)) if version else b""
    version = _nearest(schema.context_dependent_function_opset_versions, standard)
    kinds = [type_of(name) for name in node.input]
    unknown = [name for name, kind in zip(node.input, kinds, strict=True) if name and not kind.WhichOneof("value")]
    if not version or unknown:
        return b""
    data = [kind.SerializeToString() for kind in kinds]
    return bytes(schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), data))


def _nearest(versions: Iterable[int], stated: int) -> int:
    """The newest version that is not newer than what the model states; else the oldest one."""
    listed = sorted(versions)
    return max((v for v in listed if v <= stated), default=listed[0] if listed else 0)

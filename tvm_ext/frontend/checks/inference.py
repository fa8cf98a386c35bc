"""What ONNX itself infers of a checked graph: types and shapes of values, or which node cannot be as it is.

A second opinion on what a model means, before a converter's: attributes and shapes that contradict each other are found
here, sizes that no program can have, and afterwards converters that make another shape than ONNX says.

Node by node: what ONNX infers of a node may be nonsense (a Resize by NaN gives negative sizes), and ends the process if
it is asked about the next node with it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper, shape_inference
from tvm import relax

from ...core.errors import ModelError, UnsupportedError
from ...core.graph.relax_graph import dtype_of, shape_of
from ...runtime.spec import TensorSpec
from ..fallback.node import types_of_region
from ..naming import node_label
from ..reading.shapes import NO_NUMBERS, agree, text_of, type_name
from ..reading.walk import Opsets, Types, attribute, opset_imports
from .refusal import UNFIT

#: Elements of a constant that inference may want to see: shapes, axes.
SMALL = 1024
#: Indices within a kernel are of 32 bits.
MOST_ELEMENTS = (1 << 31) - 1
#: As numpy 1 has it, and more than any operator needs.
MOST_DIMENSIONS = 32
#: Operators whose older versions count a window that begins behind the input, with `ceil_mode`; nobody computes it.
_POOLS = ("AveragePool", "LpPool", "MaxPool")
_UNFIT = (
    "correct this part of the model, or what exported it; "
    "onnx.checker.check_model(model, full_check=True) says whether it is right"
)


def inferred_types(
    proto: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], inputs: Iterable[TensorSpec], model: str
) -> dict[str, onnx.TypeProto]:
    """Value -> type, of every value of the graph that inference knows; not of those within branches and loops.

    Args:
        proto: the model, its functions inlined.
        nodes: of its graph, in order.
        inputs: names, dtypes and bound shapes of the inputs.
        model: its name, for messages.

    Raises:
        ModelError: types, shapes or attributes of a node contradict each other.
        UnsupportedError: a value is larger than programs can address.
    """
    known = dict(_given_types(proto, inputs))
    for name, kind in known.items():
        check_size(dims_known(kind), f"value {name!r}", model)
    data = {t.name: t for t in proto.graph.initializer if math.prod(t.dims) <= SMALL}
    versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}
    for node in nodes:
        schema = _schema(node, versions)
        known.update(types_of_region(node))
        if schema is not None and all(name in known for name in node.input if name):
            _check_inputs(schema, node, known, model)
            for name, kind in _outputs(schema, node, known, data, list(proto.opset_import), model).items():
                check_size(dims_known(kind), f"value {name!r} of {_maker(node)}", model)
                known[name] = kind
        if node.op_type == "Constant" and node.output:
            held = [a.t for a in node.attribute if a.HasField("t")]
            data.update((node.output[0], tensor) for tensor in held if math.prod(tensor.dims) <= SMALL)
    _check_outputs(proto.graph.output, known, model)
    return known


def check_inner(node: onnx.NodeProto, versions: Opsets, types: Types, model: str) -> None:
    """See that a node of a branch, a loop or a definition takes what it gets.

    Args:
        node: of which nothing is converted yet.
        versions: domain -> version of its operators; the standard domain is "".
        types: of its inputs, by their names, as far as they are tensors.
        model: its name, for messages.

    Raises:
        ModelError: it lacks an input, or takes no such elements, ranks or shapes.
    """
    schema = _schema(node, versions)
    if schema is not None and all(name in types for name in node.input if name):
        _check_inputs(schema, node, types, model)
        _outputs(schema, node, types, {}, opset_imports(versions), model)


def types_of_outputs(
    node: onnx.NodeProto, versions: Opsets, types: Types, values: Mapping[str, np.ndarray] = {}
) -> dict[str, onnx.TypeProto]:
    """Output -> type, of one node; nothing where inference does not know, or makes no sense.

    Args:
        versions: domain -> version; the standard domain is "".
        types, values: of its inputs, as far as they are known.
    """
    schema = _schema(node, versions)
    if schema is None or not all(name in types and types[name].WhichOneof("value") for name in node.input if name):
        return {}
    data = {name: numpy_helper.from_array(value) for name, value in values.items() if value.size <= SMALL}
    try:
        inferred = _outputs(schema, node, types, data, opset_imports(versions), "")
    except ModelError:
        return {}
    return {name: kind for name, kind in inferred.items() if is_sensible(kind)}


def _given_types(proto: onnx.ModelProto, inputs: Iterable[TensorSpec]) -> Iterator[tuple[str, onnx.TypeProto]]:
    for spec in inputs:
        yield spec.name, helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(spec.numpy_dtype), spec.shape)
    for tensor in proto.graph.initializer:
        yield tensor.name, helper.make_tensor_type_proto(tensor.data_type, tensor.dims)


def _schema(node: onnx.NodeProto, versions: Opsets) -> Any:
    """The schema of a node that can be asked about; None of one with graphs inside, or of an unknown operator."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = versions.get(domain, 0)
    if _is_misjudged(node):
        return None
    if any(a.HasField("g") or a.graphs for a in node.attribute) or not defs.has(node.op_type, version, domain):
        return None
    if not domain and node.op_type in _POOLS:
        version = defs.onnx_opset_version()
    schema = defs.get_schema(node.op_type, version, domain)
    return None if schema.deprecated else schema  # onnx infers nothing of a version that was withdrawn


def _is_misjudged(node: onnx.NodeProto) -> bool:
    """Whether inference gives a wrong shape: to STFT, whose spectrum has one side by default, and to a ConvTranspose
    whose `auto_pad` says how large the output is, what `output_padding` adds nothing to (onnx 1.23)."""
    same = attribute(node, "auto_pad", b"").startswith(b"SAME") and node.op_type == "ConvTranspose"
    return node.op_type == "STFT" or (same and any(attribute(node, "output_padding", ())))


def _check_inputs(schema: Any, node: onnx.NodeProto, known: Types, model: str) -> None:
    """A node's inputs are there, and of element types that its operator takes, equal ones where it says so.

    Raises:
        ModelError: one is not.
    """
    bound: dict[str, str] = {}
    for number, name in enumerate(node.input if schema.inputs else ()):
        formal = schema.inputs[min(number, len(schema.inputs) - 1)]
        if not name and formal.option != formal.option.Optional:
            raise ModelError(f"{model}: {_maker(node)}: input {number}, {formal.name!r}, is missing", fix=_UNFIT)
        if not name or known[name].WhichOneof("value") != "tensor_type":
            continue
        kind = f"tensor({type_name(known[name].tensor_type.elem_type).lower()})"
        wanted = bound.setdefault(formal.type_str, kind) if formal.is_homogeneous else kind
        if kind not in formal.types or kind != wanted:
            choices = wanted if kind in formal.types else ", ".join(sorted(formal.types)[:8])
            wrong = f"{model}: {_maker(node)}: input {number}, {name!r}, is {kind}; {choices} is needed"
            raise ModelError(wrong, fix=_UNFIT)


def _outputs(
    schema: Any, node: onnx.NodeProto, known: Types, data: Mapping[str, onnx.TensorProto],
    imports: list[onnx.OperatorSetIdProto], model: str,
) -> dict[str, onnx.TypeProto]:  # fmt: skip
    names = [name for name in node.input if name]
    types, values = {n: known[n] for n in names}, {n: data[n] for n in names if n in data}
    try:
        inferred = dict(shape_inference.infer_node_outputs(schema, node, types, values, opset_imports=imports))
    except Exception as error:  # several classes of its C++ side
        reason = " ".join(str(error).replace("[ShapeInferenceError]", "").replace("Inference error(s):", "").split())
        operands = ", ".join(f"{name!r} {_in_words(kind)}" for name, kind in types.items()) or "none"
        wrong = f"{model}: {_maker(node)}: not valid ONNX: {reason[:500]}; inputs: {operands}"
        raise ModelError(wrong, fix=_UNFIT) from error
    if node.op_type == "Einsum":  # a label of 1 here and n there is n, not the first of them (onnx 1.23)
        for kind in inferred.values():
            kind.tensor_type.ClearField("shape")
    return inferred


def _in_words(kind: onnx.TypeProto) -> str:
    """A type as messages show it: "float of shape (2, ?)"."""
    if kind.WhichOneof("value") != "tensor_type":
        return str(kind.WhichOneof("value"))
    dims = dims_known(kind)
    shape = "unknown shape" if dims is None else f"shape {text_of(dims)}"
    return f"{type_name(kind.tensor_type.elem_type).lower()} of {shape}"


def _maker(node: onnx.NodeProto) -> str:
    return f"node {node_label(node)!r} ({node.op_type})"


def dims_known(kind: onnx.TypeProto) -> tuple[int | None, ...] | None:
    """Dimensions of a tensor type, None for one that is not known; None if their number is not, or it is no tensor."""
    if kind.WhichOneof("value") != "tensor_type" or not kind.tensor_type.HasField("shape"):
        return None
    return tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.tensor_type.shape.dim)


def static_type(kind: onnx.TypeProto) -> tuple[tuple[int, ...], str] | None:
    """Shape and dtype of a type, as a program can hold it; None of any other type."""
    dims, code = dims_known(kind), kind.tensor_type.elem_type
    if dims is None or not code or type_name(code) in NO_NUMBERS:
        return None
    shape = tuple(dim for dim in dims if dim is not None)
    return (shape, str(helper.tensor_dtype_to_np_dtype(code))) if len(shape) == len(dims) else None


def is_sensible(kind: onnx.TypeProto) -> bool:
    """Whether a program could have a value of the type, as far as its size is known."""
    try:
        check_size(dims_known(kind), "", "")
    except UnsupportedError:
        return False
    return True


def check_size(dims: Sequence[int | None] | None, what: str, model: str) -> None:
    """See that a program can have a value of this shape.

    Raises:
        UnsupportedError: it is too large, has too many dimensions, or a negative one.
    """
    if dims is None:
        return
    known = [d for d in dims if d is not None]
    if len(dims) > MOST_DIMENSIONS or min(known, default=0) < 0 or math.prod(known) > MOST_ELEMENTS:
        shape = text_of(dims[: MOST_DIMENSIONS + 1])
        wrong = f"{shape}; 0 to {MOST_ELEMENTS} elements in up to {MOST_DIMENSIONS} dimensions work"
        fix = "give smaller shapes; a size may also come from a constant of the model"
        raise UnsupportedError(f"{model}: {what} has shape {wrong}", fix=fix)


def _check_outputs(outputs: Iterable[onnx.ValueInfoProto], known: Types, model: str) -> None:
    """An output has the element type that it states.

    Raises:
        ModelError: it has another one.
    """
    for output in outputs:
        stated = output.type.tensor_type.elem_type
        kind = known[output.name].tensor_type.elem_type if output.name in known else 0
        if stated and kind and stated != kind:
            both = f"{type_name(stated)} and has {type_name(kind)}"
            raise ModelError(f"{model}: output {output.name!r} states elements of type {both}", fix=_UNFIT)


def check_shapes(inferred: Types, values: Mapping[str, Any], makers: Mapping[str, str], model: str) -> None:
    """Compare what converters made with what ONNX says.

    Args:
        inferred: of :func:`inferred_types`.
        values: ONNX value -> Relax expression.
        makers: ONNX value -> label of the node that makes it.

    Raises:
        UnsupportedError: conversion and inference differ in a shape, or a value of a size that no program can have.
    """
    for name, value in values.items():
        if not (isinstance(value, relax.Expr) and dtype_of(value)) or (shape := shape_of(value)) is None:
            continue
        what = f"value {name!r} of node {makers.get(name, '')!r}"
        check_size(shape, what, model)
        wanted = dims_known(inferred[name]) if name in inferred else None
        if wanted is not None and not agree(wanted, shape):
            wrong = f"{model}: {what} gets shape {tuple(shape)} when it is converted, and ONNX infers {wanted}"
            raise UnsupportedError(wrong, fix=UNFIT)

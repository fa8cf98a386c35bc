"""Types of what one node makes, whoever knows its operator: ONNX's inference, or else onnxruntime."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper, shape_inference

from ...byoc.onnxruntime.driver import session_of
from ...core.errors import ArtifactError, ProgramError
from ..reading.walk import Opsets, Types, attribute, inner_graphs, opset_imports
from .graph_order import reads_of
from .inference import dims_known, types_of_outputs

#: onnxruntime's words for types of elements that are not ONNX's in lower case.
_WORDS = {"float": "FLOAT", "double": "DOUBLE"}


def output_types(
    node: onnx.NodeProto, opsets: Opsets, ir_version: int, kinds: Types, known: Mapping[str, np.ndarray]
) -> dict[str, onnx.TypeProto]:
    """Output -> type, as far as anybody knows it.

    Args:
        node: of any operator.
        opsets: domain -> version; the standard domain is "".
        ir_version: of the model.
        kinds: types of the values it reads.
        known: those of them whose value is known.
    """
    types = types_of_outputs(node, opsets, kinds, known)
    if node.op_type == "TopK":
        types |= _cut(node, kinds, known)
    elif node.op_type == "Loop":
        types |= _carried(node, opsets, ir_version, kinds)
    domain = "" if node.domain == "ai.onnx" else node.domain
    open_rank = [name for name in node.output if name and (name not in types or _rank_is_open(types[name]))]
    foreign = bool(domain) or not defs.has(node.op_type, opsets.get("", 0))
    inner = any(inner_graphs(node.attribute))
    if open_rank and (foreign or inner) and all(name in kinds for name in reads_of(node)):
        alone = _model_of(node, opsets, ir_version, kinds, known)
        types |= _inferred(alone) or _by_onnxruntime(alone, probe=foreign)
    return types


def _cut(node: onnx.NodeProto, kinds: Types, known: Mapping[str, np.ndarray]) -> dict[str, onnx.TypeProto]:
    """A TopK of an axis of unknown size makes k elements, or fails: inference leaves its whole shape open."""
    is_known = len(node.input) > 1 and node.input[1] in known
    k = known[node.input[1]].reshape(-1)[0] if is_known else attribute(node, "k")
    kind = kinds.get(node.input[0]) if node.input else None
    dims = None if kind is None else dims_known(kind)
    axis = attribute(node, "axis", -1)
    if k is None or kind is None or dims is None or not -len(dims) <= axis < len(dims):
        return {}
    shape = list(dims)
    shape[axis] = int(k)
    codes = (kind.tensor_type.elem_type, TensorProto.INT64)
    pairs = zip(node.output, codes, strict=False)
    return {name: helper.make_tensor_type_proto(code, shape) for name, code in pairs if name}


def _carried(node: onnx.NodeProto, opsets: Opsets, ir_version: int, kinds: Types) -> dict[str, onnx.TypeProto]:
    """Values that a Loop carries from step to step, of the types that they begin with, if a step keeps these."""
    body = attribute(node, "body")
    if body is None:
        return {}
    begins = [kinds.get(name) for name in node.input[2:]]
    taken = {value.name for value in (*body.input, *body.initializer)}
    graph = helper.make_graph(
        body.node, "step", [*body.input[:2], *(helper.make_value_info(value.name, kind)
        for value, kind in zip(body.input[2:], begins, strict=False) if kind is not None),
        *(helper.make_value_info(name, kinds[name]) for name in dict.fromkeys(reads_of(node))
          if name in kinds and name not in taken)],
        [helper.make_empty_tensor_value_info(value.name) for value in body.output], body.initializer,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=opset_imports(opsets), ir_version=ir_version)
    try:
        ends = list(shape_inference.infer_shapes(model).graph.output)[1:]
    except Exception:  # several classes of its C++ side
        return {}
    carried = zip(node.output, begins, ends, strict=False)
    return {name: kind for name, kind, end in carried if name and kind is not None and kind == end.type}


def _rank_is_open(kind: onnx.TypeProto) -> bool:
    return kind.WhichOneof("value") == "tensor_type" and dims_known(kind) is None


def _model_of(
    node: onnx.NodeProto, opsets: Opsets, ir_version: int, kinds: Types, known: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    """A model of one node alone; its outputs have no types yet."""
    reads = list(dict.fromkeys(reads_of(node)))
    graph = helper.make_graph(
        [node], "node", [helper.make_value_info(name, kinds[name]) for name in reads if name not in known],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        [numpy_helper.from_array(known[name], name) for name in reads if name in known],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=opset_imports(opsets), ir_version=ir_version)


def _inferred(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """What ONNX infers of graphs inside a node too; nothing, if it does not know all."""
    try:
        outputs = shape_inference.infer_shapes(model).graph.output
    except Exception:  # several classes of its C++ side
        return {}
    types = {value.name: value.type for value in outputs}
    return types if all(kind.WhichOneof("value") and not _rank_is_open(kind) for kind in types.values()) else {}


def _by_onnxruntime(model: onnx.ModelProto, probe: bool) -> dict[str, onnx.TypeProto]:
    """What onnxruntime says; it does not tell a scalar from an unknown number of axes."""
    try:
        session = session_of(model.SerializeToString(), 1)
    except (ArtifactError, ProgramError):
        return {}
    said = {output.name: _type_of(output.type, output.shape) for output in session.get_outputs()}
    types = {name: kind for name, kind in said.items() if kind is not None}
    if probe and any(map(_rank_is_open, types.values())):
        types |= _probed(session, list(said))
    return types


def _type_of(text: str, dims: Sequence[int | str | None]) -> onnx.TypeProto | None:
    """ "tensor(float)" or "seq(tensor(float))" as a type; None of a map."""
    outer, _, inner = text.removesuffix(")").partition("(")
    if outer in ("seq", "optional"):
        element = _type_of(inner, ())
        make = helper.make_sequence_type_proto if outer == "seq" else helper.make_optional_type_proto
        return None if element is None else make(element)
    word = _WORDS.get(inner, inner.upper())
    if outer != "tensor" or word not in dict(onnx.TensorProto.DataType.items()):
        return None
    sizes = [dim if isinstance(dim, int) and dim >= 0 else None for dim in dims]
    return helper.make_tensor_type_proto(onnx.TensorProto.DataType.Value(word), sizes or None)


def _probed(session: Any, outputs: Sequence[str]) -> dict[str, onnx.TypeProto]:
    """Types of outputs that are alike in two runs on random inputs; each run of the program sees to it again."""
    runs = []
    for seed in (0, 1):
        inputs = {value.name: _random(value, np.random.default_rng(seed)) for value in session.get_inputs()}
        if any(value is None for value in inputs.values()):
            return {}
        try:
            runs.append(session.run(outputs, inputs))
        except Exception:  # its own classes: an index out of range, for instance
            return {}
    return {
        name: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a, b in zip(outputs, *runs, strict=True)
        if isinstance(a, np.ndarray) and a.dtype.kind in "biuf" and a.shape == b.shape
    }


def _random(value: Any, rng: np.random.Generator) -> np.ndarray | None:
    """An array for an input of a session; None for one that is no tensor of numbers of a known shape."""
    match = re.fullmatch(r"tensor\((float|double|float16|bool|u?int\d+)\)", value.type)
    if not match or not all(isinstance(dim, int) for dim in value.shape) or math.prod(value.shape) > 1 << 24:
        return None
    dtype = np.dtype({"float": "float32", "double": "float64"}.get(match[1], match[1]))
    drawn = rng.standard_normal(value.shape) if dtype.kind == "f" else rng.integers(0, 2, value.shape)
    return np.asarray(drawn).astype(dtype)

"""Small graphs around one node that is drawn from its operator's schema: attributes, dtypes, versions, inputs."""

import functools
import random
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper

from tests.onnx_backend.cases import Case
from tvm_ext.frontend.checks.operators import CONTROL_FLOW, OLDEST_OPSET, WHY
from tvm_ext.frontend.control_flow.sequences import SEQUENCES

from .neighbours import Graph, before, behind
from .shapes import PATTERNS, shapes_of
from .values import DECIDING, LONG, Node, attribute, tensor

#: The node that the graph is about.
PROBE = "probe"
#: Operators that are left out, and why.
_LEFT_OUT = {
    "Adagrad": "training", "Adam": "training", "Gradient": "training", "Momentum": "training", "Bernoulli": "random",
    "TreeEnsemble": "linked attributes", "TreeEnsembleClassifier": "linked attributes",
    "TreeEnsembleRegressor": "linked attributes", "SVMClassifier": "linked attributes",
    "SVMRegressor": "linked attributes", **dict.fromkeys((*CONTROL_FLOW, *SEQUENCES, *WHY), "its own tests"),
    "SequenceMap": "sequences",
}  # fmt: skip
#: Attributes that go with the shapes.
_KEPT = ("classlabels_ints", "direction", "group", "hidden_size", "kv_num_heads", "num_heads", "q_num_heads")
#: How often a draw that ONNX's own inference refuses is drawn again.
_TRIES = 12
#: Numbers of inputs where the schema does not say them all.
_COUNTS = {
    "microsoft.QLinearConcat": (5, 8), "microsoft.MatMulNBits": (3,), "microsoft.QAttention": (5, 6, 7, 8),
    "microsoft.EmbedLayerNormalization": (7, 8, 9), "RotaryEmbedding": (4,),
}  # fmt: skip
#: Outputs that onnxruntime does not write.
_UNWRITTEN = {("microsoft.SkipSimplifiedLayerNormalization", 1)}
#: Inputs that must be known when a graph is compiled, each of its operator.
_WEIGHTS = {("microsoft.MatMulNBits", 1)}
_DRAFT = 0.02


@functools.cache
def schemas() -> dict[str, list[Any]]:
    """Operator -> its schemas that an opset in range reads, by version; onnxruntime's own begin with "microsoft."."""
    by_name: dict[str, list[Any]] = {schema.name: [schema] for schema in _contributed()}
    for schema in sorted(defs.get_all_schemas_with_history(), key=lambda s: (s.domain, s.name, s.since_version)):
        tensors = all(any(t.startswith("tensor(") for t in value.types) for value in (*schema.inputs, *schema.outputs))
        if schema.domain in ("", "ai.onnx.ml") and schema.name not in _LEFT_OUT and tensors:
            by_name.setdefault(schema.name, []).append(schema)
    return {name: kept for name, versions in by_name.items() if (kept := _in_range(versions))}


def _contributed() -> list[Any]:
    """Schemas of onnxruntime's operators, in the form of ONNX's."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    def formal(value: Any) -> SimpleNamespace:
        return SimpleNamespace(name=value.name, type_str=value.typeStr, types=value.types, option=value.option)

    return [
        SimpleNamespace(
            name=f"microsoft.{s.name}", domain=s.domain, since_version=1, deprecated=False, attributes=s.attributes,
            inputs=list(map(formal, s.inputs)), outputs=list(map(formal, s.outputs)), min_input=s.min_input,
            min_output=s.min_output, has_function=False, has_context_dependent_function=False,
        )
        for s in get_all_operator_schema()
        if s.domain == "com.microsoft" and f"microsoft.{s.name}" in PATTERNS
    ]  # fmt: skip


def _in_range(versions: list[Any]) -> list[Any]:
    """Without those that are gone, or that only older opsets read."""
    ends = [v.since_version for v in versions[1:]] + [1 << 30]
    return [
        v for v, end in zip(versions, ends, strict=True)
        if not v.deprecated and (v.domain or end > OLDEST_OPSET)
    ]  # fmt: skip


def seeded(seed: int, operator: str = "") -> Case:
    """The case of a number, about an operator if one is named."""
    rng = random.Random(f"{seed} {operator}")
    name = operator or rng.choice(sorted(schemas()))
    draft = rng.random() < _DRAFT
    for _ in range(_TRIES):
        model, feeds = _draw(rng, name)
        if (checked := _inferred(model)) is not None or draft:
            break
    model = checked or model
    label = f"seed {seed}" + (f" of {operator}" if operator else "")
    return Case(label, name, model.SerializeToString(), tuple(feeds), (), (), 0.0, 0.0)


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model with its outputs' types; None if ONNX's own inference refuses it."""
    try:
        if any(node.domain == "com.microsoft" for node in model.graph.node):
            return model  # which ONNX's inference does not know
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception:
        return None
    del inferred.graph.value_info[:]
    return inferred


def _draw(rng: random.Random, operator: str) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    schema = rng.choice(schemas()[operator])
    graph = Graph(rng)
    dtypes, count = _dtypes(rng, schema), _count(rng, schema)
    shapes, sizes = shapes_of(operator, count, rng)
    node = Node(operator, rng, shapes, sizes, axes=rng.choice((1, 1, 2)))
    _attributes(node, schema)
    names = [_operand(graph, node, schema, i, dtypes) for i in range(count)]
    outputs = _outputs(node, schema)
    before(graph, names, moves=operator == "BitCast")  # a rounding more is another integer
    graph.nodes.append(
        helper.make_node(operator.removeprefix("microsoft."), names, outputs, PROBE, domain=schema.domain)
    )
    graph.nodes[-1].attribute.extend(_typed(name, value, schema) for name, value in node.attributes.items())
    wanted, last = behind(graph, outputs, _output_dtypes(schema, node, dtypes))
    proto = helper.make_graph(
        graph.nodes, "drawn", graph.inputs, [_info(n, schema, dtypes, last) for n in wanted], graph.weights
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return helper.make_model(proto, opset_imports=_opsets(rng, schema), ir_version=10), graph.feeds


def _opsets(rng: random.Random, schema: Any) -> list[Any]:
    newest = defs.onnx_opset_version()
    if schema.domain:
        return [
            helper.make_opsetid("", rng.choice((13, 17, 21))),
            helper.make_opsetid(schema.domain, schema.since_version),
        ]
    later = [v.since_version for v in schemas()[schema.name] if v.since_version > schema.since_version]
    last = min(later, default=newest + 1) - 1
    return [helper.make_opsetid("", rng.randint(max(schema.since_version, OLDEST_OPSET), last))]


def _info(name: str, schema: Any, dtypes: dict[str, str], last: str) -> onnx.ValueInfoProto:
    """An output, with its dtype where ONNX cannot infer it; `last` is that of the last node's."""
    if schema.domain != "com.microsoft":
        return onnx.ValueInfoProto(name=name)
    dtype = dtypes[schema.outputs[int(name[1:])].type_str] if name[1:].isdigit() else last
    return helper.make_tensor_value_info(name, _number(dtype), None)


def _typed(name: str, value: Any, schema: Any) -> onnx.AttributeProto:
    kind = onnx.AttributeProto.AttributeType.Value(schema.attributes[name].type.name)
    return helper.make_attribute(name, value, attr_type=kind)


# ------------------------------------------------------------ the node
def _dtypes(rng: random.Random, schema: Any) -> dict[str, str]:
    """Type variable, or a type itself -> dtype."""
    drawn = {}
    for value in (*schema.inputs, *schema.outputs):
        allowed = sorted(
            t[7:-1] for t in value.types if t.startswith("tensor(") and "complex" not in t and "string" not in t
        )
        if value.type_str not in drawn:
            usual = "float" in allowed and rng.random() < 0.4
            drawn[value.type_str] = "float" if usual else rng.choice(allowed or ["float"])
    return drawn


def _count(rng: random.Random, schema: Any) -> int:
    """How many inputs the node has."""
    if schema.name in _COUNTS:
        return rng.choice(_COUNTS[schema.name])
    if schema.inputs and schema.inputs[-1].option.name == "Variadic":
        return max(schema.min_input, rng.randint(1, 3))
    return rng.randint(schema.min_input, max(schema.min_input, len(schema.inputs)))


def _attributes(node: Node, schema: Any) -> None:
    for name, spec in sorted(schema.attributes.items()):
        if not spec.required and node.rng.random() < 0.4 and name not in _KEPT:
            continue
        value = attribute(node, schema, name)
        if value is not None:
            node.attributes[name] = value
    if node.rank == 4:  # heads are a dimension
        for name in ("q_num_heads", "kv_num_heads"):
            node.attributes.pop(name, None)
    if schema.since_version < 11 and "axes" in node.attributes:  # none counts from behind yet
        node.attributes["axes"] = [a % max(node.rank, 1) for a in node.attributes["axes"]]
    if "SAME" in node.attributes.get("auto_pad", "") and "Pool" in node.operator:
        node.attributes.pop("dilations", None)  # onnxruntime overlooks them
        window = node.attributes.get("kernel_shape") or [1] * node.spatial
        node.attributes["strides"] = window  # a longer one is a padding below 0
    if node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        node.attributes.pop("pads", None)  # one or the other


def _operand(graph: Graph, node: Node, schema: Any, index: int, dtypes: dict[str, str]) -> str:
    """The name of an input; "" for one left out."""
    formal = schema.inputs[min(index, len(schema.inputs) - 1)]
    optional = formal.option.name == "Optional" and node.operator != "RotaryEmbedding"  # tables go with positions
    if optional and graph.rng.random() < 0.3:
        return ""
    name, dtype = f"x{index}", dtypes[formal.type_str]
    if node.operator == "microsoft.QLinearConcat" and index > 1:  # tensor, scale and zero point of each part
        dtype, formal = (
            (dtypes["T8"], formal) if index % 3 != 0 else ("float", SimpleNamespace(name="scale", option=formal.option))
        )
    make = DECIDING.get(f"{node.operator}.{formal.name}", DECIDING.get(formal.name))
    if make is None:
        array = tensor(node, LONG.get(dtype, dtype), node.shapes[index], formal.name)
        known = (node.operator, index) in _WEIGHTS or graph.rng.random() < 0.25 * bool(index) + 0.05
        graph.operand(name, array, known)
        return name
    value = np.asarray(make(node))
    shape = value.shape if value.size or value.ndim else ()
    graph.operand(
        name, value.astype(helper.tensor_dtype_to_np_dtype(_number(dtype))).reshape(shape), graph.rng.random() < 0.95
    )
    return name


def _number(dtype: str) -> int:
    return int(onnx.TensorProto.DataType.Value(dtype.upper()))


def _outputs(node: Node, schema: Any) -> list[str]:
    count = least = max(schema.min_output, 1)
    if schema.outputs[-1].option.name == "Variadic":
        count = node.attributes.get("num_outputs") or len(node.attributes.get("split", ())) or node.rng.randint(1, 3)
    elif node.rng.random() < 0.5:
        count = node.rng.randint(least, len(schema.outputs))
    return ["" if (node.operator, i) in _UNWRITTEN else f"y{i}" for i in range(count)]


def _output_dtypes(schema: Any, node: Node, dtypes: dict[str, str]) -> str:
    """The dtype of the first output where it is an input's, else ""."""
    kind = schema.outputs[0].type_str
    return dtypes[kind] if any(value.type_str == kind for value in schema.inputs) else ""

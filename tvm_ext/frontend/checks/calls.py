"""Calls of a model's own functions: how many nodes they become, before anything makes them; and what ONNX's inliner
leaves out of them.

f0(x) = f1(f1(x)), f1(x) = f2(f2(x)), ...   a file of a kilobyte, and 2^n nodes
"""

from collections.abc import Iterable, Mapping

import onnx
from onnx import defs

from ...core.errors import ModelError, UnsupportedError
from ..reading.walk import opset_imports, with_inner
from .operators import opsets_of

_MOST_NODES = 100_000
#: Functions within functions: exporters nest a module's submodules.
_DEEPEST = 100

_Key = tuple[str, str, str]


def check_calls(proto: onnx.ModelProto, model: str) -> None:
    """See that the model's functions can be put in the place of their calls.

    Raises:
        ModelError: a function calls itself, directly or through others.
        UnsupportedError: they become too many nodes, or are nested too deeply.
    """
    bodies = {(f.domain, f.name, f.overload): f.node for f in proto.functions}
    sizes: dict[_Key, int] = {}
    _size(proto.graph.node, bodies, sizes, (), model)


def _size(
    nodes: Iterable[onnx.NodeProto], bodies: Mapping[_Key, Iterable[onnx.NodeProto]], sizes: dict[_Key, int],
    callers: tuple[_Key, ...], model: str,
) -> int:  # fmt: skip
    """Nodes that these become."""
    total = 0
    for node in with_inner(nodes):
        key = (node.domain, node.op_type, node.overload)
        if key in bodies and key not in sizes:
            if key in callers:
                way = " -> ".join(name for _, name, _ in (*callers[callers.index(key) :], key))
                raise ModelError(f"{model}: functions call each other in a circle: {way[:300]}", fix="export it again")
            if len(callers) == _DEEPEST:
                wrong = f"{model}: functions call each other more than {_DEEPEST} deep"
                raise UnsupportedError(wrong, fix="inline them: onnx.inliner")
            sizes[key] = _size(bodies[key], bodies, sizes, (*callers, key), model)
        total += sizes.get(key, 1)
        if total > _MOST_NODES:
            fix = "call fewer of them: each call becomes the nodes of its function"
            raise UnsupportedError(f"{model}: its functions become more than {_MOST_NODES} nodes", fix=fix)
    return total


def completed(proto: onnx.ModelProto, model: str) -> onnx.ModelProto:
    """A copy whose calls state attributes that their functions have a default for, and whose functions the opsets of
    the model, which has those of its functions: the inliner of ONNX takes no defaults and leaves other opsets alone.

    Raises:
        UnsupportedError: an operator of a function is another one in the model's opset.
    """
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    stated = opsets_of(proto)
    versions = {**{o.domain: o.version for f in proto.functions for o in f.opset_import}, **stated}
    whole.opset_import.extend(opset_imports({d: v for d, v in versions.items() if d not in stated}))
    defaults = {(f.domain, f.name, f.overload): f.attribute_proto for f in proto.functions}
    for nodes in (whole.graph.node, *(f.node for f in whole.functions)):
        for node in with_inner(nodes):
            named = {attribute.name for attribute in node.attribute}
            of_function = defaults.get((node.domain, node.op_type, node.overload), ())
            node.attribute.extend(attribute for attribute in of_function if attribute.name not in named)
    for function in whole.functions:
        _as_the_model(function, versions, model)
    return whole


def _as_the_model(function: onnx.FunctionProto, versions: Mapping[str, int], model: str) -> None:
    """State the model's opsets in place of a function's own."""
    for opset in function.opset_import:
        old, new = opset.version, versions["" if opset.domain == "ai.onnx" else opset.domain]
        for node in with_inner(function.node) if old != new else ():
            own = node.domain == opset.domain and defs.has(node.op_type, opset.domain)
            if own and _since(node.op_type, old, node.domain) != _since(node.op_type, new, node.domain):
                raise UnsupportedError(
                    f"{model}: function {function.name!r} is written in opset {old}, the model in {new}, in which "
                    f"{node.op_type!r} is another operator",
                    fix="export both with one opset, or onnx.inliner.inline_local_functions(model, True)",
                )
        opset.version = new


def _since(operator: str, version: int, domain: str) -> int:
    """The opset that an operator is of in a later one; 0 if it has none."""
    known = defs.has(operator, version, domain)
    return int(defs.get_schema(operator, version, domain).since_version) if known else 0

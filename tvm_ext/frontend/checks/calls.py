"""Calls of a model's own functions: how many nodes they become, before anything makes them.

f0(x) = f1(f1(x)), f1(x) = f2(f2(x)), ...   a file of a kilobyte, and 2^n nodes
"""

from collections.abc import Iterable, Mapping

import onnx

from ...core.errors import ModelError, UnsupportedError
from ..reading.walk import with_inner

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

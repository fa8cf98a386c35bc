"""What an ONNX file says of itself, read without its weights and without importing onnx: inputs and their free
dimensions, names, versions and properties. What a session shows before anything is compiled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .shapes import Dim, dim_name
from .wire import Message

_GRAPH, _INPUT, _INITIALIZER = 7, 11, 5  # of a model; of a graph
_TENSOR_TYPE, _SHAPE, _DIM = 1, 2, 1  # of a type, of a tensor's type, of a shape
_NESTED = (4, 9)  # of a type: of a sequence, of an optional


@dataclass(frozen=True)
class Outline:
    """A model's outside.

    Attributes:
        inputs: input that is no initializer -> its dimensions, None each that has neither number nor name; None for an
            input that does not state how many it has, as one that is no tensor does not.
        nested: of these, those that are sequences or optionals.
        weights: names of the initializers.
        graph_name, graph_description, producer, domain, description: "" if the file does not say.
        version: the model's own; None if the file does not say.
        properties: of the model, by key.
    """

    inputs: Mapping[str, tuple[Dim, ...] | None] = field(default_factory=dict)
    nested: frozenset[str] = frozenset()
    weights: frozenset[str] = frozenset()
    graph_name: str = ""
    graph_description: str = ""
    producer: str = ""
    domain: str = ""
    description: str = ""
    version: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def outline_of(data: bytes) -> Outline:
    """The outline of a model; an empty one of bytes that are none.

    Args:
        data: of the ONNX file.
    """
    model = Message(data)
    graph = model.inner(_GRAPH)
    weights = frozenset(tensor.text(8) for tensor in graph.all(_INITIALIZER))
    values = graph.all(_INPUT)
    inputs = {value.text(1): _dims(value.inner(2)) for value in values}
    nested = frozenset(value.text(1) for value in values if any(field in value.inner(2) for field in _NESTED))
    return Outline(
        {name: dims for name, dims in inputs.items() if name not in weights}, nested, weights, graph.text(2),
        graph.text(10), model.text(2), model.text(4), model.text(6), model.number(5),
        {entry.text(1): entry.text(2) for entry in model.all(14)},
    )  # fmt: skip


def _dims(kind: Message) -> tuple[Dim, ...] | None:
    """Dimensions of a type; None if it has no shape."""
    tensor = kind.inner(_TENSOR_TYPE)
    if _SHAPE not in tensor:
        return None
    return tuple(map(_dim, tensor.inner(_SHAPE).all(_DIM)))


def _dim(dim: Message) -> Dim:
    size = dim.number(1)
    return size if size is not None and size >= 0 else dim_name(dim.text(2))

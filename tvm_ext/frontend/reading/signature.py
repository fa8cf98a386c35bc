"""Inputs that are sequences or optionals: their tensors are the inputs of the graph that is compiled.

seq: sequence(tensor(float)), shapes={"seq": [(2, 3), (4, 3)]}
->  seq[0]: float (2, 3); seq[1]: float (4, 3); seq = SequenceConstruct(seq[0], seq[1])

opt: optional(tensor(float)), shapes={"opt": None}
->  opt = Optional()
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...core.errors import ModelError, OptionError, UnsupportedError
from ...core.options import CompileOptions
from ...core.settings.shapes import NO_TENSOR
from ...runtime.values import ABSENT, SEQUENCE, TENSOR, Value, element_of
from .reader import Source, read_model
from .shapes import NO_NUMBERS, dims_of, onnx_type, text_of, type_name

if TYPE_CHECKING:
    import onnx


def read_with(model: Any, options: CompileOptions) -> tuple[Source, CompileOptions]:
    """A model all of whose inputs are tensors, and the options of its compile.

    Args:
        model: see :func:`.reader.read_model`; one that this returned stays as it is.
        options: `shapes` says how many tensors a sequence has, and which optionals are absent.

    Raises:
        ModelError: the model cannot be read, or the length of a sequence is not stated.
        OptionError: `shapes` says of an input what its type cannot be.
        UnsupportedError: `freeze` names an input that is no tensor.
    """
    source = read_model(model)
    graph, shapes = source.proto.graph, dict(options.shapes)
    weights = {tensor.name for tensor in graph.initializer}
    kinds = {value.name: _Kind(value) for value in graph.input if value.name not in weights}
    for name, shape in shapes.items():
        if shape == NO_TENSOR and not (name in kinds and kinds[name].optional):
            wrong = f"shapes: {name!r} of {source.name} is None, and no optional"
            raise OptionError(wrong, fix=f"give its shape: shapes={{{name!r}: (1, 3)}}")
    if all(kind.is_plain for kind in kinds.values()):
        return source, options
    for item in options.freeze:
        if item.name in kinds and not kinds[item.name].is_plain:
            what = kinds[item.name].words
            raise UnsupportedError(
                f"freeze: {item.name!r} of {source.name} is {what}", fix="only tensors can be frozen"
            )
    proto = type(source.proto)()
    proto.CopyFrom(source.proto)
    parts = _Parts(proto.graph, shapes, source.name)
    arguments = [parts.add(kind) for kind in kinds.values()]
    frozen = {item.name for item in options.freeze}
    taken = tuple(value for value in arguments if value.name not in frozen)
    parts.finish(weights)
    return replace(source.with_proto(proto), arguments=taken), replace(options, shapes=tuple(parts.shapes.items()))


class _Kind:
    """What an input is: a tensor, a sequence of tensors, or an optional one of these.

    Attributes:
        value: the input.
        optional, sequence: of which it is one.
        tensor: type of its tensors; None of what no program takes, a map for instance.
    """

    def __init__(self, value: onnx.ValueInfoProto) -> None:
        self.value, inner = value, value.type
        self.optional = inner.WhichOneof("value") == "optional_type"
        inner = inner.optional_type.elem_type if self.optional else inner
        self.inner = inner
        self.sequence = inner.WhichOneof("value") == "sequence_type"
        inner = inner.sequence_type.elem_type if self.sequence else inner
        is_tensor = inner.WhichOneof("value") == "tensor_type"
        has_numbers = is_tensor and type_name(inner.tensor_type.elem_type) not in (*NO_NUMBERS, "UNDEFINED")
        self.tensor = inner if has_numbers else None

    @property
    def is_plain(self) -> bool:
        """Whether it is an input of the graph as it is: a tensor, or what is refused later."""
        return self.tensor is None or not (self.optional or self.sequence)

    @property
    def words(self) -> str:
        """What it is, for messages."""
        return "a sequence" if self.sequence else "an optional"


class _Parts:
    """A copy of a graph, whose inputs become tensors.

    Attributes:
        shapes: of the inputs, by their new names.
    """

    def __init__(self, graph: onnx.GraphProto, shapes: dict[str, Any], model: str) -> None:
        from ..naming import Names
        from .walk import value_names

        self._graph, self._model, self.shapes = graph, model, shapes
        self._inputs: list[onnx.ValueInfoProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._taken = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        self._taken |= set(value_names(graph.node))
        self._names = Names()
        for name in self._taken:
            self._names.fresh(name)

    def add(self, kind: _Kind) -> Value:
        """Take an input over."""
        name = kind.value.name
        if kind.is_plain:
            self._inputs.append(kind.value)
            return Value(name, TENSOR, onnx_type(kind.value.type), (name,))
        tensors = self._elements(kind) if kind.sequence else self._tensor(kind)
        if tensors is None:
            self._node("Optional", (), name, type=kind.inner)
            return Value(name, ABSENT, onnx_type(kind.value.type), ())
        return Value(name, SEQUENCE if kind.sequence else TENSOR, onnx_type(kind.value.type), tensors)

    def _tensor(self, kind: _Kind) -> tuple[str, ...] | None:
        """The tensor of an optional one; None if it is absent."""
        from onnx import helper

        name = kind.value.name
        if self.shapes.get(name) == NO_TENSOR:
            del self.shapes[name]
            return None
        self._inputs.append(helper.make_value_info(name, kind.inner))
        whole = self._names.fresh(f"{name}/optional")
        self._node("Optional", (name,), whole)
        _read_instead(self._graph, name, whole)
        return (name,)

    def _elements(self, kind: _Kind) -> tuple[str, ...] | None:
        """The tensors of a sequence; None of an optional one that is absent."""
        from onnx import helper

        name, words = kind.value.name, f"{self._model}: input {kind.value.name!r} is a sequence"
        stated, count = self.shapes.pop(name, None), 0
        while element_of(name, count) in self.shapes:
            count += 1
        if stated == NO_TENSOR and not count:
            return None
        fix = f"shapes={{{name!r}: [{_example(kind)}]}}: a shape for each of its tensors, [] for none"
        fix += ", None if it is absent" if kind.optional else ""
        if stated or (stated is not None and count):
            raise OptionError(f"{words}, and shapes has {text_of(stated)} for it, which is one shape", fix=fix)
        if stated is None and not count:
            raise ModelError(f"{words}, and nothing says how many tensors it has", fix=fix)
        names = tuple(element_of(name, place) for place in range(count))
        if taken := [element for element in names if element in self._taken]:
            wrong = f"{words}, and there is another value by the name of its element {taken[0]!r}"
            raise UnsupportedError(wrong, fix="rename that value")
        assert kind.tensor is not None
        # dimensions that it states are of the model's example: none checks them
        code = kind.tensor.tensor_type.elem_type
        self._inputs += [helper.make_tensor_value_info(element, code, self.shapes[element]) for element in names]
        whole = self._names.fresh(f"{name}/sequence") if kind.optional else name
        if names:
            self._node("SequenceConstruct", names, whole)
        else:
            self._node("SequenceEmpty", (), whole, dtype=code)
        if kind.optional:
            self._node("Optional", (whole,), name)
        return names

    def _node(self, operator: str, inputs: tuple[str, ...], output: str, **attributes: Any) -> None:
        from onnx import helper

        self._nodes.append(helper.make_node(operator, inputs, [output], **attributes))

    def finish(self, weights: set[str]) -> None:
        """Put inputs and nodes into the graph; inputs that are initializers stay."""
        graph = self._graph
        kept = [value for value in graph.input if value.name in weights]
        inputs, nodes = [*self._inputs, *kept], [*self._nodes, *graph.node]
        for field, values in ((graph.input, inputs), (graph.node, nodes)):
            copies = [type(value).FromString(value.SerializeToString()) for value in values]
            del field[:]
            field.extend(copies)


def _read_instead(graph: onnx.GraphProto, name: str, other: str) -> None:
    """Have nodes, and graphs within them, read another value."""
    from .walk import inner_graphs

    for node in graph.node:
        for place, read in enumerate(node.input):
            if read == name:
                node.input[place] = other
        for inner in inner_graphs(node.attribute):
            if name not in {value.name for value in (*inner.input, *inner.initializer)}:
                _read_instead(inner, name, other)


def _example(kind: _Kind) -> str:
    """Shapes of two tensors, as `shapes` takes them."""
    assert kind.tensor is not None
    from onnx import helper

    dims = dims_of(helper.make_value_info("", kind.tensor))
    shape = "(2, 3)" if dims is None else text_of([dim if isinstance(dim, int) else 1 for dim in dims])
    return f"{shape}, {shape}"

"""A survey of a model: imported as far as it can be, with every node that cannot be, not only the first.

check -> import, node by node; a node that is refused leaves a value of its inferred type, and its readers go on
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import ModelError, UnsupportedError
from ...core.options import CompileOptions
from ...driver.programs import with_symbols
from ...frontend.checks.checker import Checked, check_model
from ...frontend.reading.freezing import frozen_source
from ...frontend.reading.reader import Source
from ...frontend.reading.shapes import Dim, dims_of, input_specs, text_of
from ...frontend.surveyor import Refused, Surveyor
from ...frontend.trace import Trace

#: What stands for a free dimension that is not the first of an input: large enough for the strides of image models.
ASSUMED = 64


@dataclass(frozen=True)
class Survey:
    """A model as far as it can be imported.

    Attributes:
        checked: the graph, its inputs and weights.
        labels: of its nodes, in order.
        trace: of the import; values of nodes that were refused are of inferred types, or missing.
        refused: nodes that cannot be compiled, in order.
        unseen: nodes that read what nobody knows the shape of.
        free: input -> its dimensions as the model states them, where they were not bound: a first one is taken for 1,
            every other one for :data:`ASSUMED`.
    """

    checked: Checked
    labels: tuple[str, ...]
    trace: Trace
    refused: tuple[Refused, ...]
    unseen: tuple[str, ...]
    free: Mapping[str, str] = field(default_factory=dict)


def survey(source: Source, options: CompileOptions) -> Survey:
    """Check and import a model.

    Raises:
        ModelError: it is not valid, or the number of an input's dimensions is free.
        OptionError: `shapes` or `freeze` contradicts it, or `dims` or `specialize` names no dimension of it.
        UnsupportedError: its version, or the type of an input, is none that can be imported.
    """
    frozen = frozen_source(source, options.freeze)
    shapes, free = _bound(frozen, _stated(frozen, options))
    try:
        checked = check_model(frozen, shapes)
    except UnsupportedError:
        checked = check_model(frozen, shapes, operators=False)
    surveyor = Surveyor(checked, source.name, frozen.proto)
    trace = surveyor.trace_graph()
    return Survey(checked, tuple(surveyor.labels), trace, tuple(surveyor.refused), tuple(surveyor.unseen), free)


def _stated(source: Source, options: CompileOptions) -> dict[str, Any]:
    """The shapes that options state, with the sizes that `specialize` and `dims` do.

    Raises:
        OptionError: these name no dimension of the model.
    """
    sizes, named = options.stated_sizes, with_symbols(source, options)
    bound = dict(named.at(sizes).shapes)
    before = dict(named.shapes)
    stated = {name for name, dims in before.items() if sizes.keys() & {*dims}}
    return {
        name: tuple(_size(at, None if isinstance(dim, str) else dim, {}) for at, dim in enumerate(dims))
        for name, dims in bound.items()
        if name in stated or name in dict(options.shapes)
    }


def _bound(source: Source, shapes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Shapes for all inputs, assumed where a dimension is free; and the inputs with such dimensions.

    Raises:
        ModelError: an input does not state how many dimensions it has.
    """
    graph = source.proto.graph
    try:
        input_specs(graph, shapes, source.name)
        return shapes, {}
    except ModelError:
        stated = {value.name: dims_of(value) for value in graph.input}
    if any(dims is None and name not in shapes for name, dims in stated.items()):
        input_specs(graph, shapes, source.name)
    sizes: dict[Any, Any] = {dims[0]: 1 for dims in stated.values() if dims and isinstance(dims[0], str)}
    for name, shape in shapes.items():
        sizes.update(zip(stated.get(name) or (), shape, strict=False))
    bound = {dim for name in shapes for dim in stated.get(name) or ()}
    weights = {tensor.name for tensor in graph.initializer}
    free = {}
    for name, dims in stated.items():
        if name in shapes or name in weights or dims is None:
            continue
        if any(not isinstance(dim, int) and (dim is None or dim not in bound) for dim in dims):
            free[name] = text_of(dims)
            shapes = {**shapes, name: tuple(_size(at, dim, sizes) for at, dim in enumerate(dims))}
    return shapes, free


def _size(at: int, dim: Dim, sizes: Mapping[Any, int]) -> int:
    """The size of a dimension: its own, that of its name, or what is assumed."""
    if isinstance(dim, int):
        return dim
    return sizes[dim] if dim is not None and dim in sizes else 1 if at == 0 else ASSUMED

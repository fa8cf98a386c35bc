"""Input shapes: what the model fixes, what `shapes=` binds, and what stays free."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from ...core.errors import ModelError, OptionError, UnsupportedError, choose_of
from ...core.settings.shapes import is_name
from ...runtime.spec import TensorSpec

if TYPE_CHECKING:
    import onnx

Shapes = Mapping[str, tuple[int | str, ...]]
Dim = int | str | None
"""A fixed dimension, a free one by name (or the batch, once `shapes` names it), or a free one without a name."""

#: Types whose elements are no real numbers, or of which numpy has no array of the size stated (6 bits).
NO_NUMBERS = ("STRING", "COMPLEX64", "COMPLEX128", "FLOAT6E2M3", "FLOAT6E3M2")
_TENSORS_ONLY = "maps and strings cannot be inputs: give the model tensors of numbers, sequences or optionals of these"


def input_specs(graph: onnx.GraphProto, shapes: Shapes, model: str) -> tuple[TensorSpec, ...]:
    """Name, shape and dtype of each input that is no initializer, in graph order.

    A dimension's name stands for one number: bound by one input in `shapes`, it is known in all the others. A name
    in `shapes` is the symbolic batch, and stays a name.

    Raises:
        ModelError: dimensions stay free; the message holds the `shapes=` to write.
        OptionError: `shapes` names an unknown input or contradicts what the model fixes.
        UnsupportedError: an input that is no tensor of numbers.
    """
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    dtypes = {value.name: _dtype(value, model) for value in inputs}
    stated = {value.name: dims_of(value) for value in inputs}
    bound = bound_dims(stated, shapes, weights, model)
    symbols = {dim for shape in shapes.values() for dim in shape if isinstance(dim, str)}
    _check_bound(bound, symbols, model)
    return tuple(TensorSpec(name, tuple(d for d in bound[name] or () if d is not None), dtypes[name])
                 for name in stated)  # fmt: skip


def free_shapes(graph: onnx.GraphProto, shapes: Shapes) -> dict[str, tuple[int | str, ...]]:
    """`shapes`, with names for dimensions that neither it nor the model fixes.

    A dimension has the name that the model states, where that is one, else one of its input and place.
    """
    weights = {tensor.name for tensor in graph.initializer}
    stated = {value.name: dims_of(value) for value in graph.input if value.name not in weights}
    pairs = [pair for name, shape in shapes.items() for pair in zip(stated.get(name) or (), shape, strict=False)]
    known = {dim: size for dim, size in pairs if isinstance(dim, str)}
    out = dict(shapes)
    for name, dims in stated.items():
        if name in out or dims is None or all(isinstance(dim, int) for dim in dims):
            continue
        out[name] = named_dims(name, [known.get(dim, dim) if isinstance(dim, str) else dim for dim in dims])
    return out


def named_dims(name: str, dims: Sequence[Dim]) -> tuple[int | str, ...]:
    """Dimensions of an input as numbers, and names of letters, digits and underscores: those that `compile` gives."""
    return tuple(_named(name, axis, dim) for axis, dim in enumerate(dims))


def _named(input_name: str, axis: int, dim: Dim) -> int | str:
    if isinstance(dim, int):
        return dim
    plain = re.sub(r"[^A-Za-z0-9_]", "_", dim if dim is not None else f"{input_name}_{axis}")
    return plain if is_name(plain) else f"_{plain}"


def bound_dims(
    stated: Mapping[str, tuple[Dim, ...] | None], shapes: Shapes, weights: Set[str], model: str
) -> dict[str, tuple[Dim, ...] | None]:
    """Dimensions of each input with what `shapes` says of them, and of the names that other inputs share.

    Args:
        stated: input -> dimensions that the model states; None if it does not state how many there are.
        shapes: input -> shape.
        weights: names of initializers, for messages.
        model: its name, for messages.

    Raises:
        OptionError: `shapes` names an unknown input or contradicts what the model fixes.
    """
    _check_known(shapes, stated, weights, model)
    names: dict[str, tuple[int | str, str]] = {}
    for name, shape in shapes.items():
        _bind(name, stated[name], shape, names, model)
    return {name: _bound(dims, shapes.get(name), names) for name, dims in stated.items()}


@functools.cache
def type_name(code: int) -> str:
    """ONNX's name of an element type: 1 -> "FLOAT"."""
    import onnx

    known = onnx.TensorProto.DataType
    return str(known.Name(code)) if code in known.values() else f"number {code}"


def dims_of(value: onnx.ValueInfoProto) -> tuple[Dim, ...] | None:
    """Dimensions that a value states; None if it does not even state how many it has."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else dim_name(d.dim_param)
                 for d in tensor.shape.dim)  # fmt: skip


def dim_name(stated: str) -> str | None:
    """The name of a free dimension; "?", which paddle2onnx writes for every one, is none: equal names, equal sizes."""
    return None if stated in ("", "?") else stated


def _dtype(value: onnx.ValueInfoProto, model: str) -> str:
    import onnx

    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise UnsupportedError(f"{model}: input {value.name!r} is {_kind(value.type)}, not a tensor", fix=_TENSORS_ONLY)
    name = type_name(value.type.tensor_type.elem_type)
    if name in (*NO_NUMBERS, "FLOAT4E2M1"):
        raise UnsupportedError(f"{model}: input {value.name!r} has elements of type {name}", fix=_TENSORS_ONLY)
    if name == "UNDEFINED" or name.startswith("number"):
        raise ModelError(f"{model}: input {value.name!r} states no element type", fix="export the model again")
    return str(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))


def _kind(stated: onnx.TypeProto) -> str:
    """A type that is no tensor's, in words: "a sequence of tensors of FLOAT"."""
    kind = stated.WhichOneof("value")
    if kind == "tensor_type":
        return f"tensors of {type_name(stated.tensor_type.elem_type)}"
    if kind in ("sequence_type", "optional_type"):
        inner = _kind(getattr(stated, kind).elem_type)
        return f"a sequence of {inner}" if kind == "sequence_type" else f"an optional: {inner}"
    return {"map_type": "a map", "sparse_tensor_type": "a sparse tensor"}.get(kind or "", "a value without a type")


def onnx_type(stated: onnx.TypeProto) -> str:
    """A type as onnxruntime writes it: "seq(tensor(float))"; "" of one that is not known."""
    kind = stated.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        inner = onnx_type(getattr(stated, kind).elem_type)
        return f"{'seq' if kind == 'sequence_type' else 'optional'}({inner})"
    return f"tensor({type_name(stated.tensor_type.elem_type).lower()})" if kind == "tensor_type" else ""


def _check_known(shapes: Shapes, stated: Mapping[str, object], weights: Set[str], model: str) -> None:
    for name in shapes:
        if name not in stated:
            what = "is an initializer" if name in weights else "is no input"
            raise OptionError(f"shapes: {name!r} {what} of {model}", fix=choose_of(name, "inputs", stated))


def _bind(
    name: str, dims: tuple[Dim, ...] | None, shape: tuple[int | str, ...],
    names: dict[str, tuple[int | str, str]], model: str,
) -> None:  # fmt: skip
    """Bind the free dimension names of one input; what the model fixes must agree."""
    fix = f"the model states {name}: {text_of(dims)}; give numbers for the names only" if dims is not None else ""
    if dims is None:
        return
    if len(dims) != len(shape):
        wrong = f"shapes: {name!r} of {model} has {len(dims)} dimensions, not {len(shape)} as {shape}"
        raise OptionError(wrong, fix=fix)
    for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        if isinstance(dim, int) and dim != size:
            raise OptionError(f"shapes: {name!r} of {model} fixes dimension {axis} to {dim}, not {size}", fix=fix)
        if isinstance(dim, str) and names.setdefault(dim, (size, name))[0] != size:
            other, owner = names[dim]
            wrong = f"shapes: {dim!r} of {model} would be {other} in {owner!r} and {size} in {name!r}"
            raise OptionError(wrong, fix=fix)


def _bound(
    dims: tuple[Dim, ...] | None, shape: tuple[int | str, ...] | None, names: Mapping[str, tuple[int | str, str]]
) -> tuple[Dim, ...] | None:
    if shape is not None or dims is None:
        return shape
    return tuple(names[d][0] if isinstance(d, str) and d in names else d for d in dims)


def _check_bound(bound: Mapping[str, tuple[Dim, ...] | None], symbols: Set[str], model: str) -> None:
    def known(dim: Dim) -> bool:
        return isinstance(dim, int) or dim in symbols

    free = {name: dims for name, dims in bound.items() if dims is None or not all(map(known, dims))}
    if not free:
        return
    listed = "; ".join(f"{name}: {text_of(dims)}" for name, dims in free.items())
    words = _suggested(free)
    lines = [f"{name!r}: {_tuple(words[name]) if dims is not None else '(...)'}" for name, dims in free.items()]
    fix = f"shapes={{{', '.join(lines)}}}{_left_over(words)}"
    raise ModelError(f"{model}: inputs with free dimensions: {listed}", fix=fix)


def agree(stated: Sequence[Dim], shape: Sequence[Dim]) -> bool:
    """Whether a shape has as many dimensions as are stated, and each of those that are numbers."""
    same = all(not isinstance(d, int) or d == size for d, size in zip(stated, shape, strict=False))
    return len(stated) == len(shape) and same


def text_of(dims: Sequence[Dim] | None) -> str:
    """Dimensions as messages show them: (batch, 3, ?)."""
    if dims is None:
        return "any number of dimensions"
    return _tuple("?" if d is None else str(d) for d in dims)


def _tuple(words: Iterable[str]) -> str:
    listed = list(words)
    return f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"


def _suggested(free: Mapping[str, tuple[Dim, ...] | None]) -> dict[str, list[str]]:
    """The shapes to write, dimension by dimension: a free first one is most often the batch, so 1, and so is every
    other one of its name; the rest keep their names, or get one that no other dimension has."""
    batches = {dims[0] for dims in free.values() if dims and isinstance(dims[0], str)}
    several = sum(None in (dims or ())[1:] for dims in free.values()) > 1

    def word(name: str, i: int, dim: Dim) -> str:
        if isinstance(dim, int):
            return str(dim)
        if i == 0 or dim in batches:
            return "1"
        return dim or (f"{name}_dim{i}" if several else f"dim{i}")

    return {name: [word(name, i, dim) for i, dim in enumerate(dims or ())] for name, dims in free.items()}


def _left_over(words: Mapping[str, Iterable[str]]) -> str:
    """What of a suggestion is no number yet."""
    names = [word for shape in words.values() for word in shape if not word.isdigit()]
    return f" with numbers for {', '.join(dict.fromkeys(names))}" if names else ""

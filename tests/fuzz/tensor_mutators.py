"""Mutations of tensors and attributes: sizes against data, dtypes, values. Each changes a ModelProto in place."""

from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .graph_mutators import Mutator, NothingToChange, graphs, nodes, some
from .numbers import FLOATS, SIZES, TYPES


def tensors_of(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """All tensors of graphs, initializers and attributes."""
    held = [t for g in graphs(model) for t in g.initializer]
    return held + [a.t for n in nodes(model) for a in n.attribute if a.HasField("t")]


def _attributes(model: onnx.ModelProto) -> list[onnx.AttributeProto]:
    return [a for n in nodes(model) for a in n.attribute]


def sizes(model: onnx.ModelProto, rng: Random) -> None:
    """A tensor states other dimensions than its data has."""
    tensor = some(rng, tensors_of(model))
    dims = list(tensor.dims)
    how = rng.randrange(5)
    if how == 0 and dims:
        rng.shuffle(dims)
    elif how == 1 and dims:
        dims.pop(rng.randrange(len(dims)))
    elif how == 2 or not dims:
        dims.insert(rng.randrange(len(dims) + 1), rng.choice((1, 1, *SIZES)))
    else:
        dims[rng.randrange(len(dims))] = rng.choice(SIZES)
    del tensor.dims[:]
    tensor.dims.extend(dims)


def data(model: onnx.ModelProto, rng: Random) -> None:
    """A tensor holds more or fewer values than it states, or holds them twice."""
    tensor = some(rng, tensors_of(model))
    how = rng.randrange(4)
    if how == 0:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
    elif how == 1:
        tensor.raw_data += rng.randbytes(rng.choice((1, 4, 1000)))
    elif how == 2:
        tensor.float_data.extend(rng.choice(FLOATS) for _ in range(rng.choice((1, 4))))
    else:
        tensor.string_data.append(b"\xff")


def dtype(model: onnx.ModelProto, rng: Random) -> None:
    """A tensor states another element type."""
    some(rng, tensors_of(model)).data_type = rng.choice((*TYPES, 0, -1, 77, 1 << 30))


def recast(model: onnx.ModelProto, rng: Random) -> None:
    """A tensor really is of another element type, or of another shape."""
    tensor = some(rng, tensors_of(model))
    array = _array(tensor)
    if rng.random() < 0.5:
        kind = helper.tensor_dtype_to_np_dtype(rng.choice([t for t in TYPES if t not in (8, 14, 15)]))
        with np.errstate(all="ignore"):
            array = array.astype(kind)
    else:
        shape = [rng.choice((0, 1, 2, 3, 5)) for _ in range(rng.randrange(5))]
        array = np.resize(array, shape)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def values(model: onnx.ModelProto, rng: Random) -> None:
    """Some values of a tensor are huge, negative, no numbers: indices and sizes among them."""
    tensor = some(rng, tensors_of(model))
    array = _array(tensor).copy()
    if not array.size:
        raise NothingToChange
    flat = array.reshape(-1)
    for _ in range(rng.choice((1, 1, 3))):
        new = rng.choice(SIZES if array.dtype.kind in "iub" else FLOATS)
        with np.errstate(all="ignore"):
            flat[rng.randrange(flat.size)] = np.asarray(new).astype(array.dtype)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _array(tensor: onnx.TensorProto) -> np.ndarray:
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:  # an earlier mutation broke it
        raise NothingToChange from error


def attribute_value(model: onnx.ModelProto, rng: Random) -> None:
    """An attribute has another value of its type."""
    attribute = some(rng, _attributes(model))
    kinds = onnx.AttributeProto
    if attribute.type == kinds.INT:
        attribute.i = rng.choice(SIZES)
    elif attribute.type == kinds.FLOAT:
        attribute.f = rng.choice(FLOATS)
    elif attribute.type == kinds.STRING:
        attribute.s = rng.choice((b"", b"\xff\xfe", b"linear", b"VALID", b"a" * 10_000, b"ab,bc->ac", b"...", b"\0"))
    elif attribute.type == kinds.INTS:
        _change(attribute.ints, SIZES, rng)
    elif attribute.type == kinds.FLOATS:
        _change(attribute.floats, FLOATS, rng)
    else:
        raise NothingToChange


def _change(held: Any, choices: Any, rng: Random) -> None:
    """A list: an element changed, missing, too many, or all gone."""
    listed, how = list(held), rng.randrange(5)
    if how == 0:
        listed = []
    elif how == 1 and listed:
        listed.pop()
    elif how == 2:
        listed += [rng.choice(choices)] * rng.choice((1, 2, 5000))
    elif listed:
        listed[rng.randrange(len(listed))] = rng.choice(choices)
    del held[:]
    held.extend(listed)


def attribute_kind(model: onnx.ModelProto, rng: Random) -> None:
    """An attribute is missing, has the wrong type, stands twice, or is unknown."""
    node = some(rng, nodes(model))
    how = rng.randrange(5)
    if how == 0 and node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]
    elif how == 1 and node.attribute:
        name = rng.choice(node.attribute).name
        new = rng.choice((1, 1.5, "text", [1, 2], [1.5], ["a"], helper.make_tensor("t", 1, [1], [1.0])))
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, new)])
    elif how == 2 and node.attribute:
        node.attribute.append(rng.choice(node.attribute))
    elif how == 3 and node.attribute:
        rng.choice(node.attribute).ref_attr_name = rng.choice(("scale", "none"))
    else:
        names = (
            "axis", "axes", "keepdims", "perm", "pads", "strides", "group", "to", "mode", "unknown", "training_mode",
        )  # fmt: skip
        name, new = rng.choice(names), rng.choice((0, -1, 1, 1 << 40, [1, 2, 0], "x"))
        node.attribute.append(helper.make_attribute(name, new))


def sparse(model: onnx.ModelProto, rng: Random) -> None:
    """An initializer is sparse."""
    tensor = some(rng, model.graph.initializer)
    new = model.graph.sparse_initializer.add(dims=tensor.dims)
    new.values.CopyFrom(tensor)
    new.indices.CopyFrom(numpy_helper.from_array(np.array([rng.choice(SIZES)]), "i"))
    model.graph.initializer.remove(tensor)


MUTATORS: tuple[Mutator, ...] = (
    sizes, data, dtype, recast, recast, values, values, attribute_value, attribute_value, attribute_kind, sparse,
)  # fmt: skip

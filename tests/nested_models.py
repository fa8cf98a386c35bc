"""Models whose inputs and outputs are sequences and optionals."""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .onnx_graphs import model, node, random, value

FLOAT = TensorProto.FLOAT
TENSOR = helper.make_tensor_type_proto(FLOAT, None)
SEQUENCE = helper.make_sequence_type_proto(TENSOR)
OPTIONAL = helper.make_optional_type_proto(TENSOR)
OPTIONAL_SEQUENCE = helper.make_optional_type_proto(SEQUENCE)


def typed(**kinds: Any) -> list[onnx.ValueInfoProto]:
    """Inputs or outputs by name and type."""
    return [helper.make_value_info(name, kind) for name, kind in kinds.items()]


def mixed() -> onnx.ModelProto:
    """Takes a sequence, an optional tensor and an optional sequence; makes of each kind what is there and what is not.

    `parts` are the elements of `seq` times a weight, the product of `x` inserted before the last; `whole` joins them;
    `same` is `more`; `maybe` is the negative of `opt`, or `x`; `none` is an empty sequence.
    """
    body = helper.make_graph([node("MatMul", "e w", "p", "product")], "body", [value("e", None)], [value("p", None)])
    there = [node("OptionalGetElement", "opt", "t"), node("Neg", "t", "r"), node("Optional", "r", "a")]
    branches = {
        "then_branch": helper.make_graph(there, "there", [], typed(a=OPTIONAL)),
        "else_branch": helper.make_graph([node("Optional", "x", "b")], "absent", [], typed(b=OPTIONAL)),
    }
    nodes = [
        node("SequenceMap", "seq", "mapped", "map", body=body), node("MatMul", "x w", "xw", "dense"),
        node("SequenceInsert", "mapped xw last", "parts", "insert"),
        node("ConcatFromSequence", "parts", "whole", "join", axis=0),
        node("OptionalHasElement", "opt", "has"), node("If", "has", "maybe", "choose", **branches),
        node("Identity", "more", "same"), helper.make_node("SequenceEmpty", [], ["none"], "empty", dtype=FLOAT),
    ]  # fmt: skip
    outputs = typed(parts=SEQUENCE, same=OPTIONAL_SEQUENCE, maybe=OPTIONAL, whole=TENSOR, none=SEQUENCE)
    inputs = typed(seq=SEQUENCE, opt=OPTIONAL, more=OPTIONAL_SEQUENCE)
    weights = {"w": random(4, 5), "last": np.array(-1)}
    return model(nodes, [*inputs, value("x", [2, 4])], outputs, weights, opset=18)


def feeds(*rows: int, opt: bool = True, more: int | None = 1) -> dict[str, Any]:
    """Inputs of :func:`mixed`: a sequence of so many rows each, and so many tensors of `more`, None if it is absent."""
    sequence = [random(n, 4, seed=at) for at, n in enumerate(rows)]
    others = None if more is None else [random(3, at + 1) for at in range(more)]
    return {"seq": sequence, "opt": random(2, 3) if opt else None, "more": others, "x": random(2, 4)}


def shapes_of(values: dict[str, Any]) -> dict[str, Any]:
    """What `shapes` says of such inputs."""
    return {name: [x.shape for x in v] if isinstance(v, list) else None if v is None else v.shape
            for name, v in values.items()}  # fmt: skip

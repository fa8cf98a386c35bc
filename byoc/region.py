"""What a back end gets to see of a model: plain values, no TVM objects.

An operation has operands (values, or numpy constants) and one result. A composite is what one pattern matched: an
anchor with what leads to it and what follows it. A region is one or more composites that run as one program.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Value:
    """A tensor that is computed, or given: unique name, shape, dtype ("float32", "int8")."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


Operand = Value | np.ndarray
"""A value, or a constant."""


@dataclass(frozen=True, eq=False)
class Operation:
    """One operator call.

    Attributes:
        op: TVM's name of the operator, such as "relax.matmul".
        operands: in the operator's order.
        result: what it computes.
        attrs: attributes by name, as Python values.
        nodes: ONNX nodes behind it.
    """

    op: str
    operands: tuple[Operand, ...]
    result: Value
    attrs: Mapping[str, Any] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()

    def __str__(self) -> str:
        operands = ", ".join(o.name if isinstance(o, Value) else f"const{list(o.shape)}" for o in self.operands)
        return f"{self.result} = {self.op.removeprefix('relax.')}({operands})"


@dataclass(frozen=True, eq=False)
class Composite:
    """What one pattern matched.

    Attributes:
        pattern: its name.
        prologue: operations on the way into the anchor, such as a dequantization; they may have other readers outside,
            for which they are computed there too.
        anchor: the operation it is about.
        epilogue: what follows, each reading the one before it.
    """

    pattern: str
    prologue: tuple[Operation, ...]
    anchor: Operation
    epilogue: tuple[Operation, ...] = ()

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All, in an order in which they can run."""
        return (*self.prologue, self.anchor, *self.epilogue)

    @property
    def result(self) -> Value:
        """What it computes; nothing else of it is read outside."""
        return self.operations[-1].result

    @property
    def nodes(self) -> tuple[str, ...]:
        """ONNX nodes it computes."""
        return tuple(dict.fromkeys(node for operation in self.operations for node in operation.nodes))

    @property
    def name(self) -> str:
        """For reports: the ONNX node of the anchor."""
        return self.anchor.nodes[0] if self.anchor.nodes else self.anchor.result.name

    @functools.cached_property
    def inputs(self) -> tuple[Value, ...]:
        """Values it reads that others compute, each once."""
        own = {operation.result.name for operation in self.operations}
        values = {o.name: o for operation in self.operations for o in operation.operands if isinstance(o, Value)}
        return tuple(value for name, value in values.items() if name not in own)

    def producer(self, operand: Operand) -> Operation | None:
        """The operation of this composite that computes an operand; None if it is an input or a constant."""
        if not isinstance(operand, Value):
            return None
        return next((operation for operation in self.operations if operation.result.name == operand.name), None)

    def __str__(self) -> str:
        return f"{self.pattern}: " + "; ".join(map(str, self.operations))


@dataclass(frozen=True, eq=False)
class Region:
    """What becomes one program.

    Attributes:
        name: a valid identifier, unique in the model.
        composites: in an order in which they can run.
        inputs: values from outside, each once; constants are in the operations.
        outputs: values that somebody outside reads, in the order of their composites.
    """

    name: str
    composites: tuple[Composite, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @classmethod
    def of(cls, name: str, composite: Composite) -> Region:
        """The region of one composite alone."""
        return cls(name, (composite,), composite.inputs, (composite.result,))

    @property
    def operations(self) -> Iterator[Operation]:
        """Of all composites, in order."""
        return (operation for composite in self.composites for operation in composite.operations)

    @property
    def nodes(self) -> tuple[str, ...]:
        """ONNX nodes it computes."""
        return tuple(dict.fromkeys(node for composite in self.composites for node in composite.nodes))

    @property
    def transfer_bytes(self) -> int:
        """Bytes of inputs and outputs."""
        return sum(value.nbytes for value in (*self.inputs, *self.outputs))

    def __str__(self) -> str:
        lines = [f"region {self.name}({', '.join(map(str, self.inputs))})"]
        lines += [f"  {composite}" for composite in self.composites]
        return "\n".join([*lines, f"  -> {', '.join(value.name for value in self.outputs)}"])


@dataclass(frozen=True)
class NodeRegion:
    """What becomes one program of a back end that takes ONNX nodes, not patterns.

    Attributes:
        name: a valid identifier, unique in the model.
        model: the region as a serialized ONNX model, weights inside, all inputs and outputs of static shapes.
        reasons: ONNX node -> why no converter takes it, or why it goes along.
    """

    name: str
    model: bytes
    reasons: Mapping[str, str]


def multiply_adds(operation: Operation) -> int:
    """Multiply-adds of a matmul or convolution; 0 for any other operator."""
    if operation.op not in ("relax.matmul", "relax.nn.conv2d") or len(operation.operands) < 2:
        return 0
    first, second = (operand.shape for operand in operation.operands[:2])
    depth = first[-1] if operation.op == "relax.matmul" else math.prod(second[1:])
    return math.prod(operation.result.shape) * depth

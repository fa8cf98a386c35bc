"""What a record is about: an operation with its attributes, shapes, dtypes and epilogue, in plain words.

    conv2d(1x64x56x56, 64x64x3x3, stride 1) + bias + relu
    ->  op "relax.nn.conv2d"
        args [["TENSOR", [1, 64, 56, 56], "float32"], ["TENSOR", [64, 64, 3, 3], "float32", "constant"], ...,
              ["relax.nn.conv2d", ["p0", "p1"], {"strides": [1, 1], ...}], ["relax.add", ["v0", "p2"], {}], ...]

Nothing of TIR is in it: a recipe may write its kernel in another way and still find its records, if its version says
that configurations mean what they meant.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...ops.attributes import names_of

if TYPE_CHECKING:
    from ..group import Group


@dataclass(frozen=True)
class TaskKey:
    """Identity of a tuning task; equal for equal work.

    Attributes:
        op: the anchor's operator name, "elementwise", or "template:NAME".
        text: the arguments as one stable line of JSON.
    """

    op: str
    text: str

    @classmethod
    def of(cls, op: str, args: Sequence[Any]) -> TaskKey:
        """From plain values.

        Raises:
            TypeError: an argument is no plain value.
        """
        return cls(op, json.dumps(list(args), separators=(",", ":"), sort_keys=True, allow_nan=False))

    @classmethod
    def of_group(cls, group: Group) -> TaskKey:
        """The key of a group: its parameters, then its operations in order."""
        names: dict[Any, str] = {p.var: f"p{i}" for i, p in enumerate(group.params)}
        args: list[Any] = [["TENSOR", list(p.shape), p.dtype, *["constant"] * p.constant] for p in group.params]
        for index, binding in enumerate(group.bindings):
            args.append([_callee(binding.value), *_operands(binding.value, names)])
            names[binding.var] = f"v{index}"
        return cls.of(group.anchor, args)

    @property
    def args(self) -> list[Any]:
        """The arguments, as plain values."""
        return list(json.loads(self.text))

    @property
    def short(self) -> str:
        """For people: the operator, the shapes of its first tensors, its stride, and the operations behind it."""
        args = self.args
        tensors = [a for a in args if isinstance(a, list) and a[:1] == ["TENSOR"] and len(a) > 1]
        steps = [a for a in args if isinstance(a, list) and len(a) > 1 and isinstance(a[0], str) and a not in tensors]
        name = self.op.rpartition(".")[2] if self.op.startswith("relax.") else self.op
        behind = [step for a in steps if (step := a[0].rpartition(".")[2]) != name]
        shapes = " ".join("x".join(map(str, t[1])) if isinstance(t[1], list) else str(t[1]) for t in tensors[:2])
        strides = [s for a in steps if isinstance(a[-1], dict) for s in _listed(a[-1].get("strides")) if s != 1]
        stride = f" stride {strides[-1]}" if strides else ""
        return f"{name} {shapes or ' '.join(map(str, args))}{stride}" + "".join(f" + {step}" for step in behind)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _callee(value: Any) -> str:
    from ..graph.relax_graph import op_name

    return op_name(value) or type(value).__name__


def _operands(value: Any, names: dict[Any, str]) -> tuple[list[Any], dict[str, Any]]:
    """Operands of a call by name, and its attributes as plain values."""
    args = getattr(value, "args", None)
    operands = [_operand(a, names) for a in (args if args is not None else getattr(value, "fields", [value]))]
    attrs = getattr(value, "attrs", None)
    return operands, {name: _plain(getattr(attrs, name)) for name in sorted(names_of(attrs))}


def _operand(expr: Any, names: dict[Any, str]) -> Any:
    from ..graph.relax_graph import dtype_of, numpy_of, scalar_of

    if (name := names.get(expr)) is not None:
        return name
    if hasattr(expr, "fields"):  # a tuple of tensors
        return [_operand(field, names) for field in expr.fields]
    if (scalar := scalar_of(expr)) is not None:
        return ["const", dtype_of(expr), _plain(scalar)]
    if (array := numpy_of(expr)) is not None:
        digest = hashlib.blake2b(array.tobytes(), digest_size=8).hexdigest()
        return ["const", str(array.dtype), list(array.shape), digest]
    value = getattr(expr, "value", None)
    return _plain(value) if isinstance(value, int | float) else str(expr)


def _plain(value: Any) -> Any:
    """A JSON value; a number that JSON has not becomes text."""
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if hasattr(value, "value") and not hasattr(value, "__iter__"):
        return _plain(value.value)
    if hasattr(value, "__iter__"):
        return [_plain(v) for v in value]
    return str(value)

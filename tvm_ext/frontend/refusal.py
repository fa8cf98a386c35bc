"""Why a node cannot be compiled: raised where that is found, told with the node, the model and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.errors import UnsupportedError
from .operators import FIX

if TYPE_CHECKING:
    import onnx


class Refusal(NotImplementedError):
    """A node that is refused.

    Args:
        reason: what cannot be compiled, and why.
        fix: what the user can do.
        freeze: whether it could be compiled if a value were known that is not: the fix names the inputs it comes from.
        unknown: that value, where it is one: its name, or the Relax expression that a node has for an input; or names.
    """

    def __init__(self, reason: str, *, fix: str = "", freeze: bool = False, unknown: Any = None) -> None:
        super().__init__(reason)
        self.fix, self.freeze, self.unknown = fix, freeze or unknown is not None, unknown


def unsupported(
    error: Exception, node: onnx.NodeProto, label: str, opset: int, model: str, inputs: list[str]
) -> UnsupportedError:  # fmt: skip
    """The error that users see.

    Args:
        error: a refusal, or what a converter raised.
        node, label: what could not be converted, and what users know it by.
        opset, model: for the message.
        inputs: of the model, from which the value comes that a refusal says must be known.
    """
    what = f"{model}: node {label!r} ({node.op_type}, opset {opset}) cannot be"
    if isinstance(error, Refusal):
        fix = ". ".join(filter(None, (_freeze(inputs) if error.freeze else "", error.fix)))
        return UnsupportedError(f"{what} compiled: {error}", fix=fix or FIX)
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return UnsupportedError(
        f"{what} converted: {type(error).__name__}: {reason[:300]}",
        fix="TVM's converter has this limit: export the model so that it needs no such node, or another opset",
    )


def _freeze(inputs: list[str]) -> str:
    if not inputs:
        return "it must be an initializer, or be computed of initializers and shapes"
    listed = ", ".join(f"{name!r}: ..." for name in inputs)
    return f"if it is the same in every run, fix what decides it: compile(freeze={{{listed}}})"

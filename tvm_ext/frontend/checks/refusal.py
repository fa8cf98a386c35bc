"""Why a node cannot be compiled: raised where that is found, told with the node, the model and what to do."""

from collections.abc import Mapping
from typing import Any

import onnx

from ...core.errors import UnsupportedError, essence

#: Of a node that ONNX has and this library has not.
FIX = (
    "export the model with standard operators of another opset (17 works best), "
    "or replace these nodes by standard operators, for instance with onnx-graphsurgeon or onnxscript's rewriter"
)
#: Of a node that ONNX's own checks let pass, and its conversion does not.
UNFIT = (
    "see whether its inputs and attributes fit each other: onnxruntime, or onnx.checker.check_model(model, "
    "full_check=True), refuses it too if they do not; if they do, write the node with other operators or another opset"
)


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


class TooLong(Refusal):
    """A loop of which not every step can stand in the graph: they are too many, or nobody knows how many."""


class ConverterFailed(BaseException):
    """Carries a converter's exception through the stock loop, which prints every `Exception` to stdout."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


def unsupported(
    error: Exception, node: onnx.NodeProto, label: str, opset: int, operands: Mapping[str, str], model: str,
    inputs: list[str],
) -> UnsupportedError:  # fmt: skip
    """The error that users see.

    Args:
        error: a refusal, or what a converter raised.
        node, label: what could not be converted, and what users know it by.
        opset, model: for the message.
        operands: of the node, by name: what they are, in words.
        inputs: of the model, from which the value comes that a refusal says must be known.
    """
    operator = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
    what = f"{model}: node {label!r} ({operator}, opset {opset}) cannot be"
    listed = ", ".join(f"{name!r} {kind}" for name, kind in operands.items()) or "none"
    where = f"; domain {node.domain or 'ai.onnx'!r}, inputs: {listed}"
    if isinstance(error, Refusal):
        fix = ". ".join(filter(None, (_freeze(inputs, node) if error.freeze else "", error.fix)))
        return UnsupportedError(f"{what} compiled: {error}{where}", fix=fix or FIX)
    return UnsupportedError(f"{what} converted: {essence(error)}{where}", fix=UNFIT)


def _freeze(inputs: list[str], node: onnx.NodeProto) -> str:
    if not inputs:
        names = ", ".join(f"{name!r}" for name in node.output if name)
        cut = f"cut the model in two by onnx.utils.extract_model: one up to this node, and one with {names} as an input"
        return f"it must be an initializer, or be computed of initializers and shapes; where data decide it, {cut}"
    listed = ", ".join(f"{name!r}: ..." for name in inputs)
    return f"if it is the same in every run, fix what decides it: compile(freeze={{{listed}}})"

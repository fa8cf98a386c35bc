"""Operands whose values decide a shape: a compiled program has fixed shapes, so they must be known when it is made."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from ..ops.table import of
from .checks.refusal import Refusal


def check_decided(node: onnx.NodeProto, is_known: Callable[[str], bool]) -> None:
    """Refuse a node of which an input that decides a shape is not known.

    Args:
        node: any one.
        is_known: whether the value of a name is known.

    Raises:
        Refusal: names the inputs.
    """
    inputs = of(node.op_type).shape_operands.items() if node.domain in ("", "ai.onnx") else ()
    given = {node.input[i]: what for i, what in inputs if i < len(node.input) and node.input[i]}
    unknown = [name for name in given if not is_known(name)]
    if unknown:
        listed = ", ".join(f"{name!r} ({given[name]})" for name in unknown)
        which = f"its input {listed} decides" if len(unknown) == 1 else f"its inputs {listed} decide"
        raise Refusal(f"{which} the shape of what it makes, and must be known when it is compiled", unknown=unknown)

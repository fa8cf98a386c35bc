"""Operands whose values decide a shape: a compiled program has fixed shapes, so they must be known when it is made."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from .checks.refusal import Refusal

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
#: Operator -> its inputs whose values decide the shape of what it makes: number -> what it is.
DECIDING: dict[str, dict[int, str]] = {
    "CenterCropPad": {1: "shape"},
    "ConstantOfShape": {0: "shape"},
    "Expand": {1: "shape"},
    "OneHot": {1: "depth"},
    "Pad": {1: "pads", 3: "axes"},
    "Range": {0: "start", 1: "limit", 2: "delta"},
    "Reshape": {1: "shape"},
    "Resize": {2: "scales", 3: "sizes"},
    "Slice": {1: "starts", 2: "ends", 3: "axes", 4: "steps"},
    "Split": {1: "sizes"},
    "Squeeze": {1: "axes"},
    "Tile": {1: "repeats"},
    "TopK": {1: "k"},
    "Unsqueeze": {1: "axes"},
    "Upsample": {1: "scales"},
    **{f"Reduce{kind}": {1: "axes"} for kind in _REDUCTIONS},
}


def check_decided(node: onnx.NodeProto, is_known: Callable[[str], bool]) -> None:
    """Refuse a node of which an input that decides a shape is not known.

    Args:
        node: any one.
        is_known: whether the value of a name is known.

    Raises:
        Refusal: names the inputs.
    """
    inputs = DECIDING.get(node.op_type, {}).items() if node.domain in ("", "ai.onnx") else ()
    given = {node.input[i]: what for i, what in inputs if i < len(node.input) and node.input[i]}
    unknown = [name for name in given if not is_known(name)]
    if unknown:
        listed = ", ".join(f"{name!r} ({given[name]})" for name in unknown)
        which = f"its input {listed} decides" if len(unknown) == 1 else f"its inputs {listed} decide"
        raise Refusal(f"{which} the shape of what it makes, and must be known when it is compiled", unknown=unknown)

"""If: the branch that a known condition takes stands in the graph; else both do, and a `where` selects.

    y = If(c; then: f(x), else: g(x))   ->   y = where(c, f(x), g(x))

Operators of ONNX have no effects, so a branch that is not taken does no harm, as long as kernels read inside their
operands and divide by no zero, whatever an index or a divisor is. Selection costs both branches, and keeps one program
without jumps, in which every pass and recipe works inside branches as outside. What an unknown condition decides must
have one shape.

A branch that is not valid with the shapes that are bound, as a voice model has one for each sample rate, would fail
whenever it is taken. The other one stands in the graph, and what it makes passes a guard, which stops such a run:

    y = If(c; then: f(x), else: invalid)   ->   y = guard(c, f(x))
"""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from tvm import relax

from ...core.errors import ModelError, TvmExtError
from ...core.graph.relax_graph import dtype_of, numpy_of, shape_of
from ...runtime import control_flow
from ..checks.refusal import Refusal
from ..fallback.node import emit_call
from ..naming import identifier, node_label
from .sequences import TensorList, describe, is_tensor
from .subgraph import Graph, as_tensor, run_body

_BRANCHES = ("then_branch", "else_branch")


def convert_if(node: onnx.NodeProto, graph: Graph) -> None:
    """Convert an If and bind its outputs.

    Raises:
        Refusal: the condition is not known, and the branches give other shapes, types or lengths, or one of them
            cannot be compiled.
    """
    branches = {attribute.name: attribute.g for attribute in node.attribute}
    name = node.input[0]
    if (condition := graph.known(name)) is not None:
        taken = run_body(graph, branches["then_branch" if condition.all() else "else_branch"])
        pairs = [(name, name) for name in taken]
    else:
        sides = [_side(graph, branches, branch, name) for branch in _BRANCHES]
        if not all(isinstance(side, list) for side in sides):
            _guard(node, graph, sides)
            return
        pairs = list(zip(*sides, strict=True))
    for output, (a, b) in zip(node.output, pairs, strict=True):
        if output:
            what = f"output {output!r} by condition"
            graph.bind(output, selected(graph.value(name), graph.value(a), graph.value(b), what, name))


def _side(graph: Graph, branches: Mapping[str, onnx.GraphProto], branch: str, condition: str) -> list[str] | ModelError:
    """The outputs of a branch of an If whose condition is not known; why it is not valid with these shapes.

    Raises:
        Refusal: it cannot be compiled, though it may be valid: says for what the condition must be known, and why.
    """
    try:
        return run_body(graph, branches[branch])
    except ModelError as error:
        return error
    except TvmExtError as error:
        value = "false" if branch == "then_branch" else "true"
        wrong = f"its {branch} cannot be, and {condition!r}, which is computed, decides whether it runs"
        fix = f"Give what makes {condition!r} {value}; or make the {branch} one that can be compiled"
        raise Refusal(f"{wrong}: {error.message}", unknown=condition, fix=fix) from error


def _guard(node: onnx.NodeProto, graph: Graph, sides: Sequence[list[str] | ModelError]) -> None:
    """Bind the outputs of an If to those of its only valid branch, behind a guard.

    Raises:
        ModelError: neither is valid.
        Refusal: the valid one makes what is no tensor.
    """
    then, other = sides
    wrong, taken = (other, then) if isinstance(then, list) else (then, other)
    assert isinstance(wrong, ModelError)
    if not isinstance(taken, list):
        raise wrong
    holds, label, name = taken is then, node_label(node), node.input[0]
    branch = _BRANCHES[holds]
    values = [as_tensor(graph.value(name)) for name, output in zip(taken, node.output, strict=True) if output]
    if unfit := [value for value in values if not is_tensor(value) or shape_of(value) is None]:
        raise Refusal(f"its {branch} is not valid, and the other one makes {describe(unfit[0])}", unknown=name)
    why = f"its {branch}, which {name!r} decides on, cannot run with these shapes: {wrong.message}"
    results, region = emit_call(
        graph.names.fresh(identifier(label)), (control_flow.NAME, control_flow.__name__),
        control_flow.program_of(control_flow.Guard(holds, f"node {label!r} (If): {why}")),
        [graph.value(name), *values], [(shape_of(value) or (), dtype_of(value)) for value in values],
        {label: (node.op_type, why)},
    )  # fmt: skip
    graph.regions.append(region)
    for output, result in zip(filter(None, node.output), results, strict=True):
        graph.bind(output, result)


def selected(condition: Any, then: Any, other: Any, what: str, by: str) -> Any:
    """`then` where the condition, a boolean of one element, is true, else `other`.

    Args:
        condition: not known now.
        then, other: tensors, sequences, or shapes.
        what: is selected, for the message.
        by: the condition's name.

    Raises:
        Refusal: they differ in shape, dtype, or number of elements.
    """
    if then is other:
        return then
    if isinstance(then, TensorList) and isinstance(other, TensorList) and len(then) == len(other):
        pairs = zip(then.elements, other.elements, strict=True)
        return TensorList(tuple(selected(condition, a, b, what, by) for a, b in pairs), then.dtype)
    then, other = as_tensor(then), as_tensor(other)
    if not is_tensor(then) or shape_of(then) is None or describe(then) != describe(other):
        kinds = f"{describe(then)} or {describe(other)}"
        raise Refusal(f"{what} {by!r}, which is computed, would be {kinds}", unknown=by)
    if _is_same(then, other):
        return then
    block = relax.BlockBuilder.current()
    scalar = condition if shape_of(condition) == () else block.emit(relax.op.reshape(condition, ()))
    return block.emit(relax.op.where(scalar, then, other))


def _is_same(a: Any, b: Any) -> bool:
    """Whether both are one constant."""
    a, b = numpy_of(a), numpy_of(b)
    return a is not None and b is not None and a.tobytes() == b.tobytes()

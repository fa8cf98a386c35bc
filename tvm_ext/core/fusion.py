"""The choice that grouping asks at every step, and who may answer it."""

from collections.abc import Callable
from dataclasses import dataclass

#: Operations of one scalar expression, taken as a tree: an operator that reads its operand many times multiplies what
#: is below it (an exponential reads it a thousand times). TVM's analyzer takes a microsecond for each.
LARGEST_EXPRESSION = 50_000
#: Operations of one scalar expression within each other: Python, TVM and LLVM walk each of them by recursion.
DEEPEST_EXPRESSION = 64


@dataclass(frozen=True)
class FusionCandidate:
    """An elementwise operation that can be computed by the kernel of the group behind its operand.

    Attributes:
        anchor: operator name of the group's anchor, such as "relax.nn.conv2d"; "elementwise" if it has none.
        group: operator names already in the group, in order.
        operations: operator names that would join, in order; more than one if the value branches and meets again.
        shape, dtype: of the result.
        saved_bytes: traffic that a kernel of its own would cost: its operand from the group, written and read again.
        expression: scalar operations of the joined expression, taken as a tree.
        depth: how many of them stand within each other at most.
    """

    anchor: str
    group: tuple[str, ...]
    operations: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    saved_bytes: int
    expression: int
    depth: int = 1


FusionModel = Callable[[FusionCandidate], bool]
"""Whether the operations join the group."""


def default_fusion(candidate: FusionCandidate) -> bool:
    """Everything that bounds the expression: a kernel less and the traffic between, for arithmetic in registers."""
    return candidate.expression <= LARGEST_EXPRESSION and candidate.depth <= DEEPEST_EXPRESSION


def no_fusion(candidate: FusionCandidate) -> bool:
    """Nothing: each operation is a kernel."""
    return False


FUSION_MODELS: dict[str, FusionModel] = {"default": default_fusion, "none": no_fusion}

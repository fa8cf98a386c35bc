"""Values that branch and meet again: x * sigmoid(x), x * clip(x + 3, 0, 6) / 6.

a = x + 3; b = clip(a, 0, 6); y = x * b        x branches into (x, a, b) and meets in y: one kernel can do it all
"""

from collections.abc import Callable, Mapping

from tvm import relax

#: Operations looked at behind a value before it is taken as one that does not meet again.
_LARGEST = 12


def meeting(
    value: relax.Var,
    uses: Mapping[relax.Var, list[relax.Var | None]],
    position: Mapping[relax.Var, int],
    joins: Callable[[relax.Var], bool],
) -> tuple[relax.Var, ...]:
    """The operations between a value with several readers and the one where all ways from it meet, that one last.

    Every way from the value leads through the last of them (it post-dominates the value), so nothing outside depends
    on what is between, and no operand from outside can depend on it.

    Args:
        value: the value.
        uses: variable -> its readers; None stands for the function's result.
        position: variable -> place in the function.
        joins: whether an operation may be in the same kernel.

    Returns:
        Variables in order; empty if the ways do not meet, or meet behind something that may not join.
    """
    between: list[relax.Var] = []
    pending = set(uses.get(value, ()))
    while pending and None not in pending and len(between) < _LARGEST:
        first = min(pending, key=lambda var: position[var])
        assert first is not None
        if not joins(first):
            return ()
        pending.remove(first)
        between.append(first)
        if not pending:
            return tuple(between)
        pending.update(uses.get(first, ()))
    return ()

"""Matching: composites of a back end's patterns in a function, and for every other operation why it is in none.

An anchor takes along what leads into it (prologue) and what follows it (epilogue), as far as pattern, limits and check
allow; the longest epilogue wins. An operation behind the anchor comes along only while nothing else reads what is
before it: a value that leaks would have to be computed twice.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from .backend import Backend, Pattern
from .region import Composite, Operation, Value
from .relax_view import RelaxView


class Matcher:
    """Finds the composites of one back end.

    Args:
        view: the function.
        backend, options: whose patterns, limits and checks.

    Attributes:
        refusals: name of a value -> why the back end does not compute it.
    """

    def __init__(self, view: RelaxView, backend: Backend, options: Any) -> None:
        self._view, self._backend, self._options = view, backend, options
        self._taken: set[str] = set()
        self.refusals: dict[str, str] = {}

    def composites(self) -> list[Composite]:
        """All, in model order of their anchors; each operation but those of prologues is in one at most."""
        composites = []
        for name in self._view.bindings:
            patterns = [pattern for pattern in self._backend.patterns if self._view.op(name) in pattern.anchors]
            if name in self._taken or not patterns:
                continue
            composite = self._first(name, patterns)
            if composite is not None:
                self._taken.update(operation.result.name for operation in (composite.anchor, *composite.epilogue))
                composites.append(composite)
        self._explain_rest(composites)
        return composites

    def _first(self, name: str, patterns: Sequence[Pattern]) -> Composite | None:
        """The composite of the first pattern that takes an anchor; if none does, the reason of the last is kept."""
        anchor = self._view.operation(name)
        if isinstance(anchor, str):
            self.refusals[name] = anchor
            return None
        for pattern in patterns:
            composite = self._longest(pattern, anchor, self._epilogue(anchor, pattern))
            if composite is not None:
                return composite
        return None

    def _longest(self, pattern: Pattern, anchor: Operation, chain: Sequence[Operation]) -> Composite | None:
        refused: dict[str, str] = {}
        for length in range(len(chain), -1, -1):
            members = (anchor, *chain[:length])
            composite, reason = self._with_most_of_prologue(pattern, members)
            if composite is not None:
                break
            refused = {members[-1].result.name: reason}  # what stops a shorter epilogue is what comes next
        self.refusals.update(refused)
        return composite

    def _with_most_of_prologue(self, pattern: Pattern, members: Sequence[Operation]) -> tuple[Composite | None, str]:
        """A composite of these members with as much of its prologue as limits and check take; or what they say of the
        whole of it."""
        reasons = []
        for leading in (members, members[:1], ()) if pattern.prologue else ((),):
            prologue = tuple(self._prologue(leading, members, pattern))
            composite = Composite(pattern.name, prologue, members[0], tuple(members[1:]))
            reason = self._backend.limits.refuse(composite) or pattern.check(composite, self._options)
            if not reason:
                return composite, ""
            reasons.append(reason)
        return None, reasons[0]

    def _epilogue(self, anchor: Operation, pattern: Pattern) -> list[Operation]:
        """What follows an anchor, as far as it is of the pattern and reads what nobody else does."""
        chain: list[Operation] = []
        last = anchor.result.name
        while True:
            readers = self._view.readers.get(last, ())
            following = [name for name in readers if self._view.op(name) in pattern.epilogue]
            if len(readers) != 1:
                reason = f"{last} is read elsewhere too, so that what follows it cannot come along"
                self.refusals.update(dict.fromkeys(following, reason))
                return chain
            operation = self._view.operation(following[0]) if following else ""
            if isinstance(operation, str) or following[0] in self._taken:
                return chain
            chain.append(operation)
            last = following[0]

    def _prologue(
        self, leading: Sequence[Operation], members: Sequence[Operation], pattern: Pattern
    ) -> Iterator[Operation]:
        """What leads to the operands of some of the members, producers first, each once."""
        seen = {member.result.name for member in members}

        def before(operation: Operation) -> Iterator[Operation]:
            for operand in operation.operands:
                if not isinstance(operand, Value) or operand.name in seen:
                    continue
                if self._view.op(operand.name) not in pattern.prologue or operand.name in self._taken:
                    continue
                producer = self._view.operation(operand.name)
                if isinstance(producer, Operation):
                    seen.add(operand.name)
                    yield from before(producer)
                    yield producer

        for member in leading:
            yield from before(member)

    def _explain_rest(self, composites: Sequence[Composite]) -> None:
        """A reason for every operation that is in no composite."""
        inside = {operation.result.name for composite in composites for operation in composite.operations}
        for name in self._view.bindings:
            if name in inside:
                self.refusals.pop(name, None)
            elif name not in self.refusals:
                op = self._view.op(name).removeprefix("relax.") or "this expression"
                self.refusals[name] = f"back end {self._backend.name!r} has no pattern for {op} here"

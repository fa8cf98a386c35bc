"""What becomes of a case: a kind, a reason, and facts; the kinds from best to worst."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

#: From best to worst. A refusal says beforehand that a case cannot be compiled; a failure comes by accident.
KINDS = ("pass", "refused", "failed", "wrong", "hang", "crash")
#: Characters of a reason.
_LONGEST = 200


class Refused(Exception):
    """The case was refused before anything ran; the message is the reason."""


class Outcome(NamedTuple):
    """How a case comes out; as text "kind: reason".

    Attributes:
        kind: one of `KINDS`, or one of a suite's own. The pool adds "crash" and "hang".
        reason: in a line.
        facts: what else a table keeps.
    """

    kind: str
    reason: str = ""
    facts: Mapping[str, Any] = MappingProxyType({})

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}" if self.reason else self.kind

    def __reduce__(self) -> Any:
        return Outcome, (self.kind, self.reason, dict(self.facts))


def attempt(run: Callable[[], Outcome], without: str = "") -> Outcome:
    """The outcome of a run; what it raises is one too: "refused" or "failed".

    Args:
        without: what reasons need not begin with.
    """
    try:
        return run()
    except Refused as refused:
        return Outcome("refused", short(refused, without))
    except Exception as error:
        return Outcome("failed", f"{type(error).__name__}: {short(error, without)}")


def short(error: object, without: str = "") -> str:
    """The first line of an error that says something, in printable characters, cut to the length of a table's."""
    lines = (" ".join(line.split()) for line in str(error).splitlines())
    text = next(filter(None, lines), "").removeprefix(without)
    return "".join(c if c.isprintable() else "?" for c in text)[:_LONGEST]


def kind_of(outcome: str) -> str:
    """The kind of an outcome that a table has as text."""
    return outcome.partition(":")[0]


def is_worse(outcome: str, committed: str) -> bool:
    """Whether an outcome is a step back from the committed one; both as text."""
    return KINDS.index(kind_of(outcome)) > KINDS.index(kind_of(committed))

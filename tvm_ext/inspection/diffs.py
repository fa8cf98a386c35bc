"""What each pass changed: unified diffs, function by function, with constants elided to what tells them apart."""

import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.ir import IRModule

from ..core.passes import Event, PassReport
from .constants import ElidedNaming
from .script import script
from .snapshots import Snapshot

#: A function of a printed module: its decorators and what is indented below them.
_FUNCTION = re.compile(r"^    @.*\n(?:^    @.*\n)*^    def (?P<name>\w+)\((?:.*\n)(?:^(?:     .*)?\n)*", re.MULTILINE)
CONTEXT_LINES = 3


@dataclass(frozen=True)
class Change:
    """One function that a pass made, removed or changed.

    Attributes:
        function: its name.
        diff: lines of a unified diff, without end-of-line characters.
    """

    function: str
    diff: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.diff)


@dataclass(frozen=True)
class PassChange:
    """What one pass did.

    Attributes:
        number: of the pass in the pipeline, from 1.
        name: of the pass.
        fired, skipped: what it did, and what it left alone and why.
        seconds: it took.
        changes: functions that are others now.
    """

    number: int
    name: str
    fired: tuple[Event, ...]
    skipped: tuple[Event, ...]
    seconds: float
    changes: tuple[Change, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        events = {kind: [[e.value, e.detail] for e in getattr(self, kind)] for kind in ("fired", "skipped")}
        changes = [{"function": change.function, "diff": str(change)} for change in self.changes]
        return {"number": self.number, "name": self.name, "seconds": self.seconds, **events, "changes": changes}

    def __str__(self) -> str:
        lines = [f"pass {self.number} {self.name}: {len(self.fired)} fired, {len(self.skipped)} skipped"]
        lines[0] += f", {self.seconds:.3f} s" + ("" if self.changes else "; nothing changed")
        return "\n".join([*lines, *map(str, self.changes)])


def pass_changes(
    steps: Sequence[Snapshot], reports: Sequence[PassReport], only: Iterable[str] = ()
) -> Iterator[PassChange]:
    """What each pass changed, in order.

    Args:
        steps: the import, then each pass.
        reports: of the passes, as many.
        only: names of passes; none for all.
    """
    wanted, naming = set(only), ElidedNaming()
    texts = functools.lru_cache(maxsize=2)(lambda index: function_texts(steps[index].mod, naming))
    for number, report in enumerate(reports, start=1):
        if wanted and report.name not in wanted:
            continue
        same = steps[number].mod.same_as(steps[number - 1].mod)
        changes = () if same else tuple(_changes(texts(number - 1), texts(number)))
        yield PassChange(number, report.name, report.fired, report.skipped, report.seconds, changes)


def function_texts(mod: IRModule, naming: ElidedNaming) -> dict[str, str]:
    """Function -> its text in the module."""
    text = script(mod, naming)
    return {match["name"]: match[0].rstrip("\n") for match in _FUNCTION.finditer(f"{text}\n")}


def _changes(before: dict[str, str], after: dict[str, str]) -> Iterator[Change]:
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name, ""), after.get(name, "")
        if old != new:
            names = (f"before/{name}" if old else "/dev/null", f"after/{name}" if new else "/dev/null")
            lines = difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm="", n=CONTEXT_LINES)
            yield Change(name, tuple(lines))

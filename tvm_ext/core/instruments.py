"""Instruments of a compile: what looks at each step of it, and what is switched off in it to find a culprit.

No instrument may change what a pass makes, only leave something out; with none, it is the compile of a user.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from .passes import CompileContext

Watch = Callable[[str, "IRModule", "CompileContext"], None]
"""Called with "import" after the import, then with the name of each pass after it ran; the module and the context are
those of that moment, and are not to be changed."""


@dataclass(frozen=True)
class Switches:
    """What is off in one compile.

    Attributes:
        passes: names of passes that do not run.
        recipes: names of recipes that take nothing.
        groups: names of grouped functions that no recipe takes.
        records: tuning records that are not followed, by their rows (:meth:`.records.record.Record.to_row`).
        nodes: ONNX nodes that no back end takes.
    """

    passes: frozenset[str] = field(default_factory=frozenset)
    recipes: frozenset[str] = field(default_factory=frozenset)
    groups: frozenset[str] = field(default_factory=frozenset)
    records: frozenset[str] = field(default_factory=frozenset)
    nodes: frozenset[str] = field(default_factory=frozenset)


#: What a switch is of, as reports and `--off KIND=NAME` say it -> the field of :class:`Switches`; in the order in which
#: a bisection tries them: what can be told apart first.
KINDS = {"offload": "nodes", "record": "records", "recipe": "recipes", "pass": "passes", "layer": "groups"}


@dataclass(frozen=True)
class Instruments:
    """What takes part in a compile from outside; by default nothing."""

    watch: Watch | None = None
    switches: Switches = field(default_factory=Switches)

    def __bool__(self) -> bool:
        """Whether there is anything: such a compile neither reads nor writes the cache."""
        return self != Instruments()

    def see(self, step: str, mod: IRModule, ctx: CompileContext) -> None:
        """Show a step to the watch, if there is one."""
        if self.watch is not None:
            self.watch(step, mod, ctx)

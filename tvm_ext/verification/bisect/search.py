"""The search: with everything on, with all suspects of a kind off, and then halves, until none can be left out."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.errors import OptionError
from ...core.instruments import KINDS
from ...core.options import CompileOptions
from .ddmin import minimal_set
from .result import AGREES, ELSEWHERE, FOUND, Bisection, Culprit, Finding
from .suspects import Suspect, Suspects, suspects
from .trials import Bench, Event

#: What to try when a kind has no culprit.
_OTHERS = {
    "offload": "recipe, pass or record", "record": "recipe, pass or offload", "recipe": "pass or offload",
    "pass": "recipe, record or offload", "layer": "pass or offload",
}  # fmt: skip


def bisect(
    model: Any,
    by: str | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    *,
    seed: int = 0,
    tolerance: float | None = None,
    on_event: Event | None = None,
    **options: Any,
) -> Bisection:
    """Find what introduced an error; see :func:`tvm_ext.bisect`."""
    if by is not None and by not in KINDS:
        raise OptionError(f"by={by!r}: choose one of {', '.join(map(repr, KINDS))}, or leave it out for all in turn")
    chosen = replace(CompileOptions.of(**options), cache=False)
    bench = Bench(model, chosen, inputs, seed, tolerance, on_event or (lambda event: None))

    def again() -> list[str]:
        return ["tvm-ext", "verify", *_arguments(model, bench.name, chosen), *_numbers(seed, tolerance)]

    if bench.everything_on().ok:
        return _result(bench, by, AGREES, [], again)
    findings: list[Finding] = []
    for kind in [by] if by else [kind for kind in KINDS if kind != "layer"]:
        given = suspects(kind, bench.programs)
        found = _search(bench, given)
        findings.append(found)
        if found.culprits:
            if not by and kind == "recipe":
                findings += _narrowed(bench, found)
            return _result(bench, by, FOUND, findings, again)
    return _result(bench, by, ELSEWHERE, findings, again)


def _not_possible(bench: Bench, kind: str) -> str:
    """Why no recipe, or no pass, can be to blame; "" if one may be.

    A pass that is off may keep a wrong recipe from being used, and a recipe that is off a wrong pass from doing
    anything. With every group left to the generic way all passes do what they did, and no recipe makes a kernel: an
    error that stays is none of the recipes', one that goes none of the passes'.
    """
    layers = suspects("layer", bench.programs).items
    if kind not in ("recipe", "pass") or not layers:
        return ""
    right = bench.helps("layer", layers, len(layers))
    if right and kind == "pass":
        return "all passes are right: the outputs agree with every pass on, and no kernel of a recipe"
    if right or kind == "pass" or math.isnan(bench.error_of("layer", layers)):  # NaN: such a program cannot be made
        return ""
    return "the error stays with every pass on, and no kernel of a recipe"


def _search(bench: Bench, given: Suspects) -> Finding:
    """The smallest set of suspects of a kind that have to be off."""
    every, count = given.items, len(given.items) + len(given.idle)

    def helps(off: tuple[Suspect, ...]) -> bool:
        return bench.helps(given.kind, off, count)

    reason = "there is none in this compile" if not count else _not_possible(bench, given.kind)
    if not reason and not (every and helps(every)):
        every += given.idle  # with some off, others may take their place
        if not given.idle or not helps(every):
            reason = "the error stays with all of them off"
    if reason:
        return Finding(given.kind, (), (), count, given.kept, reason)
    smallest = minimal_set(every, helps)
    rest = tuple(one for one in every if one not in smallest)
    also = minimal_set(rest, helps) if rest and helps(rest) else ()
    return Finding(given.kind, _culprits(smallest), _culprits(also), count, given.kept)


def _narrowed(bench: Bench, found: Finding) -> list[Finding]:
    """A recipe may be wrong in some layers only, as where one weight is packed wrongly."""
    names = {one.name for one in found.culprits}
    layers = suspects("layer", bench.programs)
    mine = tuple(one for one in layers.items if one.culprit.recipe in names)
    if len(mine) < 2:
        return []
    narrowed = _search(bench, replace(layers, items=mine, idle=(), kept=()))
    return [narrowed] if narrowed.culprits and len(narrowed.culprits) < len(mine) else []


def _culprits(found: tuple[Suspect, ...]) -> tuple[Culprit, ...]:
    return tuple(one.culprit for one in found)


# ------------------------------------------------------------ what is said
def _result(
    bench: Bench, by: str | None, status: str, findings: list[Finding], again: Callable[[], list[str]]
) -> Bisection:
    made = Bisection(bench.name, by or "", status, tuple(findings), tuple(bench.trials), bench.reference)
    commands = [shlex.join(again())] if status != AGREES else []
    if made.culprits:
        off = [part for one in made.culprits for part in ("--off", one.switch)]
        commands.append(shlex.join([*again(), *off]))
    return replace(made, commands=tuple(commands), hint=_hint(made))


def _hint(made: Bisection) -> str:
    if made.status == AGREES:
        return ""
    if made.status == FOUND:
        return "tvm-ext verify --layers shows the first value that is wrong" if made.by else ""
    if not made.by:
        return (
            "the import, the generic way or a pass that is always on is to blame: tvm-ext verify --layers shows the "
            "first value that is wrong"
        )
    return f"try by {_OTHERS[made.by]}, or leave --by out for all in turn"


def _numbers(seed: int, tolerance: float | None) -> list[str]:
    """Arguments of the command line that compare the same."""
    found = ["--seed", str(seed)] if seed else []
    return found + ([] if tolerance is None else ["--tolerance", repr(tolerance)])


def _arguments(model: Any, name: str, options: CompileOptions) -> list[str]:
    """Arguments of the command line that compile the same."""
    path = os.fspath(model) if isinstance(model, str | os.PathLike) else name
    return [path, *replace(options, cache=True).arguments()]

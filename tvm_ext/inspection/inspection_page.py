"""An inspection as one HTML page: passes with coloured diffs, stages as code that folds; search is the page's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.pages.page import Code, Facts, Fold, Note, Page, Part
from ..driver.stages.catalog import stage_named
from ..runtime.table import Table
from .diffs import PassChange

if TYPE_CHECKING:
    from .inspection import Inspection

#: Letters of one stage or diff on a page; a browser is slow with more.
LIMIT = 400_000
_COLUMNS = ("pass", "name", "fired", "skipped", "functions changed", "lines changed", "seconds")


def inspection_page(inspection: Inspection) -> Page:
    """The page: what was compiled, a row and a section a pass, a section a stage."""
    page = Page(f"{inspection.model}: every step of its compile")
    machine = inspection.machine
    facts = [
        ("model", inspection.model), ("SHA-256", inspection.source.sha256),
        ("inputs", ", ".join(f"{one.name}: {one}" for one in inspection.imported.inputs)),
        ("outputs", ", ".join(f"{one.name}: {one}" for one in inspection.imported.outputs)),
        ("compiled for", f"{machine.mcpu} ({machine.isa}), {machine.threads} threads"),
    ]  # fmt: skip
    page.section("Model", Facts(facts), *(Note(warning, "warn") for warning in inspection.imported.warnings))
    page.section("Passes", Table(_COLUMNS, map(_row, inspection.passes)))
    for one in inspection.passes:
        if one.changes or one.fired or one.skipped:
            page.section(f"{one.number}. {one.name}", *_pass_parts(one), folded=True)
    for name in inspection.stages:
        text = _block(inspection.stage(name), "text")
        page.section(f"Stage {name}", Note(stage_named(name).summary), *text, folded=True)
    return page


def _row(one: PassChange) -> tuple[int | str | float, ...]:
    """A pass; of each diff two lines name the function, and others were added or removed."""
    lines = sum(line.startswith(("+", "-")) for change in one.changes for line in change.diff[2:])
    seconds = round(one.seconds, 4)
    return one.number, one.name, len(one.fired), len(one.skipped), len(one.changes), lines, seconds


def _pass_parts(one: PassChange) -> list[Part]:
    kinds = (("fired", "what", one.fired), ("skipped", "why not", one.skipped))
    parts: list[Part] = [
        Fold(f"{kind}: {len(events)}", [Table(("value", title), [(event.value, event.detail) for event in events])])
        for kind, title, events in kinds
        if events
    ]
    opened = len(one.changes) == 1
    return [*parts, *(Fold(change.function, _block(str(change), "diff"), opened) for change in one.changes)]


def _block(text: str, language: str) -> list[Part]:
    """A block of code, cut where it is too long to show, with words that say so."""
    if len(text) <= LIMIT:
        return [Code(text, language)]
    shown = text[: text.rindex("\n", 0, LIMIT)]
    left = text.count("\n") - shown.count("\n")
    return [Code(shown, language), Note(f"{left} further lines: dump the stages for all of them", "warn")]

"""An inspection as one HTML page: passes with coloured diffs, stages as code that folds; search is the page's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..driver.stages import stage_named
from .diffs import PassChange
from .page import Markup, Page, code, facts, fold, fragment, note, table

if TYPE_CHECKING:
    from .inspection import Inspection

#: Letters of one stage or diff on a page; a browser is slow with more.
LIMIT = 400_000
_TITLES = ("pass", "name", "fired", "skipped", "functions changed", "lines changed", "seconds")


def inspection_page(inspection: Inspection) -> Page:
    """The page."""
    page = Page(f"{inspection.model}: every step of its compile")
    machine = inspection.machine
    page.section(
        "Model",
        facts(
            [
                ("model", inspection.model),
                ("SHA-256", inspection.source.sha256),
                ("inputs", ", ".join(f"{one.name}: {one}" for one in inspection.imported.inputs)),
                ("outputs", ", ".join(f"{one.name}: {one}" for one in inspection.imported.outputs)),
                ("compiled for", f"{machine.mcpu} ({machine.isa}), {machine.threads} threads"),
            ]
        ),
        *(note(warning, "warn") for warning in inspection.imported.warnings),
    )
    page.section("Passes", _table(inspection.passes))
    for one in inspection.passes:
        if one.changes or one.fired or one.skipped:
            page.section(f"{one.number}. {one.name}", *_pass_parts(one), folded=True)
    for name in inspection.stages:
        page.section(f"Stage {name}", note(stage_named(name).summary), _stage(inspection.stage(name)), folded=True)
    return page


def summary_fragment(inspection: Inspection) -> str:
    """For notebooks: the passes, and what can be read."""
    stages = ", ".join(inspection.stages)
    return fragment(facts([("model", inspection.model), ("stages", stages)]), _table(inspection.passes))


def _table(passes: tuple[PassChange, ...]) -> Markup:
    rows = [
        (one.number, one.name, len(one.fired), len(one.skipped), len(one.changes), _lines(one), round(one.seconds, 4))
        for one in passes
    ]
    return table(_TITLES, rows)


def _lines(one: PassChange) -> int:
    """Lines of diffs that were added or removed; two lines of each diff name the function."""
    return sum(line.startswith(("+", "-")) for change in one.changes for line in change.diff[2:])


def _pass_parts(one: PassChange) -> list[Markup]:
    parts = []
    for kind, events in (("fired", one.fired), ("skipped", one.skipped)):
        if events:
            rows = [(event.value, event.detail) for event in events]
            parts.append(
                fold(f"{kind}: {len(events)}", table(("value", "what" if kind == "fired" else "why not"), rows))
            )
    parts += [
        fold(change.function, _block(str(change), "diff"), opened=len(one.changes) == 1) for change in one.changes
    ]
    return parts


def _stage(text: str) -> Markup:
    return _block(text, "text")


def _block(text: str, language: str) -> Markup:
    """A block of code, cut where it is too long to show, with words that say so."""
    if len(text) <= LIMIT:
        return code(text, language)
    shown = text[: text.rindex("\n", 0, LIMIT)]
    left = text.count("\n") - shown.count("\n")
    return Markup(f"{code(shown, language)}{note(f'{left} further lines: dump the stages for all of them', 'warn')}")

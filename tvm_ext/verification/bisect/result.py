"""The result of a bisection: culprits with all that is known of them, the trials, and how to see it again."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.pages.page import Code, Facts, Note, Part, Shown
from ...runtime.table import Cell, Column, Plain, Table, Value, few, plain_fields

AGREES, FOUND, ELSEWHERE = "agrees", "found", "elsewhere"


@dataclass(frozen=True)
class Culprit:
    """One thing whose switching off makes the outputs agree.

    Attributes:
        kind: "pass", "recipe", "layer", "record" or "offload".
        name: of the pass, the recipe, the group, the record ("FILE:LINE") or the ONNX node.
        nodes: ONNX nodes that it works on in this model.
        events: what a pass did; what a back end says of a region.
        recipe, config: of a layer or a record.
        session: of a record; place: its file and line, or the region of an offloaded node.
        switch: what `--off` takes.
    """

    kind: str
    name: str
    nodes: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    recipe: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    session: str = ""
    place: str = ""
    switch: str = ""

    def facts(self, title: str = "") -> Facts:
        """All that is known of it.

        Args:
            title: before its kind.
        """
        known = (
            ("region" if self.kind == "offload" else "stands in", self.place), ("session", self.session),
            ("recipe", f"{self.recipe} {json.dumps(dict(self.config), sort_keys=True)}" if self.recipe else ""),
            ("ONNX nodes", few(self.nodes, 8)), ("what it did", few(self.events, 8)),
        )  # fmt: skip
        return Facts([(f"{title}{self.kind}", self.name), *((name, text) for name, text in known if text)])


@dataclass(frozen=True)
class Trial(Plain):
    """One compile and run.

    Attributes:
        number: from 0, which is the compile with everything on.
        kind: of what is off; "" for nothing.
        off: names of what is off; on: how many others of the kind are not.
        ok: whether all outputs agree.
        error: largest difference of an output, as a part of its range; NaN if there was no run.
        detail: what is wrong, in words.
        seconds: of the compile and the run.
    """

    number: int
    kind: str
    off: tuple[str, ...]
    on: int
    ok: bool
    error: float
    detail: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**plain_fields(self), "seconds": round(self.seconds, 3)}

    def __str__(self) -> str:
        what = f"off: {self.kind} {few(self.off, 4)} ({self.on} stay on)" if self.off else "everything on"
        outcome = "agrees" if self.ok else self.detail
        return f"trial {self.number}: {what}: {outcome} ({self.seconds:.1f} s)"


@dataclass(frozen=True)
class Finding:
    """What one kind came to.

    Attributes:
        kind: that was searched.
        culprits: all of which have to be off; empty if the error does not come from this kind.
        also: others that would do as well: the error takes both.
        suspects: how many were searched.
        kept: what cannot be switched off, and why not.
        reason: why none of this kind is to blame.
    """

    kind: str
    culprits: tuple[Culprit, ...]
    also: tuple[Culprit, ...] = ()
    suspects: int = 0
    kept: tuple[tuple[str, str], ...] = ()
    reason: str = ""

    def parts(self) -> list[Part]:
        """Its culprits, or why there are none."""
        if self.culprits:
            also = (culprit.facts("it takes too: ") for culprit in self.also)
            return [*(culprit.facts() for culprit in self.culprits), *also]
        kept = [Note(f"  always on: {name}: {why}") for name, why in self.kept]
        return [Note(f"no {self.kind}: {self.reason or 'it is not to blame'}"), *kept]


@dataclass(frozen=True)
class Bisection(Shown):
    """What was found.

    Attributes:
        model: its name.
        by: what was asked for; "" for every kind in turn.
        status: "agrees" (nothing is wrong), "found", or "elsewhere" (the error is not of this kind).
        findings: one a kind that was searched, in order.
        trials: all compiles.
        reference: name and version of the reference.
        commands: that show it again: with the culprit on, and off.
        hint: what to try next.
    """

    model: str
    by: str
    status: str
    findings: tuple[Finding, ...]
    trials: tuple[Trial, ...]
    reference: str
    commands: tuple[str, ...] = ()
    hint: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.status == AGREES

    @property
    def culprits(self) -> tuple[Culprit, ...]:
        """What has to be off, of the first kind that had any."""
        return next((finding.culprits for finding in self.findings if finding.culprits), ())

    @property
    def verdict(self) -> str:
        """What was found, in a sentence."""
        if self.status == AGREES:
            return "nothing is wrong: every output agrees with the reference"
        if self.status == ELSEWHERE:
            reasons = "; ".join(f"{finding.kind}: {finding.reason}" for finding in self.findings)
            return f"the error does not come from what was searched: {reasons}"
        finding = next(candidate for candidate in self.findings if candidate.culprits)
        names = ", ".join(culprit.name for culprit in finding.culprits)
        if len(finding.culprits) > 1:
            return f"it depends on several: outputs agree when all of these are off, and with no fewer: {names}"
        others = ", ".join(culprit.name for culprit in finding.also)
        also = f"; it takes {others} too: without that it is right" if others else ""
        return f"the error comes from {finding.kind} {names}{also}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**plain_fields(self, "ok", "verdict", "culprits"), "compiles": len(self.trials)}

    def parts(self) -> list[Part]:
        """The trials, the verdict, the culprits with all that is known of them, and the commands that show it again."""
        shown = self.findings if len(self.findings) == 1 else [finding for finding in self.findings if finding.culprits]
        seconds = sum(trial.seconds for trial in self.trials)
        ends = [Code("\n".join(self.commands), "sh")] if self.commands else []
        return [
            Note(f"{self.model} against {self.reference}"), Table(_COLUMNS, map(_row, self.trials)),
            Note(self.verdict, "good" if self.ok else "bad"), *(part for finding in shown for part in finding.parts()),
            Note(f"{len(self.trials)} compiles, {seconds:.1f} s"), *ends,
            *([Note(f"next: {self.hint}")] if self.hint else []),
        ]  # fmt: skip


_COLUMNS = (
    "trial", Column("off", most=60), Column("on"), Column("error", form=".2e"), "result", Column("time", "s", ".1f"),
)  # fmt: skip


def _row(trial: Trial) -> tuple[Value, ...]:
    result = Cell("agrees" if trial.ok else trial.detail, tone="good" if trial.ok else "bad")
    off = f"{trial.kind} {', '.join(trial.off)}" if trial.off else "nothing"
    return trial.number, off, trial.on or None, None if math.isnan(trial.error) else trial.error, result, trial.seconds

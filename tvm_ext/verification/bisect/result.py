"""The result of a bisection: culprits with all that is known of them, the trials, and how to see it again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

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

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "nodes": list(self.nodes), "events": list(self.events), "config": dict(self.config)}

    def lines(self) -> list[str]:
        """A paragraph for people."""
        text = [f"{self.kind} {self.name}"]
        if self.place:
            text.append(f"  {'region' if self.kind == 'offload' else 'stands in'}: {self.place}")
        if self.session:
            text.append(f"  session: {self.session}")
        if self.recipe:
            text.append(f"  recipe: {self.recipe} {json.dumps(dict(self.config), sort_keys=True)}")
        if self.nodes:
            more = f" and {len(self.nodes) - 8} more" if len(self.nodes) > 8 else ""
            text.append(f"  ONNX nodes: {', '.join(self.nodes[:8])}{more}")
        text += [f"  {event}" for event in self.events[:5]]
        return text + ([f"  and {len(self.events) - 5} more"] if len(self.events) > 5 else [])


@dataclass(frozen=True)
class Trial:
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
        error = self.error if math.isfinite(self.error) else str(self.error)
        return {**asdict(self), "off": list(self.off), "error": error, "seconds": round(self.seconds, 3)}

    def __str__(self) -> str:
        names = ", ".join(self.off[:4]) + (f" and {len(self.off) - 4} more" if len(self.off) > 4 else "")
        what = f"off: {self.kind} {names} ({self.on} stay on)" if self.off else "everything on"
        found = "agrees" if self.ok else self.detail
        return f"trial {self.number}: {what}: {found} ({self.seconds:.1f} s)"


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

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "reason": self.reason, "kind": self.kind, "culprits": [one.as_dict() for one in self.culprits],
            "also": [one.as_dict() for one in self.also], "suspects": self.suspects,
            "kept": [list(one) for one in self.kept],
        }  # fmt: skip


@dataclass(frozen=True)
class Bisection:
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
        return next((one.culprits for one in self.findings if one.culprits), ())

    @property
    def verdict(self) -> str:
        """What was found, in a sentence."""
        if self.status == AGREES:
            return "nothing is wrong: every output agrees with the reference"
        if self.status == ELSEWHERE:
            reasons = "; ".join(f"{one.kind}: {one.reason}" for one in self.findings)
            return f"the error does not come from what was searched: {reasons}"
        found = next(one for one in self.findings if one.culprits)
        names = ", ".join(one.name for one in found.culprits)
        if len(found.culprits) > 1:
            return f"it depends on several: outputs agree when all of these are off, and with no fewer: {names}"
        also = f"; it takes {', '.join(one.name for one in found.also)} too: without that it is right" * bool(
            found.also
        )
        return f"the error comes from {found.kind} {names}{also}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "ok": self.ok, "model": self.model, "by": self.by, "status": self.status, "verdict": self.verdict,
            "culprits": [one.as_dict() for one in self.culprits],
            "findings": [one.as_dict() for one in self.findings], "trials": [one.as_dict() for one in self.trials],
            "compiles": len(self.trials), "reference": self.reference, "commands": list(self.commands),
            "hint": self.hint,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{self.model} against {self.reference}", *map(str, self.trials), self.verdict]
        for finding in self.findings:
            for culprit in (*finding.culprits, *finding.also):
                lines += culprit.lines()
            if not finding.culprits and len(self.findings) == 1:
                lines += [f"  always on: {name}: {why}" for name, why in finding.kept]
        seconds = sum(one.seconds for one in self.trials)
        lines.append(f"{len(self.trials)} compiles, {seconds:.1f} s")
        lines += [f"again: {command}" for command in self.commands]
        return "\n".join(lines + ([f"next: {self.hint}"] if self.hint else []))

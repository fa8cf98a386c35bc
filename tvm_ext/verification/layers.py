"""The result of a comparison layer by layer: a row for each value that a kernel wrote, and the first bad one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .differences import Difference, bars
from .verify import VerifyReport

OK, BAD, SKIPPED = "ok", "bad", "not compared"


@dataclass(frozen=True)
class LayerRow:
    """One value that one call of a kernel wrote.

    Attributes:
        order: number of the call in the program.
        kernel, recipe, config: what ran, by which recipe with which configuration.
        nodes: ONNX nodes that the call computes.
        value: the ONNX value it is compared with; "" if there is none.
        layout: how it lies in memory.
        status: "ok", "bad" or "not compared".
        reason: why it was not compared, or what is odd.
        alone: the difference when everything the call reads is the reference's; None if it was not compared.
        total: largest difference in a plain run, with what earlier calls contributed; None likewise.
        tolerance: bound on the difference; tolerance_text: how it came about.
        scale: largest magnitude of the reference.
        behind: numbers of calls whose results no ONNX value has: their part of the difference is in this one.
        record: tuning session whose record the kernel follows.
    """

    order: int
    kernel: str
    recipe: str
    config: Mapping[str, Any]
    nodes: tuple[str, ...]
    value: str = ""
    layout: str = ""
    status: str = OK
    reason: str = ""
    alone: Difference | None = None
    total: float | None = None
    tolerance: float = 0.0
    tolerance_text: str = ""
    scale: float = 0.0
    behind: tuple[int, ...] = ()
    record: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        total = None if self.total is None else self.total if math.isfinite(self.total) else str(self.total)
        return {
            "order": self.order, "kernel": self.kernel, "recipe": self.recipe, "config": dict(self.config),
            "nodes": list(self.nodes), "value": self.value, "layout": self.layout, "status": self.status,
            "reason": self.reason, "alone": self.alone.as_dict() if self.alone else None, "total": total,
            "tolerance": self.tolerance, "tolerance_text": self.tolerance_text, "scale": self.scale,
            "behind": list(self.behind), "record": self.record,
        }  # fmt: skip


@dataclass(frozen=True)
class LayerReport:
    """A comparison layer by layer.

    Attributes:
        model: its name.
        rows: in the order the kernels ran.
        outputs: the comparison of the outputs of a plain run.
        reference: name and version of the reference.
        seed: of the inputs; None if they were given.
        batch: size of the batch, if that is symbolic; else 0.
    """

    model: str
    rows: tuple[LayerRow, ...]
    outputs: VerifyReport
    reference: str
    seed: int | None = None
    batch: int = 0

    @property
    def bad(self) -> tuple[LayerRow, ...]:
        """Calls that are wrong by themselves."""
        return tuple(row for row in self.rows if row.status == BAD)

    @property
    def first_bad(self) -> LayerRow | None:
        """The first call that is wrong on right operands."""
        return next(iter(self.bad), None)

    @property
    def worst(self) -> LayerRow | None:
        """The call farthest from its reference, in its own tolerance."""
        compared = [row for row in self.rows if row.alone is not None]
        return max(compared, key=lambda row: row.alone.ratio if row.alone else 0.0, default=None)

    @property
    def not_compared(self) -> tuple[LayerRow, ...]:
        """What has no counterpart in the model, with the reason."""
        return tuple(row for row in self.rows if row.status == SKIPPED)

    @property
    def ok(self) -> bool:
        """Whether no call is wrong and every output agrees."""
        return not self.bad and self.outputs.ok

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        first = self.first_bad
        return {
            "ok": self.ok, "model": self.model, "reference": self.reference, "seed": self.seed, "batch": self.batch,
            "first_bad": None if first is None else first.order, "rows": [row.as_dict() for row in self.rows],
            "outputs": self.outputs.as_dict(), "verdict": self.verdict,
        }  # fmt: skip

    @property
    def verdict(self) -> str:
        """What was found, in a sentence."""
        compared = len(self.rows) - len(self.not_compared)
        count = f"{compared} of {len(self.rows)} values of kernels were compared"
        if (first := self.first_bad) is not None:
            return f"first bad: call {first.order}, {first.kernel} ({first.recipe}): {_why(first)}; {count}"
        if not self.outputs.ok:
            return (
                "no kernel is wrong by itself, but outputs disagree: differences grow from layer to layer, or a change "
                f"of the graph is wrong (tvm-ext bisect says which); {count}"
            )
        return f"every kernel agrees; {count}"

    def __str__(self) -> str:
        titles = ("call", "", "kernel", "recipe", "ONNX value", "difference", "tolerance", "ratio", "in a plain run")
        rows = [titles, *(_cells(row, row is self.first_bad) for row in self.rows)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(titles))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        source = "given inputs" if self.seed is None else f"inputs of seed {self.seed}"
        head = f"{self.model}, layer by layer against {self.reference}, {source}"
        return "\n".join([head, *lines, *self._details(), self.verdict, "ok" if self.ok else "NOT OK"])

    def _details(self) -> list[str]:
        lines = [f"not compared: call {r.order}, {r.kernel}: {r.reason}" for r in self.not_compared]
        row = self.first_bad or self.worst
        if row is None or row.alone is None or row.alone.worst_index is None:
            return lines
        at = ", ".join(map(str, row.alone.worst_index))
        name = "first bad" if row.status == BAD else "worst"
        lines += [
            f"{name}: {row.value}[{at}] is {row.alone.actual}, reference {row.alone.expected}",
            f"  nodes: {', '.join(row.nodes) or 'none'}",
            f"  kernel: {row.kernel}, recipe {row.recipe} {json.dumps(dict(row.config), sort_keys=True)}",
            f"  tolerance {row.tolerance:.2e} ({row.tolerance_text})",
        ]
        if row.behind:
            lines.append(f"  part of it may be of calls {', '.join(map(str, row.behind))}, which no ONNX value shows")
        return [*lines, "differences:", *bars(row.alone.bins, row.tolerance)]


def _why(row: LayerRow) -> str:
    found = row.alone
    assert found is not None
    if found.nan_mismatch:
        return f"{found.nan_mismatch} elements of {row.value} are NaN on one side only"
    if found.inf_mismatch:
        return f"{found.inf_mismatch} infinities of {row.value} differ"
    return f"{found.mismatched} elements of {row.value} are beyond the tolerance, up to {found.ratio:.3g} times"


def _cells(row: LayerRow, first: bool) -> tuple[str, ...]:
    mark = ">>" if first else "!" if row.status == BAD else "-" if row.status == SKIPPED else ""
    if row.alone is None:
        return (str(row.order), mark, row.kernel, row.recipe, row.value or "-", "", "", "", "")
    total = "" if row.total is None else f"{row.total:.2e}"
    return (
        str(row.order), mark, row.kernel, row.recipe, row.value, f"{row.alone.largest:.2e}", f"{row.tolerance:.2e}",
        f"{row.alone.ratio:.3g}", total,
    )  # fmt: skip

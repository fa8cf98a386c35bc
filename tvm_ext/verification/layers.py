"""The result of a comparison layer by layer: a row for each value that a kernel wrote, and the first bad one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.pages.page import Facts, Note, Part, Shown
from ..runtime.table import Cell, Column, Plain, Table, Value, plain_fields
from .metrics import Difference, histogram
from .verify import VerifyReport

OK, BAD, SKIPPED = "ok", "bad", "not compared"


@dataclass(frozen=True)
class LayerRow(Plain):
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


@dataclass(frozen=True)
class LayerReport(Shown):
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
        return {**plain_fields(self, "ok", "verdict"), "first_bad": None if first is None else first.order}

    @property
    def verdict(self) -> str:
        """What was found, in a sentence."""
        compared = len(self.rows) - len(self.not_compared)
        count = f"{compared} of {len(self.rows)} values of kernels were compared"
        if (first := self.first_bad) is not None:
            return f"first bad: call {first.order}, {first.kernel} ({first.recipe}): {_why(first)}; {count}"
        if not self.outputs.ok:
            why = "differences grow from layer to layer, or a change of the graph is wrong (tvm-ext bisect says which)"
            return f"no kernel is wrong by itself, but outputs disagree: {why}; {count}"
        return f"every kernel agrees; {count}"

    def parts(self) -> list[Part]:
        """A row a kernel's value, the first bad or worst of them with a histogram of its differences, the verdict."""
        head = f"{self.model}, layer by layer against {self.reference}, {self.outputs.source}"
        looked_at = self.first_bad or self.worst
        details = _details(looked_at) if looked_at is not None and looked_at.alone is not None else []
        verdict = Note(f"{self.verdict}\n{'ok' if self.ok else 'NOT OK'}", "good" if self.ok else "bad")
        wrong = [Note(f"output {o.name}: {o.reason}", "bad") for o in self.outputs.outputs if not o.ok]
        left = [Note(f"not compared: call {r.order}, {r.kernel}: {r.reason}") for r in self.not_compared]
        return [Note(head), self.table(), *left, *details, *wrong, verdict]

    def table(self) -> Table:
        """A row a value of a kernel, each computed on the reference's operands."""
        columns = (
            Column("call"), "result", "kernel", "recipe", "ONNX value", Column("difference", form=".2e"),
            Column("tolerance", form=".2e"), Column("ratio", form=".3g"), Column("in a plain run", form=".2e"),
            Column("nodes", page=True), Column("why", page=True),
        )  # fmt: skip
        return Table(columns, [_row(row, row is self.first_bad) for row in self.rows])


def _details(row: LayerRow) -> list[Part]:
    """All that is known of the first bad or worst value."""
    alone = row.alone
    assert alone is not None
    at = ", ".join(map(str, alone.worst_index or ()))
    known = [
        ("first bad" if row.status == BAD else "worst", f"call {row.order}, {row.kernel}"),
        ("value", f"{row.value}[{at}] is {alone.actual}, reference {alone.expected}"),
        ("ONNX nodes", ", ".join(row.nodes) or "none"),
        ("recipe", f"{row.recipe} {json.dumps(dict(row.config), sort_keys=True)}"),
        ("tolerance", f"{row.tolerance:.2e} ({row.tolerance_text})"),
    ]
    if row.behind:
        known.append(("part of it", f"may be of calls {', '.join(map(str, row.behind))}, which no ONNX value shows"))
    return [Facts(known), histogram(alone.bins, row.tolerance, f"differences of {row.value}")]


def _why(row: LayerRow) -> str:
    alone = row.alone
    assert alone is not None
    if alone.nan_mismatch:
        return f"{alone.nan_mismatch} elements of {row.value} are NaN on one side only"
    if alone.inf_mismatch:
        return f"{alone.inf_mismatch} infinities of {row.value} differ"
    return f"{alone.mismatched} elements of {row.value} are beyond the tolerance, up to {alone.ratio:.3g} times"


def _row(row: LayerRow, first: bool) -> list[Value]:
    tone = {BAD: "bad", SKIPPED: "dim"}.get(row.status, "good")
    alone = row.alone
    return [
        row.order, Cell("first bad" if first else row.status, tone=tone), row.kernel, row.recipe, row.value,
        alone.largest if alone else None, Cell(row.tolerance, title=row.tolerance_text) if alone else None,
        Cell(alone.ratio, share=min(1.0, alone.ratio)) if alone else None, row.total if alone else None,
        ", ".join(row.nodes), row.reason,
    ]  # fmt: skip

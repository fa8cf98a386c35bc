"""The result of an analysis: what a model holds, what would become of it; as text, as plain data and as HTML."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.errors import OptionError
from .. import markup, page
from .survey import Refused

Shape = tuple[int, ...] | None
PASSES, FIX = "passes that do something", "fix"


@dataclass(frozen=True)
class NodeRow:
    """One ONNX node.

    Attributes:
        node, op: its label and operator.
        inputs, outputs: shapes; None where one is unknown, or the value is no tensor.
        dtype: of its first output.
        parameters: elements of the initializers it is the first to read; parameter_bytes: their size.
        flops: two a multiply-add; bytes: of operands and results, each once. Both 0 for what is known at import, and
            None where a shape is unknown.
        becomes: the recipe or the pass that takes it, as far as the run of the passes tells.
    """

    node: str
    op: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    dtype: str
    parameters: int
    parameter_bytes: int
    flops: float | None
    bytes: int | None
    becomes: str = ""

    @property
    def intensity(self) -> float | None:
        """Operations a byte."""
        return self.flops / self.bytes if self.flops is not None and self.bytes else None


@dataclass(frozen=True)
class OpRow:
    """All nodes of one operator; columns as in :class:`NodeRow`, summed."""

    op: str
    nodes: int
    parameters: int
    flops: float
    bytes: int

    @property
    def intensity(self) -> float | None:
        """Operations a byte."""
        return self.flops / self.bytes if self.bytes else None


@dataclass(frozen=True)
class Finding:
    """Something redundant.

    Attributes:
        node, op: its label and operator, or the initializer's name and "".
        kind: "identity", "duplicate", "cancels", "constant" or "unused".
        detail: what is redundant in it.
        action: what the passes do about it: "pass: what", or "" for nothing.
    """

    node: str
    op: str
    kind: str
    detail: str
    action: str


@dataclass(frozen=True)
class Generic:
    """An operation that no recipe takes: TVM's generic kernel computes it.

    Attributes:
        nodes: ONNX nodes.
        operation: Relax operators of it.
        dtype, shape: of the result.
        reason: why no recipe takes it.
    """

    nodes: tuple[str, ...]
    operation: str
    dtype: str
    shape: Shape
    reason: str


@dataclass(frozen=True)
class Analysis:
    """What a model holds; `str()` prints it.

    Attributes:
        model: its name; opset: of the standard operators.
        inputs, outputs: (name, shape, dtype).
        free: input -> dimensions as the model states them, that are not bound; `inputs` has what was assumed.
        parameters, parameter_bytes: of all initializers and constants.
        nodes: in order; ops: by operations, most first.
        redundant: what need not be there.
        unsupported: every node that cannot be compiled; unseen: nodes behind them whose shapes nobody knows.
        generic: what no recipe takes.
        passes: (name, rewrites) of each pass that did something; empty if the model cannot be compiled.
        warnings: what is odd but allowed.
    """

    model: str
    opset: int
    inputs: tuple[tuple[str, Shape, str], ...]
    outputs: tuple[tuple[str, Shape, str], ...]
    free: Mapping[str, str]
    parameters: int
    parameter_bytes: int
    nodes: tuple[NodeRow, ...]
    redundant: tuple[Finding, ...]
    unsupported: tuple[Refused, ...]
    unseen: tuple[str, ...]
    generic: tuple[Generic, ...]
    passes: tuple[tuple[str, int], ...]
    warnings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the model can be compiled as far as an import tells, once its free dimensions are bound."""
        return not self.unsupported

    @property
    def ops(self) -> tuple[OpRow, ...]:
        """Totals by operator."""
        rows: dict[str, list[NodeRow]] = {}
        for row in self.nodes:
            rows.setdefault(row.op, []).append(row)
        made = [
            OpRow(
                op, len(all_), sum(r.parameters for r in all_), sum(r.flops or 0.0 for r in all_),
                sum(r.bytes or 0 for r in all_),
            )
            for op, all_ in rows.items()
        ]  # fmt: skip
        return tuple(sorted(made, key=lambda row: (-row.flops, -row.bytes, row.op)))

    @property
    def flops(self) -> float:
        """Of all nodes."""
        return sum(row.flops or 0.0 for row in self.nodes)

    @property
    def bytes(self) -> int:
        """Operands and results of all nodes."""
        return sum(row.bytes or 0 for row in self.nodes)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        made = {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}
        made["nodes"] = [{**_plain(row), "intensity": row.intensity} for row in self.nodes]
        made["ops"] = [{**_plain(row), "intensity": row.intensity} for row in self.ops]
        return {"ok": self.ok, **made, "flops": self.flops, "bytes": self.bytes}

    def text(self, by: str = "op", top: int = 0) -> str:
        """The analysis as text.

        Args:
            by: "op" for totals by operator, "node" for every node.
            top: rows of each table, those of most operations first; 0 for all, in order.

        Raises:
            OptionError: `by` is neither.
        """
        return "\n\n".join(filter(None, [_head(self), _text(*self._work(by, top)), *map(_titled, self._lists(top))]))

    __str__ = text

    def _work(self, by: str, top: int) -> tuple[list[str], list[list[Any]]]:
        if by not in ("op", "node"):
            raise OptionError(f"by={by!r}: choose 'op' or 'node'")
        if by == "op":
            rows = [
                [r.op, r.nodes, r.parameters, r.flops, share(r.flops, self.flops), r.bytes, r.intensity]
                for r in self.ops
            ]
            return ["operator", "nodes", "parameters", "FLOPs", "share", "bytes", "FLOP/byte"], rows[: top or None]
        nodes = sorted(self.nodes, key=lambda r: -(r.flops or 0.0))[:top] if top else self.nodes
        return (
            ["node", "operator", "inputs", "outputs", "dtype", "parameters", "FLOPs", "bytes", "FLOP/byte", "becomes"],
            [
                [r.node, r.op, shapes(r.inputs), shapes(r.outputs), r.dtype, r.parameters, r.flops, r.bytes,
                 r.intensity, r.becomes]
                for r in nodes
            ],
        )  # fmt: skip

    def _lists(self, top: int) -> list[tuple[str, list[str], list[list[Any]]]]:
        """(title, columns, rows) of what there is of each kind."""
        cut = top or None
        made: list[tuple[str, list[str], list[list[Any]]]] = [
            (f"{len(self.unsupported)} nodes cannot be compiled", ["node", "operator", "reason", FIX],
             [[r.node, r.op, r.reason, r.fix] for r in self.unsupported]),
            (f"{len(self.unseen)} nodes behind them have unknown shapes", ["node"], [[n] for n in self.unseen[:cut]]),
            (f"{len(self.redundant)} redundant", ["node", "operator", "kind", "what", "what the passes do"],
             [[r.node, r.op, r.kind, r.detail, r.action or "nothing"] for r in self.redundant[:cut]]),
            (f"{len(self.generic)} operations that no recipe takes: generic kernels",
             ["operation", "dtype", "shape", "nodes", "reason"],
             [[r.operation, r.dtype, shapes([r.shape]), few(r.nodes), r.reason] for r in self.generic[:cut]]),
            (PASSES, ["pass", "rewrites"], [list(row) for row in self.passes]),
        ]  # fmt: skip
        return [one for one in made if one[2]]

    def facts(self) -> list[tuple[str, str]]:
        """What stands at the top."""
        made = [("model", self.model), ("opset", str(self.opset))]
        known = {name: shapes([shape]) for name, shape, _ in self.inputs}
        made += [("input", f"{name} {dtype} {shapes([shape])}") for name, shape, dtype in self.inputs]
        made += [("output", f"{name} {dtype} {shapes([shape])}") for name, shape, dtype in self.outputs]
        made += [
            ("free dimensions", f"{name} {dims}: counted as {known[name]}; bind them with shapes=")
            for name, dims in self.free.items()
        ]
        intensity = f", {self.flops / self.bytes:.1f} FLOP/byte" if self.bytes else ""
        made += [
            ("parameters", f"{self.parameters:,} ({scaled(self.parameter_bytes)}B)"),
            ("work", f"{len(self.nodes)} nodes, {scaled(self.flops)}FLOP, {scaled(self.bytes)}B{intensity}"),
        ]
        return [*made, *(("warning", warning) for warning in self.warnings)]

    def sections(self, passes: bool = True) -> list[tuple[str, list[markup.Markup]]]:
        """(title, parts) of a page.

        Args:
            passes: with the list of passes.
        """
        by_op, by_node = self._work("op", 0), self._work("node", 0)
        made = [
            ("Model", [markup.facts(self.facts())]),
            ("Work by operator", [markup.table(*by_op)]),
            ("Work by node", [markup.table(*by_node)]),
        ]
        for title, columns, rows in self._lists(0):
            if passes or title != PASSES:
                made.append((title[0].upper() + title[1:], [markup.table(columns, rows)]))
        return made

    def _repr_html_(self) -> str:
        return page.fragment(*(part for title, parts in self.sections() for part in (markup.note(title), *parts)))


def share(part: float, whole: float) -> markup.Cell:
    """A share in percent, with a bar."""
    ratio = part / whole if whole else 0.0
    return markup.Cell(f"{100 * ratio:.1f} %", ratio, share=ratio)


def shapes(given: Iterable[Shape]) -> str:
    """Shapes as text: 1x3x224x224; a scalar is (), an unknown one is ?."""
    return ", ".join("?" if one is None else "x".join(map(str, one)) or "()" for one in given)


def few(names: Sequence[str], most: int = 3) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def scaled(value: float) -> str:
    """A number with a unit's prefix: 3.64 G."""
    for prefix in ("", "k", "M", "G", "T"):
        if value < 999.5 or prefix == "T":
            return f"{value:.3g} {prefix}"
        value /= 1000
    raise AssertionError


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


def _head(analysis: Analysis) -> str:
    width = max(len(name) for name, _ in analysis.facts())
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in analysis.facts())


def _titled(one: tuple[str, Sequence[str], Sequence[Sequence[Any]]]) -> str:
    title, columns, rows = one
    if columns[-1] != FIX:
        return f"{title}:\n{_text(columns, rows)}"
    fixes = dict.fromkeys(f"fix: {row[-1]}" for row in rows if row[-1])  # long, and the same for many
    return "\n".join([f"{title}:", _text(columns[:-1], [row[:-1] for row in rows]), *fixes])


def _text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table for a terminal: numbers on the right."""
    cells = [[_shown(cell) for cell in row] for row in rows]
    numeric = [all(_is_number(row[at]) for row in rows) for at in range(len(columns))]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]

    def line(row: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return "\n".join(map(line, [columns, *cells]))


def _shown(cell: Any) -> str:
    if isinstance(cell, markup.Cell):
        return str(cell.content)
    if cell is None:
        return ""
    return markup.number(cell) if isinstance(cell, int | float) else " ".join(str(cell).split())


def _is_number(cell: Any) -> bool:
    return cell is None or isinstance(cell, int | float | markup.Cell)

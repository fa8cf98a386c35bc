"""The result of an analysis: what a model holds, what would become of it; as text, as plain data and as HTML."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...core.errors import check_choice
from ...core.pages.page import Facts, Note, Part, Shown
from ...runtime.table import Plain, Table, facts_text, few, percent_cell
from .survey import Refused

Shape = tuple[int, ...] | None
PASSES, FIX = "passes that do something", "fix"


@dataclass(frozen=True)
class NodeRow(Plain):
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

    derived = ("intensity",)

    @property
    def intensity(self) -> float | None:
        """Operations a byte."""
        return self.flops / self.bytes if self.flops is not None and self.bytes else None


@dataclass(frozen=True)
class OpRow(Plain):
    """All nodes of one operator; columns as in :class:`NodeRow`, summed."""

    op: str
    nodes: int
    parameters: int
    flops: float
    bytes: int

    derived = ("intensity",)

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
class Analysis(Shown):
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

    derived = ("ok", "flops", "bytes", "ops")

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
        totals = [
            OpRow(
                op, len(all_), sum(r.parameters for r in all_), sum(r.flops or 0.0 for r in all_),
                sum(r.bytes or 0 for r in all_),
            )
            for op, all_ in rows.items()
        ]  # fmt: skip
        return tuple(sorted(totals, key=lambda row: (-row.flops, -row.bytes, row.op)))

    @property
    def flops(self) -> float:
        """Of all nodes."""
        return sum(row.flops or 0.0 for row in self.nodes)

    @property
    def bytes(self) -> int:
        """Operands and results of all nodes."""
        return sum(row.bytes or 0 for row in self.nodes)

    def text(self, by: str = "op", top: int = 0) -> str:
        """The analysis as text.

        Args:
            by: "op" for totals by operator, "node" for every node.
            top: rows of each table, those of most operations first; 0 for all, in order.

        Raises:
            OptionError: `by` is neither.
        """
        work = [("", self._work(by, top)), *self._lists(top)]
        texts = [facts_text(self.facts()), *(_titled(title, table) for title, table in work)]
        return "\n\n".join(filter(None, texts))

    def __str__(self) -> str:
        return self.text()

    def _work(self, by: str, top: int) -> Table:
        check_choice("by", by, ("op", "node"))
        if by == "op":
            whole = self.flops or 1.0
            totals = [
                (r.op, r.nodes, r.parameters, r.flops, percent_cell(r.flops / whole, bar=True), r.bytes, r.intensity)
                for r in self.ops
            ]
            columns = ("operator", "nodes", "parameters", "FLOPs", "share", "bytes", "FLOP/byte")
            return Table(columns, totals[: top or None])
        nodes = sorted(self.nodes, key=lambda r: -(r.flops or 0.0))[:top] if top else self.nodes
        rows = [
            (r.node, r.op, shapes(r.inputs), shapes(r.outputs), r.dtype, r.parameters, r.flops, r.bytes, r.intensity,
             r.becomes)
            for r in nodes
        ]  # fmt: skip
        return Table(
            ("node", "operator", "inputs", "outputs", "dtype", "parameters", "FLOPs", "bytes", "FLOP/byte", "becomes"),
            rows,
        )

    def _lists(self, top: int) -> list[tuple[str, Table]]:
        """(title, table) of what there is of each kind."""
        cut = top or None
        lists = [
            (f"{len(self.unsupported)} nodes cannot be compiled",
             Table(("node", "operator", "reason", FIX), [(r.node, r.op, r.reason, r.fix) for r in self.unsupported])),
            (f"{len(self.unseen)} nodes behind them have unknown shapes",
             Table(("node",), [(node,) for node in self.unseen[:cut]])),
            (f"{len(self.redundant)} redundant",
             Table(("node", "operator", "kind", "what", "what the passes do"),
                   [(r.node, r.op, r.kind, r.detail, r.action or "nothing") for r in self.redundant[:cut]])),
            (f"{len(self.generic)} operations that no recipe takes: generic kernels",
             Table(("operation", "dtype", "shape", "nodes", "reason"),
                   [(r.operation, r.dtype, shapes([r.shape]), few(r.nodes), r.reason) for r in self.generic[:cut]])),
            (PASSES, Table(("pass", "rewrites"), self.passes)),
        ]  # fmt: skip
        return [(title, table) for title, table in lists if table.rows]

    def facts(self) -> list[tuple[str, str]]:
        """What stands at the top."""
        pairs = [("model", self.model), ("opset", str(self.opset))]
        known = {name: shapes([shape]) for name, shape, _ in self.inputs}
        pairs += [("input", f"{name} {dtype} {shapes([shape])}") for name, shape, dtype in self.inputs]
        pairs += [("output", f"{name} {dtype} {shapes([shape])}") for name, shape, dtype in self.outputs]
        pairs += [
            ("free dimensions", f"{name} {dims}: counted as {known[name]}; bind them with shapes=")
            for name, dims in self.free.items()
        ]
        intensity = f", {self.flops / self.bytes:.1f} FLOP/byte" if self.bytes else ""
        pairs += [
            ("parameters", f"{self.parameters:,} ({scaled(self.parameter_bytes)}B)"),
            ("work", f"{len(self.nodes)} nodes, {scaled(self.flops)}FLOP, {scaled(self.bytes)}B{intensity}"),
        ]
        return [*pairs, *(("warning", warning) for warning in self.warnings)]

    def sections(self, passes: bool = True) -> list[tuple[str, list[Part]]]:
        """(title, parts) of a page.

        Args:
            passes: with the list of passes.
        """
        sections: list[tuple[str, list[Part]]] = [
            ("Model", [Facts(self.facts())]), ("Work by operator", [self._work("op", 0)]),
            ("Work by node", [self._work("node", 0)]),
        ]  # fmt: skip
        lists = [(title, table) for title, table in self._lists(0) if passes or title != PASSES]
        return sections + [(title[0].upper() + title[1:], [table]) for title, table in lists]

    def parts(self) -> list[Part]:
        """All sections, one behind the other."""
        return [part for title, parts in self.sections() for part in (Note(title), *parts)]


def shapes(sizes: Iterable[Shape]) -> str:
    """Shapes as text: 1x3x224x224; a scalar is (), an unknown one is ?."""
    return ", ".join("?" if shape is None else "x".join(map(str, shape)) or "()" for shape in sizes)


def scaled(value: float) -> str:
    """A number with a unit's prefix: 3.64 G."""
    for prefix in ("", "k", "M", "G", "T"):
        if value < 999.5 or prefix == "T":
            return f"{value:.3g} {prefix}"
        value /= 1000
    raise AssertionError


def _titled(title: str, table: Table) -> str:
    """A table below its title; what mends its rows, which is long and the same for many, behind it."""
    if table.columns[-1].title != FIX:
        return f"{title}:\n{table.text()}" if title else table.text()
    fixes = dict.fromkeys(f"fix: {row[-1].content}" for row in table.rows if row[-1].content)
    return "\n".join([f"{title}:", Table(table.columns[:-1], [row[:-1] for row in table.rows]).text(), *fixes])

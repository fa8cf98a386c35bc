"""Which kernel, region, memory or pass has the work of each ONNX node of a compiled model; read from its report."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.graph.ownership import KERNEL, MEMORY, REGION
from ..core.pages.page import Note, Part, Shown
from ..runtime.model import CompiledModel
from ..runtime.table import Cell, Column, Table


@dataclass(frozen=True)
class NodeOwner:
    """One ONNX node.

    Attributes:
        node, op: its label and operator.
        kind: "kernel", "region", "memory", "fold", or "" if nobody owns it; of its first owner.
        owners: kernels and regions with the numbers of their call sites, or the pass.
        how: recipes of the kernels, and the reason of what is no kernel or has no recipe.
        passes: (pass, what it did to the node) of every rewrite before kernels were made.
    """

    node: str
    op: str
    kind: str
    owners: tuple[str, ...]
    how: str
    passes: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Owners(Shown):
    """All nodes of a model, in its order; of a symbolic batch, in the program of the largest size.

    Attributes:
        model: its name.
        rows: a row a node.
    """

    model: str
    rows: tuple[NodeOwner, ...]

    derived = ("kinds",)

    @property
    def unowned(self) -> tuple[str, ...]:
        """Nodes that nobody owns: none, unless provenance was lost."""
        return tuple(row.node for row in self.rows if not row.kind)

    @property
    def kinds(self) -> Mapping[str, int]:
        """How many nodes each kind of owner has."""
        return Counter(row.kind or "nobody" for row in self.rows)

    def parts(self) -> list[Part]:
        """A row a node, and how many who owns."""
        columns = ("node", "operator", "owned by", "which", "how", Column("what passes did", page=True))
        tones = {"": "bad", "fold": "dim", "memory": "dim"}
        rows = [
            (
                row.node, row.op, Cell(row.kind or "nobody", tone=tones.get(row.kind, "")), ", ".join(row.owners),
                row.how, "\n".join(f"{step}: {what}" for step, what in row.passes),
            )
            for row in self.rows
        ]  # fmt: skip
        return [Table(columns, rows), Note(self.verdict, "bad" if self.unowned else "")]

    @property
    def verdict(self) -> str:
        """How many nodes who owns."""
        counts = ", ".join(f"{count} by {_PLURAL.get(kind, kind)}" for kind, count in self.kinds.items())
        return f"{len(self.rows)} nodes: {counts}"


_PLURAL = {"kernel": "kernels", "region": "offloaded regions", "memory": "another reading of memory", "fold": "folds"}


def owners_of(compiled: CompiledModel) -> Owners:
    """The owners of a compiled model's nodes.

    Args:
        compiled: what `tvm_ext.compile` or `tvm_ext.load` returned.
    """
    report = compiled.report
    kernels = {row["name"]: row for row in report["kernels"]}
    ops = report.get("offload", {}).get("ops", ())
    places = {node: (place, reason) for node, _, place, reason in ops}  # the region or "cpu", and why
    rows = tuple(_row(node, row, kernels, places) for node, row in report.get("nodes", {}).items())
    return Owners(str(compiled.metadata.model["name"]), rows)


def _row(
    node: str, row: Mapping[str, Any], kernels: Mapping[str, Any], places: Mapping[str, tuple[str, str]]
) -> NodeOwner:
    owners = row["owners"]
    kind = owners[0]["kind"] if owners else ""
    names = [f"{owner['name']} call {owner['call']}" if "call" in owner else owner["name"] for owner in owners]
    reasons = [_how(owner, kernels) for owner in owners]
    place, why = places.get(node, ("", ""))
    if kind in (KERNEL, REGION) and why:
        reasons.append(f"not offloaded: {why}" if kind == KERNEL else f"{place}: {why}")
    passes = tuple((str(step), str(what)) for step, what in row["passes"])
    how = "; ".join(dict.fromkeys(filter(None, reasons)))
    return NodeOwner(node, row["op"], kind, tuple(names), how, passes)


def _how(owner: Mapping[str, Any], kernels: Mapping[str, Any]) -> str:
    if owner["kind"] not in (KERNEL, REGION):
        pass_ = f"{owner['name']}: " if owner["kind"] == MEMORY else ""
        return f"{pass_}{owner.get('reason', '')}"
    recipe = kernels[owner["name"]]["recipe"] if owner["name"] in kernels else ""
    return f"{recipe}: {owner['reason']}" if owner.get("reason") else recipe

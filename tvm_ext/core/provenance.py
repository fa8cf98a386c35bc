"""Where a value came from: the ONNX nodes behind each Relax variable, kept through every pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Provenance:
    """Relax variable name -> names of the ONNX nodes it computes, in model order.

    Variables are identified by name: every pass of this library gives a new variable a fresh name and records
    its origin here (:class:`tvm_ext.core.relax_graph.Rewriter` does it for them).
    """

    def __init__(self, nodes: Mapping[str, Iterable[str]] | None = None) -> None:
        self._nodes: dict[str, tuple[str, ...]] = {k: tuple(v) for k, v in (nodes or {}).items()}

    def of(self, name: str) -> tuple[str, ...]:
        """ONNX nodes behind a variable; empty for one that no node made (an input, a layout transform)."""
        return self._nodes.get(name, ())

    def record(self, name: str, sources: Iterable[str]) -> None:
        """Say that variable `name` computes what the variables `sources` (and itself so far) did."""
        merged = dict.fromkeys(self._nodes.get(name, ()))
        for source in sources:
            merged.update(dict.fromkeys(self._nodes.get(source, ())))
        self._nodes[name] = tuple(merged)

    def as_dict(self) -> dict[str, list[str]]:
        """Plain values for JSON."""
        return {name: list(nodes) for name, nodes in self._nodes.items()}

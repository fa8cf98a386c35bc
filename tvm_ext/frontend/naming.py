"""Names: labels of ONNX nodes, and Relax identifiers made from ONNX names."""

from __future__ import annotations

import collections
import keyword
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def node_label(node: onnx.NodeProto) -> str:
    """What users see of a node: its name, or "Operator:first_output" if it has none."""
    return node.name or f"{node.op_type}:{next((o for o in node.output if o), '')}"


def node_labels(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    """One label a node, each different: nodes that share a name get their first output appended."""
    nodes = list(nodes)
    labels = [node_label(node) for node in nodes]
    count = collections.Counter(labels)
    names = Names()
    for i, node in enumerate(nodes):
        shared = count[labels[i]] > 1
        labels[i] = names.fresh(f"{labels[i]}:{next((o for o in node.output if o), '')}" if shared else labels[i])
    return labels


def identifier(name: str) -> str:
    """A valid Relax (and Python) identifier that still reads like `name`: "layer1.0.conv1" -> "layer1_0_conv1"."""
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "v"
    return f"v_{word}" if word[0].isdigit() or keyword.iskeyword(word) else word


class Names:
    """Hands out names, each once: the hint itself, else the hint with a number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: collections.Counter[str] = collections.Counter()

    def fresh(self, hint: str) -> str:
        """`hint`, or "hint_1", "hint_2", ... if it is taken."""
        name = hint
        while name in self._taken:
            self._next[hint] += 1
            name = f"{hint}_{self._next[hint]}"
        self._taken.add(name)
        return name

"""Where a value came from: the ONNX nodes behind each Relax variable, and the ONNX value it holds, through passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...runtime.plain import read, row
from ..layout import Layout

Step = tuple[str, tuple[int, ...]]
"""("reshape", shape) or ("transpose", axes)."""


@dataclass(frozen=True)
class Held:
    """An ONNX value that a variable holds, element for element.

    Attributes:
        value: its ONNX name.
        steps: what makes the variable's array of the ONNX value's, in order.
    """

    value: str
    steps: tuple[Step, ...] = ()

    def then(self, *steps: Step) -> Held:
        """What a variable holds that is a view of this one."""
        return Held(self.value, (*self.steps, *steps))

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The variable's logical array, from the ONNX value's.

        Raises:
            ValueError: the array has another number of elements or dimensions than the compile saw.
        """
        for kind, numbers in self.steps:
            array = array.reshape(numbers) if kind == "reshape" else array.transpose(numbers)
        return array


class Provenance:
    """Relax variable name -> names of the ONNX nodes it computes, in model order; and what it holds.

    Variables are identified by name: every pass of this library gives a new variable a fresh name and records
    its origin here (:class:`tvm_ext.core.graph.relax_graph.Rewriter` does it for them). A variable that a pass binds to
    something else keeps its value, so it goes on to hold the ONNX values that it held; a new one holds none, unless
    it is a view of one that does. Layouts are kept apart: `Held` is about logical arrays.

    Args:
        nodes: variable -> ONNX nodes.
        held: variable -> ONNX values.
        narrow: ONNX value -> "float16" or "bfloat16", of those that the model has in it: they are computed in float32.
    """

    def __init__(
        self, nodes: Mapping[str, Iterable[str]] | None = None, held: Mapping[str, Iterable[Held]] | None = None,
        narrow: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._nodes: dict[str, tuple[str, ...]] = {k: tuple(v) for k, v in (nodes or {}).items()}
        self._held: dict[str, tuple[Held, ...]] = {k: tuple(v) for k, v in (held or {}).items()}
        self._placed: dict[str, tuple[Layout, tuple[int, ...]]] = {}
        self._narrow = dict(narrow or {})

    def of(self, name: str) -> tuple[str, ...]:
        """ONNX nodes behind a variable; empty for one that no node made (an input, a layout transform)."""
        return self._nodes.get(name, ())

    def record(self, name: str, sources: Iterable[str]) -> None:
        """Say that variable `name` computes what the variables `sources` (and itself so far) did."""
        merged = dict.fromkeys(self._nodes.get(name, ()))
        for source in sources:
            merged.update(dict.fromkeys(self._nodes.get(source, ())))
        self._nodes[name] = tuple(merged)

    def clear_nodes(self, name: str) -> None:
        """Say that a variable does no node's work: it is another form of what another one computed."""
        self._nodes.pop(name, None)

    def held(self, name: str) -> tuple[Held, ...]:
        """ONNX values that a variable holds; several for one that a pass found equal; none if no ONNX value is it."""
        return self._held.get(name, ())

    def add_held(self, name: str, held: Iterable[Held]) -> None:
        """Say that a variable holds these values too."""
        self._held[name] = tuple(dict.fromkeys((*self.held(name), *held)))

    def narrow(self, name: str) -> str:
        """The narrow float type that the model has a variable's value in; "" of any other."""
        return next((self._narrow[held.value] for held in self.held(name) if held.value in self._narrow), "")

    def forget_held(self, name: str) -> None:
        """A new variable has a name that one had which is gone: nothing is known of what it holds."""
        self._held.pop(name, None)
        self._placed.pop(name, None)

    def place(self, name: str, layout: Layout, shape: Iterable[int]) -> None:
        """Say that a variable lies in `layout`, and what its logical shape is."""
        self._placed[name] = layout, tuple(shape)

    def placement(self, name: str) -> tuple[Layout, tuple[int, ...]] | None:
        """Layout and logical shape of a variable that lies in another than ONNX's."""
        return self._placed.get(name)

    def as_dict(self) -> dict[str, list[str]]:
        """Plain values for JSON."""
        return {name: list(nodes) for name, nodes in self._nodes.items()}

    def state(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        placed = {name: [*row(layout), list(shape)] for name, (layout, shape) in self._placed.items()}
        return {"nodes": self.as_dict(), "held": row(self._held), "placed": placed, "narrow": dict(self._narrow)}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Provenance:
        """The inverse of :meth:`state`."""
        provenance = cls(state["nodes"], read(dict[str, tuple[Held, ...]], state["held"]), state.get("narrow", {}))
        for name, (*layout, shape) in state["placed"].items():
            provenance.place(name, read(Layout, layout), shape)
        return provenance

"""Merging: composites that run as one program, where no path leaves the region and comes back into it.

    a -> b -> c, b on the CPU     ->   two regions: {a}, {c}: in one, it would have to wait for itself

Units are regions and single operations; two are merged if no other unit lies on a path between them.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from .region import Composite, Region, Value
from .relax_view import RelaxView


@dataclass(eq=False)
class _Unit:
    """A region while it grows."""

    composites: list[Composite]
    closed: bool = False

    @property
    def members(self) -> set[str]:
        return {operation.result.name for c in self.composites for operation in (c.anchor, *c.epilogue)}


class Merger:
    """Regions of composites.

    Args:
        view: the function.
        composites: in model order of their anchors.
        alone: composites that get a region of their own.
    """

    def __init__(self, view: RelaxView, composites: Sequence[Composite], alone: Container[Composite] = ()) -> None:
        self._view = view
        self._position = {name: index for index, name in enumerate(view.bindings)}
        self._of: dict[str, _Unit] = {}
        self._units: list[_Unit] = []
        for composite in sorted(composites, key=lambda c: self._position[c.result.name]):
            self._add(composite, alone)

    def regions(self, prefix: str) -> list[Region]:
        """In model order; names are `prefix` with a number."""
        live, regions = self.live(), []
        for index, unit in enumerate(unit for unit in self._units if unit.members & live):
            composed = {operation.result.name for c in unit.composites for operation in c.operations}
            inputs = {v.name: v for c in unit.composites for v in c.inputs if v.name not in composed}
            outputs = tuple(c.result for c in unit.composites if self._read_outside(c.result, unit, live))
            regions.append(Region(f"{prefix}{index}", tuple(unit.composites), tuple(inputs.values()), outputs))
        return regions

    def order(self) -> list[str]:
        """Names of all bindings, the members of each region side by side, everything after what it reads."""
        done: dict[str, None] = {}
        for name in self._view.bindings:
            self._place(name, done)
        return list(done)

    def _place(self, name: str, done: dict[str, None]) -> None:
        pending = [name]
        while pending:
            current = pending[-1]
            missing = [n for n in self._reads(current) if n not in done and n in self._view.bindings]
            if missing and current not in done:
                pending += missing
                continue
            pending.pop()
            unit = self._of.get(current)
            members = sorted(unit.members, key=self._position.__getitem__) if unit else [current]
            done.update(dict.fromkeys(m for m in members if m not in done))

    # ------------------------------------------------------------ merging
    def _add(self, composite: Composite, alone: Container[Composite]) -> None:
        own = _Unit([composite], composite in alone)
        near = [self._of[v.name] for v in composite.inputs if v.name in self._of] + self._units[-1:]
        open_units = (unit for unit in dict.fromkeys(near) if not (own.closed or unit.closed))
        target = next((unit for unit in open_units if not self._path_between(unit, own)), None)
        if target is None:
            self._units.append(target := own)
        else:
            target.composites.append(composite)
        self._of.update(dict.fromkeys(own.members, target))

    def _path_between(self, unit: _Unit, own: _Unit) -> bool:
        """Whether something outside of both reads `unit` and is read by `own`, directly or not. The other way round
        there is nothing: composites come in model order, so none before reads what `own` computes."""
        members = unit.members
        return self._reaches([name for name in self._inputs(own.composites) if name not in members], members)

    def _reaches(self, names: Iterable[str], wanted: Container[str]) -> bool:
        """Whether one of these values is among the wanted ones, or computed from one."""
        seen: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name in wanted:
                return True
            if name in seen or name not in self._view.bindings:
                continue
            seen.add(name)
            pending += self._reads(name)
        return False

    def _reads(self, name: str) -> list[str]:
        """What a binding reads; for a member of a region what the region does."""
        unit = self._of.get(name)
        if unit is None:
            return list(self._view.operands(name))
        return [n for n in self._inputs(unit.composites) if self._of.get(n) is not unit]

    @staticmethod
    def _inputs(composites: Iterable[Composite]) -> list[str]:
        return list(dict.fromkeys(value.name for composite in composites for value in composite.inputs))

    # ------------------------------------------------------------ what is read
    def live(self) -> set[str]:
        """Names of all that the function's result needs, where regions compute their prologues themselves."""
        pending = [name for name, readers in self._view.readers.items() if "" in readers]
        live: set[str] = set()
        while pending:
            name = pending.pop()
            if name in live or name not in self._view.bindings:
                continue
            unit = self._of.get(name)
            live |= unit.members if unit else {name}
            pending += self._reads(name)
        return live

    def _read_outside(self, value: Value, unit: _Unit, live: set[str]) -> bool:
        for reader in self._view.readers.get(value.name, ()):
            if reader == "" or (reader in live and reader not in self._of):
                return True
        readers = (other for other in self._units if other is not unit and other.members & live)
        return any(value.name in self._inputs(other.composites) for other in readers)

"""Which nodes go into one region: the fewest, such that only what may leaves it, and nothing waits for itself.

a* -> s -> b, s no tensor               ->   {a, b}       a value that cannot cross the border
a* -> x -> b*, a and b joined by s      ->   {a, x, b}    a path out of the region and back into it
a* -> b*                                ->   {a, b}       neighbours, where that pulls in nothing else
"""

import graphlib
from collections.abc import Callable, Iterable, Mapping, Sequence


class Regions:
    """Regions of a graph whose nodes are numbered in an order that works.

    Args:
        reads: of each node, the values that it reads and a node makes while the program runs.
        makers: value -> number of the node that makes it.
        crosses: whether a value may leave or enter a region.
        apart: nodes that must be in a region.
    """

    def __init__(
        self, reads: Sequence[Iterable[str]], makers: Mapping[str, int], crosses: Callable[[str], bool],
        apart: Iterable[int],
    ) -> None:  # fmt: skip
        self._edges = [(makers[name], at, crosses(name)) for at, names in enumerate(reads) for name in names]
        self._region = {at: at for at in apart}

    def members(self) -> list[list[int]]:
        """Nodes of each region, ascending."""
        while self._borders() or self._merge(self._cycle(self._region)):
            pass
        self._join_neighbours()
        groups: dict[int, list[int]] = {}
        for at, region in sorted(self._region.items()):
            groups.setdefault(region, []).append(at)
        return list(groups.values())

    def _borders(self) -> bool:
        """Bring both ends of what cannot cross into one region; whether something changed."""
        changed = False
        for maker, reader, crosses in self._edges:
            if not crosses and not self._region.keys().isdisjoint((maker, reader)):
                changed = self._merge([self._unit(maker), self._unit(reader)]) or changed
        return changed

    def _unit(self, at: int) -> int:
        return self._region.get(at, at)

    def _merge(self, units: Sequence[int]) -> bool:
        """Make one region of these units, the regions among them as a whole; whether there was more than one."""
        if len(set(units)) < 2:
            return False
        self._region = self._merged(units)
        return True

    def _merged(self, units: Sequence[int]) -> dict[int, int]:
        chosen, root = set(units), min(units)
        moved = {at: root if region in chosen else region for at, region in self._region.items()}
        return {**moved, **dict.fromkeys(chosen, root)}

    def _cycle(self, regions: Mapping[int, int]) -> list[int]:
        """Units that wait for each other; none if they can run in some order."""
        before: dict[int, set[int]] = {}
        for maker, reader, _ in self._edges:
            first, second = regions.get(maker, maker), regions.get(reader, reader)
            if first != second:
                before.setdefault(second, set()).add(first)
        try:
            graphlib.TopologicalSorter(before).prepare()
        except graphlib.CycleError as error:
            return list(error.args[1])
        return []

    def _join_neighbours(self) -> None:
        """One region of two where one reads the other, unless others would have to wait between them."""
        refused: set[tuple[int, int]] = set()
        while pair := next((p for p in self._neighbours() if p not in refused), None):
            merged = self._merged(pair)
            if self._cycle(merged):
                refused.add(pair)
            else:
                self._region = merged

    def _neighbours(self) -> Iterable[tuple[int, int]]:
        for maker, reader, _ in self._edges:
            if maker in self._region and reader in self._region and self._region[maker] != self._region[reader]:
                yield self._region[maker], self._region[reader]

"""Whole-chip plans: which results stay in the scratchpad from the layer that computes them to those that read them.

A result that stays is stored to the scratchpad and loaded from there (`address` of :class:`.program.Tensor`); tiles of
all layers in between have what is left. Where it does not fit whole, layers go depth first, by :mod:`.bands` of rows.
It stays if that moves fewer bytes of DRAM, smaller tiles and rows computed twice included, and takes no more cycles
than these bytes would take the channel, nor all layers 2 % more than by themselves; as :mod:`.tiling` estimates them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ....core.errors import ProgramError
from ..config import Accelerator, Dataflow
from .bands import Band, banded, is_image, reads_image, rows_read
from .check import ITEMSIZE
from .layer import GemmLayer
from .layer_check import check_layer
from .problem import GemmProblem
from .program import Tensor
from .tiling import ALIGNMENT, SLACK, Tiling, search

#: Into how many bands an output is cut: the fewest of these whose results take at most such a share of what is left.
_BANDS, _SHARES = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 112), (0.75, 0.5, 0.25)
#: First and last layer of those that run band by band, and how many bands; of one layer alone (i, i, 1).
_Unit = tuple[int, int, int]


@dataclass(frozen=True)
class Edge:
    """A result that layers of the program read.

    Attributes:
        tensor, producer, readers: its name, and those of layers.
        nbytes: of all of it.
        place: "scratchpad" (whole), "bands" or "dram".
        saved: bytes of DRAM that the program moves less because of it.
        why: into how many bands it is cut; or why it does not stay.
    """

    tensor: str
    producer: str
    readers: tuple[str, ...]
    nbytes: int
    place: str = "dram"
    saved: int = 0
    why: str = ""


@dataclass(frozen=True, eq=False)
class Part:
    """A layer, or rows of it, as it is coded: with what is left of the scratchpad, and its tilings, the best first."""

    layer: GemmLayer
    problem: GemmProblem
    hardware: Accelerator
    choices: tuple[Tiling, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """Parts in the order in which they run, all tensors, and what was decided about each edge."""

    parts: tuple[Part, ...]
    tensors: tuple[Tensor, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class _Choice:
    """Results that stay whole, in the order in which they get their places; and all layers as units."""

    units: tuple[_Unit, ...]
    kept: tuple[str, ...] = ()

    def unit_of(self, layer: int) -> int:
        return next(at for at, (_, last, _) in enumerate(self.units) if layer <= last)

    def joined(self, producer: int, reader: int, count: int) -> _Choice:
        """With the units of two layers as one, of so many bands."""
        first, last = self.unit_of(producer), self.unit_of(reader)
        unit = self.units[first][0], self.units[last][1], count
        return replace(self, units=(*self.units[:first], unit, *self.units[last + 1 :]))


def plan(
    layers: Sequence[GemmLayer], tensors: Iterable[Tensor], hardware: Accelerator, dataflow: str | None = None,
    fusion: bool = True,
) -> Plan:  # fmt: skip
    """The plan of layers that run one after the other; without `fusion` every result goes to DRAM.

    Raises:
        ProgramError: a layer does not fit the accelerator (dtype, memory); names the layer.
    """
    planner = _Planner(layers, tensors, hardware, dataflow)
    return planner.plan(planner.fused() if fusion else planner.alone())


class _Planner:
    """Decides, an edge after the other, for what moves the fewest bytes."""

    def __init__(
        self, layers: Sequence[GemmLayer], tensors: Iterable[Tensor], hardware: Accelerator, dataflow: str | None
    ) -> None:
        self._hardware, self._dataflow = hardware, dataflow
        self._all = tuple(tensors)
        self._tensors = {tensor.name: tensor for tensor in self._all}
        for layer in layers:
            check_layer(layer, self._tensors, hardware)
        is_sparse = hardware.sparsity != "dense" and dataflow != Dataflow.RS
        self._layers = [layer.with_sparsity() for layer in layers] if is_sparse else layers
        self._top = hardware.scratchpad_bytes // ALIGNMENT * ALIGNMENT
        self._producers = {layer.out.tensor: at for at, layer in enumerate(layers)}
        self._readers: dict[str, list[int]] = {}
        for at, layer in enumerate(layers):
            for name in dict.fromkeys(name for names in layer.operands.values() for name in names):
                if self._producers.get(name, at) < at:
                    self._readers.setdefault(name, []).append(at)
        self._edges = {name: self._edge(name) for name in self._readers}
        self._known: dict[tuple[_Unit, int, frozenset[str]], tuple[tuple[Part, ...], tuple[Tensor, ...]]] = {}

    def _edge(self, name: str) -> Edge:
        readers = tuple(self._layers[at].name for at in self._readers[name])
        role, nbytes = self._tensors[name].role, self._tensors[name].nbytes
        why = "" if role == "scratch" else "it is an output of the program"
        if sum(layer.out.tensor == name for layer in self._layers) > 1:
            why = "several layers write it"
        return Edge(name, self._layers[self._producers[name]].name, readers, nbytes, why=why)

    def alone(self) -> _Choice:
        """Every layer by itself."""
        return _Choice(tuple((at, at, 1) for at in range(len(self._layers))))

    def fused(self) -> _Choice:
        """First what stays whole, that which saves most for its bytes and its time first; then bands, in order."""
        choice = self.alone()
        self._most_cycles = SLACK * self._cost(choice)[0]
        open_edges = [name for name, edge in self._edges.items() if not edge.why]
        for name in sorted(open_edges, key=self._density, reverse=True):
            choice = self._accept(name, choice, [replace(choice, kept=(*choice.kept, name))], "scratchpad")
        for name in sorted(open_edges, key=self._producers.__getitem__):
            if name not in choice.kept and self._is_chain(name):
                at = self._producers[name]
                others = [choice.joined(at, at + 1, count) for count in self._counts(choice, at)]
                choice = self._accept(name, choice, others, "bands")
        return choice

    def _accept(self, name: str, now: _Choice, others: list[_Choice], place: str) -> _Choice:
        """The best of the others, if it is better than what is now; notes on the edge what was decided."""
        (cycles, nbytes), edge = self._cost(now), self._edges[name]
        best, saved, reasons = now, 0, [] if others else ["no number of them leaves room for tiles"]
        for other in others:
            try:
                other_cycles, other_bytes = self._cost(other)
            except ProgramError as error:
                reasons.append(error.message)
                continue
            more = other_cycles - cycles
            if other_cycles > self._most_cycles or more * self._hardware.dma_bytes_per_cycle > nbytes - other_bytes > 0:
                reasons.append(f"it would take {more} cycles more")
            elif nbytes - other_bytes > saved:
                best, saved = other, nbytes - other_bytes
            else:
                reasons.append("tiles beside it would move as many bytes more as it saves, or more")
        if best is not now:
            self._edges[name] = replace(edge, place=place, saved=saved, why="")
        elif reasons:
            why = f"{place}: {reasons[0]}"
            self._edges[name] = replace(edge, why=f"{edge.why}; {why}" if edge.why else why)
        return best

    def _density(self, name: str) -> float:
        """Bytes that it is stored and loaded, for each of its bytes and of the layers past which it lies there."""
        tensor, moved = self._tensors[name], self._tensors[name].nbytes
        for at in self._readers[name]:
            layer = self._layers[at]
            elements = layer.m * layer.k * (layer.n if layer.reduce else 1) * layer.batch
            moved += elements * ITEMSIZE[tensor.dtype] if layer.a.tensor == name else tensor.nbytes
        return moved / (tensor.nbytes * (self._readers[name][-1] - self._producers[name]))

    # ------------------------------------------------------------ what a choice costs
    def _cost(self, choice: _Choice) -> tuple[int, int]:
        """(cycles, bytes of DRAM), estimated.

        Raises:
            ProgramError: something has no room.
        """
        best = [part.choices[0] for parts, _ in self._all_parts(choice) for part in parts]
        return sum(tiling.cycles for tiling in best), sum(tiling.dram_bytes for tiling in best)

    def plan(self, choice: _Choice) -> Plan:
        """What is chosen, as it is coded."""
        places, units = self._places(choice), self._all_parts(choice)
        bands = [tensor for _, own in units for tensor in own]
        cut = [name for name, edge in self._edges.items() if edge.place == "bands"]
        whole = [replace(each, address=places.get(each.name)) for each in self._all if each.name not in cut]
        for name in cut:
            count = choice.units[choice.unit_of(self._producers[name])][2]
            self._edges[name] = replace(self._edges[name], why=f"{count} bands of rows")
        parts = tuple(part for own, _ in units for part in own)
        return Plan(parts, (*whole, *bands), tuple(self._edges.values()))

    def _all_parts(self, choice: _Choice) -> list[tuple[tuple[Part, ...], tuple[Tensor, ...]]]:
        """Of each unit its parts, and the tensors of its bands; equal ones are made once."""
        places, units = self._places(choice), []
        for at, unit in enumerate(choice.units):
            limit = self._limit(choice, places, at)
            layers = self._layers[unit[0] : unit[1] + 1]
            names = {name for layer in layers for operands in layer.operands.values() for name in operands}
            key = unit, limit, frozenset(names & places.keys())
            if key not in self._known:
                self._known[key] = self._parts(*key)
            units.append(self._known[key])
        return units

    def _limit(self, choice: _Choice, places: Mapping[str, int], at: int) -> int:
        """Bytes of the scratchpad below all that stays there while a unit runs."""
        spans = {name: self._span(name, choice) for name in choice.kept}
        above = [places[name] for name, (begin, end) in spans.items() if begin <= at <= end]
        return min(above, default=self._hardware.scratchpad_bytes)

    def _span(self, name: str, choice: _Choice) -> tuple[int, int]:
        """The first and the last unit at which a result is there."""
        return choice.unit_of(self._producers[name]), choice.unit_of(self._readers[name][-1])

    def _places(self, choice: _Choice) -> dict[str, int]:
        """Addresses: each from the top down, in the first gap between those that are there at the same time."""
        placed: dict[str, tuple[int, int]] = {}
        for name in choice.kept:
            (begin, end), top, size = self._span(name, choice), self._top, _aligned(self._tensors[name].nbytes)
            spans = {other: self._span(other, choice) for other in placed}
            beside = [placed[other] for other, span in spans.items() if begin <= span[1] and span[0] <= end]
            for low, high in sorted(beside, reverse=True):
                if top - high >= size:
                    break
                top = low
            if top <= size:
                size, whole = self._tensors[name].nbytes, self._hardware.scratchpad_bytes
                raise ProgramError(f"{name} has {size} bytes, and {top} of the scratchpad of {whole} are left")
            placed[name] = top - size, top
        return {name: address for name, (address, _) in placed.items()}

    # ------------------------------------------------------------ parts
    def _parts(self, unit: _Unit, limit: int, kept: frozenset[str]) -> tuple[tuple[Part, ...], tuple[Tensor, ...]]:
        first, last, _ = unit
        if first == last:
            return (self._part(self._layers[first], self._tensors, limit, kept),), ()
        bands, limit = self._bands(unit), limit // ALIGNMENT * ALIGNMENT
        tensors: dict[str, Tensor] = {}
        for at in range(first, last):  # each result between them has a place for its largest band
            limit -= max(self._band_bytes(band[at]) for band in bands)
            for rows in (band[at] for band in bands):
                tensors[rows.name] = Tensor(rows.name, "scratch", rows.shape, rows.whole.dtype, max(limit, 0))
        known, parts = {**self._tensors, **tensors}, []
        for band in bands:
            for at in range(first, last + 1):
                layer = banded(self._layers[at], band[at], band.get(at - 1), at == last)
                parts.append(self._part(layer, known, limit, kept | tensors.keys()))
        return tuple(parts), tuple(tensors.values())

    def _part(self, layer: GemmLayer, tensors: Mapping[str, Tensor], free: int, kept: frozenset[str]) -> Part:
        local = frozenset(name for name, all_of in layer.operands.items() if all_of and kept.issuperset(all_of))
        problem = replace(layer.problem(tensors[layer.out.tensor].dtype, self._dataflow), local=local)
        try:
            hardware = _with_scratchpad(self._hardware, free)
            return Part(layer, problem, hardware, search(problem, hardware, self._dataflow))
        except ProgramError as error:
            raise ProgramError(f"layer {layer.name}: {error.message}", fix=error.fix) from None

    # ------------------------------------------------------------ bands
    def _is_chain(self, name: str) -> bool:
        """Whether only the next layer reads a result, as A, and both can go by bands of its rows."""
        at, tensor = self._producers[name], self._tensors[name]
        if self._readers[name] != [at + 1]:
            return self._note(name, "not the next layer alone reads it")
        layer, after = self._layers[at : at + 2]
        result = self._tensors[after.out.tensor]
        others = [other for operand, names in after.operands.items() if operand != "a" for other in names]
        fits = reads_image(after, tensor) and is_image(after.out, result, after.m) and name not in others
        return (fits and is_image(layer.out, tensor, layer.m)) or self._note(name, "no rows of images")

    def _note(self, name: str, problem: str) -> bool:
        edge = self._edges[name]
        self._edges[name] = replace(edge, why=f"{edge.why}; bands: {problem}")
        return False

    def _counts(self, choice: _Choice, producer: int) -> list[int]:
        """Numbers of bands that are worth a try for a layer and the next one."""
        joined, at = choice.joined(producer, producer + 1, 1), choice.unit_of(producer)
        unit, limit = joined.units[at], self._limit(joined, self._places(choice), at)
        height = self._tensors[self._layers[unit[1]].out.tensor].shape[2]
        counts = [count for count in _BANDS if count <= height]
        sizes = {count: self._buffers((unit[0], unit[1], count)) for count in counts}
        fewest = [next((n for n in counts if sizes[n] <= share * limit), 0) for share in _SHARES]
        return [count for count in dict.fromkeys(fewest) if count]

    def _buffers(self, unit: _Unit) -> int:
        """Bytes of the results between the layers of a unit."""
        bands = self._bands(unit)
        return sum(max(self._band_bytes(band[at]) for band in bands) for at in range(unit[0], unit[1]))

    def _band_bytes(self, band: Band) -> int:
        return _aligned(band.whole.nbytes // band.whole.shape[2] * (band.end - band.begin))

    def _bands(self, unit: _Unit) -> list[dict[int, Band]]:
        """Of each band, the rows of each layer's output."""
        first, last, count = unit
        height = self._tensors[self._layers[last].out.tensor].shape[2]
        step, bands = -(-height // count), []
        for begin in range(0, height, step):
            rows, band = (begin, min(begin + step, height)), {}
            for at in range(last, first - 1, -1):
                band[at] = Band(self._tensors[self._layers[at].out.tensor], *rows)
                rows = rows_read(self._layers[at], *rows)
            bands.append(band)
        return bands


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@functools.lru_cache(maxsize=256)
def _with_scratchpad(hardware: Accelerator, nbytes: int) -> Accelerator:
    """The accelerator with so much of its scratchpad.

    Raises:
        ProgramError: nothing is left of it.
    """
    if nbytes < 1:
        raise ProgramError(f"no room for tiles in a scratchpad of {hardware.scratchpad_bytes} bytes")
    return replace(hardware, scratchpad_bytes=nbytes)

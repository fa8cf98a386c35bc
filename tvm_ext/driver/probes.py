"""The sizes at which a model of symbolic sizes is planned and lowered.

S from 1 to 512: planned at 576, whole tiles; lowered at 576, 282, 200 and 36
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ..core.options import CompileOptions
from ..runtime.sizes.symbols import Symbol

#: Sizes of other programs, as parts of the largest size, of the first, second and third symbol: no two grow alike. The
#: last program is small: configurations are chosen for it too.
_PARTS = ((0.55, 0.39, 0.81), (0.39, 0.68, 0.3), (0.07, 0.09, 0.11))
#: The same where the largest size is below `_FEW`; below `_FEWER` sizes are beyond it: nothing runs at them.
_PARTS_OF_FEW, _FEW = ((0.9, 0.8, 0.7), (0.6, 0.7, 0.5), (0.4, 0.3, 0.5)), 16
_ODD, _FEWER = (37, 53, 2), 5
#: Where sizes lie, on a logarithmic scale from the least to the largest, at which plans are compared.
_COMMON = (0.9, 0.75, 0.6)
#: (largest size, multiple) at which programs are planned: tiles of 2, 3, 4, 6, 8 ... rows then end where a row of the
#: next dimension does. No program is planned at fewer than `_LEAST`.
_WHOLE_TILES, _LEAST = ((192, 96), (48, 12), (0, 1)), 3
#: What sizes may have to be multiples of.
_STEPS = (2, 4, 8, 16, 32, 64)


def merged(options: CompileOptions) -> CompileOptions:
    """The options with one name for all symbolic dimensions at one place of several inputs.

    Some exporters name equal dimensions of two inputs differently.
    """
    first: dict[int, str] = {}
    names: dict[str, str] = {}
    stated = {**dict(options.dims), **dict(options.specialize)}  # what has sizes of its own is a dimension of its own
    for _, shape in options.shapes:
        for axis, dim in enumerate(shape):
            if isinstance(dim, str):
                names.setdefault(dim, dim if dim in stated else first.setdefault(axis, dim))
    shapes = tuple(
        (name, tuple(names[dim] if isinstance(dim, str) else dim for dim in shape)) for name, shape in options.shapes
    )
    bounds = tuple((name, bounds) for name, bounds in options.dims if names.get(name, name) == name)
    return replace(options, shapes=shapes, dims=bounds)


def plans_of(options: CompileOptions, at: Mapping[str, int] | None = None) -> Iterator[tuple[Symbol, ...]]:
    """The symbols with sizes to plan a program at: of whole tiles if a model takes them, different ones if it must.

    Args:
        at: sizes to plan at before all others.
    """
    if at:
        yield tuple(replace(symbol, bound=at[symbol.name]) for symbol in options.symbols)
    for symbols in _multiples(options):
        for whole in (True, False):
            equal, different = (planned(symbols, whole, apart) for apart in (False, True))
            yield equal
            if different != equal:
                yield different


def _multiples(options: CompileOptions) -> Iterator[list[Symbol]]:
    """The symbols, with any size; then with multiples of 2, 4, ..., but for batches: branches may round otherwise."""
    batches = {shape[0] for _, shape in options.shapes if shape}
    yield list(options.symbols)
    for step in _STEPS:
        coarse = [symbol.name for symbol in options.symbols if symbol.name not in batches and symbol.high >= 3 * step]
        if not coarse:
            return
        yield [replace(symbol, multiple=step if symbol.name in coarse else 1) for symbol in options.symbols]


def planned(symbols: Sequence[Symbol], whole: bool, apart: bool) -> tuple[Symbol, ...]:
    """The symbols with the sizes at which programs are planned: at least the largest.

    Args:
        whole: they are rounded up to whole tiles.
        apart: no two are the same: dimensions of one size may be taken for one another.
    """
    out: list[Symbol] = []
    for symbol in symbols:
        tiles = next(multiple for high, multiple in _WHOLE_TILES if symbol.high >= high) if whole else 1
        unit = math.lcm(symbol.multiple, tiles)
        size = -(-max(symbol.high, _LEAST) // unit) * unit
        while apart and size in {other.bound for other in out}:
            size += unit
        out.append(replace(symbol, bound=size))
    return tuple(out)


def moved(symbols: Sequence[Symbol], count: int) -> tuple[Symbol, ...]:
    """The symbols with sizes to plan at that are further by so many steps, each by other ones: sums of them differ."""
    out = []
    for place, symbol in enumerate(symbols, start=1):
        tiles = next(multiple for high, multiple in _WHOLE_TILES if symbol.high >= high)
        unit = math.lcm(symbol.multiple, tiles)
        step = symbol.multiple if symbol.bound % unit else unit
        out.append(replace(symbol, bound=symbol.bound + place * count * step))
    return tuple(out)


def probes_of(symbols: Sequence[Symbol]) -> tuple[Mapping[str, int], ...]:
    """The sizes at which a model is lowered, the bounds first: all different, and of no size that simplifies."""
    taken = {symbol.bound for symbol in symbols}
    probes: list[dict[str, int]] = [{symbol.name: symbol.bound for symbol in symbols}]
    for number in range(len(_PARTS)):
        probe = {}
        for place, symbol in enumerate(symbols):
            count = max(_size_of(symbol.high // symbol.multiple, number, place), -(-symbol.low // symbol.multiple))
            while count * symbol.multiple in taken:
                count += 1
            probe[symbol.name] = count * symbol.multiple
            taken.add(probe[symbol.name])
        probes.append(probe)
    return tuple(probes)


def common_sizes(symbols: Sequence[Symbol]) -> list[dict[str, int]]:
    """Sizes beside the bounds at which plans are compared: of few (a batch) the least, of others some between the least
    and the largest."""
    return [{s.name: s.least if s.high < _FEW else _between(s, part) for s in symbols} for part in _COMMON]


def _between(symbol: Symbol, part: float) -> int:
    """A size whose logarithm lies at a part of the way from that of the least to that of the largest."""
    size = symbol.high**part * max(symbol.low, 1) ** (1 - part)
    return min(-(-round(size) // symbol.multiple) * symbol.multiple, symbol.most)


def _size_of(largest: int, number: int, place: int) -> int:
    """A size of one of the other programs, for one of the symbols."""
    if largest < _FEWER:
        return _ODD[number] + 6 * place
    parts = _PARTS if largest >= _FEW else _PARTS_OF_FEW
    return max(round(largest * parts[number][place % len(parts[number])]), _LEAST)

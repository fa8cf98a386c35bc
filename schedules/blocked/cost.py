"""Knobs of a blocked reduction, what a configuration costs, and the one of least cost."""

import functools
import itertools
import math
import types
from collections.abc import Mapping, Sequence
from typing import Any

from tvm_ext.core.cost.estimate import Stream, bandwidth, level_of, seconds, thread_counts
from tvm_ext.core.recipe import Config, Machine

from .problem import Problem, Units, shares_pixels

#: Pixels whose addresses do not advance by a constant need a pointer register each. Where a multiply-add takes no
#: broadcast operand, LLVM also loads all broadcasts of a wide tile early, and spills. Numbers of pixels take one more
#: (a 3x3 layer of stride 2, 128 to 256 channels, on a Zen 4: tiles of 4 by 6 pixels 1.04 ms, of 4 by 5 0.61).
_POINTERS = 6
#: Cycles between dependent multiply-adds, with what out-of-order execution loses of it; and between dependent sums.
_LATENCY, _LATENCY_OF_SUMS = 4.5, 1.0
#: The exposed share of the time of weights that are not prefetched, of weights that units read again, and of inputs
#: that come out of another core's cache.
_COLD, _AGAIN, _FOREIGN = 0.5, 1.0, 0.5
#: Cycles that an operand of a step takes beyond its load, and a vector of partial sums that is added to those in L2.
_OPERAND, _PARTIAL_SUM = 0.08, 1.5
#: Cycles of the row and the column of a pixel, by a division, where a kernel numbers pixels at run time.
_DIVISION = 6.0
#: Pages from which a hardware prefetcher streams at once; inputs of a tile that lie in more are waited for. (1x1
#: layers of 1024 channels at 14x14 on a Xeon: 0.32 ms by all channels at once, 0.27 by chunks of 128.)
_STREAMS, _PAGE = 32, 4096
#: Cycles that widening a vector of narrow floats takes: two instructions of a port that multiply-adds want too; and of
#: bytes, one instruction.
_WIDENING, _WIDENING_BYTES = 1.0, 0.5


def space(problem: Problem, machine: Machine) -> Mapping[str, Sequence[Any]]:
    """Knobs: the register tile, parts the pixels are cut in, reduction blocks whose weights stay in cache, threads."""
    threads = threads_for(problem, machine)
    return {**tile_space(problem, machine, threads), "threads": [threads]}


def tile_space(problem: Problem, machine: Machine, threads: int) -> dict[str, Sequence[Any]]:
    """The knobs of :func:`space` but the threads."""
    rows = [problem.pixels // problem.row] if problem.free else []
    chunks = [c for c in (1, 2, 4, 8, 16, 32, 64, problem.blocks) if problem.blocks % c == 0]
    return {
        "tile_o": [t for t in (1, 2, 3, 4, 6, 8) if t <= problem.output_blocks],
        "tile_p": [t for t in (1, 2, 3, 4, 5, 6, 7, 8, 12, 14, 24, 28) if t <= problem.pixels],
        "parts": sorted({t for t in (1, 2, 4, 8, machine.threads, threads, *rows) if t <= problem.pixels}),
        "chunk": sorted(set(chunks)),
    }


@functools.lru_cache(maxsize=1024)
def threads_for(problem: Problem, machine: Machine) -> int:
    """The number of threads whose best tile is estimated to take least, of :func:`counts_for`."""
    most, *fewer = reversed(counts_for(problem, machine))
    best = cost(problem, dict(default(problem, machine, most)), machine) if fewer else 0.0, most
    for threads in fewer:
        if least_seconds(problem, machine, threads) < best[0]:
            best = min(best, (cost(problem, dict(default(problem, machine, threads)), machine), threads))
    return best[1]


def least_seconds(problem: Problem, machine: Machine, threads: int) -> float:
    """Seconds of the products alone, shared evenly: no configuration takes less."""
    cycles = problem.flops * problem.inside(1) / 2 / problem.lanes / product_rate(problem, machine)
    return seconds(cycles / threads, [], machine, threads)


def counts_for(problem: Problem, machine: Machine) -> list[int]:
    """Numbers of threads that may be best, of :func:`..estimate.thread_counts`."""
    return thread_counts(problem.flops / 2 / problem.lanes / product_rate(problem, machine), machine)


def product_rate(problem: Problem, machine: Machine) -> float:
    """Products of vectors a cycle."""
    if problem.instruction == "fma":
        return machine.fma_at(problem.lanes)
    return float(getattr(machine.rates, problem.instruction)) or machine.rates.fma


@functools.lru_cache(maxsize=1024)
def default(problem: Problem, machine: Machine, threads: int | None = None, units: int = 1) -> Mapping[str, Any]:
    """The point of least cost; groups that differ only in their epilogue share it.

    Args:
        threads: those the kernel will use; None takes the choice of :func:`space`.
        units: those of :func:`cost`.
    """
    threads = threads_for(problem, machine) if threads is None else threads
    knobs = {**tile_space(problem, machine, threads), "threads": [threads]}
    tiles = itertools.product(knobs.pop("tile_o"), knobs.pop("tile_p"))
    legal = [t for t in ({"tile_o": o, "tile_p": p} for o, p in tiles) if tile_fits(problem, t, machine)]
    rest = [dict(zip(knobs, values, strict=True)) for values in itertools.product(*knobs.values())]
    least = math.inf, 0, 0
    for floor, place in sorted((_floor(problem, t, machine, threads, units), place) for place, t in enumerate(legal)):
        if floor > least[0]:
            break
        costs = [cost(problem, {**legal[place], **others}, machine, units) for others in rest]
        least = min(least, (min(costs), place, costs.index(min(costs))))
    return types.MappingProxyType({**legal[least[1]], **rest[least[2]]})


def _floor(problem: Problem, tile: Config, machine: Machine, threads: int, units: int) -> float:
    """Seconds of a register tile's products, and of its weights, read once: :func:`cost` is no less, whatever the parts
    and the chunk. It has the terms of that function in its order, so that rounding does not make it more."""
    tiles = -(-problem.output_blocks // tile["tile_o"]) * -(-problem.pixels // tile["tile_p"])
    cycles = problem.batch * tiles * units * _products_cycles(problem, tile, machine, 0.0) / threads
    exposed = 0.0 if problem.prefetched else _COLD
    return seconds(cycles, [Stream(problem.weight_bytes / threads, problem.weights_in, exposed)], machine, threads)


def tile_fits(problem: Problem, config: Mapping[str, Any], machine: Machine) -> bool:
    """Whether a register tile, its operands and its pixels' addresses fit into registers."""
    scattered = problem.scattered(config["tile_p"])
    most = _POINTERS - problem.numbered
    wide = config["tile_p"] > most and (scattered or not machine.operand_broadcast)
    return registers_used(config, problem.adds) <= machine.registers and not wide


def registers_used(config: Mapping[str, Any], adds: bool = False) -> int:
    """Vector registers the inner loop holds: the tile, the smaller side of its operands, one of the other.

    Args:
        adds: a product takes a register before it is added.
    """
    to, tp = config["tile_o"], config["tile_p"]
    return int(to * tp + min(to, tp) + 1 + adds)


def leaves_out_padding(problem: Problem, config: Mapping[str, Any], machine: Machine) -> bool:
    """Whether a kernel leaves out the rows of taps that read padding. It takes a branch over the steps of a tap, at
    which LLVM holds a tile twice: where that is more than the registers, all of it is stored and loaded there (layers
    of stride 2 with tiles of 28 vectors took 1.4 times as long)."""
    return problem.tap_rows is not None and 2 * config["tile_o"] * config["tile_p"] <= machine.registers


def copies_own(problem: Problem, config: Config, machine: Machine) -> bool:
    """Whether each thread pads the image that it reads, instead of a share of all: nobody waits, and it is near.

    It is its own image, or its own rows, or all of one that fits into its caches. Where rows of taps are left out, rows
    are counted from the image's first. Where there may be an image alone, threads share its outputs, and its padding.
    """
    threads = config["threads"]
    if threads == 1 or problem.free:
        return False
    if problem.batch_divides(threads):
        return True
    if shares_pixels(problem, Units.of(problem, config), threads):
        return not leaves_out_padding(problem, config, machine)
    return problem.batch == 1 and level_of(problem.input_bytes, machine) in ("l1", "l2")


def cost(problem: Problem, config: Config, machine: Machine, units: int = 1, apart: bool = False) -> float:
    """Estimated seconds: multiply-adds, loads, latency, cache traffic, waste by rounding up, idle threads.

    Args:
        units: times the problem is solved, with the same weights.
        apart: each unit is one thread's; else all threads share each.
    """
    if not tile_fits(problem, config, machine):
        return math.inf
    to, threads = config["tile_o"], config["threads"]
    work = Units.of(problem, {**config, "threads": 1} if apart else config)
    count = problem.batch * work.outer_o * work.outer_p * units
    cycles = count * work.tiles_p * _tile_cycles(problem, config, work, machine) / threads
    again = max(0, problem.word * count * to * problem.lanes * problem.steps - problem.weight_bytes)
    readers = threads if shares_pixels(problem, work, threads) else 1
    streams = [
        Stream(problem.weight_bytes * readers / threads, problem.weights_in, 0.0 if problem.prefetched else _COLD),
        Stream(again / threads, level_of(problem.weight_bytes, machine), _AGAIN),
        Stream(0 if apart else _foreign_bytes(problem, work, threads), "foreign", _exposed(problem, config)),
    ]
    return seconds(cycles, streams, machine, threads)


def _foreign_bytes(problem: Problem, units: Units, threads: int) -> float:
    """Bytes of input that a thread reads out of other cores' caches."""
    if problem.batch_divides(threads) or problem.weight_sets > 1 or shares_pixels(problem, units, threads):
        return 0.0
    return problem.input_bytes * (1 - 1 / threads)


def _exposed(problem: Problem, config: Config) -> float:
    """The exposed share of the time of inputs out of another core's cache, where a tile reads a chunk of blocks."""
    block = problem.input_bytes / problem.batch / problem.blocks
    pages = config["chunk"] * min(1.0, block / _PAGE)
    return 1.0 if pages > _STREAMS else _FOREIGN


def step_cycles(tile_o: int, tile_p: int, rate: float, latency: float = _LATENCY) -> float:
    """Cycles of a step of a register tile's reduction: products, `rate` a cycle; loads, two a cycle; latency."""
    return max(tile_o * tile_p / rate, (tile_o + tile_p) / 2, latency) + _OPERAND * (tile_o + tile_p)


def _tile_cycles(problem: Problem, config: Config, units: Units, machine: Machine) -> float:
    """Cycles of one register tile over the whole reduction."""
    to, tp, chunk = config["tile_o"], config["tile_p"], config["chunk"]
    chunks = problem.blocks // chunk
    chunk_bytes = problem.word * to * problem.lanes * chunk * problem.taps[0] * problem.taps[1] * problem.inner
    weight_cycles = problem.word * to * problem.lanes / bandwidth(level_of(chunk_bytes, machine), machine)
    cycles = _products_cycles(problem, config, machine, weight_cycles)
    if chunks > 1:
        fits = 4 * units.tiles_p * tp * to * problem.lanes <= machine.l2 // 2
        cycles += chunks * ((1 if fits else 2) * _PARTIAL_SUM * to * tp + 8)
    return float(cycles)


def _products_cycles(problem: Problem, tile: Config, machine: Machine, weight_cycles: float) -> float:
    """Cycles of one register tile without partial sums, where the weights of a step arrive in so many."""
    to, tp = tile["tile_o"], tile["tile_p"]
    latency = _LATENCY_OF_SUMS if problem.adds else _LATENCY
    step = step_cycles(to, tp, product_rate(problem, machine), latency)
    step *= 1 + 0.03 * tp if problem.scattered(tp) and not problem.numbered else 1.0
    step += (_WIDENING_BYTES if problem.adds else _WIDENING) * to if problem.word < 4 else 0.0
    inside = problem.inside(tp) if leaves_out_padding(problem, tile, machine) else 1.0
    cycles = problem.steps * inside * max(step + weight_cycles / 4, weight_cycles) + 10
    return cycles + (_DIVISION * tp if problem.numbered else 0.0)

"""Tiles, loop order and dataflow of a GEMM: an analytic search over what fits, for few cycles, then little energy.

A GEMM runs as loops over tiles. Loads of one step overlap with the work of the step before, so each operand has two
buffers, and a step half of the scratchpad and half of the accumulator (the rule of Gemmini: Genc et al., DAC 2021); a
larger tile of C has all of the accumulator, and the next one begins when it is stored. A tile that is used again stays
while it is among those used last; which one is, the loop order decides. With as many buffers as there are tiles along
k, a whole panel of A (or of B) stays while the tiles of the other stream past it::

    bmnk, A stays    for each m:  A[m, all k] once;  for each n:  for each k:  load B[k, n]
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ....core.errors import ProgramError
from ..config import SYSTOLIC, Accelerator, Dataflow
from ..simulation.cost import block_of, gemm_energy, move_cycles, transfer_cycles
from ..simulation.partition import pieces
from ..simulation.row_stationary import row_block, row_problem
from .problem import MATRIX_ROWS, GemmProblem

#: Outermost first; k is always innermost, so that partial sums stay in the accumulator.
ORDERS = ("bmnk", "bnmk", "nbmk")
#: Where a tile lies in the scratchpad; a transfer of whole bursts would want no less.
ALIGNMENT = 64
#: A dimension of an instruction has 16 bits.
_LARGEST_TILE = 0xFFFF
_RUNNERS_UP = 4
_ENOUGH = 2 * (_RUNNERS_UP + 1)  #: ways, of which any may be shown: a tile may have two, where an operand stays
#: Of all ways that take at most so much of the time of the fastest, that whose memories take the least energy is best.
SLACK = 1.02
_STEP_CYCLES = 16  #: that a tiling with local operands has to save for each step that it has more than another
#: Steps along k of an operand that stays.
_PANEL_STEPS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
VECTOR = "vector"  #: what stands for a dataflow where the vector unit does the work


@dataclass(frozen=True, order=True)
class Tiling:
    """One legal way, with its estimate.

    Attributes:
        cycles: estimate of the whole: the busiest queue, with what comes before its first and behind its last work.
        compute, load, store: cycles that each queue is busy.
        dataflow: "ws", "os", "is" or "rs"; "vector" where the vector unit does the work.
        order: loops, outermost first.
        m, k, n: sizes of a tile.
        dram_bytes: that are loaded and stored.
        stays: operand of which all tiles along k stay: "a", "b", or "" for none.
    """

    cycles: int
    compute: int
    load: int
    store: int
    dataflow: str
    order: str
    m: int
    k: int
    n: int
    dram_bytes: int = 0
    stays: str = ""

    def describe(self) -> str:
        """As reports show it."""
        stays = f", {self.stays.upper()} stays" if self.stays else ""
        return f"{self.dataflow} {self.m}x{self.k}x{self.n} {self.order}{stays}"


@functools.lru_cache(maxsize=1024)
def search(problem: GemmProblem, hardware: Accelerator, dataflow: str | None = None) -> tuple[Tiling, ...]:
    """The best tiling first, then the runners-up by cycles; with `dataflow`, of this one only. Row stationary is tried
    where it is asked for: its PEs are others.

    Raises:
        ProgramError: not even the smallest tile fits the memories.
    """
    dataflows = [str(Dataflow.of(dataflow))] if dataflow else [str(flow) for flow in SYSTOLIC]
    dataflows = [VECTOR] if problem.reduce else dataflows
    if dataflows == [Dataflow.RS]:
        problem = replace(problem, image=problem.image or MATRIX_ROWS)
        check_rows(problem, hardware)
    ways = sorted(
        (_compute_cycles(problem, hardware, flow, tile), flow, tile, stays)
        for tile, stays in _legal_tiles(problem, hardware)
        for flow in dataflows
    )
    if not ways:
        raise _nothing_fits(problem, hardware)
    tilings, fewest = list[Tiling](), list[int]()  # and cycles of the fastest ways
    for compute, flow, tile, stays in ways:
        if len(fewest) == _ENOUGH and compute > max(SLACK * fewest[0], fewest[-1]):
            break  # no way takes fewer cycles than its work
        orders = _distinct_orders(problem, tile)
        own = [estimate(problem, hardware, flow, order, tile, stays, compute) for order in orders]
        bisect.insort(fewest, min(own).cycles)
        del fewest[_ENOUGH:]
        tilings += own
    fastest = sorted(tilings)
    most = SLACK * fastest[0].cycles
    best = min((each for each in fastest if each.cycles <= most), key=lambda each: _rank(problem, hardware, each))
    ranked: dict[tuple[str, int, int, int], Tiling] = {}
    for tiling in (best, *fastest):  # another order of the same tiles is no other choice to show
        ranked.setdefault((tiling.dataflow, tiling.m, tiling.k, tiling.n), tiling)
    return tuple(ranked.values())[: _RUNNERS_UP + 1]


def _rank(problem: GemmProblem, hardware: Accelerator, tiling: Tiling) -> tuple[float, int]:
    """Picojoules of the memories, without what all tilings take; then cycles. Within the scratchpad no latency speaks
    against tiny tiles: each step counts."""
    table, tile = hardware.energy, (tiling.m, tiling.k, tiling.n)
    energy = tiling.dram_bytes * (table.dram_byte + table.scratchpad_byte)
    if not problem.reduce and problem.image is None:
        kinds = ((count, gemm_energy(hardware, tiling.dataflow, sizes, problem.is_sparse))
                 for count, sizes in _kinds(problem, tile))  # fmt: skip
        energy += problem.batch * problem.parts * sum(count * each for count, each in kinds)
    steps = math.prod(loop_extents(problem, tile).values())
    return energy, tiling.cycles + (_STEP_CYCLES * steps if problem.local else 0)


def check_fits(problem: GemmProblem, hardware: Accelerator) -> None:
    """Raises ProgramError, as :func:`search` does, if not even the smallest tile fits the memories."""
    check_rows(problem, hardware)
    if not is_legal(problem, hardware, _smallest(problem)):
        raise _nothing_fits(problem, hardware)


def check_rows(problem: GemmProblem, hardware: Accelerator) -> None:
    """Raises ProgramError where a problem goes by rows, and the accelerator has no array for that."""
    if problem.image and (why := row_problem(problem.image.kernel, problem.image.dilation, hardware)):
        raise ProgramError(why, fix="choose another dataflow")


def _smallest(problem: GemmProblem) -> tuple[int, int, int]:
    """The smallest tile: the vector unit takes all of k at once."""
    m, k = problem.grain
    return (m, problem.k if problem.reduce else k, 1)


def _nothing_fits(problem: GemmProblem, hardware: Accelerator) -> ProgramError:
    need, words = scratchpad_need(problem, hardware, _smallest(problem)), problem.grain[0]
    if words > hardware.accumulator_bytes // 4:
        return ProgramError(
            f"a row of {words} sums does not fit an accumulator of {hardware.accumulator_bytes} bytes",
            fix=f"give the accelerator accumulator_bytes={4 * words} or more",
        )
    return ProgramError(
        f"no tile of a GEMM of {problem.m}x{problem.k}x{problem.n} fits half of a scratchpad of "
        f"{hardware.scratchpad_bytes} bytes",
        fix=f"give the accelerator scratchpad_bytes={need} or more",
    )


def slot_bytes(problem: GemmProblem, hardware: Accelerator, tile: tuple[int, int, int]) -> dict[str, int]:
    """Bytes in the scratchpad of one tile of A, of B, of the row operands, and of the tile operands; aligned."""
    sizes = _tile_bytes(problem, tile, hardware.itemsize, hardware.itemsize)
    return {name: -(-size // ALIGNMENT) * ALIGNMENT for name, size in sizes.items()}


def _tile_bytes(problem: GemmProblem, tile: tuple[int, int, int], of_a: int, of_b: int) -> dict[str, int]:
    """Bytes of one tile of each, where elements of A and B have so many."""
    (m, _, n), (a, b) = tile, problem.operand_elements(*tile)
    return {"a": a * of_a, "b": b * of_b, "rows": 4 * problem.rows * n, "tiles": problem.tile_bytes * m * n}


def _in_dram(problem: GemmProblem, hardware: Accelerator) -> tuple[int, int]:
    """Bytes of an element of A and of B in DRAM, where constants are as operands are."""
    return hardware.tensor_itemsize, hardware.itemsize if problem.b_is_constant else hardware.tensor_itemsize


def buffer_counts(problem: GemmProblem, tile: tuple[int, int, int], stays: str = "") -> dict[str, int]:
    """Tiles of each operand that the scratchpad holds."""
    k_tiles = -(-problem.k // tile[1])
    panel = {"a": k_tiles, "b": k_tiles * problem.parts}
    return {name: max(2, panel[name] if name == stays else 0) for name in ("a", "b", "rows", "tiles")}


def sum_buffers(hardware: Accelerator, tile: tuple[int, int, int]) -> int:
    """Tiles of C in the accumulator: two if they fit, of which one is stored behind the work on the other."""
    return 2 if tile[0] * tile[2] <= hardware.accumulator_bytes // 8 else 1


def scratchpad_need(problem: GemmProblem, hardware: Accelerator, tile: tuple[int, int, int], stays: str = "") -> int:
    """Bytes of all buffers in the scratchpad."""
    counts = buffer_counts(problem, tile, stays)
    return sum(counts[name] * size for name, size in slot_bytes(problem, hardware, tile).items())


def is_legal(problem: GemmProblem, hardware: Accelerator, tile: tuple[int, int, int], stays: str = "") -> bool:
    """Whether the buffers fit the scratchpad, a tile of C the accumulator, and a tile an instruction's fields."""
    fits = scratchpad_need(problem, hardware, tile, stays) <= hardware.scratchpad_bytes
    return fits and tile[0] * tile[2] <= hardware.accumulator_bytes // 4 and max(tile) <= _LARGEST_TILE


def _legal_tiles(problem: GemmProblem, hardware: Accelerator) -> Iterator[tuple[tuple[int, int, int], str]]:
    grain = problem.grain[0]
    for m in (grain * size for size in _sizes(problem.m // grain, hardware.rows)):
        for n in _sizes(problem.n, hardware.cols):
            k = _deepest(problem, hardware, m, n)
            if k:
                yield (m, k, n), ""
            if k < problem.k and not problem.reduce:
                for stays in [name for name, whole in (("a", n >= problem.n), ("b", m >= problem.m)) if not whole]:
                    if panel := _deepest_panel(problem, hardware, m, n, stays):
                        yield (m, panel, n), stays


def _deepest_panel(problem: GemmProblem, hardware: Accelerator, m: int, n: int, stays: str) -> int:
    """The depth of the fewest steps along k with which all of an operand along k can stay; 0 if it cannot."""
    step = _depth_step(problem, hardware)
    for steps in _PANEL_STEPS:
        k = -(-problem.k // (steps * step)) * step
        if k < problem.k and is_legal(problem, hardware, (m, k, n), stays):
            return k
    return 0


def _sizes(size: int, step: int) -> list[int]:
    """Equal parts of a dimension in multiples of the array, and powers of two below it."""
    sizes = {-(-size // parts) for parts in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)}
    sizes = {min(size, -(-part // step) * step) for part in sizes if part <= _LARGEST_TILE}
    few = {min(size, step * times) for times in (2, 3, 4)}
    return sorted(sizes | few | {min(size, max(1, step >> shift)) for shift in (0, 2, 4, 6, 8, 10)}, reverse=True)


def _deepest(problem: GemmProblem, hardware: Accelerator, m: int, n: int) -> int:
    """The deepest equal part of k that is legal with tiles of m and n; 0 if none is."""
    if problem.reduce:
        return problem.k if is_legal(problem, hardware, (m, problem.k, n)) else 0
    grain = problem.grain[1]
    if not is_legal(problem, hardware, (m, grain, n)):
        return 0
    free = hardware.scratchpad_bytes // 2 - sum(slot_bytes(problem, hardware, (m, 0, n)).values())
    each = sum(problem.operand_elements(m, grain, n)) * hardware.itemsize
    low = min(-(-problem.k // grain), _LARGEST_TILE // grain, free // each) * grain
    while not is_legal(problem, hardware, (m, low, n)):  # what aligning the tiles of A and B costs
        low -= grain
    equal, step = -(-problem.k // -(-problem.k // low)), _depth_step(problem, hardware)
    return min(problem.k, low, -(-equal // step) * step)


def _depth_step(problem: GemmProblem, hardware: Accelerator) -> int:
    """Of k: what the rows of the array take at once, in whole channels where it goes by rows."""
    rows_of_grain = problem.depth(problem.grain[1]) if problem.image is None else problem.image.kernel[0]
    return problem.grain[1] * max(1, hardware.rows // rows_of_grain)


def loop_extents(problem: GemmProblem, tile: tuple[int, int, int]) -> dict[str, int]:
    """Iterations of each loop over tiles."""
    m, k, n = tile
    return {
        "b": problem.batch,
        "m": -(-problem.m // m),
        "n": -(-problem.n // n),
        "k": problem.parts * -(-problem.k // k),
    }


def _distinct_orders(problem: GemmProblem, tile: tuple[int, int, int]) -> list[str]:
    """Orders that differ: the loops of more than one iteration stand in another sequence."""
    extents = loop_extents(problem, tile)
    distinct = {"".join(loop for loop in order if extents[loop] > 1): order for order in reversed(ORDERS)}
    return list(distinct.values())


def load_counts(problem: GemmProblem, tile: tuple[int, int, int], order: str, stays: str = "") -> dict[str, int]:
    """How many tiles of A, B and row operands are loaded: one wherever it is not among those used last."""
    extents, buffers = loop_extents(problem, tile), buffer_counts(problem, tile, stays)
    k_tiles = -(-problem.k // tile[1])
    repeated = {"a": [(problem.parts, False), (k_tiles, True)], "b": [(extents["k"], True)], "rows": []}
    walked = {"a": "mn" if problem.reduce else "m", "b": "n", "rows": "n"}
    own = {"a": problem.a_batches, "b": problem.b_batches, "rows": problem.row_batches}
    counts = {}
    for name, axes in walked.items():
        loops = {loop: [(extents[loop], loop in axes)] for loop in "mn"}
        loops |= {"k": repeated[name], "b": [(-(-problem.batch // own[name]), False), (own[name], True)]}
        counts[name] = _loads([each for loop in order for each in loops[loop]], buffers[name])
    return counts


def _loads(loops: list[tuple[int, bool]], buffers: int) -> int:
    """Loads of an operand in loops of (iterations, whether each has another tile), outermost first: a loop that walks
    through the same tiles again finds them there, if they are no more than there are buffers."""
    count = distinct = 1
    for iterations, other in reversed(loops):
        if other or distinct > buffers:
            count *= iterations
        if other:
            distinct *= iterations
    return count


def estimate(
    problem: GemmProblem, hardware: Accelerator, dataflow: str, order: str, tile: tuple[int, int, int], stays: str = "",
    compute: int | None = None,
) -> Tiling:  # fmt: skip
    """Cycles of one way: each queue by itself, the busiest of them, and the two ends that nothing overlaps; `compute`,
    where it is known, are those of the work."""
    compute = _compute_cycles(problem, hardware, dataflow, tile) if compute is None else compute
    extents, counts = loop_extents(problem, tile), load_counts(problem, tile, order, stays)
    outputs = problem.batch * extents["m"] * extents["n"]
    m, k, n = (min(size, whole) for size, whole in zip(tile, (problem.m, problem.k, problem.n), strict=True))
    elements, out_is_local = problem.batch * problem.m * problem.n, "out" in problem.local
    load, nbytes = _load_traffic(problem, hardware, counts, extents, outputs, (m, k, n))
    out_bytes = elements * problem.out_bytes
    store, nbytes = move_cycles(hardware, out_bytes, out_is_local), nbytes + (0 if out_is_local else out_bytes)
    store += 0 if out_is_local else (outputs - 1) * hardware.dma_latency
    arrivals = _arrivals(problem, hardware, {**counts, "tiles": outputs}, (m, k, n))
    with_first = [name for name in arrivals if extents["k"] == 1 or name in "ab"]
    first = sum(arrivals[name][1] for name in with_first)
    later = [(count - (name in with_first), cycles) for name, (count, cycles) in arrivals.items()]
    work = _tile_cycles(problem, hardware, dataflow, m, k, n)
    work += problem.vector_steps * -(-m * n // hardware.vector_lanes)
    last = move_cycles(hardware, m * n * problem.out_bytes, out_is_local)
    waits = 0 if sum_buffers(hardware, tile) == 2 else (outputs - 1) * last
    phases = _phases(math.prod(extents.values()), compute + waits, later)
    channel = transfer_cycles(hardware, nbytes)
    cycles = max(first + phases + last, load + work + last, first + work + store, channel)
    return Tiling(cycles, compute, load, store, dataflow, order, *tile, nbytes, stays)


def _arrivals(
    problem: GemmProblem, hardware: Accelerator, counts: dict[str, int], tile: tuple[int, int, int]
) -> dict[str, tuple[int, int]]:
    """Of each operand that is loaded: how often, and cycles of a load."""
    sizes = _tile_bytes(problem, tile, *_in_dram(problem, hardware))
    cycles = {name: move_cycles(hardware, size, name in problem.local) for name, size in sizes.items() if size}
    return {name: (counts[name], each) for name, each in cycles.items()}


def _phases(steps: int, compute: int, arrivals: list[tuple[int, int]]) -> int:
    """Cycles of all steps, each bound by its work or by the loads of the next; two buffers even out no more than that.

    Args:
        steps, compute: how many, and cycles of the work of all.
        arrivals: of each operand (loads behind those of the first step, cycles of one); the one with fewer comes with
            some of the others.
    """
    each, cycles, before = compute / steps, 0.0, 0
    together = sum(load for _, load in arrivals)
    for count, load in sorted(arrivals):
        cycles += (count - before) * max(each, together)
        before, together = count, together - load
    return int(cycles + (steps - before) * each)


def _load_traffic(
    problem: GemmProblem, hardware: Accelerator, counts: dict[str, int], extents: dict[str, int], outputs: int,
    tile: tuple[int, int, int],
) -> tuple[int, int]:  # fmt: skip
    """(cycles of the load queue, bytes of DRAM) of all loads; a tile at an edge is as large as the mean of its kind."""
    of_a, of_b = _in_dram(problem, hardware)
    k_tiles = extents["k"] // problem.parts
    columns = extents["n"] if problem.reduce else 1
    of_tiles = [(problem.operand_elements(m, problem.k, problem.n)[0], n) for m, n in pieces(problem.m, tile[0])]
    a, b = sum(size * n for size, n in of_tiles), problem.operand_elements(problem.m, problem.k, problem.n)[1]
    moved = {
        "a": (counts["a"], counts["a"] * a * of_a // (extents["m"] * k_tiles * columns)),
        "b": (counts["b"], counts["b"] * b * of_b // (extents["n"] * k_tiles)),
        "rows": (counts["rows"], counts["rows"] * 4 * problem.rows * tile[2]),
        "tiles": (outputs, problem.batch * problem.m * problem.n * problem.tile_bytes),
    }
    near = sum(nbytes for name, (_, nbytes) in moved.items() if name in problem.local)
    far = [each for name, each in moved.items() if each[1] and name not in problem.local]
    nbytes = sum(each for _, each in far)
    cycles = transfer_cycles(hardware, nbytes) + sum(loads for loads, _ in far) * hardware.dma_latency
    return cycles + move_cycles(hardware, near, is_local=True), nbytes


def _tile_cycles(problem: GemmProblem, hardware: Accelerator, dataflow: str, m: int, k: int, n: int) -> int:
    """Cycles of the array, or of the vector unit, for one tile."""
    if problem.reduce:
        return -(-m * k * n // hardware.vector_lanes)
    if problem.image is not None:
        return row_block(problem.image.shape(m, k, n), hardware).cycles
    return block_of(hardware, dataflow, m, problem.depth(k), n).cycles


def _compute_cycles(problem: GemmProblem, hardware: Accelerator, dataflow: str, tile: tuple[int, int, int]) -> int:
    """Cycles of all tiles, whole ones and those at the edges, each kind once, and of their epilogues."""
    vector = problem.vector_steps * -(-problem.batch * problem.m * problem.n // hardware.vector_lanes)
    return vector + problem.batch * problem.parts * sum(
        count * _tile_cycles(problem, hardware, dataflow, *sizes) for count, sizes in _kinds(problem, tile)
    )


def _kinds(problem: GemmProblem, tile: tuple[int, int, int]) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """(how many, (m, k, n)) of all tiles of one matrix, whole ones and those at the edges."""
    whole = (problem.m, problem.k, problem.n)
    for (m, m_count), (k, k_count), (n, n_count) in itertools.product(*map(pieces, whole, tile)):
        yield m_count * k_count * n_count, (m, k, n)

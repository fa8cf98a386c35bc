"""Cycles that SCALE-Sim 3 counts of a layer whose operands come through double buffers at a bandwidth.

Its array stops when one of three memories is late (Raj et al., "SCALE-Sim v3", ISPASS 2025); each has a buffer in two
halves and a channel of its own:

* A read buffer holds what comes next in the order of its operand, half of its bytes, in sets of a hundredth. A request
  for an address that it does not hold turns it: as many sets come in as the other half has, and as many go, until the
  address is there. A turn takes the half's words over the bandwidth, and a cycle.
* The write buffer collects words; when half of it is full, that half drains. The array waits when all of it is full.

What is printed is reproduced as the code of 3.0.0 counts it, which differs from that description in four ways: a turn
that comes too late stalls twice as long as it is late; of several in one cycle each is late from the one before it; a
line of words that a drain cuts short counts as a whole one; and each fold along k writes its partial sums.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ....core.errors import OptionError, check_whole
from ..config import Dataflow
from .cycles import gemm_cycles

#: Parts of a read buffer; half of them are read while the other half comes in.
SETS = 100
#: Requests that are looked up at once.
_CHUNK = 4096
#: Of A, and of the streams of an edge of the array: more would take gigabytes.
MOST_ELEMENTS = 1 << 27
#: Words a cycle of a read buffer whose bandwidth is not said.
CALCULATED_WORDS = 10


@dataclass(frozen=True)
class Memories:
    """SCALE-Sim's memories, of words of a byte.

    Attributes:
        input_bytes, filter_bytes, output_bytes: size of the buffer of A, B and C.
        words_per_cycle: bandwidth of each; None: whatever never stalls, its "CALC" (else "USER").

    Raises:
        OptionError: a buffer below 200 bytes (two a set), or a bandwidth below 1.
    """

    input_bytes: int = 64 * 1024
    filter_bytes: int = 64 * 1024
    output_bytes: int = 64 * 1024
    words_per_cycle: int | None = None

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            if value is not None or name != "words_per_cycle":
                object.__setattr__(self, name, check_whole(name, value, 1 if name == "words_per_cycle" else 2 * SETS))


@dataclass(frozen=True)
class MemoryCycles:
    """Of its COMPUTE_REPORT.csv: "Total Cycles (incl. prefetch)", "Total Cycles", "Stall Cycles"."""

    with_prefetch: int
    total: int
    stalls: int


def window_addresses(height: int, width: int, window: tuple[int, int], channels: int, stride: int) -> np.ndarray:
    """A of a convolution, [pixels of the result, window * channels]: addresses in the input [height, width, channels].

    -1 where the last step of the window leaves the input, which is not padded.
    """
    steps = (-(-(height - window[0]) // stride) + 1, -(-(width - window[1]) // stride) + 1)
    y, x, dy, dx, c = np.ogrid[: steps[0], : steps[1], : window[0], : window[1], :channels]
    row, col = y * stride + dy, x * stride + dx
    addresses = np.where((row < height) & (col < width), (row * width + col) * channels + c, -1)
    return addresses.reshape(steps[0] * steps[1], -1)


def kept_rows(k: int, sparsity: tuple[int, int]) -> np.ndarray:
    """Rows of B[k, n] that layer-wise N:M sparsity keeps: the first N of each M.

    Raises:
        OptionError: not 1 <= N <= M.
    """
    kept, block = sparsity
    if not 1 <= kept <= block:
        raise OptionError(f"sparsity={sparsity!r}: N of each M rows are kept, 1 <= N <= M", fix="give (2, 4)")
    return np.flatnonzero(np.arange(k) % block < kept)


def scale_sim_cycles(
    dataflow: str, a: np.ndarray, n: int, rows: int, cols: int, memories: Memories, sparsity: tuple[int, int] = (1, 1)
) -> MemoryCycles:
    """What SCALE-Sim 3.0.0 prints of C[m, n] = A[m, k] B[k, n] on an array of rows x cols PEs.

    Args:
        dataflow: "ws", "os" or "is".
        a: [m, k] addresses of A's elements, -1 for none: `np.arange(m * k).reshape(m, k)` of a matrix,
            :func:`window_addresses` of a convolution, whose windows share elements.
        memories: sizes and bandwidth.
        sparsity: (N, M): weights are compressed to N of each M rows of B, and A's columns to those.

    Raises:
        OptionError: an unknown dataflow, sparsity that is none, addresses that are none, a size below 1, or streams of
            more than MOST_ELEMENTS.
    """
    Dataflow.systolic(dataflow)
    if a.ndim != 2 or a.dtype.kind not in "iu":
        raise OptionError(
            f"A is {a.dtype}{list(a.shape)}: whole numbers [m, k] are needed, the addresses of its elements"
        )
    a = a[:, kept_rows(a.shape[1], sparsity)].astype(np.int32)
    if min(*a.shape, n, rows, cols) < 1:
        raise OptionError(f"A{list(a.shape)}, n={n} on {rows} x {cols} PEs: each is a whole number of 1 or more")
    if (words := gemm_cycles(dataflow, len(a), a.shape[1], n, rows, cols) * max(rows, cols)) > MOST_ELEMENTS:
        wrong = f"A{list(a.shape)}, n={n} on {rows} x {cols} PEs: an edge asks for {words} words; {MOST_ELEMENTS} go"
        raise OptionError(wrong, fix="count a part of the layer")
    b = np.arange(a.shape[1] * n, dtype=np.int32).reshape(a.shape[1], n)
    c = np.zeros((a.shape[0], n), np.int32)
    if dataflow == Dataflow.OS:
        (of_a, of_b), written = _output_stationary(a, b, c, rows, cols)
    elif dataflow == Dataflow.WS:
        (of_a, of_b), written = _stationary(a, b, c, rows, cols)
    else:
        (of_b, of_a), written = _stationary(b.T, a.T, c.T, rows, cols)
    bandwidth = memories.words_per_cycle
    readers = (_Reader(of_a, memories.input_bytes, bandwidth), _Reader(of_b, memories.filter_bytes, bandwidth))
    return _run(readers, _Writer(memories.output_bytes, bandwidth or cols), written)


# ------------------------------------------------------------ what the array asks for, and when
@dataclass(frozen=True)
class _Stream:
    """An operand's addresses in the order in which they are fetched, and those that the array asks for, each in which
    cycle of an array that never waits; and the words of the fetched matrix, idle PEs included."""

    fetched: np.ndarray
    asked: np.ndarray
    cycles: np.ndarray
    words: int

    @classmethod
    def of(cls, fetched: np.ndarray, asked: list[np.ndarray]) -> _Stream:
        """Of matrices of addresses, -1 for none; those asked for are [cycles, PEs of an edge], fold by fold."""
        every = np.vstack(asked)
        there = every >= 0
        return cls(fetched[fetched >= 0], every[there], np.nonzero(there)[0], fetched.size)


def _stationary(
    stream: np.ndarray, station: np.ndarray, out: np.ndarray, rows: int, cols: int
) -> tuple[tuple[_Stream, _Stream], np.ndarray]:
    """Of stream[t, k] station[k, n] = out[t, n], where the second stays in the PEs; words that each cycle writes.

    A fold: `rows` cycles of fill, last row first, then the skewed stream; results leave below the last row.
    """
    along, across = _blocks(stream, rows), _blocks(station, cols)
    of_stream = [_skewed(np.vstack([_idle(rows, rows), block, _idle(cols - 1, rows)])) for block in along]
    rest = _idle(rows + cols + len(stream) - 2, cols)
    of_station = [np.vstack([part.T[::-1], rest]) for block in across for part in _blocks(block.T, rows)]
    written = [_skewed(np.vstack([_idle(2 * rows - 1, cols), block])) for block in _blocks(out, cols) for _ in along]
    streams = _Stream.of(_skewed(np.vstack(along)), of_stream * len(across)), _Stream.of(np.vstack(across), of_station)
    return streams, _words(written)


def _output_stationary(
    a: np.ndarray, b: np.ndarray, out: np.ndarray, rows: int, cols: int
) -> tuple[tuple[_Stream, _Stream], np.ndarray]:
    """Of a[m, k] b[k, n] = out[m, n], both skewed; results leave in the last `rows` steps of a fold, last row first."""
    along, across = _blocks(a.T, rows), _blocks(b, cols)
    of_a = [_skewed(np.vstack([block, _idle(cols - 1, rows)])) for block in along]
    of_b = [_skewed(np.vstack([block, _idle(rows - 1, cols)])) for block in across for _ in along]
    before = _idle(a.shape[1] - 1, cols)
    parts = (part.T[::-1] for block in _blocks(out, cols) for part in _blocks(block.T, rows))
    written = [_skewed(np.vstack([before, part])) for part in parts]
    streams = _Stream.of(_skewed(np.vstack(along)), of_a * len(across)), _Stream.of(_skewed(np.vstack(across)), of_b)
    return streams, _words(written)


def _blocks(matrix: np.ndarray, width: int) -> list[np.ndarray]:
    """Its columns by so many, the last ones filled with -1."""
    short = -matrix.shape[1] % width
    padded = np.pad(matrix, ((0, 0), (0, short)), constant_values=-1)
    return np.split(padded, padded.shape[1] // width, axis=1)


def _idle(steps: int, width: int) -> np.ndarray:
    return np.full((steps, width), -1, np.int32)


def _skewed(matrix: np.ndarray) -> np.ndarray:
    """Each column a step later than the one before it."""
    steps, width = matrix.shape
    skewed = _idle(steps + width - 1, width)
    for column in range(width):
        skewed[column : column + steps, column] = matrix[:, column]
    return skewed


def _words(written: list[np.ndarray]) -> np.ndarray:
    return (np.vstack(written) >= 0).sum(axis=1)


# ------------------------------------------------------------ the memories
class _Reader:
    """A read buffer: when it turns, and when what it fetches is there."""

    def __init__(self, stream: _Stream, nbytes: int, words_per_cycle: int | None) -> None:
        half = -(-nbytes // 2)
        self.ready = -1
        self.turns: Counter[int] = Counter()
        if words_per_cycle is None:
            self.begin = _calculated_begin(stream, nbytes)
            return
        self.turn_cycles = -(-(nbytes - half) // words_per_cycle) + 1
        self.turns.update(_turns(stream, nbytes).tolist())
        self.begin = -min(-(-half // words_per_cycle), -(-stream.words // words_per_cycle))

    def delay(self, number: int, cycle: int) -> int:
        """Cycles by which what cycle `number` of the stream asks for, asked for in `cycle`, comes late."""
        offset = 1
        for _ in range(self.turns[number]):
            self.ready += self.turn_cycles
            late = self.ready - (cycle + offset)
            offset += late + max(late, 0)
        return offset - 1


def _turns(stream: _Stream, nbytes: int) -> np.ndarray:
    """Cycles of the stream in which the buffer turns, one for each turn."""
    half, width = -(-nbytes // 2), -(-nbytes // SETS)
    sets = stream.fetched.size // width + 1
    held = min(-(-half // width), sets)
    step = min(-(-(nbytes - half) // width), sets - held)
    begin, at, turns = 0, 0, []
    resident = np.zeros(max(stream.fetched.max(), stream.asked.max()) + 1, bool)
    resident[stream.fetched[: held * width]] = True
    while step and at < stream.asked.size:
        hits = resident[stream.asked[at : at + _CHUNK]]
        missed = int(np.argmin(hits))
        if hits[missed]:
            at += hits.size
            continue
        at += missed
        turns.append(stream.cycles[at])
        begin = (begin + step) % sets
        resident[:] = False
        resident[stream.fetched[begin * width : (begin + held) * width]] = True
        resident[stream.fetched[: max(begin + held - sets, 0) * width]] = True
    return np.array(turns, int)


def _calculated_begin(stream: _Stream, nbytes: int) -> int:
    """Cycle of the first fetch where the bandwidth is what never stalls: half a buffer of sets, or all there are."""
    width, half = nbytes // SETS, SETS // 2
    sets = -(-np.unique(stream.asked).size // width)
    whole = np.unique(stream.asked).size >= half * width
    return (int(stream.cycles[0]) if whole else 0) - -(-(half if whole else sets) * width // CALCULATED_WORDS)


class _Writer:
    """The write buffer. Words lie in lines of the bandwidth, of which a drain takes as many as hold half a buffer."""

    def __init__(self, nbytes: int, words_per_cycle: int) -> None:
        self.width, self.free = words_per_cycle, nbytes
        self.half = nbytes - -(-nbytes // 2)
        self.least_free = nbytes - self.half
        self.lines = self.fill = self.drained = self.drain_end = self.end = 0
        self.short: dict[int, int] = {}

    def write(self, words: int, cycle: int) -> int:
        """The cycle in which so many words, that come in `cycle`, are in the buffer."""
        begin = cycle
        while words:
            draining = cycle < self.drain_end
            room = self.free - 1 if draining else self.free - self.least_free
            some = min(words, max(room, 0) + 1)
            self.free -= some
            words -= some
            more, self.fill = divmod(self.fill + some, self.width)
            self.lines += more
            if some <= room:
                continue
            if draining:
                cycle = self.drain_end
            else:
                self.drain_end = self.drain(cycle)
        return max(begin, cycle)

    def drain(self, cycle: int) -> int:
        """Drains half a buffer of lines, at most those there are, one a cycle; the cycle of the last."""
        if self.fill:
            self.short[self.lines] = self.width - self.fill
            self.lines, self.fill = self.lines + 1, 0
        count = min(-(-self.half // self.width), self.lines - self.drained)
        self.drained += count
        self.free += count * self.width - self.short.get(self.drained - 1, 0)
        self.end = max(self.end, cycle + count - 1)
        return cycle + count - 1


def _run(readers: tuple[_Reader, _Reader], writer: _Writer, written: np.ndarray) -> MemoryCycles:
    """All cycles of the array, each as late as the latest of the three memories; what is left is drained at the end."""
    stalls = total = 0
    for number, words in enumerate(written.tolist()):
        cycle = number + stalls
        total = writer.write(words, cycle)
        stalls += max(total - cycle, *(reader.delay(number, cycle) for reader in readers))
    cycle = total
    while writer.drained < writer.lines or writer.fill:
        cycle = writer.drain(cycle) + 1
    return MemoryCycles(writer.end - min(reader.begin for reader in readers), total, stalls)

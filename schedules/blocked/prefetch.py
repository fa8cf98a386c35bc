"""Software prefetch of packed weights, sprinkled into the reduction: annotations of loops that the build lowers.

    for tile of a chunk:                             for tile of a chunk:
        for rc, ry, rx:                  ->              for rc, ry, rx:
            for ri: tile += x * w[ri]                        prefetch w[next chunk, a share of its lines]
                                                             for ri: tile += x * w[ri]

The weights of a model are cold: each call streams them through L3 or from memory, and a hardware prefetcher gives up at
the end of each short panel that a kernel walks over several times. Every tile of a chunk therefore asks for its share
of the next chunk's lines, a few at a time between multiply-adds, into L2; weights that no cache keeps until the next
call pass by L3, where that pays. Addresses run past the last chunk; a prefetch does not fault. Where one
tile is all of a chunk, weights are one long stream, which the hardware prefetches too: a prefetch pays where multiply-
adds leave load slots free (two 56x56 layers took 180 us without, 160 with), and where they do not it takes such a slot
(a matmul of one row took a sixth longer).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_ext.core.recipe import Match, Param

#: Annotation of the loop whose iterations each prefetch some lines: (buffer, elements to the next chunk, lines, 1 if no
#: cache keeps them from call to call).
LINES = "tvm_ext.prefetch.lines"
#: Annotation of a loop around it: 0 if none are shared; over the tiles that share the lines of a chunk 1, or, where a
#: call may have fewer tiles, the lines of all of them in an iteration: each asks for its share of those there are.
#: Below 0 they are those of two tiles or more: one alone asks for none.
SHARED_BY = "tvm_ext.prefetch.shared_by"
#: Annotation of the loop over the blocks of a reduction that each prefetch the next block's inputs of a tile into L1:
#: (buffer, elements to the next block, lines). A tile reads few lines of each block, too short a run for the hardware.
INPUTS = "tvm_ext.prefetch.inputs"
#: Bytes of a cache line.
LINE_BYTES = 64
#: Arguments of LLVM's prefetch: a read, of data, into L2. Into L1 it evicts what the tile is using (10 % slower).
_READ, _DATA = 0, 1
INTO_L2, INTO_L1 = 2, 3


def prefetch(buffer: Any, index: Sequence[Any], locality: int = INTO_L2) -> Any:
    """A request for the cache line of an element, which may lie beyond the buffer: it does not fault."""
    address = tirx.address_of(tirx.BufferLoad(buffer, list(index)))
    return tirx.call_intrin("void", "tirx.prefetch", address, _READ, locality, _DATA)


def sprinkle(
    sch: Schedule, tiles: tuple[Any, int], body: Any, weight: str, ahead: int, lines: int, passing: bool,
    free: bool = False, alone: bool = True,
) -> None:  # fmt: skip
    """Annotate a reduction so that it prefetches its weights a chunk ahead.

    Args:
        tiles: the loop over the register tiles of a chunk, which all read the same panel of weights, and its length.
        body: a loop of the reduction inside it; each of its iterations reads `lines` cache lines of the panel.
        weight: name of the buffer.
        ahead: elements of the weight from a chunk to the next one.
        passing: whether no cache keeps the weight from one call to the next.
        free: whether a call may have fewer tiles.
        alone: whether a tile prefetches where it is all that a call has of a chunk.
    """
    loop, count = tiles
    share = -(-lines // count)
    sch.annotate(loop, SHARED_BY, (lines if alone else -lines) if free else 1)
    sch.annotate(body, LINES, [weight, ahead, share, int(passing)])


def buffer_name(match: Match, param: Param) -> str:
    """Name of a parameter's buffer: :func:`..steps.arguments.placeholders` names by position."""
    return f"p{match.group.params.index(param)}"

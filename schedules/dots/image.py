"""The image of narrow numbers as a convolution by dot products copies it: with its border, and words side by side.

Channels in blocks are copied as they lie. Few channels become rows of elements x * depth + c:

    (N, C, H, W)  ->  "row": (C, width), with the border  ->  "image": (N, H, width * depth)

The first step is a copy with a mask. The second interleaves rows of one length without any condition, which LLVM does
by shuffles. Where `depth` is the number of channels itself, words run over neighbouring pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.layout import Layout
from tvm_ext.core.recipe import Config, Match

from ..blocked import kernel as blocked
from ..steps.loops import parallel_rows

#: An image of so many bytes is copied by each thread.
_OWN_BYTES = 256 * 1024

ReadWord = Callable[[Any, Any, Any, Any, Any], Any]
"""(batch, y, x, word from there, element of the word) -> an element of the image."""


def in_blocks(match: Match, image: te.Tensor, words: int) -> ReadWord:
    """Reads an image whose channels lie in blocks of so many words."""
    group = match.dot.group
    return lambda n, y, x, word, k: image(n, word // words, y, x, word % words * group + k)


def copied_blocks(match: Match, data: te.Tensor, source: Layout) -> ReadWord:
    """Reads a copy of an image in blocks of channels: the stage "image"."""
    c, operands = match.data.shape[1], match.operands

    def value(*index: Any) -> Any:
        n, ch, y, x = source.logical(index)
        element = _element(match, data, source, n, ch, y, x)
        if c % match.dot.group:
            element = tirx.Select(ch < c, element, operands.border)
        return tirx.if_then_else(_inside(match, y, x), element, operands.border)

    (h, w), (top, left, bottom, right) = match.image, match.pads
    shape = source.physical_shape((*match.data.shape[:2], h + top + bottom, w + left + right))
    return in_blocks(match, te.compute(shape, value, name="image"), shape[-1] // match.dot.group)


def copied_rows(match: Match, data: te.Tensor, source: Layout) -> ReadWord:
    """Reads a copy of an image of few channels: the stages "row" and "image"."""
    n, c, operands, group = match.data.shape[0], match.data.shape[1], match.operands, match.dot.group
    depth, width = match.depth, _width(match)
    top, _, bottom, _ = match.pads
    high = match.image[0] + top + bottom

    def padded(b: Any, y: Any, ch: Any, x: Any) -> Any:
        return tirx.if_then_else(_inside(match, y, x), _element(match, data, source, b, ch, y, x), operands.border)

    row = te.compute((n, high, c, width), padded, name="row")

    def value(b: Any, y: Any, x: Any, ch: Any) -> Any:
        # Channels beyond the last one meet weights of zero; of bfloat16 they must be no NaN.
        return row(b, y, ch, x) if depth == c else tirx.if_then_else(ch < c, row(b, y, ch, x), operands.border)

    image = te.compute((n, high, width, depth), value, name="image")

    def read(b: Any, y: Any, x: Any, word: Any, k: Any) -> Any:
        element = word * group + k
        return image(b, y, x + tirx.floordiv(element, depth), tirx.floormod(element, depth))

    return read


def _width(match: Match) -> int:
    """Pixels of a row up to the last word's end, of which the image may have fewer: the rest are border."""
    pixels = -(-match.problem.inner * match.dot.group // match.depth)
    dilated = match.dilation[1] * (match.problem.taps[1] - 1)
    return int((match.out_image[1] - 1) * match.strides[1] + dilated + pixels)


def _inside(match: Match, y: Any, x: Any) -> Any:
    (h, w), (top, left, _, _) = match.image, match.pads
    return tirx.all(y >= top, y < h + top, x >= left, x < w + left)


def _element(match: Match, data: te.Tensor, source: Layout, n: Any, ch: Any, y: Any, x: Any) -> Any:
    """What stands at (y, x) of the image with its border, as the kernel copies it."""
    top, left, _, _ = match.pads
    return match.operands.copied(data(*source.index((n, ch, y - top, x - left))))


def schedule_copy(sch: Schedule, match: Match, config: Config) -> None:
    """Each thread copies what it reads, so that none waits for others; what many would copy whole, they share by rows.

    Waking threads for a copy of its own takes as long as the copy, and half of it lies in another core's cache then.
    """
    image, threads = sch.get_sblock("image"), config["threads"]
    own = _shared_out(match, config) or math.prod(match.image) * _pixel_bytes(match) <= _OWN_BYTES
    rows = 2 if match.few else 3
    if threads > 1 and own:
        sch.compute_at(image, sch.get_loops(sch.get_sblock("out"))[0], preserve_unit_loops=True)
    elif threads > 1:
        parallel_rows(sch, sch.get_loops(image)[:rows], threads)
    if match.few:
        _interleave(sch, image)
    else:
        sch.vectorize(sch.get_loops(image)[-1])


def _interleave(sch: Schedule, image: Any) -> None:
    """The stages of :func:`copied_rows`: a row at a time; channels are unrolled, pixels are for LLVM to vectorize."""
    *_, y, _, ch = sch.get_loops(image)
    row = sch.get_sblock("row")
    sch.compute_at(row, y, preserve_unit_loops=True)
    sch.unroll(ch)
    depth = int(sch.get(ch).extent)
    sch.transform_layout(image, ("write", 0), lambda n, y, x, c: (n, y, x * depth + c))


def _pixel_bytes(match: Match) -> int:
    """Of a copied pixel."""
    if match.few:
        return int(match.depth * 4 // match.dot.group)
    return int(4 * match.problem.blocks * match.problem.inner)


def _shared_out(match: Match, config: Config) -> bool:
    """Whether threads read different images, or different rows of one."""
    problem, threads = match.problem, config["threads"]
    return problem.batch % threads == 0 or blocked.by_pixels(problem, blocked.Units.of(problem, config), threads)

"""The image of narrow numbers as a convolution by dot products copies it: with its border, and words side by side.

Channels in blocks are copied as they lie. Few channels become rows of elements x * depth + c:

    (N, C, H, W)  ->  "row": (C, width), with the border  ->  "image": (N, H, width * depth)

The first step is a copy with a mask. The second interleaves rows of one length without any condition, which LLVM does
by shuffles. Where `depth` is the number of channels itself, words run over neighbouring pixels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.recipe import Config, Layout

from ..blocked import kernel as blocked
from ..blocked.convolution import image_in_use
from ..steps.loops import parallel_rows
from ..steps.window import Window
from .operands import DotMatch

#: An image of so many bytes is copied by each thread.
_OWN_BYTES = 256 * 1024


@dataclass(frozen=True)
class DotImageMatch(DotMatch):
    """A convolution of narrow numbers.

    Attributes:
        window: its geometry.
        few: whether it has few channels, which the kernel puts side by side.
        merged: whether words run over the channels of neighbouring pixels.
    """

    window: Window
    few: bool
    merged: bool

    @property
    def depth(self) -> int:
        """Elements of a pixel, as words are read of it."""
        return self.weight.shape[1] if self.merged else self.problem.inner * self.dot.group


ReadWord = Callable[[Any, Any, Any, Any, Any], Any]
"""(batch, y, x, word from there, element of the word) -> an element of the image."""


def in_blocks(match: DotImageMatch, image: te.Tensor, words: int) -> ReadWord:
    """Reads an image whose channels lie in blocks of so many words."""
    return lambda n, y, x, word, k: image(n, word // words, y, x, word % words * match.dot.group + k)


def copied_blocks(match: DotImageMatch, data: te.Tensor, source: Layout) -> ReadWord:
    """Reads a copy of an image in blocks of channels: the stage "image"."""
    c, operands, used = match.data.shape[1], match.operands, image_in_use(match.group, match.data)

    def value(*index: Any) -> Any:
        n, ch, y, x = source.logical(index)
        element = _element(match, data, source, n, ch, y, x)
        if c % match.dot.group:
            element = tirx.Select(ch < c, element, operands.border)
        return tirx.if_then_else(match.window.inside(y, x, used), element, operands.border)

    (h, w), (top, left, bottom, right) = match.window.image, match.window.pads
    shape = source.physical_shape((*match.data.shape[:2], h + top + bottom, w + left + right))
    return in_blocks(match, te.compute(shape, value, name="image"), shape[-1] // match.dot.group)


def copied_rows(match: DotImageMatch, data: te.Tensor, source: Layout) -> ReadWord:
    """Reads a copy of an image of few channels: the stages "row" and "image"."""
    n, c, operands, group = match.data.shape[0], match.data.shape[1], match.operands, match.dot.group
    depth, width, used = match.depth, _width(match), image_in_use(match.group, match.data)
    top, _, bottom, _ = match.window.pads
    high = match.window.image[0] + top + bottom

    def padded(b: Any, y: Any, ch: Any, x: Any) -> Any:
        element = _element(match, data, source, b, ch, y, x)
        return tirx.if_then_else(match.window.inside(y, x, used), element, operands.border)

    row = te.compute((n, high, c, width), padded, name="row")

    def value(b: Any, y: Any, x: Any, ch: Any) -> Any:
        # Channels beyond the last one meet weights of zero; of bfloat16 they must be no NaN.
        return row(b, y, ch, x) if depth == c else tirx.if_then_else(ch < c, row(b, y, ch, x), operands.border)

    image = te.compute((n, high, width, depth), value, name="image")

    def read(b: Any, y: Any, x: Any, word: Any, k: Any) -> Any:
        element = word * group + k
        return image(b, y, x + tirx.floordiv(element, depth), tirx.floormod(element, depth))

    return read


def _width(match: DotImageMatch) -> int:
    """Pixels of a row up to the last word's end, of which the image may have fewer: the rest are border."""
    pixels = -(-match.problem.inner * match.dot.group // match.depth)
    window = match.window
    return (window.out_image[1] - 1) * window.strides[1] + window.dilation[1] * (match.problem.taps[1] - 1) + pixels


def _element(match: DotImageMatch, data: te.Tensor, source: Layout, n: Any, ch: Any, y: Any, x: Any) -> Any:
    """What stands at (y, x) of the image with its border, as the kernel copies it."""
    top, left, _, _ = match.window.pads
    return match.operands.copied(data(*source.index((n, ch, y - top, x - left))))


def schedule_copy(sch: Schedule, match: DotImageMatch, config: Config) -> None:
    """Each thread copies what it reads, so that none waits for others; what many would copy whole, they share by rows.

    Waking threads for a copy of its own takes as long as the copy, and half of it lies in another core's cache then.
    """
    image, threads = sch.get_sblock("image"), config["threads"]
    own = _shared_out(match, config) or math.prod(match.window.image) * _pixel_bytes(match) <= _OWN_BYTES
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
    sch.compute_at(sch.get_sblock("row"), y, preserve_unit_loops=True)
    sch.unroll(ch)
    depth = int(sch.get(ch).extent)
    sch.transform_layout(image, ("write", 0), lambda n, y, x, c: (n, y, x * depth + c))


def _pixel_bytes(match: DotImageMatch) -> int:
    """Of a copied pixel."""
    if match.few:
        return int(match.depth * 4 // match.dot.group)
    return int(4 * match.problem.blocks * match.problem.inner)


def _shared_out(match: DotImageMatch, config: Config) -> bool:
    """Whether threads read different images, or different rows of one."""
    problem, threads = match.problem, config["threads"]
    return problem.batch_divides(threads) or blocked.shares_pixels(problem, blocked.Units.of(problem, config), threads)

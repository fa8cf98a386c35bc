"""Transposed 2-d convolution on NCHW{lanes}c by phases, any kernel size, stride and padding, with fused epilogue.

    conv2d_transpose(x, w) -> +bias, relu, ...       x: NCHW{l}c, w: POIHW{i}i{o}o, result: NCHW{l}c

With stride s, an output row y reads only the taps k for which s divides y + padding - k: every s-th one. The rows of
one remainder y mod s, a phase, are therefore a plain convolution of stride 1 over the input, with every s-th tap in
reverse order:

    y = i s + p:   out[y] = sum over t of  x[i + shift(p) + t] w[k(p, t)]        ceil(K / s) taps

A blocked reduction takes the s_y s_x phases as its batch, each with a weight of its own, and writes them interleaved.
No product with the zeros between the input's pixels is computed (Shi et al., "Is the deconvolution layer the same as a
convolutional layer?", 2016). Where s does not divide K, phases with one tap less have a zero weight there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.layout import OpaqueLayout, PackedWeight
from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Miss

from ...blocked import kernel as blocked
from ...blocked.convolution import convolution_of, free_extents, image_layouts, padded, schedule_padding
from ...blocked.prefetch import buffer_name
from ...steps.arguments import Arguments
from ...steps.loops import flat_map
from ...steps.widened import scaled
from ...steps.window import Window


@dataclass(frozen=True)
class Phases:
    """The phases of one axis.

    Attributes:
        kernel, stride, dilation: of the convolution; stride and dilation have no common divisor.
        before: padding before the first row.
        size, out: rows of the input and of the output.
    """

    kernel: int
    stride: int
    dilation: int
    before: int
    size: int
    out: int

    @property
    def taps(self) -> int:
        """Of the phase that has most."""
        return -(-self.kernel // self.stride)

    @property
    def rows(self) -> int:
        """Output rows of a phase, of the longest."""
        return -(-self.out // self.stride)

    @property
    def reach(self) -> int:
        """Rows from the first to the last tap of a phase."""
        return (self.taps - 1) * self.dilation

    def kernel_rows(self, phase: int) -> list[int | None]:
        """Kernel row of each tap of a phase, in the order of the input; None where there is no such row."""
        first = self._first(phase)
        rows = [first + self.stride * t for t in reversed(range(self.taps))]
        return [k if k < self.kernel else None for k in rows]

    def offset(self, phase: Any) -> Any:
        """Input row of the first tap of a phase's first output row; of an int or an expression."""
        return (phase + self.before - self._first(phase) * self.dilation) // self.stride - self.reach

    def _first(self, phase: Any) -> Any:
        """The least k with k * dilation = phase + before, modulo the stride."""
        inverse = pow(self.dilation, -1, self.stride) if self.stride > 1 else 0
        return (phase + self.before) * inverse % self.stride

    @property
    def pads(self) -> tuple[int, int]:
        """Zeros needed before and after the input."""
        offsets = [self.offset(p) for p in range(self.stride)]
        last = self.rows - 1 + max(offsets) + self.reach
        return max(0, -min(offsets)), max(0, last - self.size + 1)


@dataclass(frozen=True)
class PhaseWeight(OpaqueLayout):
    """The weight (I, O, KH, KW) as one packed weight (O, I, taps, taps) a phase; taps that do not exist are zero.

    Attributes:
        phases: of the rows and of the columns.
        packed: layout of the weight of one phase.
    """

    phases: tuple[Phases, Phases] | None = None
    packed: PackedWeight = field(default_factory=lambda: PackedWeight.make(4, 1, 1, 1))

    def __str__(self) -> str:
        return f"{self.physical_phases}x{self.packed}"

    @property
    def physical_phases(self) -> int:
        return math.prod(p.stride for p in self.phases or ())

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        taps = [p.taps for p in self.phases or ()]
        return (self.physical_phases, *self.packed.physical_shape((shape[1], shape[0], *taps)))

    def pack(self, array: np.ndarray) -> np.ndarray:
        assert self.phases is not None
        y, x = self.phases
        oihw = np.pad(array.transpose(1, 0, 2, 3), ((0, 0), (0, 0), (0, 1), (0, 1)))  # row -1, column -1: no such tap
        rows = [[-1 if k is None else k for k in y.kernel_rows(p)] for p in range(y.stride)]
        columns = [[-1 if k is None else k for k in x.kernel_rows(p)] for p in range(x.stride)]
        return np.stack([self.packed.pack(oihw[:, :, r][:, :, :, c]) for r in rows for c in columns])


@dataclass(frozen=True)
class TransposeMatch(blocked.BlockedMatch):
    """A transposed convolution.

    Attributes:
        window: its geometry, with the pads that all phases need.
        axes: phases of the rows and of the columns.
    """

    window: Window
    axes: tuple[Phases, Phases]

    @property
    def interleaves(self) -> bool:
        """Whether all phases have as many rows and columns, so that they are written where they belong."""
        return all(axis.out % axis.stride == 0 for axis in self.axes)


class Conv2dTranspose(blocked.BlockedRecipe[TransposeMatch]):
    """Transposed convolution of one group with a constant weight."""

    name = "conv2d_transpose"
    anchors = frozenset({"relax.nn.conv2d_transpose"})
    any_size = True

    def match(self, group: Group, machine: Machine) -> TransposeMatch | Miss:
        if isinstance(conv := convolution_of(group, "IOHW"), Miss):
            return conv
        w = conv.window
        if w.groups != 1:
            return Miss(f"groups={w.groups}: this recipe has no grouped transposed convolution")
        if any(math.gcd(s, d) > 1 for s, d in zip(w.strides, w.dilation, strict=True)):
            return Miss(f"strides {w.strides} and dilation {w.dilation} have a common divisor")
        y, x = map(Phases, w.kernel, w.strides, w.dilation, w.pads[:2], w.image, w.out_image)
        inner, batch = math.gcd(w.channels, machine.lanes), w.images * y.stride * x.stride
        problem = blocked.Problem(
            batch, w.outputs, y.rows * x.rows, x.rows, w.channels // inner, (y.taps, x.taps), inner, machine.lanes,
            weights_in=group.weights_in, free=any(free_extents(group)),
        )  # fmt: skip
        (top, bottom), (left, right) = y.pads, x.pads
        w = replace(w, pads=(top, left, bottom, right))
        return TransposeMatch(group, conv.data, conv.weight, problem, w, (y, x))

    def is_exact(self, match: TransposeMatch) -> bool:
        return not any(None in axis.kernel_rows(p) for axis in match.axes for p in range(axis.stride))

    def layouts(self, match: TransposeMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        p = match.problem
        weight = PhaseWeight((0, 1, 2, 3), None, match.axes, blocked.packed_weight(p, config))
        return image_layouts(match.group, p.lanes, (match.data, Layout.blocked(4, p.lanes)), (match.weight, weight))

    def compute(self, match: TransposeMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        args, problem, columns = Arguments(match.group, layouts), match.problem, match.axes[1].rows
        acc, scale = _phases(match, config, args), scaled(args, match.weight)
        shape = (problem.batch, problem.output_blocks, problem.pixels, problem.lanes)
        if match.interleaves:

            def value(b: Any, o: Any, q: Any, j: Any) -> Any:
                n, o, y, x, j = _place(match, b, o, q, j)
                channel = o * problem.lanes + j
                return args.epilogue((n, channel, y, x), scale(acc(b, o, q, j), channel))

            return args.function(te.compute(shape, value, name="out"))
        product = te.compute(shape, lambda *i: acc(*i), name="product")
        sy, sx = match.window.strides

        def pixel(n: Any, o: Any, y: Any, x: Any, j: Any) -> Any:
            phase = (n * sy + tirx.floormod(y, sy)) * sx + tirx.floormod(x, sx)
            q = tirx.floordiv(y, sy) * columns + tirx.floordiv(x, sx)
            return scale(product(phase, o, q, j), layouts.output.logical((n, o, y, x, j))[1])

        return args.kernel(pixel)

    def schedule(self, sch: Schedule, match: TransposeMatch, config: Config, machine: Machine) -> None:
        schedule_padding(sch, match.data, match.window, config["threads"])
        if match.interleaves:
            blocked.schedule_tiles(sch, match.problem, config, weight=buffer_name(match, match.weight))
            sch.transform_layout(sch.get_sblock("out"), ("write", 0), lambda b, o, q, j: _place(match, b, o, q, j))
        else:
            blocked.schedule_tiles(sch, match.problem, config, "product", weight=buffer_name(match, match.weight))
            flat_map(sch, sch.get_sblock("out"), config["threads"], machine.lanes)


def _place(match: TransposeMatch, b: Any, o: Any, q: Any, j: Any) -> tuple[Any, ...]:
    """Physical index of pixel q of phase b."""
    (sy, sx), columns = match.window.strides, match.axes[1].rows
    n, py, px = tirx.floordiv(b, sy * sx), tirx.floormod(tirx.floordiv(b, sx), sy), tirx.floormod(b, sx)
    return n, o, tirx.floordiv(q, columns) * sy + py, tirx.floormod(q, columns) * sx + px, j


def _phases(match: TransposeMatch, config: Config, args: Arguments) -> te.Tensor:
    """Sums of all phases: (image and phase, output block, pixel of the phase, lane)."""
    problem, window, (y, x) = match.problem, match.window, match.axes
    (sy, sx), (dy, dx), (top, left) = window.strides, window.dilation, window.pads[:2]
    image, weight, layout = padded(args, match.data, window), args.tensor(match.weight), args.layouts.output

    def load(b: Any, q: Any, block: Any, ry: Any, rx: Any, ri: Any) -> Any:
        py, px = tirx.floormod(tirx.floordiv(b, sx), sy), tirx.floormod(b, sx)
        row = tirx.floordiv(q, x.rows) + y.offset(py) + top + ry * dy
        column = tirx.floormod(q, x.rows) + x.offset(px) + left + rx * dx
        return image(*layout.index((tirx.floordiv(b, sy * sx), block * problem.inner + ri, row, column)))

    units = blocked.Units.of(problem, config)
    return blocked.reduce_tiles(problem, units, load, lambda b, *i: weight(tirx.floormod(b, sy * sx), *i))

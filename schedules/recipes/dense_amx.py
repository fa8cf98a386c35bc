"""Matmul of bfloat16 or bytes with a constant weight on AMX tile registers, with fused epilogue.

    matmul(x, w) -> +bias, gelu, requantize, ...        x: (..., K), w: (K, N), result: (..., N)

A row of x is a pixel of an image of one column (:class:`..steps.window.Window`): sixteen rows are a tile where they
lie. If K is no whole number of tile rows, x is copied, with zeros behind each row.
"""

import math
from collections.abc import Sequence

from tvm import tirx

from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Miss

from ..amx.blocks import Blocks
from ..amx.kernel import TileKernel
from ..amx.recipe import TileMatch, TileRecipe, operands_of, weight_layout
from ..amx.tile_image import TileImage
from ..steps.indices import unflatten
from ..steps.window import Window


class DenseAmx(TileRecipe):
    """Packed matmul in tiles of rows and columns."""

    name = "dense_amx"
    anchors = frozenset({"relax.matmul"})

    def match(self, group: Group, machine: Machine) -> TileMatch | Miss:
        operands = operands_of(group, machine, output_axis=1)
        if isinstance(operands, Miss):
            return operands
        data, weight, product = operands.data, operands.weight, operands.product
        if len(weight.shape) != 2 or len(data.shape) < 2:
            return Miss(f"the operands {data.shape} and {weight.shape} are no rows and a matrix")
        (k, n), rows = weight.shape, math.prod(data.shape[:-1])
        if 0 in (k, n, rows):
            return Miss("an operand is empty")
        window = Window(1, k, n, (rows, 1), (rows, 1))
        width = k if k < product.lanes and k % product.group == 0 else product.lanes
        image = TileImage(window, "direct" if k % width == 0 else "staged", width)
        return TileMatch(group, operands, {image.kind: image})

    def layouts(self, match: TileMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        return Layouts.plain(match.group, {match.operands.weight.var: weight_layout(match, match.image(config))})

    def compute(self, match: TileMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        image, lead = match.image(config), match.group.shape[:-1]
        return TileKernel(
            match, layouts, image, Blocks.of(image, config), lambda n, c, y, x: (*unflatten(y, lead), c)
        ).function()

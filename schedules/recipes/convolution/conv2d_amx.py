"""Convolution of bfloat16 or bytes on AMX tile registers, with fused epilogue.

    conv2d(x, w) -> +bias, +residual, relu, requantize, ...    x: NCHW32c (bfloat16) or NCHW64c (bytes), result alike

A pixel's block of channels is one row of a tile register, so the layout stays from the first convolution to the global
pool. The loops are in amx_kernel.py, what they read in tile_image.py.
"""

from collections.abc import Sequence

from tvm import tirx

from tvm_ext.core.recipe import Config, Group, Layout, Layouts, Machine, Miss
from tvm_ext.rates.instructions import Product

from ...amx.blocks import Blocks
from ...amx.kernel import TileKernel
from ...amx.recipe import TileMatch, TileRecipe, operands_of, vector_layout, weight_layout
from ...amx.tile_image import TileImage
from ...blocked.convolution import convolution_of
from ...steps.epilogue import blocked_layouts
from ...steps.window import Window


class Conv2dAmx(TileRecipe):
    """Convolution of one group: any kernel size, stride, padding and dilation."""

    name = "conv2d_amx"
    anchors = frozenset({"relax.nn.conv2d"})

    def match(self, group: Group, machine: Machine) -> TileMatch | Miss:
        if isinstance(conv := convolution_of(group, any_type=True), Miss):
            return conv
        if isinstance(operands := operands_of(group, machine, output_axis=0), Miss):
            return operands
        if conv.window.groups != 1:
            return Miss(f"groups={conv.window.groups}: this recipe has no grouped convolution")
        if 0 in (*conv.data.shape, *group.shape, *conv.weight.shape):
            return Miss("an operand is empty")
        return TileMatch(group, operands, _images(conv.window, operands.product))

    def is_exact(self, match: TileMatch) -> bool:
        """Where taps of a row do not divide into steps, the last step reads some of them again, times zero."""
        return all(image.groups[-1] % image.taps == 0 for image in match.images.values())

    def layouts(self, match: TileMatch, config: Config, offered: Sequence[Layout]) -> Layouts:
        group, image, operands = match.group, match.image(config), match.operands
        lanes, data = operands.product.lanes, offered[group.params.index(operands.data)]
        vectors = {p.var: vector_layout(p.shape, group.shape[1], lanes) for p in group.params}
        own = {
            **{var: layout for var, layout in vectors.items() if layout},
            operands.weight.var: weight_layout(match, image),
            operands.data.var: data if _reads(image, data) else Layout.blocked(4, lanes),
        }
        return blocked_layouts(group, lanes, own)

    def compute(self, match: TileMatch, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        image = match.image(config)
        return TileKernel(match, layouts, image, Blocks.of(image, config), lambda *at: at).function()


def _images(window: Window, product: Product) -> dict[str, TileImage]:
    """The ways to read an image: in place if that is possible, else a copy; few channels also by rows."""
    lanes = product.lanes
    in_place = window.channels % lanes == 0 and window.in_place
    images = [TileImage(window, "direct" if in_place else "staged", lanes)]
    if (packed := TileImage.packed(window, lanes, product.group)) is not None:
        images.append(packed)
    return {image.kind: image for image in images}


def _reads(image: TileImage, layout: Layout) -> bool:
    """A tensor that is copied may have smaller blocks, and few channels may lie anyhow."""
    if type(layout) is not Layout:
        return False
    if image.kind == "packed":
        return True
    if layout.block is None or layout != Layout.blocked(4, layout.block[1]):
        return False
    lanes = layout.block[1]
    return lanes == image.width if image.kind == "direct" else image.width % lanes == 0 and lanes >= 8

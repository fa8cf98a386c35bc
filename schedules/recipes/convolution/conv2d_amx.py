"""Convolution of bfloat16 or bytes on AMX tile registers, with fused epilogue.

    conv2d(x, w) -> +bias, +residual, relu, requantize, ...    x: NCHW32c (bfloat16) or NCHW64c (bytes), result alike

A pixel's block of channels is one row of a tile register, so the layout stays from the first convolution to the global
pool. The loops are in amx_kernel.py, what they read in tile_image.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Layouts, Match, Miss
from tvm_ext.rates.instructions import Product

from ...amx.blocks import Blocks
from ...amx.kernel import TileKernel
from ...amx.recipe import TileRecipe, operands_of, vector_layout, weight_layout
from ...amx.tile_image import TileImage, Window
from ...blocked.convolution import facts_of
from ...steps.epilogue import blocked_layout


class Conv2dAmx(TileRecipe):
    """Convolution of one group: any kernel size, stride, padding and dilation."""

    name = "conv2d_amx"
    anchors = frozenset({"relax.nn.conv2d"})

    def match(self, group: Group, machine: Machine) -> Match | Miss:
        if isinstance(geometry := facts_of(group, any_type=True), Miss):
            return geometry
        if isinstance(operands := operands_of(group, machine, self.tiles, output_axis=0), Miss):
            return operands
        if geometry["groups"] != 1:
            return Miss(f"groups={geometry['groups']}: this recipe has no grouped convolution")
        (n, channels), (outputs, *_) = geometry["data"].shape[:2], geometry["weight"].shape
        window = Window(
            n, channels, outputs, geometry["image"], geometry["out_image"], geometry["weight"].shape[2:],
            geometry["strides"], geometry["dilation"], geometry["pads"],
        )  # fmt: skip
        if 0 in (*geometry["data"].shape, *group.shape, *geometry["weight"].shape):
            return Miss("an operand is empty")
        return Match(group, {**operands, "images": _images(window, operands["product"])})

    def is_exact(self, match: Match) -> bool:
        """Where taps of a row do not divide into steps, the last step reads some of them again, times zero."""
        return all(image.groups[-1] % image.taps == 0 for image in match.images.values())

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        lanes, outputs = match.product.lanes, match.group.shape[1]
        image: TileImage = match.images[config["image"]]

        def layout(param: object, given: Layout) -> Layout:
            if param is match.weight:
                return weight_layout(match, image)
            if param is match.data:
                return given if _reads(image, given) else Layout.blocked(4, lanes)
            shape = param.shape  # type: ignore[attr-defined]
            return vector_layout(shape, outputs, lanes) or blocked_layout(shape, lanes)

        params = [layout(p, given) for p, given in zip(match.group.params, offered, strict=True)]
        return Layouts(tuple(params), Layout.blocked(4, lanes))

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        image = match.images[config["image"]]
        return TileKernel(match, layouts, image, Blocks.of(image, config), self.tiles, lambda *at: at).function()


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

"""What convolution and matmul on tile registers share: operands and knobs. What they cost is in amx_cost.py."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.s_tir import Schedule

from tvm_ext.core.cost.estimate import threads_of
from tvm_ext.core.recipe import Config, Group, Layout, Machine, Match, Miss, Param, Recipe, Sharing
from tvm_ext.rates.instructions import PRODUCTS, Product
from tvm_ext.runtime.tiles import TILE_FEATURES

from ..steps.storage import Decoding
from .blocks import SHARES, STREAMS, Blocks
from .cost import seconds
from .tile_image import TileImage
from .tile_weight import TileWeight


@dataclass(frozen=True)
class TileOperands:
    """The operands of a convolution or matmul on tile registers.

    Attributes:
        data, weight: parameters.
        product: what multiplies them.
        zero_point: of the data.
        flipped: whether the weight is unsigned around 128, and packed as signed numbers.
    """

    data: Param
    weight: Param
    product: Product
    zero_point: int
    flipped: bool


@dataclass(frozen=True)
class TileMatch(Match):
    """A group whose anchor is products on tile registers.

    Attributes:
        operands: what is multiplied.
        images: kind -> how tiles read the data.
    """

    operands: TileOperands
    images: Mapping[str, TileImage]

    def image(self, config: Config) -> TileImage:
        """How tiles read the data in a configuration."""
        return self.images[config["image"]]


class TileRecipe(Recipe[TileMatch]):
    """A recipe of products on tile registers."""

    version = 2
    features = TILE_FEATURES

    def space(self, match: TileMatch, machine: Machine) -> Mapping[str, Sequence[Any]]:
        """Knobs: how the image is read, tile registers over pixels, parts of the pixels, blocks of channels a chunk."""
        return self._space(match, self._threads(match, machine))

    def _threads(self, match: TileMatch, machine: Machine) -> int:
        """Of two threads an even share of the work decides; of more, the least cost of any point: what weights and
        lines of other cores take does not shrink with the share."""
        image = next(iter(match.images.values()))
        alone = seconds(image, match.operands.product, Blocks.serial(image), machine)
        if machine.threads <= 2:
            return threads_of(alone * machine.rates.hertz, machine)
        powers = {1 << i for i in range(machine.threads.bit_length())} | {machine.threads}
        return min(sorted(powers), key=lambda t: min(self.cost(match, c, machine) for c in self._points(match, t)))

    def _space(self, match: TileMatch, threads: int) -> Mapping[str, Sequence[Any]]:
        image = next(iter(match.images.values()))
        blocks = {image.blocks for image in match.images.values()}
        return {
            "image": list(match.images),
            "pixels": [1, 2],
            "parts": _parts(image, threads),
            "share": list(SHARES),
            "stream": list(STREAMS),
            "chunk": sorted({c for n in blocks for c in range(1, n + 1) if n % c == 0}),
            "threads": [threads],
        }

    def points(self, match: TileMatch, machine: Machine) -> Iterator[Config]:
        """Points whose chunks divide the blocks of channels, and whose parts have tiles."""
        return self._points(match, self._threads(match, machine))

    def _points(self, match: TileMatch, threads: int) -> Iterator[Config]:
        knobs = self._space(match, threads)
        for values in itertools.product(*knobs.values()):
            config = dict(zip(knobs, values, strict=True))
            if is_legal(match.image(config), config):
                yield config

    def instruction(self, match: TileMatch) -> str:
        return match.operands.product.instruction

    def cost(self, match: TileMatch, config: Config, machine: Machine) -> float:
        image = match.image(config)
        if not is_legal(image, config):
            return math.inf
        return seconds(image, match.operands.product, Blocks.of(image, config), machine, match.group.weights_in)

    def sharing(self, match: TileMatch, config: Config, machine: Machine) -> Sharing:
        """Tiles of pixels by blocks of outputs, in parts."""
        image = match.image(config)
        blocks = Blocks.of(image, config)
        units = image.window.images * blocks.outputs
        busiest = -(-units * blocks.parts // blocks.threads) * min(blocks.each, blocks.tiles)
        return Sharing(blocks.workers(image), units * blocks.tiles, busiest)

    def schedule(self, sch: Schedule, match: TileMatch, config: Config, machine: Machine) -> None:
        """Tile registers are no buffers that a schedule knows: loops stand already."""


def _parts(image: TileImage, threads: int) -> list[int]:
    """One, a few a thread, so many that a part has one, two, four or eight pairs of tiles, and so many that there are
    as many units as threads."""
    pairs = -(-image.pixels // (2 * image.rows))
    short = {-(-pairs // (each * threads)) * threads for each in (1, 2, 4, 8)}
    units = -(-threads // Blocks.serial(image).outputs)
    return sorted({1, units, threads, 2 * threads, 4 * threads} | short)


def is_legal(image: TileImage, config: Config) -> bool:
    """Whether the image can be cut so: whole chunks, two tiles where there are two, parts that have tiles."""
    if image.blocks % config["chunk"] or (config["pixels"] > 1 and image.pixels <= image.rows):
        return False
    blocks = Blocks.of(image, config)
    if blocks.shares_pixels and blocks.parts % blocks.threads:
        return False
    if blocks.stream == "image" and len(image.groups) * image.window.kernel[0] > 1:
        return False  # taps read the same pixels again
    return blocks.parts == 1 or (blocks.parts - 1) * blocks.each < blocks.tiles


def operands_of(group: Group, machine: Machine, output_axis: int) -> TileOperands | Miss:
    """The two stored operands of a group's anchor, which tiles multiply; or why they cannot."""
    data, weight = group.operand(0), group.operand(1)
    if data is None or weight is None:
        return Miss("an operand is computed inside the group")
    if not weight.constant:
        return Miss("the weight is not a constant, so it cannot be packed")
    left, right = Decoding.of(group, data), Decoding.of(group, weight)
    if left.kind != right.kind or left.kind == "none":
        return Miss(f"{data.dtype} by {weight.dtype}, read as {data.computed}: tiles multiply bfloat16 or bytes")
    flipped = right.stored == "uint8" and right.zero_point == 128
    product = PRODUCTS.get((left.stored, "int8" if flipped else right.stored))
    if product is None:
        return Miss(f"{left.stored} by {right.stored}: no tile instruction multiplies these")
    if left.zero_point is None or (isinstance(left.scale, Param) and left.scale.shape not in ((), (1,))):
        return Miss("scale or zero point of the data is no number")
    if right.zero_point != (128 if flipped else 0):
        return Miss(f"zero point {right.zero_point} of {right.stored} weights would need sums of the data")
    if isinstance(right.scale, Param) and right.scale.shape not in ((), (1,)) and right.axis != output_axis:
        return Miss(f"weight scales along axis {right.axis}: outputs have axis {output_axis}")
    if lacking := _lacking(product, machine):
        return Miss(lacking)
    return TileOperands(data, weight, product, left.zero_point, flipped)


def _lacking(product: Product, machine: Machine) -> str:
    """Why a machine cannot run the instruction; "" if it can."""
    if lacks := machine.why_no_tiles():
        return lacks
    if machine.mcpu.startswith("znver"):
        # its scheduling model has LLVM rename registers after allocation, to tile registers that are not configured
        return f"LLVM schedules tile registers of {machine.mcpu} wrongly"
    return "" if product.feature in machine.features else f"{machine.mcpu or machine.isa} has no {product.feature}"


def weight_layout(match: TileMatch, image: TileImage) -> TileWeight:
    """How the weight is packed for an image."""
    o = match.operands
    return TileWeight.make(len(o.weight.shape), o.product.group, image.width, image.taps, o.zero_point, o.flipped)


def vector_layout(shape: Sequence[int], outputs: int, lanes: int) -> Layout | None:
    """Of a vector of one number a channel (scales, zero points): whole blocks can be read; None of other shapes."""
    return Layout.blocked(1, lanes, 0) if tuple(shape) == (outputs,) and outputs > 1 else None

"""What a kernel of tile registers costs: products, bytes that tiles load from each level, the copy, the epilogue.

Rates are those of the machine (:class:`tvm_ext.rates.Rates`); cycles that stand here were counted in machine code, or
stand in Intel's optimization manual.
"""

from dataclasses import dataclass

from tvm_ext.core.cost import estimate
from tvm_ext.core.cost.estimate import bandwidth
from tvm_ext.core.machine import Machine
from tvm_ext.core.machine_files import descriptions
from tvm_ext.rates.instructions import COLUMNS, ROW_BYTES, ROWS, Product

from .blocks import Blocks
from .tile_image import TileImage


@dataclass(frozen=True)
class TileRates:
    """Rates of one core.

    Attributes:
        product: cycles from a product of sixteen rows to the next one of another accumulator.
        latency: cycles from a product to the next one of the same accumulator.
        l1, l2, l3: bytes a cycle of tile loads from each level.
        foreign: bytes a cycle of lines that another core wrote.
        cold: bytes a cycle of weights that a whole model finds cold, while all threads read their own.
        store: cycles of a tile store of sixteen rows.
        epilogue: cycles of sixteen channels of a pixel.
        copy: cycles of a pixel's block of channels in the copy.
        number: cycles of a number of a copy of few channels.
        begin: cycles to configure tiles.
        shadow: what each smaller part of a tile's work adds to the largest one, of itself.
    """

    product: float
    latency: float
    l1: float
    l2: float
    l3: float
    foreign: float
    cold: float
    store: float
    epilogue: float
    copy: float
    number: float
    begin: float
    shadow: float


#: Cycles of TileRates that no loop measures. Intel's optimization manual: the latency, a store. Counted in machine
#: code, four instructions a cycle: epilogue, copy, number. Of the Xeon's tiles fed from L1 and L2 (73 and 97 cycles a
#: step, of products alone 69, of loads alone 89): what the smaller part adds.
_LATENCY, _STORE, _EPILOGUE, _COPY, _NUMBER, _BEGIN, _SHADOW = 52, 16, 3, 3, 0.25, 200, 0.1


def rates_of(machine: Machine, product: Product, threads: int, weights_in: str = "memory") -> TileRates:
    """The rates of a machine's tile registers; of one that has none, those of the described Xeon that has."""
    rates = machine.rates
    tiles = rates if getattr(rates, product.rate) else descriptions()["xeon-amx"].rates
    return TileRates(
        getattr(tiles, product.rate), _LATENCY, tiles.tile_l1, tiles.tile_l2, tiles.tile_l3, rates.foreign,
        bandwidth(weights_in, machine, threads), _STORE, _EPILOGUE, _COPY, _NUMBER, _BEGIN, _SHADOW,
    )  # fmt: skip


def seconds(image: TileImage, product: Product, blocks: Blocks, machine: Machine, weights_in: str = "memory") -> float:
    """Estimated seconds of a kernel: the thread with the most work, its copy first.

    Weights arrive while others are multiplied: a kernel prefetches them, or a few tiles load them as fast as memory is.
    A thread that shares outputs reads an image of which the others wrote their part; where pixels are shared, it wrote
    nearly all that it reads itself.
    """
    rates, images = rates_of(machine, product, blocks.threads, weights_in), image.window.images
    units = -(-images * blocks.outputs * blocks.parts // blocks.threads)
    longest = units * min(blocks.each, blocks.tiles) * _Tile(image, product, blocks, machine, rates).cycles()
    weights = _step_bytes(image, product) * image.steps * blocks.outputs
    arrival = weights / blocks.threads / rates.cold
    if blocks.shares_pixels:
        arrival = max(arrival, weights / rates.l3)
    copied = _copy_cycles(image, product, blocks, rates)
    cycles = _overlapped(rates, longest, arrival) + copied + rates.begin
    return estimate.seconds(cycles, [], machine, blocks.threads)


def _overlapped(rates: TileRates, *parts: float) -> float:
    """Cycles of work that other units of a core do at the same time: the most, and a little of the rest."""
    return max(parts) + rates.shadow * (sum(parts) - max(parts))


def _step_bytes(image: TileImage, product: Product) -> int:
    """Of the weights of a step: two tiles."""
    return 2 * COLUMNS * image.width * image.taps * 4 // product.group


def _copy_cycles(image: TileImage, product: Product, blocks: Blocks, rates: TileRates) -> float:
    """Cycles until a thread has its image: lines that others wrote, and the copy if there is one."""
    itemsize, slab = 4 // product.group, blocks.slab(image)
    foreign = _foreign_lines(image, blocks) * image.window.channels * itemsize * image.window.image[1] / rates.foreign
    if image.kind == "direct":
        return foreign
    count = slab.elements * (image.window.images if blocks.shares_pixels else 1)
    count //= 1 if blocks.alone(image, itemsize) else blocks.threads
    return foreign + (count * rates.number if image.kind == "packed" else count / image.width * rates.copy)


def _foreign_lines(image: TileImage, blocks: Blocks) -> float:
    """Rows of the images that a thread reads and another one wrote: those between its pixels and the next thread's,
    where pixels are shared; else of all that it reads, which is less than an image if it has but some of the parts."""
    window = image.window
    if blocks.threads == 1:
        return 0.0
    if blocks.shares_pixels:
        return window.images * (window.kernel[0] - 1) * window.dilation[0]
    parts = window.images * blocks.parts
    share = min(1.0, -(-blocks.outputs * parts // blocks.threads) / parts) if image.kind == "direct" else 1.0
    return share * window.images * window.image[0] * (1 - 1 / blocks.threads)


@dataclass(frozen=True)
class _Tile:
    """One tile of pixels by one block of outputs, all chunks of the channels."""

    image: TileImage
    product: Product
    blocks: Blocks
    machine: Machine
    rates: TileRates

    def cycles(self) -> float:
        """The epilogue of a tile runs between the products of the next one."""
        b, rates, rows = self.blocks, self.rates, self.image.rows
        steps, registers = self.image.steps / b.chunks, 2 * b.pixels
        products = steps * max(registers * rates.product * rows / ROWS, rates.latency)
        epilogue = b.pixels * rows * 2 * rates.epilogue
        again = registers * rows * ROW_BYTES / rates.l1 if b.chunks > 1 else 0.0
        spill = registers * rates.store * rows / ROWS + again
        return _overlapped(rates, b.chunks * products, b.chunks * self._loads(), epilogue) + b.chunks * spill

    def _loads(self) -> float:
        """Cycles of the loads of a chunk, out of the levels that hold what they read."""
        b, rates, steps = self.blocks, self.rates, self.image.steps / self.blocks.chunks
        weights, image = self._weights, steps * b.pixels * self.image.rows * 4 * self.image.width * self.image.taps
        image /= self.product.group
        far = self._far_weights / rates.l3 if self._far else self._far_weights / rates.l2
        near = weights - self._far_weights + image - self._fresh
        return far + self._fresh / rates.l2 + near / rates.l1

    @property
    def _weights(self) -> float:
        """Bytes of a chunk's weights."""
        return _step_bytes(self.image, self.product) * self.image.steps / self.blocks.chunks

    @property
    def _window(self) -> float:
        """Bytes of the image that a tile reads in a chunk."""
        w, size = self.image.window, 4 // self.product.group
        pixels = self.blocks.pixels * self.image.rows + (w.kernel[1] - 1) * w.dilation[1]
        return w.kernel[0] * pixels * self.image.step * self.image.width * size * self.image.blocks / self.blocks.chunks

    @property
    def _l1(self) -> float:
        """Bytes of L1 that are left beside accumulators and an image or weights that only pass through."""
        b = self.blocks
        accumulators = 2 * b.pixels * self.image.rows * COLUMNS * 4 * (b.each if b.chunks > 1 else 1)
        return _ROOM * self.machine.l1d - accumulators

    @property
    def _fits(self) -> bool:
        """Whether the weights of a chunk stay in L1 while the tiles of a part pass."""
        image = 0.0 if self.blocks.stream == "image" else self._window
        return self.blocks.stream != "weights" and self._weights + image <= self._l1

    @property
    def _far(self) -> bool:
        """Whether weights that are read again have left L2."""
        b = self.blocks
        again = self._weights * b.chunks * (b.outputs if b.shares_pixels and b.parts_of_thread > 1 else 1)
        return again > self.machine.l2 // 2

    @property
    def _far_weights(self) -> float:
        """Bytes of weights that a tile reads from behind L1."""
        return self._weights / min(self.blocks.each, self.blocks.tiles) if self._fits else self._weights

    @property
    def _fresh(self) -> float:
        """Bytes of the image that a tile reads from behind L1: its window, of which the taps of a row read the same.

        Part of the window is there already if weights leave it room: all of it, where the tile before was the same one
        with other outputs; else the rows that the tiles above have read too.
        """
        b, weights = self.blocks, 0.0 if self.blocks.stream == "weights" else self._weights
        if b.shares_pixels and b.each == 1 and b.chunks == 1:
            return self._window / (b.outputs if weights + self._window <= self._l1 else 1)
        rows, size = self.image.window.kernel[0], 4 // self.product.group
        band = rows * self.image.pitch * self.image.step * self.image.width * size * self.image.blocks / b.chunks
        return self._window / (rows if weights + max(band, self._window) <= self._l1 else 1)


#: Of L1, what stays there while other things pass.
_ROOM = 0.9

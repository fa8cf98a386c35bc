"""Work on tiles is cut so that each thread copies the rows that its pixels read, and no pixel is left out."""

import itertools
from typing import Any

import pytest

from tvm_ext.schedules.amx.blocks import Blocks
from tvm_ext.schedules.amx.recipe import is_legal
from tvm_ext.schedules.amx.tile_image import TileImage
from tvm_ext.schedules.steps.window import Window

WINDOWS = [
    Window(1, 64, 64, (56, 56), (56, 56), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    Window(2, 40, 33, (15, 13), (8, 7), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    Window(1, 8, 8, (6, 5), (6, 5), (3, 3), (1, 1), (17, 17), (17, 17, 17, 17)),
    Window(1, 64, 40, (7, 7), (7, 7)),
]


def blocks_of(image: TileImage, **knobs: Any) -> Blocks | None:
    config = {"pixels": 2, "parts": 1, "chunk": image.blocks, "share": "pixels", "stream": "neither", "threads": 1}
    config.update(knobs)
    return Blocks.of(image, config) if is_legal(image, config) else None


@pytest.mark.parametrize("window", WINDOWS)
def test_slabs_hold_the_rows_of_their_threads(window: Window) -> None:
    image, tried = TileImage(window, "staged", 32), 0
    for threads, times, pixels in itertools.product((1, 2, 3, 8), (1, 2, 5), (1, 2)):
        blocks = blocks_of(image, threads=threads, parts=threads * times, pixels=pixels)
        if blocks is None:
            continue
        count, slab = blocks.numbers_of_thread(image), blocks.slab(image)
        assert threads * count >= image.pixels and slab.window.images == 1
        for start in range(0, image.pixels, count):
            last = min(start + count, image.pixels) - 1
            rows = last // image.pitch - start // image.pitch + 1
            assert rows <= slab.window.out_image[0] <= window.out_image[0]
        tried += 1
    assert tried


def test_threads_that_share_outputs_copy_all_images() -> None:
    image = TileImage(WINDOWS[1], "staged", 32)
    blocks = blocks_of(image, share="outputs", threads=2)
    assert blocks is not None and blocks.slab(image) == image and blocks.alone(image, 2)
    large = TileImage(WINDOWS[0], "staged", 32)
    blocks = blocks_of(large, share="outputs", threads=2)
    assert blocks is not None and not blocks.alone(large, 2)


def test_threads_without_units_are_not_started() -> None:
    image = TileImage(WINDOWS[3], "staged", 32)  # two blocks of outputs, two tiles
    for share, parts, threads, workers in (("outputs", 1, 8, 2), ("outputs", 2, 3, 2), ("pixels", 2, 2, 2)):
        blocks = blocks_of(image, share=share, parts=parts, threads=threads)
        assert blocks is not None and blocks.workers(image) == workers
    assert blocks_of(image, share="pixels", parts=3, threads=2) is None

"""Estimates of kernels on tiles: what threads share follows from bytes, and more work costs more."""

from dataclasses import replace
from typing import Any

import pytest

from tvm_ext.core.machine import Machine
from tvm_ext.rates.instructions import PRODUCTS
from tvm_ext.schedules.amx.blocks import Blocks
from tvm_ext.schedules.amx.cost import TileRates, rates_of, seconds
from tvm_ext.schedules.amx.tile_image import TileImage
from tvm_ext.schedules.recipes.convolution.conv2d_amx import Conv2dAmx
from tvm_ext.schedules.steps.window import Window

from ..amx_cases import conv_group
from ..kernels import matched

#: The Xeon that the rates were measured on.
XEON = Machine.described("xeon-amx")
SHAPES = {(64, 56): "pixels", (128, 28): "pixels", (256, 14): "outputs", (512, 7): "outputs"}


def chosen(channels: int, size: int, machine: Machine = XEON) -> tuple[Any, dict[str, Any], float]:
    group = conv_group((1, channels, size, size), (channels, channels, 3, 3), strides=(1, 1), padding=(1,) * 4)
    recipe, match = Conv2dAmx(), matched(Conv2dAmx(), group, machine)
    config = recipe.default(match, machine)
    return match, config, recipe.cost(match, config, machine)


@pytest.mark.parametrize(("shape", "share"), SHAPES.items())
def test_the_smaller_operand_is_read_by_all(shape: tuple[int, int], share: str) -> None:
    """As measured: by pixels 0.79 of the time at 56x56, 0.88 at 28x28, 1.12 at 14x14, 1.63 at 7x7."""
    _, config, _ = chosen(*shape)
    assert config["share"] == share and config["pixels"] == 2


def test_layers_take_no_less_than_their_products() -> None:
    """6.5 TFLOP/s of two threads."""
    for channels, size in SHAPES:
        match, _, cost = chosen(channels, size)
        assert cost > 2 * match.images["staged"].window.multiplications / 6.6e12


def test_one_thread_takes_longer_than_two() -> None:
    for channels, size in SHAPES:
        assert chosen(channels, size, XEON.with_threads(1))[2] > chosen(channels, size)[2]


@pytest.mark.parametrize("rate", ["product", "l1", "l2", "cold", "foreign"])
def test_a_faster_machine_takes_no_longer(rate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    image = TileImage(Window(1, 64, 64, (56, 56), (56, 56), (3, 3), (1, 1), (1, 1), (1,) * 4), "staged", 32)
    config = {"pixels": 2, "parts": 1, "chunk": 2, "share": "outputs", "stream": "neither", "threads": 2}
    product, blocks = PRODUCTS["bfloat16", "bfloat16"], Blocks.of(image, config)
    before, rates = seconds(image, product, blocks, XEON), rates_of(XEON, product, 2)
    scale = 0.5 if rate == "product" else 2.0
    faster: TileRates = replace(rates, **{rate: scale * getattr(rates, rate)})
    monkeypatch.setattr("tvm_ext.schedules.amx.cost.rates_of", lambda *_: faster)
    assert seconds(image, product, blocks, XEON) < before

"""Tile registers: their shapes, the machine code of CPUs that have them, and weights packed for them."""

import re
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss, Recipe
from tvm_ext.driver.machine_code import code_of
from tvm_ext.rates.instructions import PRODUCTS
from tvm_ext.schedules.amx.tile_image import TileImage
from tvm_ext.schedules.amx.tile_products import Registers
from tvm_ext.schedules.amx.tile_weight import TileWeight, tap_groups
from tvm_ext.schedules.recipes.convolution.conv2d_amx import Conv2dAmx
from tvm_ext.schedules.recipes.dense_amx import DenseAmx
from tvm_ext.schedules.steps.window import Window

from ...emulation.execution import MACHINE
from ..amx_cases import arrays_of, conv_group, dense_group, run_tiles, run_twin
from ..kernels import make_group, matched, scheduled

_PADDED = {"strides": (1, 1), "padding": (1, 1, 1, 1)}


def test_instructions_by_types() -> None:
    named = {types: product.instruction for types, product in PRODUCTS.items()}
    assert named == {
        ("bfloat16", "bfloat16"): "tdpbf16ps", ("int8", "int8"): "tdpbssd", ("int8", "uint8"): "tdpbsud",
        ("uint8", "int8"): "tdpbusd", ("uint8", "uint8"): "tdpbuud",
    }  # fmt: skip
    assert [p.lanes for p in PRODUCTS.values()] == [32, 64, 64, 64, 64]


def test_registers_are_eight_and_all_apart() -> None:
    r = Registers(2, 2, 16, 16)
    used = [r.accumulator(p, h) for p in range(2) for h in range(2)]
    used += [r.left(p) for p in range(2)] + [r.right(h) for h in range(2)]
    assert sorted(used) == list(range(8)) and r.count == len(r.shapes) == 8
    narrow = Registers(1, 2, 5, 7)
    assert narrow.shapes == [(5, 64), (5, 64), (5, 28), (7, 64), (7, 64)]


# ------------------------------------------------------------ machine code
def assembly(recipe: Recipe, group: Any, machine: Machine) -> str:
    match = matched(recipe, group, machine)
    _, mod = scheduled(recipe, match, recipe.default(match, machine), machine, None)
    return "\n".join(code_of({"main": mod["main"]}, machine, "asm").values())


@pytest.mark.parametrize("target", ["sapphirerapids", pytest.param("graniterapids", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("group", "name"),
    [
        (conv_group((1, 64, 14, 14), (64, 64, 3, 3), **_PADDED), "tdpbf16ps"),
        (conv_group((1, 3, 20, 20), (8, 3, 7, 7), ("uint8", "int8"), 3, **_PADDED), "tdpbusd"),
        (dense_group((12, 64), (64, 32), ("int8", "int8")), "tdpbssd"),
    ],
)
def test_machine_code_names_the_registers_that_are_configured(group: Any, name: str, target: str) -> None:
    """LLVM's scheduling models of these CPUs rename none, which those of AMD's do: there a recipe refuses."""
    recipe: Recipe = Conv2dAmx() if group.anchor == "relax.nn.conv2d" else DenseAmx()
    machine = Machine.detect(target, 1)
    match = matched(recipe, group, machine)
    text = assembly(recipe, group, machine)
    matches = re.findall(r"\t(\w+)\t%tmm(\d), %tmm(\d), %tmm(\d)", text)
    pixels = recipe.default(match, machine)["pixels"]
    image = match.images[recipe.default(match, machine)["image"]]
    r = Registers(pixels, 2, image.rows, 16)
    wanted = {(name, str(r.right(h)), str(r.left(p)), str(r.accumulator(p, h))) for p in range(pixels) for h in (0, 1)}
    assert set(matches) == wanted
    loaded = set(re.findall(r"tileloadd\t.*%tmm(\d)", text))
    assert {int(t) for t in loaded} <= set(range(r.count)) and text.count("\tldtilecfg") == text.count("\ttilerelease")


def test_what_llvm_would_rename_is_refused() -> None:
    from dataclasses import replace

    miss = Conv2dAmx().match(conv_group((1, 8, 6, 6), (8, 8, 3, 3), **_PADDED), replace(MACHINE, mcpu="znver4"))
    assert isinstance(miss, Miss) and "znver4" in miss.reason


def test_the_target_has_the_features() -> None:
    assert {"+amx-tile", "+amx-bf16", "+amx-int8"} == set(map(str, MACHINE.target().attrs["mattr"]))
    assert "mattr" not in Machine.detect("skylake-avx512", 1).target().attrs


# ------------------------------------------------------------ integers
def test_integer_convolution_wraps_nothing_and_shifts_the_data(rng: np.random.Generator) -> None:
    """conv2d of int32 operands, (x - 131) by w, as ConvInteger is imported: the sums themselves."""

    def body(x: Any, w: Any) -> Any:
        x = yield relax.op.astype(x, "int32")
        x = yield relax.op.subtract(x, relax.const(np.int32(131)))
        w = yield relax.op.astype(w, "int32")
        yield relax.op.nn.conv2d(x, w, padding=(1, 1, 1, 1), out_dtype="int32")

    group = make_group("relax.nn.conv2d", [(1, 70, 5, 6), (9, 70, 3, 3)], body, [1], ["uint8", "int8"])
    x, w = arrays_of(group, rng)
    got, amx = run_tiles(Conv2dAmx, group, [x, w])
    assert got.dtype == np.int32
    amx.assert_entered("tdpbusd")
    assert np.array_equal(got, run_twin(Conv2dAmx, group, [x, w]))
    padded = np.pad(x.astype("int64") - 131, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    assert np.array_equal(got, np.einsum("ncyxhw,ochw->noyx", windows, w.astype("int64")))


# ------------------------------------------------------------ weights
@pytest.mark.parametrize(("dtype", "flipped"), [("int8", False), ("uint8", False), ("uint8", True)])
def test_sums_are_those_of_the_weights_that_are_multiplied(dtype: str, flipped: bool) -> None:
    layout = TileWeight.make(2, 4, 64, zero_point=7, flipped=flipped)
    limits = np.iinfo(dtype)
    array = np.random.default_rng(1).integers(limits.min, limits.max, (50, 40), dtype, endpoint=True)
    sums = np.ascontiguousarray(layout.pack(array)[:, : layout.sums_elements]).view("<i4").reshape(-1)
    wanted = -7 * (array.astype("int64") - (128 if flipped else 0)).sum(0)
    assert np.array_equal(sums[:40], wanted) and not sums[40:].any()


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((33, 70, 3, 2), TileWeight.make(4, 4, 64, zero_point=5)),
        ((64, 32, 1, 1), TileWeight.make(4, 2, 32)),
        ((5, 3, 7, 7), TileWeight.make(4, 4, 4, 7)),
        ((5, 3, 2, 11), TileWeight.make(4, 4, 4, 8, zero_point=-3)),
        ((40, 50), TileWeight.make(2, 4, 40)),
    ],
)
def test_packed_weights_hold_each_weight_once(shape: tuple[int, ...], layout: TileWeight) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(1, 127, shape).astype(np.int8)
    packed = layout.pack(array)
    assert packed.shape == layout.physical_shape(shape) and packed.dtype == array.dtype
    tiles = packed[:, layout.sums_elements :]
    assert tiles.astype("int64").sum() == array.astype("int64").sum()
    oihw = array if len(shape) == 4 else array.T[:, :, None, None]
    blocks, rows, groups = layout.steps(shape)
    split = tiles.reshape(-1, blocks, rows, groups, 2, layout.depth, 16, layout.group)
    firsts = tap_groups(oihw.shape[3], layout.taps)
    for o, i, ky, kx in [(0, 0, 0, 0), *(tuple(rng.integers(0, d) for d in oihw.shape) for _ in range(50))]:
        group = kx // layout.taps
        k = (kx - firsts[group]) * layout.width + i % layout.width
        at = (o // 32, i // layout.width, ky, group, o % 32 // 16, k // layout.group, o % 16, k % layout.group)
        assert split[at] == oihw[o, i, ky, kx]
    if layout.zero_point:
        sums = np.ascontiguousarray(packed[:, : layout.sums_elements]).view("<i4").reshape(-1)
        assert np.array_equal(sums[: len(oihw)], -layout.zero_point * oihw.astype("int64").sum((1, 2, 3)))
        assert not sums[len(oihw) :].any()
    with pytest.raises(TypeError, match="its kernel only"):
        layout.index((0,) * len(shape))


def test_names_of_packed_weights() -> None:
    assert str(TileWeight.make(4, 2, 32)) == "OIHW32i16o2i" and str(TileWeight.make(2, 4, 64)) == "IO64i16o4i"


# ------------------------------------------------------------ images
def test_small_maps_fill_their_tiles() -> None:
    """The pixels between rows cost at most one tile of sixteen."""
    for size, tiles in ((7, 4), (14, 14), (28, 53), (56, 203)):
        window = Window(1, 64, 64, (size, size), (size, size), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
        assert -(-TileImage(window, "staged", 32).pixels // 16) == tiles
        assert tiles <= -(-size * size // 16) * 1.09


def test_taps_of_a_row_go_into_one_step() -> None:
    stem = Window(1, 3, 64, (224, 224), (112, 112), (7, 7), (2, 2), (1, 1), (3, 3, 3, 3))
    image = TileImage.packed(stem, 32, 2)
    assert image is not None and (image.width, image.taps, image.steps) == (4, 7, 7)
    assert TileImage(stem, "staged", 32).steps == 49
    assert tap_groups(11, 8) == [0, 3] and tap_groups(4, 2) == [0, 2]
    dilated = Window(1, 3, 8, (9, 9), (5, 5), (3, 3), (1, 1), (2, 2))
    assert TileImage.packed(dilated, 32, 2) is None


def test_tiles_of_padding_are_counted() -> None:
    """At 14x14 a tile is a row of the image: the first and the last one meet a row of padding each."""
    window = Window(1, 256, 256, (14, 14), (14, 14), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    image = TileImage(window, "staged", 32)
    assert image.skipped(0, 14) == 2 and image.skipped(5, 14) == 0
    large = TileImage(Window(1, 64, 64, (56, 56), (56, 56), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), "staged", 32)
    assert large.skipped(0, 203) == 0  # six of 609
    dilated = TileImage(Window(1, 8, 8, (6, 5), (6, 5), (3, 3), (1, 1), (17, 17), (17,) * 4), "staged", 32)
    assert dilated.skipped(0, 13) == 2 * 13

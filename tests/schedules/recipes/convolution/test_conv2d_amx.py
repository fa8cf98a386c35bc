"""Convolution on tile registers: machine code against its plain twin, and both against float64."""

from typing import Any

import numpy as np
import pytest

from tvm_ext.core.layout import Layout
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.amx.recipe import is_legal
from tvm_ext.schedules.recipes.convolution.conv2d_amx import Conv2dAmx

from ....emulation.execution import HOST, MACHINE
from ...amx_cases import R_SCALE, X_SCALE, Y_SCALE, arrays_of, conv_group, points, run_tiles, run_twin
from ...convolutions import reference
from ...kernels import matched

#: x, w, strides, padding, dilation
CASES: dict[str, Any] = {
    "3x3 on 14x14": ((1, 64, 14, 14), (64, 64, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "3x3 on 7x7": ((1, 32, 7, 7), (33, 32, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "3x3 stride 2": ((1, 32, 15, 13), (32, 32, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    "1x1": ((1, 64, 7, 7), (40, 64, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "1x1 of few channels": ((1, 24, 7, 7), (40, 24, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "1x1 stride 2": ((1, 64, 14, 14), (24, 64, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
    "without padding": ((1, 64, 9, 8), (32, 64, 3, 2), (1, 1), (0, 0, 0, 0), (1, 1)),
    "stem": ((1, 3, 37, 41), (16, 3, 7, 7), (2, 2), (3, 3, 3, 3), (1, 1)),
    "small stem": ((1, 3, 15, 17), (16, 3, 7, 7), (2, 2), (3, 3, 3, 3), (1, 1)),
    "stem of eleven taps": ((1, 3, 37, 41), (16, 3, 11, 11), (4, 4), (2, 2, 2, 2), (1, 1)),
    "one channel": ((2, 1, 9, 9), (8, 1, 5, 5), (1, 1), (2, 2, 2, 2), (1, 1)),
    "prime channels": ((1, 37, 11, 5), (17, 37, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "one channel, one pixel": ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "batch 3": ((3, 40, 6, 7), (70, 40, 3, 2), (1, 1), (1, 0, 1, 0), (1, 1)),
    "asymmetric padding": ((1, 32, 9, 9), (8, 32, 3, 3), (2, 1), (0, 1, 2, 0), (1, 1)),
    "dilated": ((1, 32, 12, 12), (8, 32, 3, 3), (1, 1), (2, 2, 2, 2), (2, 2)),
    "dilated, stride 3": ((1, 32, 16, 14), (8, 32, 3, 3), (3, 3), (2, 1, 2, 3), (2, 2)),
    "tiles between rows": ((1, 8, 6, 5), (8, 8, 3, 3), (1, 1), (17, 17, 17, 17), (17, 17)),
    "more padding than image": ((1, 32, 2, 3), (8, 32, 3, 3), (2, 2), (3, 3, 3, 3), (1, 1)),
}
TYPES = {"bf16": (("bfloat16", "bfloat16"), 0), "u8": (("uint8", "int8"), 121), "s8": (("int8", "int8"), -7)}


def group_of(case: str, kind: str, residual: bool = False) -> Any:
    x, w, strides, padding, dilation = CASES[case]
    dtypes, zero = TYPES[kind]
    return conv_group(x, w, dtypes, zero, residual, strides=strides, padding=padding, dilation=dilation)


def check_numbers(case: str, kind: str, group: Any, arrays: list[np.ndarray], got: np.ndarray) -> None:
    """Against float64: within a rounding of the stored result."""
    _, _, strides, padding, dilation = CASES[case]
    zero = TYPES[kind][1]
    x, w, b, *rest = (a.astype("float64") for a in arrays)
    factor = 1.0 if kind == "bf16" else X_SCALE * rest.pop(0)[None, :, None, None]
    exact = reference(x - zero, w, strides, padding, dilation) * factor + b
    exact += sum((r if kind == "bf16" else (r - 3) * R_SCALE) for r in rest)
    exact = np.maximum(exact, 0)
    if kind == "bf16":
        magnitude = reference(abs(x), abs(w), strides, padding, dilation) + abs(b) + sum(abs(r) for r in rest)
        assert np.all(np.abs(got.astype("float64") - exact) <= 2.0**-8 * exact + 1e-5 * magnitude)
        return
    limits = np.iinfo(group.dtype)
    wanted = np.clip(np.round(exact / Y_SCALE) + 5, limits.min, limits.max)
    off = np.abs(got.astype("float64") - wanted)
    assert off.max() <= 1 and np.mean(off > 0) < 0.002, (off.max(), np.mean(off > 0))


#: What runs each time: every way to read an image, and every instruction.
SHORT = [
    ("3x3 on 7x7", "bf16"), ("stem", "bf16"), ("prime channels", "bf16"), ("1x1", "bf16"), ("3x3 stride 2", "s8"),
    ("dilated, stride 3", "bf16"), ("batch 3", "u8"), ("stem of eleven taps", "u8"), ("without padding", "s8"),
    ("tiles between rows", "bf16"),
]  # fmt: skip
#: The other geometries in one type, and those whose steps of the depth end otherwise in the other width.
LONG = [
    ("stem", "u8"), ("prime channels", "s8"), ("1x1 of few channels", "u8"), ("1x1 stride 2", "bf16"),
    ("stem of eleven taps", "bf16"), ("one channel", "bf16"), ("one channel", "s8"), ("one channel, one pixel", "u8"),
    ("asymmetric padding", "bf16"), ("dilated", "s8"), ("more padding than image", "u8"), ("batch 3", "bf16"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "kind"), [*SHORT, *(pytest.param(*each, marks=pytest.mark.long) for each in LONG)])
def test_machine_code_is_its_twin(case: str, kind: str, rng: np.random.Generator) -> None:
    group = group_of(case, kind, residual=case == "batch 3")
    arrays = arrays_of(group, rng)
    twin = run_twin(Conv2dAmx, group, arrays)
    check_numbers(case, kind, group, arrays, twin)
    got, amx = run_tiles(Conv2dAmx, group, arrays)
    assert got.tobytes() == twin.tobytes()
    amx.assert_entered({"bf16": "tdpbf16ps", "u8": "tdpbusd", "s8": "tdpbssd"}[kind])
    amx.assert_configured(1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "kind"), [("batch 3", "u8"), ("small stem", "bf16"), ("without padding", "bf16"), ("prime channels", "u8")]
)
def test_points_of_the_space_agree(case: str, kind: str, rng: np.random.Generator) -> None:
    """Images read in every way, one and two tiles of pixels, parts, chunks, more threads than units."""
    group = group_of(case, kind, residual=True)
    arrays = arrays_of(group, rng)
    recipe, machine = Conv2dAmx(), MACHINE.with_threads(2)
    match = matched(recipe, group, machine)
    wanted = run_twin(Conv2dAmx, group, arrays)
    tried = 0
    for image in match.images:
        for config in points(image, match.images[image].blocks):
            if is_legal(match.images[image], config):
                got, amx = run_tiles(Conv2dAmx, group, arrays, config, threads=2)
                assert np.abs(got.astype("float64") - wanted.astype("float64")).max() <= (0.25 if kind == "bf16" else 0)
                assert got.tobytes() == run_twin(Conv2dAmx, group, arrays, config, threads=2).tobytes(), config
                amx.assert_configured(config["threads"])
                tried += 1
    assert tried >= 3


#: x, w, stride, padding: a stem, much of the image, much of the weights, a shortcut.
LAYERS = {
    "stem": ((1, 3, 112, 112), (64, 3, 7, 7), 2, 3),
    "28x28": ((1, 64, 28, 28), (64, 64, 3, 3), 1, 1),
    "28x28 shortcut": ((1, 64, 28, 28), (128, 64, 1, 1), 2, 0),
    "7x7": ((1, 256, 7, 7), (256, 256, 3, 3), 1, 1),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("layer", "kind"), [("stem", "bf16"), ("28x28", "u8"), ("28x28 shortcut", "u8"), ("7x7", "bf16")]
)
def test_layers_as_those_of_resnet18(layer: str, kind: str, rng: np.random.Generator) -> None:
    x, w, stride, padding = LAYERS[layer]
    dtypes, zero = TYPES[kind]
    group = conv_group(x, w, dtypes, zero, stride == 1, strides=(stride, stride), padding=(padding,) * 4)
    arrays = arrays_of(group, rng)
    got, _ = run_tiles(Conv2dAmx, group, arrays)
    assert got.tobytes() == run_twin(Conv2dAmx, group, arrays).tobytes()


@pytest.mark.parametrize("lanes", [16, *(pytest.param(n, marks=pytest.mark.long) for n in (32, 64))])
def test_blocks_of_another_width_are_read_while_they_are_copied(lanes: int, rng: np.random.Generator) -> None:
    group = group_of("prime channels", "bf16")
    arrays = arrays_of(group, rng)
    offered = [Layout.blocked(4, lanes), *(Layout.plain(len(p.shape)) for p in group.params[1:])]
    recipe = Conv2dAmx()
    match = matched(recipe, group, MACHINE)
    config = {**recipe.default(match, MACHINE), "image": "staged"}
    layouts = recipe.layouts(match, config, offered)
    assert layouts.params[0] == Layout.blocked(4, min(lanes, 32))
    got, _ = run_tiles(Conv2dAmx, group, arrays, config, offered)
    check_numbers("prime channels", "bf16", group, arrays, got)


def test_tiles_of_padding_are_not_multiplied(rng: np.random.Generator) -> None:
    """Zeros that only infinite weights would notice; of bytes padding is a zero point, whose products count."""
    for kind, instruction, skipped in (("bf16", "tdpbf16ps", 2), ("u8", "tdpbusd", 0)):
        group = group_of("3x3 on 14x14", kind)
        arrays = arrays_of(group, rng)
        match = matched(Conv2dAmx(), group, MACHINE)
        (image,) = match.images.values()
        config = {**Conv2dAmx().default(match, MACHINE), "pixels": 2}
        got, amx = run_tiles(Conv2dAmx, group, arrays, config)
        assert got.tobytes() == run_twin(Conv2dAmx, group, arrays, config).tobytes()
        check_numbers("3x3 on 14x14", kind, group, arrays, got)
        amx.assert_counts(**{instruction: 2 * 2 * (14 * 3 - skipped) * image.blocks * 3})


@pytest.mark.parametrize("kind", ["bf16", "u8"])
def test_few_channels_may_lie_anyhow(kind: str, rng: np.random.Generator) -> None:
    """Columns side by side are interleaved in vectors, others pixel by pixel."""
    group = group_of("stem", kind)
    arrays = arrays_of(group, rng)
    match = matched(Conv2dAmx(), group, MACHINE)
    config = {**Conv2dAmx().default(match, MACHINE), "image": "packed"}
    plain, last = (
        run_twin(Conv2dAmx, group, arrays, config, [layout, *(Layout.plain(len(p.shape)) for p in group.params[1:])])
        for layout in (Layout.plain(4), Layout((0, 2, 3, 1)))
    )
    assert plain.tobytes() == last.tobytes()
    check_numbers("stem", kind, group, arrays, plain)


@pytest.mark.parametrize(("case", "kind"), [("3x3 stride 2", "bf16"), ("stem", "u8"), ("batch 3", "s8")])
def test_a_large_image_is_copied_by_all_threads_together(
    case: str, kind: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    group = group_of(case, kind, residual=case == "batch 3")
    arrays = arrays_of(group, rng)
    match = matched(Conv2dAmx(), group, MACHINE.with_threads(2))
    config = {**Conv2dAmx().default(match, MACHINE), "share": "outputs", "parts": 1, "threads": 2}
    own = run_twin(Conv2dAmx, group, arrays, config, threads=2)
    monkeypatch.setattr("tvm_ext.schedules.amx.blocks._OWN_BYTES", 0)
    shared, _ = run_tiles(Conv2dAmx, group, arrays, config, threads=2)
    assert shared.tobytes() == own.tobytes()
    check_numbers(case, kind, group, arrays, shared)


@pytest.mark.parametrize("stream", ["weights", "image"])
def test_an_operand_that_passes_l1_is_loaded_with_the_hint(stream: str, rng: np.random.Generator) -> None:
    group = group_of("1x1", "bf16")
    arrays = arrays_of(group, rng)
    match = matched(Conv2dAmx(), group, MACHINE)
    plain = {**Conv2dAmx().default(match, MACHINE), "pixels": 2, "stream": "neither"}
    wanted, amx = run_tiles(Conv2dAmx, group, arrays, plain)
    got, hinted = run_tiles(Conv2dAmx, group, arrays, {**plain, "stream": stream})
    assert got.tobytes() == wanted.tobytes()
    amx.assert_counts(tileloaddt1=0)
    if amx.emulator is not None:
        half = amx.emulator.executed["tileloadd"] // 2
        hinted.assert_counts(tileloaddt1=half, tileloadd=half)


@pytest.mark.long
def test_nothing_but_its_own_window_reaches_a_pixel(rng: np.random.Generator) -> None:
    """NaN and infinity of one pixel stay in the windows that hold it, also where steps hold more than a window."""
    for case in ("stem", "3x3 on 7x7", "one channel"):
        group = group_of(case, "bf16")
        arrays = arrays_of(group, rng)
        x = arrays[0]
        clean, _ = run_tiles(Conv2dAmx, group, arrays)
        place = (0, 0, x.shape[2] // 2, x.shape[3] // 2)
        for value in (np.nan, np.inf):
            arrays[0] = x.copy()
            arrays[0][place] = value
            dirty, _ = run_tiles(Conv2dAmx, group, arrays)
            _, w, strides, padding, dilation = CASES[case]
            hit = np.zeros(x.shape)
            hit[place] = 1
            touched = reference(hit, np.ones(w), strides, padding, dilation) > 0
            assert np.array_equal(dirty[~touched], clean[~touched])
            assert not np.isfinite(dirty[touched].astype("float32")).all()


def test_weights_of_uint8_around_128_are_signed_ones(rng: np.random.Generator) -> None:
    shape = {"strides": (1, 1), "padding": (1, 1, 1, 1)}
    signed = conv_group((1, 20, 6, 6), (9, 20, 3, 3), ("uint8", "int8"), 100, **shape)
    unsigned = conv_group((1, 20, 6, 6), (9, 20, 3, 3), ("uint8", "uint8"), 100, weight_zero=128, **shape)
    arrays = arrays_of(signed, rng)
    wanted, _ = run_tiles(Conv2dAmx, signed, arrays)
    arrays[1] = arrays[1].view(np.uint8) ^ np.uint8(128)
    got, amx = run_tiles(Conv2dAmx, unsigned, arrays)
    assert np.array_equal(got, wanted)
    amx.assert_entered("tdpbusd")


@pytest.mark.long
@pytest.mark.parametrize(("left", "name"), [("uint8", "tdpbuud"), ("int8", "tdpbsud")])
def test_unsigned_weights_without_a_zero_point(left: str, name: str, rng: np.random.Generator) -> None:
    group = conv_group((1, 20, 6, 6), (9, 20, 3, 3), (left, "uint8"), 5, strides=(1, 1), padding=(1, 1, 1, 1))
    arrays = arrays_of(group, rng)
    got, amx = run_tiles(Conv2dAmx, group, arrays)
    assert np.array_equal(got, run_twin(Conv2dAmx, group, arrays))
    amx.assert_entered(name)
    x, w, b, scale = (a.astype("float64") for a in arrays)
    sums = reference(x - 5, w, (1, 1), (1, 1, 1, 1), (1, 1)) * X_SCALE * scale[None, :, None, None] + b
    limits = np.iinfo(group.dtype)
    assert np.abs(got - np.clip(np.round(np.maximum(sums, 0) / Y_SCALE) + 5, limits.min, limits.max)).max() <= 1


def test_bytes_stay_in_blocks_of_64_and_bf16_in_32() -> None:
    for kind, lanes in (("bf16", 32), ("u8", 64)):
        group = group_of("1x1", kind, residual=True)
        recipe = Conv2dAmx()
        match = matched(recipe, group, MACHINE)
        layouts = recipe.layouts(match, recipe.default(match, MACHINE), [Layout.plain(4)] * len(group.params))
        assert layouts.output == layouts.params[0] == layouts.params[-1] == Layout.blocked(4, lanes)


def test_what_it_does_not_take() -> None:
    recipe = Conv2dAmx()

    def reason(group: Any, machine: Any = MACHINE) -> str:
        miss = recipe.match(group, machine)
        assert isinstance(miss, Miss)
        return miss.reason

    assert "no amx-tile" in reason(group_of("1x1", "bf16"), HOST)
    grouped = conv_group((1, 8, 6, 6), (8, 4, 3, 3), groups=2)
    assert "groups=2" in reason(grouped)
    around_7 = conv_group((1, 8, 6, 6), (8, 8, 3, 3), ("uint8", "uint8"), 0, weight_zero=7)
    assert "zero point 7 of uint8 weights" in reason(around_7)
    from ...convolutions import conv_group as of_float32

    assert "float32 by float32" in reason(of_float32((1, 8, 6, 6), (8, 8, 3, 3)))

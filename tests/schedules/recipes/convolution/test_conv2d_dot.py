"""Convolution by dot-product instructions: exact sums of integers, bfloat16 within its rounding, the plain twins."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.dots import image as dot_image
from tvm_ext.schedules.recipes.convolution.conv2d_dot import Conv2dDot

from ...convolutions import reference
from ...kernels import ROUNDOFF, make_group
from ...narrow import BF16, TYPES, Narrow, assert_exact, narrow_group, needs, run_narrow, twin

MACHINE = Machine.detect()
RECIPE, TWIN = Conv2dDot(), twin(Conv2dDot())


@dataclass(frozen=True)
class Case:
    x: tuple[int, ...]
    w: tuple[int, ...]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, ...] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)

    def anchor(self, **attrs: Any) -> Any:
        both = {"strides": self.strides, "padding": self.padding, "dilation": self.dilation}
        return lambda a, b, **more: relax.op.nn.conv2d(a, b, **both, **more)

    def sums(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return reference(x, w, self.strides, self.padding, self.dilation)


CASES = {
    "3x3": Case((1, 32, 9, 11), (32, 32, 3, 3), padding=(1, 1, 1, 1)),
    "3x3 stride 2": Case((1, 16, 15, 13), (48, 16, 3, 3), (2, 2), (1, 1, 1, 1)),
    "1x1": Case((1, 64, 7, 7), (40, 64, 1, 1)),
    "1x1 stride 2": Case((1, 32, 14, 14), (24, 32, 1, 1), (2, 2)),
    "stem": Case((1, 3, 37, 41), (16, 3, 7, 7), (2, 2), (3, 3, 3, 3)),
    "one channel": Case((1, 1, 12, 9), (5, 1, 3, 3), padding=(1, 0, 0, 1)),
    "5 channels": Case((1, 5, 8, 6), (17, 5, 3, 3), padding=(1, 1, 1, 1)),
    "5 channels, no padding": Case((2, 5, 8, 6), (17, 5, 3, 3)),
    "17 channels": Case((1, 17, 6, 6), (30, 17, 3, 3), padding=(1, 1, 1, 1)),
    "17 channels, no padding": Case((1, 17, 6, 6), (30, 17, 2, 2)),
    "30 channels": Case((1, 30, 5, 5), (1, 30, 3, 3), padding=(1, 1, 1, 1)),
    "one pixel": Case((1, 30, 1, 1), (17, 30, 1, 1)),
    "one pixel, padded": Case((1, 16, 1, 1), (16, 16, 3, 3), padding=(1, 1, 1, 1)),
    "batch 2, asymmetric": Case((2, 20, 9, 9), (24, 20, 3, 2), (2, 1), (0, 1, 2, 0)),
    "dilated": Case((1, 16, 12, 12), (16, 16, 3, 3), padding=(2, 2, 2, 2), dilation=(2, 2)),
    "rows": Case((1, 1, 13, 11), (17, 1, 5, 5), padding=(2, 2, 2, 2)),
    "rows of 2 channels": Case((1, 2, 9, 10), (16, 2, 3, 3), padding=(1, 1, 1, 1)),
    "rows of 3 channels": Case((2, 3, 6, 17), (18, 3, 1, 7), (1, 3), (0, 5, 0, 2)),
    "rows, asymmetric": Case((2, 3, 14, 15), (33, 3, 2, 5), (3, 2), (0, 1, 3, 4)),
    "rows, dilated down": Case((1, 3, 14, 9), (16, 3, 3, 4), padding=(1, 0, 2, 1), dilation=(3, 1)),
    "rows, even": Case((1, 3, 9, 8), (5, 3, 3, 6), padding=(0, 1, 1, 0)),
    "no rows, dilated across": Case((1, 3, 9, 19), (16, 3, 3, 7), (1, 2), (1, 3, 1, 3), (1, 2)),
    "no rows, 4 channels": Case((1, 4, 9, 8), (5, 4, 3, 3), padding=(1, 1, 1, 1)),
    "long reduction": Case((1, 256, 7, 7), (64, 256, 3, 3), padding=(1, 1, 1, 1)),
}

#: Words of a row of the kernel, by the data's type, of the cases whose words cross pixels.
FEW_WORDS = {
    "uint8": {
        "stem": 6, "one channel": 1, "rows": 2, "rows of 2 channels": 2, "rows of 3 channels": 6,
        "rows, asymmetric": 4, "rows, dilated down": 3, "rows, even": 5,
    },
    "bfloat16": {"rows, dilated down": 6, "rows, even": 9},
}  # fmt: skip


def offered_to(group: Any) -> list[Layout]:
    """As a convolution before it leaves its result."""
    image = group.params[0].shape
    data = Layout.blocked(4, 16) if image[1] > 4 else Layout.plain(4)
    return [data, *(Layout.plain(len(p.shape)) for p in group.params[1:])]


def make(case: Case, narrow: Narrow, rng: np.random.Generator) -> tuple[Any, list[np.ndarray], np.ndarray]:
    """(group, arrays, result): sums are exact, the epilogue is computed in float32."""
    outputs = case.w[0]
    group = narrow_group(case.anchor(), narrow, case.x, case.w, outputs, 0, (1, outputs, 1, 1))
    arrays = narrow.arrays(rng, case.x, case.w)
    exact = case.sums(*narrow.whole(*arrays))
    return group, arrays, narrow.result(rng, arrays, exact, (1, outputs, 1, 1))


def check_integers(case: Case, narrow: Narrow, recipe: Conv2dDot, config: Any = None) -> None:
    group, arrays, expected = make(case, narrow, np.random.default_rng(1))
    got = run_narrow(recipe, group, arrays, MACHINE, config, offered_to(group))
    assert_exact(narrow, got, expected, arrays[-1])


@needs["int8"]
@pytest.mark.parametrize(
    ("case", "types"), [(case, ("unsigned integers", "integers")[i % 2]) for i, case in enumerate(CASES)]
)
def test_integers_are_exact(case: str, types: str) -> None:
    check_integers(CASES[case], TYPES[types], RECIPE)


@needs["int8"]
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("case", ["17 channels", "rows, asymmetric"])
def test_types(case: str, types: str) -> None:
    check_integers(CASES[case], TYPES[types], RECIPE)


OF_THE_TWIN = ["5 channels", "1x1 stride 2", "one channel", "rows of 2 channels", "rows of 3 channels"]


@pytest.mark.parametrize(
    ("case", "types"), [(OF_THE_TWIN[(i + more) % 5], types) for i, types in enumerate(TYPES) for more in (0, 2)]
)
def test_the_plain_twin_has_the_same_bits(case: str, types: str) -> None:
    check_integers(CASES[case], TYPES[types], TWIN)


@needs["int8"]
@pytest.mark.parametrize("config", [
    {"tile_o": 1, "tile_p": 14, "parts": 1, "chunk": 1, "threads": 1},
    {"tile_o": 2, "tile_p": 7, "parts": 4, "chunk": 4, "threads": 2},
    {"tile_o": 4, "tile_p": 6, "parts": 2, "chunk": 16, "threads": 2},
    {"tile_o": 3, "tile_p": 5, "parts": 1, "chunk": 8, "threads": 3},
])  # fmt: skip
def test_configurations(config: Any) -> None:
    for types in ("integers", "unsigned integers"):
        check_integers(CASES["long reduction"], TYPES[types], RECIPE, config)


@needs["int8"]
@pytest.mark.parametrize("own", [0, 1 << 20], ids=["by all threads", "by each thread"])
def test_who_copies_the_image(own: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dot_image, "_OWN_BYTES", own)
    for threads, tile_p, cases in (
        (2, 7, ["3x3 stride 2", "stem"]), (2, 6, ["rows, asymmetric"]), (3, 5, ["no rows, dilated across"])
    ):  # fmt: skip
        config = {"tile_o": 2, "tile_p": tile_p, "parts": 2, "chunk": 16, "threads": threads}
        check_integers(CASES["long reduction"], TYPES["integers"], RECIPE, config)
        for case in cases:
            config |= {"chunk": 1, "tile_o": 1}
            check_integers(CASES[case], TYPES["integers"], RECIPE, config)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("narrow", [TYPES["uint8"], BF16], ids=["uint8", "bfloat16"])
def test_when_words_cross_pixels(case: str, narrow: Narrow) -> None:
    """Where a row of the kernel has fewer words so; in bfloat16 only of whole words."""
    one = CASES[case]
    _, channels, _, kw = one.w
    match = TWIN.match(make(one, narrow, np.random.default_rng(0))[0], MACHINE)
    assert not isinstance(match, Miss)
    words = FEW_WORDS[narrow.data].get(case)
    assert match.merged == (words is not None)
    if words is not None:
        assert (match.problem.taps[1], match.problem.inner) == (1, words)
    else:
        assert match.problem.steps == one.w[2] * kw * -(-channels // match.dot.group)


@needs["int8"]
@pytest.mark.parametrize("case", ["rows", "rows of 3 channels", "no rows, 4 channels", "no rows, dilated across"])
def test_few_channels_of_an_image_in_blocks(case: str) -> None:
    """Lanes beyond the last channel are poisoned."""
    one, types = CASES[case], TYPES["integers"]
    group, arrays, expected = make(one, types, np.random.default_rng(5))
    offered = [Layout.blocked(4, 16), *offered_to(group)[1:]]
    np.testing.assert_array_equal(run_narrow(RECIPE, group, arrays, MACHINE, None, offered), expected)


@pytest.mark.parametrize("case", ["stem", "rows of 3 channels", "rows, even", "no rows, dilated across"])
@pytest.mark.parametrize("recipe", [pytest.param(RECIPE, marks=needs["bf16"]), TWIN], ids=["vdpbf16ps", "plain"])
def test_a_nan_stays_within_its_window(case: str, recipe: Conv2dDot) -> None:
    one, types = CASES[case], BF16
    group, arrays, _ = make(one, types, np.random.default_rng(6))
    y, x = one.x[2] // 2, one.x[3] // 2
    arrays[0][:, :, y, x] = np.inf
    arrays[1] = abs(arrays[1]) + arrays[1].dtype.type(1)
    got = run_narrow(recipe, group, arrays, MACHINE, None, offered_to(group))
    mark = np.zeros(one.x)
    mark[:, :, y, x] = 1
    reached = one.sums(mark, np.ones(one.w)) > 0
    np.testing.assert_array_equal(np.isfinite(got), ~reached)


@pytest.mark.parametrize(
    ("case", "recipe"),
    [*(pytest.param(case, RECIPE, marks=needs["bf16"], id=f"{case}-vdpbf16ps") for case in CASES),
     *(pytest.param(case, TWIN, id=f"{case}-plain") for case in [*CASES][::2])],
)  # fmt: skip
def test_bf16_within_the_rounding_of_its_sums(case: str, recipe: Conv2dDot) -> None:
    one = CASES[case]
    group, arrays, expected = make(one, BF16, np.random.default_rng(2))
    got = run_narrow(recipe, group, arrays, MACHINE, None, offered_to(group))
    x, w = BF16.whole(*arrays[:2])
    terms = np.prod(one.w[1:]) + 4
    magnitude = one.sums(abs(x), abs(w)) + abs(arrays[-1])
    assert np.all(np.abs(got - expected) <= terms * ROUNDOFF * magnitude)


def test_what_is_refused() -> None:
    case = CASES["3x3"]
    group, *_ = make(case, TYPES["int8"], np.random.default_rng(0))
    old = Machine.detect("nehalem")
    assert "avx512vnni" in refusal(group, old)
    floats, *_ = make(case, BF16, np.random.default_rng(0))
    assert "avx512bf16" in refusal(floats, old)


def refusal(group: Any, machine: Machine) -> str:
    miss = RECIPE.match(group, machine)
    assert isinstance(miss, Miss)
    return miss.reason


def stored_group(case: Case, dtype: str) -> Any:
    """quantize(relu(conv + bias + dequantize(residual))), or the same in bfloat16."""
    outputs, narrow = case.w[0], dtype != "bfloat16"
    anchor = case.anchor()
    result = anchor(*(relax.Var("v", relax.TensorType(s, "float32")) for s in (case.x, case.w)))
    shape = [int(d) for d in relax.BlockBuilder().normalize(result).ty.shape]
    unit = relax.const(0.25, "float32")

    def wide(x: Any, axis: int = 1) -> Any:
        if not narrow:
            return relax.op.astype(x, "float32")
        zero = relax.const(0 if axis == 0 else 3, "int8" if axis == 0 else dtype)
        return relax.op.dequantize(x, unit, zero, axis=axis)

    def body(x: Any, w: Any, b: Any, r: Any) -> Any:
        a = yield wide(x)
        c = yield wide(w, 0)
        y = yield anchor(a, c)
        y = yield relax.op.add(y, b)
        d = yield wide(r)
        y = yield relax.op.add(y, d)
        y = yield relax.op.nn.relu(y)
        if narrow:
            yield relax.op.quantize(y, relax.const(64.0, "float32"), relax.const(3, dtype), axis=1, out_dtype=dtype)
        else:
            yield relax.op.astype(y, "bfloat16")

    shapes = [case.x, case.w, (1, outputs, 1, 1), shape]
    return make_group("relax.nn.conv2d", shapes, body, [1, 2], [dtype, "int8" if narrow else dtype, "float32", dtype])


@needs["int8"]
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("case", ["3x3", "17 channels", "1x1 stride 2"])
def test_a_quantized_result_with_a_residual(case: str, dtype: str) -> None:
    """Every step is exact: scales are powers of two."""
    one, rng = CASES[case], np.random.default_rng(3)
    group = stored_group(one, dtype)
    x, w = Narrow(dtype, "int8").arrays(rng, one.x, one.w)
    b = rng.integers(-50, 50, group.params[2].shape).astype("float32")
    (r,) = Narrow(dtype, "int8").arrays(rng, group.shape, (1,))[:1]
    got = run_narrow(RECIPE, group, [x, w, b, r], MACHINE, None, offered_to(group))
    value = one.sums(x.astype("float64") - 3, w.astype("float64")) / 16 + b + (r.astype("float64") - 3) / 4
    limits = np.iinfo(dtype)
    expected = np.clip(np.rint(np.maximum(value, 0) / 64) + 3, limits.min, limits.max).astype(dtype)
    np.testing.assert_array_equal(got, expected)


@needs["bf16"]
@pytest.mark.parametrize("case", ["3x3", "17 channels", "1x1 stride 2"])
def test_a_bfloat16_result_is_its_plain_twins_but_for_one_unit(case: str) -> None:
    one, rng = CASES[case], np.random.default_rng(4)
    group = stored_group(one, "bfloat16")
    arrays = BF16.arrays(rng, one.x, one.w)
    arrays += [rng.standard_normal(group.params[2].shape).astype("float32"), *BF16.arrays(rng, group.shape, (1,))[:1]]
    got, twin = (run_narrow(recipe, group, arrays, MACHINE, None, offered_to(group)) for recipe in (RECIPE, TWIN))
    exact = np.maximum(one.sums(*BF16.whole(*arrays[:2])) + arrays[2] + arrays[3].astype("float64"), 0)
    for result in (got, twin):  # a unit of bfloat16 is 2^-7 of the power of two below
        wide = result.astype("float64")
        assert np.all(np.abs(wide - exact) <= 2.0**-8 * exact + 1e-4)
    assert np.abs(got.view("int16").astype(int) - twin.view("int16").astype(int)).max() <= 1


@needs["int8"]
def test_numbers_at_the_ends_of_their_types() -> None:
    """Sums of 16 bits would saturate."""
    one = Case((1, 4096, 1, 1), (16, 4096, 1, 1))
    for fill in ((255, 127), (255, -128), (0, 127)):
        types = Narrow("uint8", "int8", "shift", zero_point=255)
        group = narrow_group(one.anchor(), types, one.x, one.w, 16, 0, (1, 16, 1, 1))
        x, w = np.full(one.x, fill[0], "uint8"), np.full(one.w, fill[1], "int8")
        expected = one.sums(*types.whole(x, w))
        np.testing.assert_array_equal(run_narrow(RECIPE, group, [x, w], MACHINE, None, offered_to(group)), expected)

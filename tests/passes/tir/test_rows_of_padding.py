"""Products with rows of padding are left out of tiles that hold no other row: results are equal to the bit."""

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import tirx

from tests.schedules.convolutions import conv_group, reference
from tests.schedules.kernels import matched
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Recipe
from tvm_ext.passes.tir import rows_of_padding
from tvm_ext.passes.tir.kernel_passes import lower_to_loops
from tvm_ext.runtime.cpu import why_not_here
from tvm_ext.schedules.blocked.cost import leaves_out_padding
from tvm_ext.schedules.blocked.problem import ROWS_INSIDE
from tvm_ext.schedules.recipes.convolution.conv2d_grouped import Conv2dGrouped
from tvm_ext.schedules.recipes.convolution.conv2d_nchwc import Conv2dNCHWc

from .test_prefetches import Made, loops_of, operands, output_of, without

MACHINES = {name: Machine.described(name) for name in ("zen5", "zen3-avx2")}
#: (image, weight, attributes) of convolutions, some of whose taps read padding alone.
CASES = {
    "7x7": ((1, 32, 7, 7), (48, 32, 3, 3), {"padding": (1, 1, 1, 1)}),
    "one row": ((1, 16, 1, 5), (16, 16, 3, 3), {"padding": (1, 1, 1, 1)}),
    "stride 2": ((2, 16, 9, 5), (32, 16, 3, 3), {"strides": (2, 2), "padding": (1, 1, 1, 1)}),
    "dilated": ((1, 16, 5, 7), (16, 16, 3, 3), {"dilation": (3, 3), "padding": (3, 3, 3, 3)}),
    "asymmetric": ((1, 8, 6, 6), (24, 8, 4, 3), {"padding": (0, 1, 3, 1)}),
    "padding of two rows": ((1, 16, 3, 4), (16, 16, 5, 5), {"padding": (2, 2, 2, 2)}),
    "grouped": ((1, 64, 7, 7), (64, 32, 3, 3), {"groups": 2, "padding": (1, 1, 1, 1)}),
}
#: Tiles of a row, of part of one, of several, and across rows.
TILES = (1, 3, 7, 14)


def kernel(case: str, machine: Machine, tile_p: int = 3) -> Made:
    x, w, attrs = CASES[case]
    recipe: Recipe = Conv2dGrouped() if "groups" in attrs else Conv2dNCHWc()
    group = conv_group(x, w, relu=False, **attrs)
    match = matched(recipe, group, machine)

    class Tiled(type(recipe)):  # type: ignore[misc]
        def default(self, match, machine):
            return {**recipe.default(match, machine), "tile_o": 1, "tile_p": tile_p, "parts": 1}

    built = Made(Tiled(), group, machine)
    assert leaves_out_padding(match.problem, built.config, machine) == (2 * tile_p <= machine.registers)
    return built


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: without("leave-out-padding", monkeypatch)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("machine", MACHINES)
def test_results_are_those_of_all_products_to_the_bit(case: str, machine: str, whole: Callable[[], None]) -> None:
    here = MACHINES[machine]
    if why := why_not_here(here.as_dict()):
        pytest.skip(why)
    kernels = [kernel(case, here, tile) for tile in TILES]
    arrays = [operands(each) for each in kernels]
    less = [output_of(each, of, here) for each, of in zip(kernels, arrays, strict=True)]
    whole()
    assert [output_of(each, of, here) for each, of in zip(kernels, arrays, strict=True)] == less
    if "groups" not in CASES[case][2]:
        _, w, attrs = CASES[case]
        rng = np.random.default_rng(5)
        image, weight, bias = (rng.standard_normal(p.shape).astype("float32") for p in kernels[0].match.group.params)
        ones = {"strides": (1, 1), "dilation": (1, 1), **attrs}
        exact = reference(image, weight, ones["strides"], ones["padding"], ones["dilation"]) + bias
        layout, shape = kernels[0].layouts.output, kernels[0].match.group.shape
        result = layout.unpack(np.frombuffer(less[0], "float32").reshape(layout.physical_shape(shape)), shape)
        np.testing.assert_allclose(result, exact, rtol=0, atol=np.prod(w[1:]) * 2e-6)


def annotated(function: tirx.PrimFunc) -> list[tirx.For]:
    return [loop for loop in loops_of(function) if ROWS_INSIDE in loop.annotations]


def test_what_a_tap_reads_of_padding_is_not_computed() -> None:
    """An infinite weight meets rows of padding only: with them in the sum the result was no number."""
    x, w, _ = CASES["one row"]
    here = Machine.detect(None, 1)
    built = kernel("one row", here)
    image, weight, bias = np.ones(x, "float32"), np.ones(w, "float32"), np.zeros((1, 16, 1, 1), "float32")
    weight[:, :, ::2] = np.inf
    arrays = [layout.pack(a) for layout, a in zip(built.layouts.params, (image, weight, bias), strict=True)]
    result = np.frombuffer(output_of(built, arrays, here), "float32")
    assert set(result.tolist()) == {32.0, 48.0}


def test_tiles_that_fill_the_registers_compute_everything() -> None:
    small, large = (kernel("7x7", MACHINES["zen5"], tile_p).function for tile_p in (7, 28))
    assert annotated(small) and not annotated(large)
    assert not annotated(lower_to_loops({"main": small}, MACHINES["zen5"].target())["main"])


@pytest.mark.parametrize(("tile_p", "inside"), [(1, 19 / 21), (7, 19 / 21), (14, 11 / 12), (49, 1.0)])
def test_the_share_of_rows_inside(tile_p: int, inside: float) -> None:
    """Of 7 rows by 3 taps two read padding; of four tiles of two rows the last holds one."""
    problem = matched(Conv2dNCHWc(), conv_group(*CASES["7x7"][:2], padding=(1, 1, 1, 1)), MACHINES["zen5"]).problem
    assert problem.inside(tile_p) == pytest.approx(inside)


def test_a_kernel_without_annotations_is_left_alone() -> None:
    built = kernel("7x7", MACHINES["zen5"], 28)
    tvm.ir.assert_structural_equal(rows_of_padding.leave_out_padding(built.function), built.function)

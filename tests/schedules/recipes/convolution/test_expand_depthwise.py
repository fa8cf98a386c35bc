"""A pointwise and a depthwise convolution in one kernel, against float64, on several instruction sets."""

from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.recipes.convolution.expand_depthwise import ExpandDepthwise

from ...any_size import AnySize, each_size, symbols, with_extents
from ...convolutions import grouped_reference, reference
from ...kernels import ROUNDOFF, drawn_points, make_group, matched, random, run_kernel

RECIPE = ExpandDepthwise()

# data, channels between, kernel, strides, padding, dilation
CASES = {
    "3x3": ((1, 16, 14, 14), 32, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "3x3 stride 2": ((1, 24, 15, 13), 48, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    "5x5 of prime extents": ((2, 5, 11, 7), 19, (5, 5), (1, 1), (2, 2, 2, 2), (1, 1)),
    "dilated, asymmetric": ((1, 8, 12, 9), 16, (3, 3), (1, 2), (2, 0, 2, 1), (2, 1)),
    "one pixel": ((1, 3, 1, 1), 6, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
}


def expand_group(case: str, first: Any = None, residual: bool = False) -> Group:
    shape, channels, kernel, strides, padding, dilation = CASES[case]
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": channels}
    window = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    spans = [shape[2 + i] + padding[i] + padding[i + 2] - window[i] for i in (0, 1)]
    out = (shape[0], channels, *(s // stride + 1 for s, stride in zip(spans, strides, strict=True)))

    def body(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, *r: Any) -> Any:
        m = yield relax.op.nn.conv2d(x, w1, **(first or {}))
        m = yield relax.op.add(m, b1)
        m = yield relax.op.clip(m, 0, 6)
        y = yield relax.op.nn.conv2d(m, w2, **attrs)
        y = yield relax.op.add(y, b2)
        if r:
            yield relax.op.add(y, r[0])

    shapes = [shape, (channels, shape[1], 1, 1), (1, channels, 1, 1), (channels, 1, *kernel), (1, channels, 1, 1)]
    return make_group("expand_depthwise", [*shapes, *([out] if residual else [])], body, constants=(1, 2, 3, 4))


def check(
    case: str, machine: Machine, rng: np.random.Generator, config: Any = None, residual: bool = False, block: int = 0
) -> None:
    group = expand_group(case, residual=residual)
    arrays = [random(rng, *p.shape) for p in group.params]
    offered = [Layout.blocked(4, block or machine.lanes), *(Layout.plain(4) for _ in arrays[1:])]
    got = run_kernel(RECIPE, group, arrays, machine, config, offered)
    exact, bound = expected(case, *arrays)
    assert got.shape == exact.shape
    assert np.all(np.abs(got - exact) <= bound)


def expected(
    case: str, x: np.ndarray, w1: np.ndarray, b1: np.ndarray, w2: np.ndarray, b2: np.ndarray, *r: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The result in float64, and how far float32 may be from it."""
    _, channels, _, strides, padding, dilation = CASES[case]
    plain = ((1, 1), (0, 0, 0, 0), (1, 1))
    mid = np.clip(reference(x, w1, *plain) + b1, 0, 6)
    error = (w1.shape[1] + 3) * ROUNDOFF * (reference(abs(x), abs(w1), *plain) + abs(b1))
    exact = grouped_reference(mid, w2, channels, strides, padding, dilation) + b2 + sum(r)
    taps = (np.prod(w2.shape[1:]) + 4) * ROUNDOFF
    bound = grouped_reference(error + taps * abs(mid), abs(w2), channels, strides, padding, dilation)
    return exact, 1.01 * bound + taps * (abs(b2) + sum(abs(q) for q in r))


#: Of images of any size: knobs, and threads of the machine.
CUT: dict[str, tuple[str, dict[str, int]]] = {
    "strips of two rows": ("3x3", {"tile_o": 2, "tile_p": 4, "window_p": 7, "strip": 2, "threads": 2}),
    "one strip": ("3x3", {"tile_o": 1, "tile_p": 6, "window_p": 5, "strip": 14, "threads": 1}),
    "strips of one row": ("3x3 stride 2", {"tile_o": 3, "tile_p": 2, "window_p": 3, "strip": 1, "threads": 3}),
    "strips of four rows": ("3x3 stride 2", {"tile_o": 1, "tile_p": 8, "window_p": 8, "strip": 4, "threads": 2}),
    "images": ("5x5 of prime extents", {"tile_o": 1, "tile_p": 4, "window_p": 2, "strip": 1, "threads": 2}),
    "one strip an image": (
        "5x5 of prime extents",
        {"tile_o": 2, "tile_p": 7, "window_p": 4, "strip": 11, "threads": 2},
    ),
    "dilated": ("dilated, asymmetric", {"tile_o": 1, "tile_p": 4, "window_p": 2, "strip": 3, "threads": 2}),
}


@pytest.mark.parametrize("cut", CUT)
def test_images_of_any_size(cut: str, rng: np.random.Generator) -> None:
    """NaN behind the extents; what is between is zero there, as padding is."""
    case, config = CUT[cut]
    (n, h, w), (shape, channels, kernel, strides, padding, dilation) = symbols("NHW"), CASES[case]
    window = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    least = [max(1, size - padding[i] - padding[i + 2]) for i, size in enumerate(window)]
    out = [(e + padding[i] + padding[i + 2] - window[i]) // strides[i] + 1 for i, e in enumerate((h, w))]
    group, batch = expand_group(case), n if shape[0] > 1 else 1
    constants = [p.shape for p in group.params[1:]]
    group = with_extents(group, (batch, shape[1], h, w), *constants, (batch, channels, *out))
    kernel_ = AnySize(RECIPE, group, Machine.detect(None, config["threads"]), config)
    weights = [random(rng, *each) for each in constants]
    rows, columns = ({least[i], shape[2 + i] // 2 + 1, shape[2 + i] - 1, shape[2 + i]} for i in (0, 1))
    for size in each_size(N={1, shape[0]}, H=rows, W=columns):
        x = random(rng, size["N"], shape[1], size["H"], size["W"])
        exact, bound = expected(case, x, *weights)
        assert np.all(np.abs(kernel_(size, exact.shape, x, *weights) - exact) <= bound), size


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_float64(case: str, case_machine: Machine, rng: np.random.Generator) -> None:
    check(case, case_machine, rng)


def test_residual(machine: Machine, rng: np.random.Generator) -> None:
    check("3x3", machine, rng, residual=True)


def test_reads_narrower_blocks_where_they_are(machine: Machine, rng: np.random.Generator) -> None:
    check("3x3 stride 2", machine, rng, block=8)


@pytest.mark.parametrize("case", ["3x3", "3x3 stride 2", "5x5 of prime extents"])
def test_points_of_the_space_agree(case: str, rng: np.random.Generator) -> None:
    """Strips of every length, tiles that do not divide, threads that do not divide the strips."""
    machine = Machine.detect(None, 3)
    for config in drawn_points(RECIPE, expand_group(case), machine, rng, 4):
        check(case, machine, rng, config=config)


def test_what_stands_between_fits_half_of_l2() -> None:
    machine = Machine.detect("haswell", 2)
    match = matched(RECIPE, expand_group("3x3"), machine)
    for config in RECIPE.points(match, machine):
        tiny = Machine(**{**machine.as_dict(), "l2": 0, "features": machine.features})
        assert np.isinf(RECIPE.cost(match, config, tiny))


@pytest.mark.parametrize(
    ("first", "reason"), [({"padding": (1, 1)}, "not pointwise"), ({"data_layout": "NHWC"}, "NHWC")]
)
def test_refuses(first: dict[str, Any], reason: str) -> None:
    case = "3x3" if "padding" in first else "one pixel"
    shape, channels, *_ = CASES[case]
    if "padding" in first:
        group = expand_group(case, first)
    else:

        def body(x: Any, w1: Any, w2: Any) -> Any:
            m = yield relax.op.nn.conv2d(x, w1, data_layout="NHWC", out_layout="NCHW")
            yield relax.op.nn.conv2d(m, w2, groups=channels)

        shapes = [(1, 4, 4, shape[1]), (channels, shape[1], 1, 1), (channels, 1, 3, 3)]
        group = make_group("expand_depthwise", shapes, body, constants=(1, 2))
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and reason in miss.reason

"""Row stationary: registers against convolutions by their definition and the closed form, counts, and Eyeriss."""

import dataclasses
import itertools
import math
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.isa import Conv
from tvm_ext.byoc.systolic.code.layer import ConvGeometry
from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.byoc.systolic.simulation.cost import conv_cost
from tvm_ext.byoc.systolic.simulation.row_array import RowRun
from tvm_ext.byoc.systolic.simulation.row_stationary import (
    RowCounts,
    RowMapping,
    RowShape,
    row_mapping,
    row_mappings,
    row_parts,
    row_problem,
)
from tvm_ext.byoc.systolic.simulation.stepper import step_conv
from tvm_ext.core.errors import InputError

from ..cases import direct_conv2d, random_int8

#: Kernel, stride and dilation, height first.
WINDOWS = [
    ((3, 3), (1, 1), (1, 1)), ((1, 1), (1, 1), (1, 1)), ((3, 2), (2, 2), (1, 1)), ((5, 3), (1, 2), (1, 1)),
    ((1, 1), (2, 2), (1, 1)), ((2, 3), (1, 1), (2, 2)), ((2, 2), (3, 3), (1, 1)), ((4, 1), (1, 1), (1, 1)),
]  # fmt: skip


def random_shape(rng: np.random.Generator) -> RowShape:
    out_size = (int(rng.integers(1, 7)), int(rng.integers(1, 5)))
    return RowShape(*(int(size) for size in rng.integers(1, 6, 2)), out_size, *WINDOWS[rng.integers(len(WINDOWS))])


def random_hardware(rng: np.random.Generator, model: str) -> Accelerator:
    rows, cols, filter_spad, input_spad = (int(n) for n in rng.integers((1, 1, 3, 5), (7, 7, 40, 13)))
    return Accelerator(rows, cols, compute_model=model, filter_spad=filter_spad, input_spad=input_spad)


def geometry_of(shape: RowShape) -> ConvGeometry:
    """Without padding, over the smallest image."""
    size = tuple(
        (out - 1) * stride + (kernel - 1) * dilation + 1
        for out, kernel, stride, dilation in zip(
            shape.out_size, shape.kernel, shape.strides, shape.dilation, strict=True
        )
    )
    return ConvGeometry(
        shape.channels, (size[0], size[1]), shape.kernel, strides=shape.strides, dilation=shape.dilation
    )


def conv_of(shape: RowShape, **changed: int) -> Conv:
    geometry = geometry_of(shape)
    sizes = (*geometry.size, *shape.out_size, *shape.kernel, *shape.strides, *shape.dilation)
    return dataclasses.replace(Conv(0, 0, 0, 0, shape.filters, shape.channels, *sizes), **changed)


def operands(rng: np.random.Generator, shape: RowShape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Image, filters, and their convolution [pixels, filters] in int64."""
    geometry = geometry_of(shape)
    image = random_int8(rng, (shape.channels, *geometry.size))
    filters = random_int8(rng, (shape.filters, shape.channels, *shape.kernel))
    exact = direct_conv2d(image[None].astype(np.int64), filters.astype(np.int64), geometry)
    return image, filters, exact[0].reshape(shape.filters, -1).T


@pytest.mark.parametrize("model", ["physical", "overlapped"])
@pytest.mark.parametrize("seed", range(4))
def test_random_convolutions(seed: int, model: str) -> None:
    """Bits and clocks of the registers; float32 of whole numbers has the bits too."""
    rng = np.random.default_rng(seed)
    for number in range(8):
        shape, hardware = random_shape(rng), random_hardware(rng, model)
        image, filters, exact = operands(rng, shape)
        cycles, mapping = row_mapping(shape, hardware)
        acc = rng.integers(-1000, 1000, exact.shape, dtype=np.int32)
        dtype = "float32" if number % 3 == 0 else "int8"
        arguments = (image.astype(dtype), filters.astype(dtype), mapping, hardware.rows, hardware.cols)
        result, clocks = step_conv(
            *arguments, acc.astype("float32") if dtype == "float32" else acc, model == "overlapped"
        )
        assert np.array_equal(result, acc + exact), (shape, mapping)
        assert clocks == cycles == conv_cost(hardware, conv_of(shape)).cycles, (shape, mapping)


@pytest.mark.parametrize("overlapped", [False, True])
def test_any_mapping(overlapped: bool) -> None:
    """Not only that which the search takes: the registers and the closed form agree on each."""
    shape, rng = RowShape(5, 6, (5, 3), (4, 2), (1, 1)), np.random.default_rng(9)
    image, filters, exact = operands(rng, shape)
    for h, e, r, t, q, p in ((4, 2, 1, 2, 1, 1), (2, 3, 2, 1, 2, 3), (1, 5, 4, 1, 2, 6), (2, 1, 2, 5, 1, 1)):
        mapping = RowMapping(shape, h, e, r, t, q, p)
        result, clocks = step_conv(image, filters, mapping, 4, 5, overlapped=overlapped)
        assert np.array_equal(result, exact) and clocks == mapping.cycles(4, 5, overlapped), mapping


def test_by_hand() -> None:
    """1 channel, 1 filter of 3x3, 3x4 pixels on 3x3 PEs: 5 rows of 3 columns come in 5 clocks, filters in 3; 4 windows
    of 3 products; then 2 clocks to the top."""
    mapping = RowMapping(RowShape(1, 1, (3, 4), (3, 3)), h=3, e=3, r=1, t=1, q=1, p=1)
    assert mapping.cycles(3, 3, overlapped=False) == 5 + 4 * 3 + 2
    assert mapping.active_pes == (9, 9.0) and mapping.efficiency == 1.0 and mapping.passes == (1, 1, 1)
    assert list(mapping.depth_order()) == [[[0, 1, 2], [3, 4, 5], [6, 7, 8]]]


def test_sums_wrap_and_infinities_stay_in_their_windows() -> None:
    shape = RowShape(2, 2, (3, 3), (2, 2))
    mapping = row_mapping(shape, Accelerator(4, 4))[1]
    ones = np.full((2, 4, 4), -128, np.int8), np.full((2, 2, 2, 2), -128, np.int8)
    wrapped, _ = step_conv(*ones, mapping, 4, 4, acc=np.full((9, 2), 2**31 - 1, np.int32))
    assert np.all(wrapped == 2**31 - 1 + 8 * 128 * 128 - 2**32)
    image, filters = np.ones((2, 4, 4), np.float32), np.ones((2, 2, 2, 2), np.float32)
    image[1, 0, 0] = np.inf
    result, _ = step_conv(image, filters, mapping, 4, 4, overlapped=True)
    assert np.all(np.isinf(result[0])) and np.all(result[1:] == 8)


@pytest.mark.parametrize("early", ["_is_ready", "_may_bring"])
def test_what_begins_earlier_is_wrong(early: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows before they are there have other bits; passes brought before the last result are another closed form."""
    shape, rng = RowShape(6, 6, (4, 3), (3, 3)), np.random.default_rng(5)
    image, filters, exact = operands(rng, shape)
    mapping = row_mapping(shape, Accelerator(4, 4, filter_spad=6))[1]
    assert math.prod(mapping.passes) > 1
    monkeypatch.setattr(RowRun, early, lambda self, *at: True)
    result, clocks = step_conv(image, filters, mapping, 4, 4)
    assert clocks < mapping.cycles(4, 4, overlapped=False)
    assert np.array_equal(result, exact) is (early == "_may_bring")


# ------------------------------------------------------------ counts
def counted(conv: Conv, mapping: RowMapping) -> tuple[Counter[str], Counter[str], Counter[str], int, int]:
    """Values moved, PE by PE: reads of the scratchpad, arrivals at PEs, reads and sums in PEs, sums of an output."""
    shape, buffer, network, spad = mapping.shape, Counter[str](), Counter[str](), Counter[str]()
    registers = 0
    (height, width), (kernel, taps) = shape.out_size, shape.kernel
    leaves: Counter[tuple[int, int, int]] = Counter()
    for f0 in range(0, shape.filters, mapping.p * mapping.t):
        for c0 in range(0, shape.channels, mapping.q * mapping.r):
            for top in range(0, kernel, mapping.h):
                filters = range(f0, min(f0 + mapping.p * mapping.t, shape.filters))
                channels = range(c0, min(c0 + mapping.q * mapping.r, shape.channels))
                buffer["b"] += len(filters) * len(channels) * mapping.h * taps
                network["b"] += len(filters) * len(channels) * mapping.h * taps * mapping.e
                for y0 in range(0, height, mapping.e):
                    outputs = range(y0, min(y0 + mapping.e, height))
                    pixels = set()
                    for y in outputs:
                        for row in range(top, top + mapping.h):
                            for x in range(width):
                                for at in range(shape.span):
                                    pixels.add(
                                        (y * shape.strides[0] + row * shape.dilation[0], x * shape.strides[1] + at)
                                    )
                    inside = [
                        1 for row, column in pixels
                        if 0 <= row - conv.pad_top < conv.height and 0 <= column - conv.pad_left < conv.width
                    ]  # fmt: skip
                    buffer["a"] += len(inside) * len(channels)
                    for y in outputs:
                        for own in range(0, len(channels), mapping.q):
                            depth = min(mapping.q, len(channels) - own)
                            for first in range(0, len(filters), mapping.p):
                                each = min(mapping.p, len(filters) - first)
                                received = len(
                                    {(x * shape.strides[1] + s) for x in range(width) for s in range(shape.span)}
                                )
                                network["a"] += mapping.h * depth * received
                                spad["a"] += mapping.h * depth * taps * each * width
                                spad["b"] += mapping.h * depth * taps * each * width
                                registers += 2 * mapping.h * (depth * taps - 1) * each * width
                        adds = mapping.h * -(-len(channels) // mapping.q) - 1
                        network["output"] += adds * len(filters) * width
                        leaves.update((y, x, f) for x in range(width) for f in filters)
    (sums,) = set(leaves.values())
    return buffer, network, spad, registers, sums


def test_counts_of_each_level() -> None:
    rng = np.random.default_rng(3)
    for _ in range(40):
        shape = random_shape(rng)
        mapping = row_mapping(shape, random_hardware(rng, "overlapped"))[1]
        conv = conv_of(shape)
        if shape.kernel == (3, 3) and conv.height > 3 and conv.width > 3:
            conv = dataclasses.replace(conv, height=conv.height - 2, width=conv.width - 2, pad_top=1, pad_left=1)
        counts = RowCounts.of(conv, mapping)
        assert counted(conv, mapping) == dataclasses.astuple(counts), (conv, mapping)


def test_traffic_is_counts_times_bytes() -> None:
    conv = conv_of(RowShape(4, 8, (6, 6), (3, 3)), accumulate=1)
    hardware = Accelerator(6, 6)
    counts = RowCounts.of(conv, row_mapping(RowShape.of(conv), hardware)[1])
    traffic = {(memory, operand): nbytes for memory, operand, nbytes in conv_cost(hardware, conv).traffic}
    assert traffic["spad", "a"] == counts.spad["a"] == 4 * 8 * 36 * 9
    assert traffic["register", "output"] == 4 * counts.registers
    assert traffic["scratchpad", "b"] == 4 * 8 * 9
    assert traffic["accumulator", "output"] == 4 * 8 * 36 * 2 * counts.sums


# ------------------------------------------------------------ several arrays
@pytest.mark.parametrize("arrays", [2, 3, 4, 6])
def test_no_cut_is_better(arrays: int) -> None:
    """Each array of each cut by the registers: together they have the output; the slowest says how long it takes."""
    rng = np.random.default_rng(arrays)
    for _ in range(3):
        shape, alone = random_shape(rng), random_hardware(rng, "overlapped")
        image, filters, exact = operands(rng, shape)
        (height, width), slowest = shape.out_size, []
        for ways in (ways for ways in range(1, arrays + 1) if arrays % ways == 0):
            rows, own, clocks = -(-height // ways), -(-shape.filters // (arrays // ways)), []
            result = np.full(exact.shape, 2**30)
            for y, f in itertools.product(range(0, height, rows), range(0, shape.filters, own)):
                part = shape.cut(min(rows, height - y), min(own, shape.filters - f))
                operand = image[:, y * shape.strides[0] :], filters[f : f + own]
                values, clock = step_conv(
                    *operand, row_mapping(part, alone)[1], alone.rows, alone.cols, overlapped=True
                )
                result[y * width : (y + rows) * width, f : f + own] = values
                clocks.append(clock)
            assert np.array_equal(result, exact)
            slowest.append(max(clocks))
        assert conv_cost(dataclasses.replace(alone, arrays=arrays), conv_of(shape)).cycles == min(slowest)


def test_traffic_is_that_of_the_arrays() -> None:
    """Counted PE by PE in each: rows of the image that two arrays need are read by both."""
    shape, alone = RowShape(3, 10, (7, 5), (3, 3)), Accelerator(4, 4, filter_spad=12)
    conv = conv_of(shape, height=7, width=5, pad_top=1, pad_left=1)
    hardware = dataclasses.replace(alone, arrays=6)
    parts = list(row_parts(conv, hardware))
    covered = np.zeros((35, 10), int)
    buffer, network = Counter[str](), Counter[str]()
    for at, part in parts:
        covered[at] += 1
        moved = counted(part, row_mapping(RowShape.of(part), alone)[1])
        buffer += moved[0]
        network += moved[1]
    assert np.all(covered == 1) and 1 < len(parts) <= 6
    cost = conv_cost(hardware, conv)
    traffic = {(memory, operand): nbytes for memory, operand, nbytes in cost.traffic}
    assert [traffic["scratchpad", name] for name in "ab"] == [buffer["a"], buffer["b"]] and cost.macs == shape.macs
    assert [traffic["network", name] for name in "ab"] == [network["a"], network["b"]]


# ------------------------------------------------------------ Eyeriss
#: Of AlexNet by JSSC 52(1), 2017, tables III and V: groups, shape, rows of the output in a set of 12 x 14 PEs, PEs
#: that are active, milliseconds of a batch of 4 at 200 MHz.
ALEXNET = {
    "conv1": (1, RowShape(3, 96, (55, 55), (11, 11), (4, 4)), 7, 154, 16.5),
    "conv2": (2, RowShape(48, 128, (27, 27), (5, 5)), 14, 135, 39.2),
    "conv3": (1, RowShape(256, 384, (13, 13), (3, 3)), 13, 156, 21.8),
    "conv4": (2, RowShape(192, 192, (13, 13), (3, 3)), 13, 156, 16.0),
    "conv5": (2, RowShape(192, 128, (13, 13), (3, 3)), 13, 156, 10.0),
}


@pytest.mark.parametrize("name", ALEXNET)
def test_alexnet_on_eyeriss(name: str) -> None:
    """With the rows of the paper as many PEs work, the most or in the mean, and the array alone takes 0.8 to 1.0 of the
    time that was measured, in which the chip waits for DRAM too; the search finds nothing slower."""
    groups, shape, e, active, milliseconds = ALEXNET[name]
    (mapping,) = (each for each in row_mappings(shape, 12, 14, 224, 12) if each.e == e)
    assert active in mapping.active_pes
    cycles = mapping.cycles(12, 14, overlapped=True)
    assert 0.8 < 4 * groups * cycles / 200e3 / milliseconds < 1.0
    assert row_mapping(shape, Accelerator(12, 14))[0] <= cycles


def test_formulas_of_the_paper() -> None:
    """ISCA 2016, section VI-C, where nothing is left over: reuse a b c d of an operand, accumulations a b c d of a sum;
    DRAM has a = 1."""
    shape = RowShape(8, 8, (6, 5), (3, 3))
    mapping = RowMapping(shape, h=3, e=6, r=2, t=1, q=2, p=4)
    counts = RowCounts.of(conv_of(shape), mapping)
    outputs, weights = 8 * 30, 8 * 8 * 9
    by_filters, by_channels, _ = mapping.passes
    b, c, d = by_channels, mapping.h * mapping.r, mapping.q * 3  # of a sum
    assert outputs * b * c * d == shape.macs
    assert counts.sums == b
    assert counts.network["output"] == outputs * b * (c - 1)
    assert counts.registers == outputs * 2 * b * c * (d - 1)
    b, c, d = 1, mapping.e, 5  # of a weight
    assert weights * b * c * d == shape.macs
    assert (counts.buffer["b"], counts.network["b"], counts.spad["b"]) == (weights, weights * c, weights * c * d)
    assert counts.buffer["a"] == by_filters * 8 * 8 * 7 and counts.spad["a"] == shape.macs


# ------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("kernel", "dilation", "settings", "message"),
    [
        ((1, 13), (1, 1), {}, "spans 13 columns .* input_spad=12"),
        ((1, 4), (1, 4), {}, "spans 13 columns"),
        ((3, 3), (1, 1), {"filter_spad": 2}, "filter_spad=2"),
    ],
)
def test_windows_that_no_array_has(
    kernel: tuple[int, int], dilation: tuple[int, int], settings: dict[str, Any], message: str
) -> None:
    assert re.search(message, row_problem(kernel, dilation, Accelerator(**settings)))
    assert row_problem((3, 3), (1, 1), Accelerator()) == ""


def test_operands_of_another_convolution() -> None:
    mapping = row_mapping(RowShape(1, 1, (3, 3), (2, 2)), Accelerator(4, 4))[1]
    image, filters = np.zeros((1, 4, 4), np.int8), np.zeros((1, 1, 2, 2), np.int8)
    for wrong in ((image[:, :, :3], filters), (image, filters[..., :1]), (image.astype(np.float32), filters)):
        with pytest.raises(InputError):
            step_conv(*wrong, mapping, 4, 4)

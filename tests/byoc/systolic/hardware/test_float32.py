"""float32 arithmetic in gates against numpy, bit for bit."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth")
from amaranth.hdl import Module, Signal, signed
from amaranth.sim import Simulator

from tvm_ext.byoc.systolic.hardware.float32 import Arithmetic

#: Zeros, infinities, NaN, 1, a half, the least and largest subnormal, the least normal, the largest finite number.
SPECIAL = [
    0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00001, 0x3F800000, 0xBF000000, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF,
]  # fmt: skip
COUNT = 500


def numbers(rng: np.random.Generator) -> np.ndarray:
    """Any bits, subnormals, numbers around 1, multiples of a half, and the special ones, as bits."""
    bits = rng.integers(0, 1 << 32, COUNT, dtype=np.uint64).astype(np.uint32)
    around_1 = (rng.standard_normal(COUNT) * 10.0 ** rng.integers(-3, 4, COUNT)).astype(np.float32).view(np.uint32)
    halves = (rng.integers(-600, 600, COUNT) / 2).astype(np.float32).view(np.uint32)
    special = rng.choice(np.array(SPECIAL, np.uint32), COUNT)
    return np.stack([bits, bits & 0x807FFFFF, around_1, halves, special])[rng.integers(0, 5, COUNT), np.arange(COUNT)]


def computed(inputs: list[Signal], output: Signal, module: Module, values: list[np.ndarray]) -> list[int]:
    """The output for each row of values of the inputs."""
    results = []

    async def bench(context: Any) -> None:
        for row in zip(*values, strict=True):
            for signal, value in zip(inputs, row, strict=True):
                context.set(signal, int(value))
            results.append(context.get(output))

    simulator = Simulator(module)
    simulator.add_testbench(bench)
    simulator.run()
    return results


@pytest.mark.parametrize(("name", "operation"), [("multiply", np.multiply), ("divide", np.divide), ("add", np.add)])
def test_two_operands(name: str, operation: Any) -> None:
    rng, module, a, b = np.random.default_rng(0), Module(), Signal(32), Signal(32)
    x, y = numbers(rng), numbers(rng)
    x[:50], y[:50] = np.repeat(SPECIAL, 5)[:50], np.tile(SPECIAL, 5)[:50]
    y[50:120] = x[50:120] ^ rng.integers(0, 4, 70).astype(np.uint32) ^ (1 << 31)  # what nearly cancels
    with np.errstate(all="ignore"):
        expected = operation(x.view(np.float32), y.view(np.float32))
    results = np.array(computed([a, b], getattr(Arithmetic(module, "x"), name)(a, b), module, [x, y]), np.uint32)
    nan = np.isnan(expected)
    np.testing.assert_array_equal(results[~nan], expected.view(np.uint32)[~nan])
    assert np.isnan(results.view(np.float32)[nan]).all()


def test_from_an_integer() -> None:
    rng, module, integer = np.random.default_rng(1), Module(), Signal(signed(33))
    values = np.concatenate([rng.integers(-(2**32), 2**32, COUNT) >> rng.integers(0, 32, COUNT), [0, 1, -1, 2**24 + 1]])
    results = computed([integer], Arithmetic(module, "x").from_integer(integer), module, [values])
    assert results == values.astype(np.float32).view(np.uint32).tolist()


def test_to_an_integer_within_bounds() -> None:
    rng, module = np.random.default_rng(2), Module()
    signals = [Signal(32), Signal(signed(12)), Signal(signed(12))]
    x, zero_point = numbers(rng), rng.integers(-128, 128, COUNT)
    least, most = -128 - zero_point, 127 - zero_point
    results = computed(signals, Arithmetic(module, "x").round_to(*signals), module, [x, least, most])
    values = x.view(np.float32)
    expected = np.rint(np.clip(np.where(np.isnan(values), 0, values), least, most)).astype(int)
    assert results == expected.tolist()

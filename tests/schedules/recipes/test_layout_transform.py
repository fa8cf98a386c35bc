"""Layout transforms move every element and nothing else."""

import itertools
from collections.abc import Sequence
from typing import Any

import ml_dtypes  # noqa: F401, numpy's bfloat16
import numpy as np
import pytest
import tvm
from tvm.ir import IRModule

import tvm_ext
from tests.onnx_graphs import model, node, value
from tests.onnx_graphs import random as random_weight
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.schedules.recipes import layout_transform

PLAIN, NHWC = Layout.plain(4), Layout((0, 2, 3, 1))
SHAPES = [
    (1, 16, 5, 7), (2, 13, 3, 1), (1, 1, 1, 1), (2, 37, 9, 11),
    (1, 3, 40, 41),  # few channels
    (3, 17, 1, 1),  # no image
    (1, 1, 6, 5),  # one channel
    (1, 48, 131, 131),  # enough for two threads, of 3 blocks
]  # fmt: skip
#: Shapes that go from every layout to every other one.
GENERAL = SHAPES[3:6]
PAIRS = [
    (PLAIN, Layout.blocked(4, 8)), (Layout.blocked(4, 8), PLAIN), (PLAIN, Layout.blocked(4, 16)),
    (Layout.blocked(4, 16), PLAIN), (Layout.blocked(4, 4), Layout.blocked(4, 16)),
    (Layout.blocked(4, 16), Layout.blocked(4, 8)), (PLAIN, NHWC), (NHWC, PLAIN), (NHWC, Layout.blocked(4, 8)),
    (Layout.blocked(4, 16), NHWC),
    (Layout.blocked(4, 8, axis=3), Layout.blocked(4, 16)),
    (Layout.blocked(4, 16).permuted((0, 2, 3, 1)), PLAIN),
]  # fmt: skip
#: Of 24 permutations; odd sizes, few, many.
EVERY = [(2, 3, 4, 5), pytest.param((17, 5, 3, 33), marks=pytest.mark.long)]


def transformed(x: np.ndarray, source: Layout, target: Layout, machine: Machine) -> np.ndarray:
    """The logical result; lanes of the source without a value hold zero, and the output starts as something else."""
    function = layout_transform.compute(x.shape, str(x.dtype), source, target, machine)
    kernel = tvm.compile(IRModule({"main": function}), target=machine.target()).jit()["main"]
    poison = np.nan if x.dtype.kind == "f" else True if x.dtype.kind == "b" else 77
    out = tvm.runtime.tensor(np.full(target.physical_shape(x.shape), poison, x.dtype))
    kernel(tvm.runtime.tensor(source.pack(x)), out)
    return target.unpack(out.numpy(), x.shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_moves_every_element(shape: Sequence[int], rng: np.random.Generator) -> None:
    x, machine = rng.standard_normal(shape).astype("float32"), Machine.detect(None, 2)
    for source, target in PAIRS if shape in GENERAL else PAIRS[: len(PAIRS) // 2]:
        assert np.array_equal(transformed(x, source, target, machine), x), f"{source} -> {target}"


@pytest.mark.parametrize("number", range(3))
def test_on_other_instruction_sets(number: int, other_machine: Machine, rng: np.random.Generator) -> None:
    """Each pair of layouts by one of three shapes."""
    x = rng.standard_normal(SHAPES[3 * number]).astype("float32")
    for source, target in PAIRS[number::3]:
        assert np.array_equal(transformed(x, source, target, other_machine), x), f"{source} -> {target}"


@pytest.mark.parametrize("shape", EVERY, ids=str)
def test_every_permutation(shape: Sequence[int], rng: np.random.Generator) -> None:
    machine = Machine.detect(None, 2)
    x = rng.standard_normal(shape).astype("float32")
    for order in itertools.permutations(range(4)):
        assert np.array_equal(transformed(x, PLAIN, Layout(order), machine), x), order


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "float16", "bfloat16", "int32", "int64", "float64"]
)
def test_any_type(dtype: str, rng: np.random.Generator) -> None:
    machine = Machine.detect(None, 2)
    few = rng.integers(0, 2 if dtype == "bool" else 100, (2, 3, 35, 3)).astype(dtype)
    many = rng.integers(0, 2 if dtype == "bool" else 100, (1, 19, 6, 23)).astype(dtype)
    for source, target, x in ((PLAIN, NHWC, few), (NHWC, PLAIN, many), (PLAIN, Layout.blocked(4, 16), many)):
        assert np.array_equal(transformed(x, source, target, machine), x), f"{source} -> {target}"


@pytest.mark.parametrize("threads", [3, 4, 7])
def test_threads_share_loops_that_they_do_not_divide(threads: int, rng: np.random.Generator) -> None:
    machine = Machine.detect(None, threads)
    x = rng.standard_normal((1, 35, 97, 98)).astype("float32")
    for source, target in ((PLAIN, Layout.blocked(4, 16)), (Layout.blocked(4, 16), PLAIN), (NHWC, PLAIN)):
        assert np.array_equal(transformed(x, source, target, machine), x)


def test_lanes_without_a_value_reach_no_result() -> None:
    machine, shape = Machine.detect(None, 1), (1, 5, 3, 7)
    x, layout = np.arange(105, dtype="float32").reshape(shape), Layout.blocked(4, 8)
    function = layout_transform.compute(shape, "float32", layout, PLAIN, machine)
    kernel = tvm.compile(IRModule({"main": function}), target=machine.target()).jit()["main"]
    out = tvm.runtime.tensor(np.full(shape, 7, "float32"))
    kernel(tvm.runtime.tensor(np.where(layout.pack(np.ones(shape, bool)), layout.pack(x), np.nan)), out)
    assert np.array_equal(out.numpy(), x)


@pytest.mark.parametrize(("shape", "source"), [((0, 3, 4, 5), NHWC), ((1, 0, 2, 2), Layout.blocked(4, 8))], ids=str)
def test_an_empty_tensor(shape: Sequence[int], source: Layout) -> None:
    assert transformed(np.zeros(shape, "float32"), source, PLAIN, Machine.detect(None, 2)).shape == shape


def test_a_scalar() -> None:
    scalar = Layout.plain(0)
    assert transformed(np.full((), 3, "float32"), scalar, scalar, Machine.detect(None, 2)) == 3


@pytest.mark.parametrize("perm", [[0, 2, 3, 1], [0, 1, 3, 2], [0, 2, 1, 3], [3, 2, 1, 0]])
def test_a_transpose_of_memory_at_any_address(perm: list[int], rng: np.random.Generator) -> None:
    shape = (2, 16, 32, 48)
    nodes = [node("Transpose", "x", "y", perm=perm)]
    proto = model(nodes, [value("x", shape)], [value("y", [shape[p] for p in perm])])
    compiled = tvm_ext.compile(proto, cache=False)
    (kernel,) = compiled.report["kernels"]
    assert kernel["recipe"] == "layout_transform" and kernel["estimated_us"] > 0
    memory = rng.standard_normal(2 * 16 * 32 * 48 + 16).astype("float32")
    for start in (0, 4, 8, 12):  # multiples of 16 bytes
        x: Any = memory[start : start + memory.size - 16].reshape(shape)
        assert np.array_equal(compiled.run(x)["y"], x.transpose(perm))


def test_equal_transforms_are_one_kernel() -> None:
    nodes = [node("Conv", f"{x} w", y, pads=[1] * 4, group=19) for x, y in ("ab", "cd")]
    ends = [[value(name, (1, 19, 6, 5)) for name in names] for names in ("ac", "bd")]
    proto = model(nodes, *ends, {"w": random_weight(19, 1, 3, 3)})
    compiled = tvm_ext.compile(proto, cache=False)
    calls = [k["calls"] for k in compiled.report["kernels"] if k["recipe"] == "layout_transform"]
    assert calls == [2, 2]
    assert tvm_ext.verify(compiled, model=proto).ok

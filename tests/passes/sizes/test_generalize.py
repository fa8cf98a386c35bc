"""A kernel of each operation, of five of fixed sizes, is exact at any size and touches what is in use only."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.s_tir import SBlock

from tvm_ext.core.machine import Machine
from tvm_ext.core.sizes import Sizes, Symbol
from tvm_ext.driver.build import compile_kernels
from tvm_ext.ops.scalars.legalize import legalizations
from tvm_ext.passes.sizes.generalize import NotAlike, generalize
from tvm_ext.passes.sizes.solver import Solver
from tvm_ext.passes.steps.kernel_sizes import bind_sizes
from tvm_ext.schedules import generic

Size = Mapping[str, int]
Feeds = Sequence[np.ndarray]


def size(n: int, s: int, p: int) -> Size:
    return {"N": n, "S": s, "P": p}


SIZES = Sizes.of([Symbol("N", 1, 4), Symbol("S", 0, 48), Symbol("P", 0, 40)])
PROBES = (SIZES.bound, size(3, 37, 11), size(2, 29, 22), size(3, 18, 31), size(2, 23, 17))
RUNS = (size(2, 5, 0), size(1, 1, 1), size(3, 7, 2), size(2, 41, 13), size(1, 30, 40), size(4, 48, 40))


@dataclass(frozen=True)
class Case:
    """An operation.

    Attributes:
        shapes: of the inputs, each as its dimensions: "N S*P 16".
        graph: of the inputs' variables and a size, the Relax expression.
        reference: of the inputs and a size, what it is.
        dtypes: of the inputs; the last one stands for all that follow.
        tolerance: of the result's range, where it is rounded otherwise.
    """

    shapes: Sequence[str]
    graph: Callable[..., Any]
    reference: Callable[..., Any]
    dtypes: tuple[str, ...] = ("float32",)
    tolerance: float = 0.0

    def inputs(self, at: Size) -> list[tuple[tuple[int, ...], str]]:
        """Shapes and dtypes at some size."""
        shapes = [tuple(eval(dim, {}, dict(at)) for dim in shape.split()) for shape in self.shapes]
        return [(shape, self.dtypes[min(i, len(self.dtypes) - 1)]) for i, shape in enumerate(shapes)]


def kernel(case: Case, at: Size) -> tirx.PrimFunc:
    """The kernel of one size, as the generic way makes it, not scheduled."""
    builder = relax.BlockBuilder()
    xs = [relax.Var(f"x{i}", relax.TensorType(*array)) for i, array in enumerate(case.inputs(at))]
    with builder.function("main", xs):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(case.graph(*xs, at)))
        builder.emit_func_output(result)
    with Machine.detect().target(), tvm.transform.PassContext(opt_level=3):
        mod = relax.backend.DispatchSortScan()(builder.get())
        mod = relax.transform.LegalizeOps(legalizations())(mod)
        mod = relax.transform.FuseOps(2)(relax.transform.AnnotateTIROpPattern()(mod))
        mod = relax.transform.FuseTIR()(mod)
    (function,) = (f for _, f in mod.functions_items() if isinstance(f, tirx.PrimFunc))
    return function


def random_inputs(case: Case, at: Size) -> list[np.ndarray]:
    """Random inputs; integers are indices of S rows, floats are small integers, of which sums are exact."""
    rng = np.random.default_rng([*at.values()])

    def draw(shape: tuple[int, ...], dtype: str) -> np.ndarray:
        return rng.integers(0 if "int" in dtype else -8, at["S"] if "int" in dtype else 8, shape)

    return [(x > 0 if dtype == "bool" else x.astype(dtype))
            for shape, dtype in case.inputs(at) for x in (draw(shape, dtype),)]  # fmt: skip


def poisoned(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An array of what no kernel may read, or write over."""
    dtype = np.dtype(dtype)
    return np.full(shape, np.nan if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max, dtype)


def in_corner(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """An array of the bound's shape that holds another from index 0 of each dimension on."""
    whole = poisoned(shape, array.dtype)
    whole[tuple(map(slice, array.shape))] = array
    return whole


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def scattered(x: np.ndarray, places: np.ndarray, updates: np.ndarray) -> np.ndarray:
    out = x.copy()
    np.put_along_axis(out, places, updates, 1)
    return out


def averaged(x: np.ndarray, at: Size) -> np.ndarray:
    """Windows of 3 x 3 in steps of 2, of what is within the image."""
    out = np.zeros((*x.shape[:2], (at["S"] + 1) // 2, (at["P"] + 1) // 2), x.dtype)
    for i, j in np.ndindex(out.shape[2:]):
        rows, columns = (slice(max(2 * k - 1, 0), 2 * k + 2) for k in (i, j))
        out[:, :, i, j] = x[:, :, rows, columns].mean((2, 3))
    return out


def bilinear(x: np.ndarray, axis: int, corners: bool = False) -> np.ndarray:
    """Twice as many rows, between the middles of those that there are, or from the first to the last."""
    rows = x.shape[axis]
    places = (np.arange(2 * rows) + 0.5) / 2 - 0.5
    if corners:
        places = (np.arange(2 * rows) * (np.float32(rows - 1) / np.float32(2 * rows - 1))).astype(np.float32)
    low, weight = np.floor(places).astype(int), places - np.floor(places)
    ends = (np.clip(low + k, 0, x.shape[axis] - 1) for k in (0, 1))
    first, second = (np.moveaxis(np.take(x, end, axis), axis, -1) for end in ends)
    return np.moveaxis(first * (1 - weight) + second * weight, -1, axis)


def resized(method: str) -> Callable[..., Any]:
    rounding = {"nearest_neighbor": "round_prefer_floor", "linear": ""}[method]
    return lambda x, z: op.image.resize2d(
        x, (2 * z["S"], 2 * z["P"]), layout="NCHW", method=method, rounding_method=rounding
    )


CUBE, IMAGE = "N S 16", "N 3 S P"
CASES = {
    "add": Case([CUBE, "S 1"], lambda x, y, z: op.add(x, y), lambda x, y, z: x + y),
    "where": Case(["N 1 S", "N P S", "1"], lambda c, x, y, z: op.where(c, x, y),
                  lambda c, x, y, z: np.where(c, x, y), ("bool", "float32")),
    "less": Case(["N S 1", "1 1 P"], lambda x, y, z: op.less(x, y), lambda x, y, z: x < y, ("int64",)),
    "concat": Case([CUBE, "N P 16"], lambda x, y, z: op.concat([x, y], 1), lambda x, y, z: np.concatenate([x, y], 1)),
    "concat with a static one": Case(["N 3 16", CUBE], lambda x, y, z: op.concat([x, y], 1),
                                     lambda x, y, z: np.concatenate([x, y], 1)),
    "last": Case([CUBE], lambda x, z: op.strided_slice(x, [1], [z["S"] - 1], [z["S"]]), lambda x, z: x[:, -1:]),
    "from 1": Case([CUBE], lambda x, z: op.strided_slice(x, [1], [1], [z["S"]]), lambda x, z: x[:, 1:]),
    "reverse": Case([CUBE], lambda x, z: op.flip(x, 1), lambda x, z: x[:, ::-1]),
    "take": Case([CUBE, "P"], lambda x, i, z: op.take(x, i, 1), lambda x, i, z: x[:, i], ("float32", "int64")),
    "gather": Case([CUBE, "N P 16"], lambda x, i, z: op.gather_elements(x, i, 1),
                   lambda x, i, z: np.take_along_axis(x, i, 1), ("float16", "int64")),
    "transpose": Case([CUBE], lambda x, z: op.permute_dims(x, [0, 2, 1]), lambda x, z: x.transpose(0, 2, 1)),
    "flatten": Case(["N S 4 8"], lambda x, z: op.reshape(x, (z["N"] * z["S"], 32)), lambda x, z: x.reshape(-1, 32)),
    "unflatten": Case(["N*S 32"], lambda x, z: op.reshape(x, (z["N"], z["S"], 4, 8)),
                      lambda x, z: x.reshape(z["N"], z["S"], 4, 8)),
    "image to rows": Case([IMAGE], lambda x, z: op.reshape(x, (z["N"], 3, z["S"] * z["P"])),
                          lambda x, z: x.reshape(z["N"], 3, -1)),
    "mean": Case([CUBE], lambda x, z: op.mean(x, 1), lambda x, z: x.mean(1)),
    "mean of halfs": Case([CUBE], lambda x, z: op.mean(x, 1), lambda x, z: x.mean(1), ("float16",)),
    "global pool": Case([IMAGE], lambda x, z: op.nn.adaptive_avg_pool2d(x, (1, 1)),
                        lambda x, z: x.mean((2, 3), keepdims=True)),
    "sum of pixels": Case(["N S*P"], lambda x, z: op.sum(x, 1), lambda x, z: x.sum(1)),
    "cumsum": Case([CUBE], lambda x, z: op.cumsum(x, 1), lambda x, z: x.cumsum(1)),
    "softmax": Case([CUBE], lambda x, z: op.nn.softmax(x, 1), lambda x, z: softmax(x), tolerance=1e-6),
    "argmax": Case([CUBE], lambda x, z: op.argmax(x, 1), lambda x, z: x.argmax(1)),
    "nearest": Case([IMAGE], resized("nearest_neighbor"), lambda x, z: x.repeat(2, 2).repeat(2, 3)),
    "bilinear": Case([IMAGE], resized("linear"), lambda x, z: bilinear(bilinear(x, 2), 3)),
    "pad": Case([CUBE], lambda x, z: op.nn.pad(x, [0, 0, 1, 2, 0, 0], pad_value=7.0),
                lambda x, z: np.pad(x, [(0, 0), (1, 2), (0, 0)], constant_values=7), ("float16",)),
    "average pool": Case([IMAGE], lambda x, z: op.nn.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
                         lambda x, z: averaged(x, z)),
    "expand": Case(["N 1 1 S"], lambda x, z: op.broadcast_to(x, (z["N"], 1, z["S"], z["S"])),
                   lambda x, z: np.broadcast_to(x, (z["N"], 1, z["S"], z["S"]))),
    "centered": Case([CUBE], lambda x, z: op.negative(op.mean(x, 1)), lambda x, z: -x.mean(1)),
    "corners aligned": Case([IMAGE], lambda x, z: op.image.resize2d(
        x, (2 * z["S"], 2 * z["P"]), layout="NCHW", method="linear", coordinate_transformation_mode="align_corners"
    ), lambda x, z: bilinear(bilinear(x, 2, corners=True), 3, corners=True), tolerance=1e-5),
    "argsort": Case([CUBE], lambda x, z: op.argsort(x, 1, dtype="int64"),
                    lambda x, z: np.argsort(x, 1, kind="stable")),
    "mask": Case(["S", "S", "N S S"], lambda q, k, x, z: op.where(
        op.less_equal(k, op.expand_dims(q, 1)), x, op.full((1,), relax.const(-9.0, "float32"), "float32")
    ), lambda q, k, x, z: np.where(k <= q[:, None], x, -9), ("int64", "int64", "float32")),
    "lower triangle": Case(["N S S"], lambda x, z: op.tril(x), lambda x, z: np.tril(x)),
    "scatter": Case([CUBE, "N 1 16", "N 1 16"], lambda x, i, u, z: op.scatter_elements(x, i, u, 1),
                    lambda x, i, u, z: scattered(x, i, u), ("float32", "int64", "float32")),
}  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_is_exact_at_any_size(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generic, "vector_threads", lambda *_: threads)
    case, machine = CASES[name], Machine.detect()
    function = generalize([kernel(case, probe) for probe in PROBES], Solver(SIZES, PROBES), results=1)
    scheduled, how = generic.schedule(function, machine, SIZES)
    assert how == ("parallel" if threads > 1 else "serial") or name in ("cumsum", "scatter", "argsort")
    run = compile_kernels({"main": bind_sizes(scheduled, SIZES)}, machine)["main"]
    bounds = [shape(param) for param in function.params]
    assert len(bounds) == len(case.shapes) + 1
    for at in RUNS:
        xs = random_inputs(case, at)
        with warnings.catch_warnings(action="ignore"):
            wanted = case.reference(*xs, at)
        result = tvm.runtime.tensor(poisoned(bounds[-1], str(function.params[-1].ty.dtype)))
        run(*(tvm.runtime.tensor(in_corner(x, shape)) for x, shape in zip(xs, bounds, strict=False)),
            tvm.runtime.tensor(np.array([*at.values()], np.int64)), result)  # fmt: skip
        part = result.numpy()[tuple(map(slice, wanted.shape))]
        span = np.abs(wanted.astype(float)).max(initial=0)
        np.testing.assert_allclose(part, wanted, rtol=0, atol=case.tolerance * span, err_msg=f"{name} at {at}")
        np.testing.assert_array_equal(result.numpy(), in_corner(part, bounds[-1]), f"{name} beyond {at}")


def of_int32(at: Size) -> tirx.PrimFunc:
    """A kernel whose loops count in int32: x less its largest element, from behind."""
    x, rest = te.placeholder((at["N"], at["S"]), name="x"), te.reduce_axis((0, at["S"]))
    most = te.compute((at["N"],), lambda i: te.max(x[i, rest], rest))
    return te.create_prim_func([x, te.compute((at["N"], at["S"]), lambda i, j: x[i, at["S"] - 1 - j] - most[i])])


def test_loops_of_int32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generic, "vector_threads", lambda *_: 3)
    machine, function = Machine.detect(), generalize([of_int32(probe) for probe in PROBES], Solver(SIZES, PROBES))
    scheduled, _ = generic.schedule(function, machine, SIZES)
    threads: list[tirx.For] = []
    tvm_ffi.structural_walk(scheduled.body, (tirx.For, lambda loop: threads.append(loop) if int(loop.kind) else None))
    assert [int(loop.extent) for loop in threads] == [2, 3]  # no pool takes more, at any size
    run = compile_kernels({"main": bind_sizes(scheduled, SIZES)}, machine)["main"]
    for at in RUNS:
        x = np.random.default_rng(0).integers(-9, 9, (at["N"], at["S"])).astype("float32")
        result = tvm.runtime.tensor(poisoned((4, 48), "float32"))
        run(tvm.runtime.tensor(in_corner(x, (4, 48))), tvm.runtime.tensor(np.array([*at.values()])), result)
        np.testing.assert_array_equal(result.numpy(), in_corner((x - x.max(1, keepdims=True))[:, ::-1], (4, 48)))


def generalized(case: Case, probes: Sequence[Size] = PROBES) -> tirx.PrimFunc:
    return generalize([kernel(case, probe) for probe in probes], Solver(SIZES, probes))


def test_buffers_keep_the_shape_of_the_bound() -> None:
    function = generalized(CASES["softmax"])
    shapes: list[tuple[int, ...]] = []
    tvm_ffi.structural_walk(function.body, (SBlock, lambda b: shapes.extend(map(shape, b.alloc_buffers))))
    assert [shape(param) for param in function.params] == [(4, 48, 16)] * 2
    assert shapes == [(4, 16), (4, 48, 16), (4, 16)]


def shape(buffer: Any) -> tuple[int, ...]:
    return tuple(map(int, buffer.ty.shape))


def test_a_kernel_without_sizes_stays_as_it_is() -> None:
    case = Case(["3 16"], lambda x, z: op.flip(x, 1), lambda x, z: x[:, ::-1])
    assert tvm_ffi.structural_equal(generalized(case).body, kernel(case, SIZES.bound).body)


DIFFERENT = {
    "operation": lambda x, z: op.add(x, x) if z["S"] > 20 else op.multiply(x, x),
    "constant": lambda x, z: op.nn.pad(x, [0, 0, 0, 1, 0, 0], pad_value=0.3 if z["S"] > 20 else 0.7),
    "function": lambda x, z: op.sin(x) if z["S"] > 20 else op.cos(x),
    "operands": lambda x, z: op.add(op.flip(x, 1), x) if z["S"] > 20 else op.add(x, op.flip(x, 1)),
    "results": lambda x, z: op.argsort(x, 1),  # nobody says which they are, of a function that sorts rows
    "integer": lambda x, z: op.nn.pad(x, [0, 0, 0, {18: 1, 29: 9}.get(z["S"], 2), 0, 0]),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_differs_in_more_than_sizes_is_refused(what: str) -> None:
    with pytest.raises(NotAlike):
        generalized(Case([CUBE], DIFFERENT[what], lambda x, z: x))


def test_there_is_a_kernel_for_each_probe() -> None:
    with pytest.raises(ValueError, match="probes"):
        generalize([kernel(CASES["add"], SIZES.bound)], Solver(SIZES, PROBES))

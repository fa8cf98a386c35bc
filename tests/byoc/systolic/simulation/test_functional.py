"""Numbers of the functional view against numpy: GEMMs, int32 that wraps, batches; and what it refuses."""

import dataclasses

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.codegen import lower
from tvm_ext.byoc.systolic.code.isa import Finish, Load, LoadWindows, Reduce, Store, Sync
from tvm_ext.byoc.systolic.code.layer import GemmLayer, Matrix, matmul
from tvm_ext.byoc.systolic.code.program import Program, Tensor
from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.byoc.systolic.simulation.functional import run
from tvm_ext.core.errors import InputError, OptionError

from ..cases import SIZES, SMALL_FLOAT, SMALL_INT8, dense, random_float, random_int8


@pytest.mark.parametrize("dataflow", [None, "ws", "os", "is"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "computed"])
def test_int8_is_exact(sizes: tuple[int, int, int], dataflow: str | None, constant: bool) -> None:
    rng = np.random.default_rng(sum(sizes))
    m, k, n = sizes
    x, w = random_int8(rng, (m, k)), random_int8(rng, (k, n))
    program = dense(SMALL_INT8, sizes, w if constant else None, dataflow=dataflow)
    y = run(program, {"x": x} if constant else {"x": x, "w": w})["y"]
    assert y.dtype == np.int32
    np.testing.assert_array_equal(y, x.astype(np.int32) @ w.astype(np.int32))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_float32(sizes: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(sum(sizes))
    m, k, n = sizes
    x, w = random_float(rng, (m, k)), random_float(rng, (k, n))
    y = run(dense(SMALL_FLOAT, sizes, w), {"x": x})["y"]
    bound = k * 2.0**-24 * (np.abs(x).astype(float) @ np.abs(w))
    assert (np.abs(y - x.astype(float) @ w) <= bound).all()


@pytest.mark.parametrize("sizes", [(7, 13, 5), (1, 9, 17)], ids=str)
@pytest.mark.parametrize("dataflow", ["ws", "os", "is"])
@pytest.mark.parametrize("model", ["overlapped", "physical"])
def test_the_stepper_agrees(sizes: tuple[int, int, int], dataflow: str, model: str) -> None:
    """int8 and integer-valued float32: the same bits as register by register."""
    rng = np.random.default_rng(0)
    m, k, n = sizes
    for dtype in ("int8", "float32"):
        accelerator = Accelerator(rows=3, cols=5, dtype=dtype, scratchpad_bytes=512, compute_model=model)
        x, w = (rng.integers(-128, 128, shape).astype(dtype) for shape in ((m, k), (k, n)))
        program = dense(accelerator, sizes, w, dataflow=dataflow)
        np.testing.assert_array_equal(run(program, {"x": x})["y"], run(program, {"x": x}, backend="stepper")["y"])


@pytest.mark.parametrize("depth", [1024, 1025, 70_000])
def test_the_largest_products_are_exact(depth: int) -> None:
    """-128 * -128 all along k: at the edge of what float32 holds, and beyond."""
    accelerator = Accelerator(scratchpad_bytes=1 << 20)
    x, w = np.full((3, depth), -128, np.int8), np.full((depth, 2), -128, np.int8)
    w[0], x[0, 1] = 127, 1
    y = run(dense(accelerator, (3, depth, 2), w), {"x": x})["y"]
    np.testing.assert_array_equal(y, x.astype(np.int64) @ w.astype(np.int64))


def test_int32_wraps_around() -> None:
    """2^17 products of 2^14 are 2^31, which is -2^31 in a register; one more product goes on from there."""
    depth = (1 << 17) + 1
    x, w = np.full((1, depth), -128, np.int8), np.full((depth, 1), -128, np.int8)
    y = run(dense(Accelerator(), (1, depth, 1), w), {"x": x})["y"]
    assert y.item() == -(1 << 31) + (1 << 14)


def test_batches_that_share_operands() -> None:
    """Batch of 6: A of each its own, B of two in turn, transposed in memory."""
    rng = np.random.default_rng(1)
    x, w = random_float(rng, (6, 5, 9)), random_float(rng, (2, 7, 9))
    layer = GemmLayer(
        "bmm", 5, 9, 7, Matrix("x", 9, 1, 45, 6), Matrix("w", 1, 9, 63, 2), Matrix("y", 7, 1, 35, 6), batch=6
    )
    tensors = [Tensor("x", "input", (6, 5, 9), "float32"), Tensor("w", "input", (2, 7, 9), "float32")]
    program = lower([layer], [*tensors, Tensor("y", "output", (6, 5, 7), "float32")], SMALL_FLOAT)
    y = run(program, {"x": x, "w": w})["y"]
    np.testing.assert_allclose(y, x @ np.tile(w, (3, 1, 1)).transpose(0, 2, 1), rtol=1e-5, atol=1e-5)


def test_a_batch_that_shares_all_operands_loads_them_once() -> None:
    x, w = np.arange(12, dtype="int8").reshape(3, 4), np.ones((1, 4, 2), "int8")
    layer = GemmLayer("same", 3, 4, 2, Matrix("x", 4), w, Matrix("y", 2, 1, 6, 5), batch=5)
    program = lower(
        [layer], [Tensor("x", "input", (3, 4), "int8"), Tensor("y", "output", (5, 3, 2), "int32")], SMALL_INT8
    )
    assert sum(instruction.queue == "load" for instruction in program.instructions) == 2
    assert np.array_equal(run(program, {"x": x})["y"], np.broadcast_to(x.astype("int32") @ w[0], (5, 3, 2)))


def test_x_times_its_own_transpose() -> None:
    x = random_int8(np.random.default_rng(2), (11, 23))
    layer = GemmLayer("gram", 11, 23, 11, Matrix("x", 23), Matrix("x", 1, 23), Matrix("y", 11))
    tensors = [Tensor("x", "input", (11, 23), "int8"), Tensor("y", "output", (11, 11), "int32")]
    y = run(lower([layer], tensors, SMALL_INT8), {"x": x})["y"]
    np.testing.assert_array_equal(y, x.astype(np.int32) @ x.T.astype(np.int32))


def test_layers_read_what_those_before_wrote() -> None:
    rng = np.random.default_rng(3)
    x, w1, w2 = random_float(rng, (9, 11)), random_float(rng, (11, 13)), random_float(rng, (13, 5))
    layers = [matmul("a", "x", w1, "h", (9, 11, 13)), matmul("b", "h", w2, "y", (9, 13, 5))]
    tensors = [
        Tensor("x", "input", (9, 11), "float32"),
        Tensor("h", "scratch", (9, 13), "float32"),
        Tensor("y", "output", (9, 5), "float32"),
    ]
    y = run(lower(layers, tensors, SMALL_FLOAT), {"x": x})["y"]
    np.testing.assert_allclose(y, x.astype(float) @ w1 @ w2, rtol=1e-4, atol=1e-4)


def test_uint8_arrives_as_int8() -> None:
    rng = np.random.default_rng(4)
    x, w = rng.integers(0, 256, (3, 20), dtype=np.uint8), random_int8(rng, (20, 6))
    tensors = [Tensor("x", "input", (3, 20), "uint8"), Tensor("y", "output", (3, 6), "int32")]
    y = run(lower([matmul("fc", "x", w, "y", (3, 20, 6))], tensors, SMALL_INT8), {"x": x})["y"]
    np.testing.assert_array_equal(y, (x.astype(np.int32) - 128) @ w.astype(np.int32))


def test_inputs_that_do_not_fit() -> None:
    program = dense(SMALL_INT8, (3, 4, 5), np.ones((4, 5), np.int8))
    with pytest.raises(InputError, match=r"\['z'\] were given; the program takes \['x'\]"):
        run(program, {"z": np.ones((3, 4), np.int8)})
    with pytest.raises(InputError, match=r"input x is int8 \(4, 3\)"):
        run(program, {"x": np.ones((4, 3), np.int8)})
    with pytest.raises(InputError, match="input x is float32"):
        run(program, {"x": np.ones((3, 4), np.float32)})
    with pytest.raises(InputError, match="input x is no array but list"):
        run(program, {"x": [[1]]})  # type: ignore[dict-item]
    with pytest.raises(OptionError, match="backend='cuda'"):
        run(program, {"x": np.ones((3, 4), np.int8)}, backend="cuda")


def test_inputs_of_any_strides_are_left_as_they_are() -> None:
    x = random_int8(np.random.default_rng(5), (8, 6))[::2, ::-1]
    x.setflags(write=False)
    w = np.eye(6, dtype=np.int8)
    np.testing.assert_array_equal(run(dense(SMALL_INT8, (4, 6, 6), w), {"x": x})["y"], x)


@pytest.mark.parametrize("how", ["stored", "overwritten by a load", "overwritten by windows"])
def test_images_in_the_scratchpad_are_what_lies_there(how: str) -> None:
    """An image is read by windows, then written in one way or another, and read again."""
    rng, sync = np.random.default_rng(4), Sync()
    x, z = random_int8(rng, (16,)), random_int8(rng, (16,))
    tensors = (
        Tensor("x", "input", (16,), "int8"), Tensor("z", "input", (16,), "int8"),
        Tensor("h", "scratch", (16,), "int8", 64), Tensor("y", "output", (2, 16), "int32"),
    )  # fmt: skip
    image = LoadWindows(2, 0, 16, 1, 0, 0, 0, 1, 4, 4, 4, 4, 1, 1, 1, 1, 1, 1, 0, 0, 0)
    read = (sync, image, sync, Reduce("sum", 0, 0, 0, 0, 1, 16, 1), sync)
    first, second = Load("a", 0, 0, 1, 16, 0, 16, 1), Load("a", 1, 0, 1, 16, 0, 16, 1)
    keep = (sync, Reduce("sum", 0, 0, 0, 0, 1, 16, 1), sync, Store(2, 0, 1, 16, 0, 16, 1))
    again = {
        "stored": (second, *keep),
        "overwritten by a load": (dataclasses.replace(second, dst=64),),
        "overwritten by windows": (dataclasses.replace(image, tensor=1, dst=64),),
    }
    rows = [Store(3, 0, 1, 16, 16 * at, 16, 1) for at in range(2)]
    code = (first, *keep, *read, rows[0], sync, *again[how], *read, rows[1], Finish())
    hardware = Accelerator(2, 2, scratchpad_bytes=128, accumulator_bytes=64)
    y = run(Program(hardware, tensors, (), code), {"x": x, "z": z})["y"]
    np.testing.assert_array_equal(y, [x, z])

"""The driver: arrays in, arrays written in place, no copies, and programs and arrays that it refuses."""

import subprocess
import sys

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.isa import Finish, Gemm
from tvm_ext.byoc.systolic.code.program import Program
from tvm_ext.byoc.systolic.driver import driver
from tvm_ext.core.errors import InputError, ProgramError

from .cases import SMALL_FLOAT, dense, random_float

SIZES = (5, 9, 7)


@pytest.fixture(scope="module")
def data() -> bytes:
    return dense(SMALL_FLOAT, SIZES).to_bytes()


def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return random_float(rng, (5, 9)), random_float(rng, (9, 7)), np.full((5, 7), np.nan, np.float32)


def test_outputs_are_written_in_place_and_inputs_left_alone(data: bytes) -> None:
    x, w, y = arrays()
    x.setflags(write=False)
    before = w.copy()
    runner = driver(data)
    for _ in range(2):
        runner([x, w], [y])
        np.testing.assert_allclose(y, x.astype(float) @ w, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(w, before)


def test_arrays_that_do_not_fit(data: bytes) -> None:
    x, w, y = arrays()
    runner = driver(data)
    for inputs, outputs, message in (
        ([x], [y], "1 inputs were given; the program has 2"),
        ([x, w], [y, y], "2 outputs were given"),
        ([w, x], [y], r"input x is float32 \(9, 7\)"),
        ([x, w], [y.T], r"output y is float32 \(7, 5\)"),
        ([x, w], [np.empty((7, 5), np.float32).T], "output y is not contiguous"),
        ([x, w], [y.astype(np.float64)], "output y is float64"),
    ):
        with pytest.raises(InputError, match=message):
            runner(inputs, outputs)


def test_damaged_programs_and_deadlocks_are_refused_at_load(data: bytes) -> None:
    for changed in (b"", data[:100], data[:-1] + bytes([data[-1] ^ 1]), b"ELF" + data[3:]):
        with pytest.raises(ProgramError):
            driver(changed)
    waits = Program(SMALL_FLOAT, (), (), (Gemm("ws", 0, 0, 64, 0, 1, 1, 1, tokens=1), Finish()))
    with pytest.raises(ProgramError, match="deadlock"):
        driver(waits.to_bytes())


def test_what_no_instruction_writes_is_zero(data: bytes) -> None:
    program = dense(SMALL_FLOAT, SIZES)
    y = np.full((5, 7), np.nan, np.float32)
    driver(Program(program.accelerator, program.tensors, program.constants, (Finish(),)).to_bytes())(
        [*arrays()[:2]], [y]
    )
    assert not y.any()


def test_neither_driver_nor_manifest_import_a_compiler() -> None:
    code = "import sys, tvm_ext.byoc.systolic.{}; sys.exit('tvm' in sys.modules or 'onnx' in sys.modules)"
    for module in ("driver", "backend"):
        subprocess.run([sys.executable, "-c", code.format(module)], check=True)

"""A program of two layers that several tests look at."""

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.codegen import lower
from tvm_ext.byoc.systolic.code.layer import matmul
from tvm_ext.byoc.systolic.code.program import Tensor
from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.byoc.systolic.simulation.timing import Timing, simulate


@pytest.fixture(scope="module")
def timing() -> Timing:
    """A large layer that the array bounds, then one of a single row, which the weights bound."""
    layers = [
        matmul("wide", "x", np.ones((64, 64), np.int8), "h", (512, 64, 64), facts={"node": "MatMul_0"}),
        matmul("thin", "r", np.ones((256, 256), np.int8), "y", (1, 256, 256)),
    ]
    tensors = [
        Tensor("x", "input", (512, 64), "int8"),
        Tensor("h", "output", (512, 64), "int32"),
        Tensor("r", "input", (1, 256), "int8"),
        Tensor("y", "output", (1, 256), "int32"),
    ]
    return simulate(lower(layers, tensors, Accelerator(rows=8, cols=8)))

"""Rows of packed tables against float64."""

import numpy as np
import pytest

from tvm_ext.core.machine import Machine
from tvm_ext.schedules.recipes.blocks.take_blocks import TakeBlocks

from ...block_weights import BlockCase
from ...kernels import run_kernel


@pytest.mark.parametrize("points", ["none", "integers", "floats"])
@pytest.mark.parametrize(("bits", "depth"), [(4, 96), (4, 50), (8, 64), (2, 64)])
def test_rows(bits: int, depth: int, points: str, case_machine: Machine) -> None:
    rng = np.random.default_rng(bits)
    case = BlockCase(rng, 37, depth, bits, points=points)
    indices = rng.integers(-37, 37, (2, 5))
    got = run_kernel(TakeBlocks(), case.group((2, 5), kind="int64"), [indices, *case.operands], case_machine)
    np.testing.assert_allclose(got, case.weight()[indices], rtol=1e-6, atol=1e-6)

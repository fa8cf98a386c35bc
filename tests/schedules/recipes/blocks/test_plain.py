"""Operators of weights in blocks where no recipe takes them."""

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_ext.schedules  # noqa: F401  registers what stands in for a recipe

from ...block_weights import BlockCase
from ...kernels import random


@pytest.mark.parametrize("points", ["none", "integers", "floats"])
@pytest.mark.parametrize("bits", [4, 8])
def test_the_legalized_operators_agree_with_float64(bits: int, points: str) -> None:
    rng = np.random.default_rng(bits)
    case = BlockCase(rng, 13, 50, bits, points=points)
    x, indices = random(rng, 3, 50), rng.integers(-13, 13, 4)
    for data, wanted in ((x, x.astype(np.float64) @ case.weight().T), (indices, case.weight()[indices])):
        function = case.group(data.shape, kind=str(data.dtype)).function
        bare = function.without_attr("tvm_ext.group").without_attr("tvm_ext.constants")
        mod = relax.transform.LegalizeOps()(tvm.IRModule({"main": bare.with_attr("global_symbol", "main")}))
        machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
        got = machine["main"](*map(tvm.runtime.tensor, (data, *case.operands))).numpy()
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-5)

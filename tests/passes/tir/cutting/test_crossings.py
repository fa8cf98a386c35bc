"""Tiles that cross rows: those that are inside the extents, and no more than the loop had."""

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.s_tir import Schedule

from tvm_ext.core.machine import Machine
from tvm_ext.core.sizes import Sizes, Symbol
from tvm_ext.driver.build import compile_kernels
from tvm_ext.passes.steps.kernel_sizes import with_sizes


@pytest.mark.parametrize("columns", [1, 4, 7])
def test_no_tile_is_beyond_its_loop(columns: int) -> None:
    """Of 21 elements 16 are two tiles, and the others a loop of their own: a third tile is too much."""
    x = te.placeholder((3, 7), "float32", "x")
    sch = Schedule(te.create_prim_func([x, te.compute((3, 7), lambda i, j: x[i, j] * 2.0, name="y")]))
    fused = sch.fuse(*sch.get_loops(sch.get_sblock("y")))
    whole, _ = sch.loop_partition(fused, [16, None], preserve_unit_iters=True)
    sch.vectorize(sch.split(whole, [None, 8])[1])
    sizes = Sizes.of([Symbol("S", 1, 7)])
    function = with_sizes(sch.mod["main"], [[3, sizes.vars[0]]] * 2, sizes)
    built = compile_kernels({"main": function}, Machine.detect(None, 1))["main"]
    data = np.arange(21, dtype="float32").reshape(3, 7)
    memory = tvm.runtime.tensor(np.full(64, -1.0, "float32"))
    y = memory._create_view((3, 7))
    built(tvm.runtime.tensor(data), tvm.runtime.tensor(np.array([columns], "int64")), y)
    assert np.array_equal(y.numpy()[:, :columns], 2 * data[:, :columns])
    assert (memory.numpy()[21:] == -1.0).all()

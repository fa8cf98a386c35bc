"""Layout transforms move every element and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule

from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.schedules import layout_transform

PLAIN, NHWC = Layout.plain(4), Layout((0, 2, 3, 1))


@pytest.mark.parametrize("shape", [(1, 16, 5, 7), (2, 13, 3, 1), (1, 1, 1, 1), (1, 64, 28, 28)])
@pytest.mark.parametrize(
    ("source", "target"),
    [
        (PLAIN, Layout.blocked(4, 8)),
        (Layout.blocked(4, 8), PLAIN),
        (Layout.blocked(4, 4), Layout.blocked(4, 16)),
        (PLAIN, NHWC),
        (NHWC, Layout.blocked(4, 8)),
        (Layout.blocked(4, 8), NHWC),
    ],
    ids=str,
)
def test_moves_every_element(shape: Any, source: Layout, target: Layout, rng: np.random.Generator) -> None:
    machine = Machine.detect(None, 2)
    sch = Schedule(layout_transform.compute(shape, "float32", source, target))
    layout_transform.schedule(sch, shape, machine)
    function = tvm.compile(sch.mod, target=machine.target()).jit()["main"]
    x = rng.standard_normal(shape).astype("float32")
    out = tvm.runtime.tensor(np.full(target.physical_shape(shape), np.nan, "float32"))
    function(tvm.runtime.tensor(source.pack(x)), out)
    assert np.array_equal(target.unpack(out.numpy(), shape), x)

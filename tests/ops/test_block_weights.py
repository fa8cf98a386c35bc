"""The operators of weights in blocks: types, text and JSON, and which axes they mix."""

from __future__ import annotations

import numpy as np
import tvm
import tvm_ffi

from tests.schedules.block_weights import BlockCase
from tvm_ext.core.graph.relax_graph import bindings_of
from tvm_ext.ops.block_weights import NAME, TAKE, Blocks
from tvm_ext.ops.row_rules import Rows, Site
from tvm_ext.ops.table import of


def test_types_and_text_and_json() -> None:
    case = BlockCase(np.random.default_rng(0), 20, 50, points="integers", digits=2)
    for kind, data, shape in (("float32", (2, 3, 50), (2, 3, 20)), ("int64", (4,), (4, 50))):
        group = case.group(data, kind=kind)
        assert (group.shape, group.dtype) == (shape, "float32")
        mod = tvm.IRModule({"g": group.function.without_attr("tvm_ext.group").without_attr("tvm_ext.constants")})
        for again in (tvm.script.from_source(mod.script()), tvm.ir.load_json(tvm.ir.save_json(mod))):
            assert tvm_ffi.structural_equal(again, mod)
            (call,) = (b.value for b in bindings_of(again["g"]))
            assert Blocks.of(call) == case.says


def test_rows_are_those_of_the_first_operand() -> None:
    for name in (NAME, TAKE):
        rule = of(name).row_rule
        assert rule is not None
        rows = Rows(1, 1, (2, 7, 64))
        assert rule(Site(None, (rows, None, None), rows)) is None
        assert rule(Site(None, (rows, Rows(0, 1, (20, 2, 16)), None), rows)) is not None
    summed = of(NAME).row_rule
    assert summed is not None and summed(Site(None, (Rows(2, 1, (2, 7, 64)), None, None), None)) is not None

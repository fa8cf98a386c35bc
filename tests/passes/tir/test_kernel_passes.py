"""Loops over lanes and selects of vectors that TVM's own passes do not take as they are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tvm_ext.passes.tir.kernel_passes import CODE

_LANES = 4
_LAST = tirx.LT(tirx.Ramp(0, 1, _LANES), tirx.Broadcast(2, _LANES))


@pytest.mark.parametrize(
    ("condition", "selects"),
    [
        (lambda c: c, [False, False]),
        (lambda c: tirx.And(c, _LAST), [True, False]),
        (lambda c: tirx.And(tirx.And(_LAST, c), _LAST), [True, False]),
        (lambda c: tirx.Or(_LAST, c), [False, True]),
    ],
    ids=["all of it", "and", "and of and", "or"],
)
def test_a_condition_that_lanes_share_guards_what_is_read(condition: Callable[[Any], Any], selects: list[bool]) -> None:
    """`selects`: which branches behind the guard still choose by lane."""
    n = tirx.Var("n", "int32")
    source, sink = (tirx.decl_buffer((16,), "float32", name) for name in ("source", "sink"))
    read = tirx.BufferLoad(source, [tirx.Ramp(n * 1000, 1, _LANES)])
    zeros = tirx.Broadcast(tirx.const(0.0, "float32"), _LANES)
    chosen = tirx.Select(condition(tirx.Broadcast(n > 3, _LANES)), read, zeros)
    store = tirx.BufferStore(sink, chosen, [tirx.Ramp(0, 1, _LANES)])
    module = tvm.IRModule({"main": tirx.PrimFunc([source, sink, n], store)})
    for code in CODE:
        if code.name in ("take-scalar-conditions", "guard-selects"):
            module = code.make()(module)
    guard, *branches = module["main"].body.value.args
    assert str(guard.ty.dtype) == "bool" and str(module["main"].body.value.op.name).endswith("if_then_else")
    assert [isinstance(branch, tirx.Select) for branch in branches] == selects


@pytest.mark.parametrize(("bound", "limit"), [("Min", 0.5), ("Max", 0.5), ("Min", 2.0)])
@pytest.mark.parametrize("columns", [1, 3])
def test_an_epilogue_of_few_columns(columns: int, bound: str, limit: float) -> None:
    """All lanes of a tile of one column store to one place."""
    nodes = [
        node("MatMul", "x w", "m"), node("Sigmoid", "m", "s"), node(bound, "s limit", "t"), node("Sub", "three t", "y"),
    ]  # fmt: skip
    x, w = random(8, 8), random(8, columns)
    proto = model(nodes, [value("x", [8, 8]), value("w", [8, columns])], [value("y", [8, columns])],
                  {"limit": np.float32(limit), "three": np.float32(3)})  # fmt: skip
    kept = {"Min": np.minimum, "Max": np.maximum}[bound](1 / (1 + np.exp(-x @ w)), limit)
    np.testing.assert_allclose(tvm_ext.compile(proto, cache=False).run({"x": x, "w": w})["y"], 3 - kept, rtol=1e-6)

"""Programs of fixed sizes read the weights that are stored, unless another packing saves much and adds little."""

import hashlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.ir import GenericConst

import tvm_ext
from tests.onnx_graphs import random, text_model
from tvm_ext.core.graph.relax_graph import array_of, main_bindings
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.passes import CompileContext
from tvm_ext.driver.lower import NO_INSTRUMENTS, Clock, Lowered, run_pipeline, start
from tvm_ext.driver.programs import lower_all
from tvm_ext.frontend.reading.reader import read_model
from tvm_ext.passes.sizes import share_layouts
from tvm_ext.passes.sizes.share_layouts import ShareLayouts, StoredWeights

MODEL = text_model("m (float[S, 256] x) => (float[S, 384] y) { y = MatMul(x, w) }", {"w": random(256, 384)})
CONSTANT = relax.const(np.arange(12, dtype="float32").reshape(3, 4))


@pytest.fixture(scope="module")
def stored() -> StoredWeights:
    options = CompileOptions.of(dims={"S": (1, 512)}, threads=2, records=None)
    return StoredWeights(lower_all(MODEL, options, Machine.detect()).lowered[0].ctx)


def planned(rows: int) -> Lowered:
    """The model at a number of rows, before its weight is packed."""
    options = CompileOptions.of(shapes={"x": (rows, 256)}, threads=2, records=None)
    return run_pipeline(start(read_model(MODEL), options, Machine.detect(), Clock(), NO_INSTRUMENTS), "assign-layouts")


@pytest.mark.parametrize("rows", [16, 32, 100, 512])
def test_a_weight_is_read_as_it_is_stored(stored: StoredWeights, rows: int) -> None:
    one = planned(rows)
    ShareLayouts(stored).run(one.mod, one.ctx)
    (plan,) = one.ctx.plans.values()
    (call,) = (binding.value for binding in main_bindings(one.mod))
    layouts = plan.recipe.layouts(plan.match, plan.config, [Layout.plain(2)] * 2).params
    arguments = zip(call.args, layouts, strict=True)
    assert [stored.bytes_of(arg, how) for arg, how in arguments if isinstance(arg, GenericConst)] == [0]


def test_what_no_stored_layout_serves_is_packed_anew(stored: StoredWeights) -> None:
    one = planned(32)
    nothing = StoredWeights(replace(one.ctx, weights=[], packed=[]))
    plans = dict(one.ctx.plans)
    result = ShareLayouts(nothing).run(one.mod, one.ctx)
    assert one.ctx.plans == plans and not result.fired and len(result.skipped) == 1


@pytest.mark.parametrize("by", ["record", "measure"])
def test_what_was_measured_is_followed(stored: StoredWeights, by: str) -> None:
    one = planned(32)
    ((name, plan),) = one.ctx.plans.items()
    options = next(o for o in ({**plan.config, "tile_o": t} for t in (1, 2, 3)) if o != plan.config)
    one.ctx.plans[name] = replace(plan, config=options, cost=1.0, choice={"by": by})
    result = ShareLayouts(stored).run(one.mod, one.ctx)
    assert one.ctx.plans[name].config == options and not result.fired
    one.ctx.plans[name] = replace(plan, config=options, cost=1.0, choice={"by": "estimate"})
    assert ShareLayouts(stored).run(one.mod, one.ctx).fired and one.ctx.plans[name].config != options


def test_stored_weights_are_told_by_value_and_layout(stored: StoredWeights) -> None:
    plain, turned = Layout.plain(2), Layout.plain(2).permuted((1, 0))
    nbytes = stored.bytes_of(CONSTANT, plain)
    assert nbytes == stored.bytes_of(CONSTANT, turned) == 48
    one = planned(32)
    more = replace(one.ctx, weights=[np.arange(12, dtype="float32").reshape(3, 4)], packed=[])
    spare, known = stored.spare, StoredWeights(more)
    assert known.bytes_of(CONSTANT, plain) == 0 and known.bytes_of(CONSTANT, turned) == 48 and known.spare == 24
    known.add(more)
    assert known.spare == 24 and stored.spare == spare > 0


def test_one_weight_is_stored_once() -> None:
    options = {"dims": {"S": (1, 512)}, "specialize": {"S": (32, 128)}, "threads": 2, "cache": False, "records": None}
    compiled = tvm_ext.compile(MODEL, **options)
    assert [program.weights for program in compiled.metadata.programs] == [(0,)] * 3
    assert len(compiled.metadata.weights) == 1 and tvm_ext.verify(compiled, MODEL).ok


def test_the_bytes_of_a_weight_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stored, hashed = StoredWeights(CompileContext(Machine.detect())), list[int]()

    def blake2b(data: memoryview, digest_size: int) -> Any:
        hashed.append(data.nbytes)
        return hashlib.blake2b(data, digest_size=digest_size)

    monkeypatch.setattr(share_layouts, "hashlib", SimpleNamespace(blake2b=blake2b))
    turned, same = (relax.const(a) for a in (np.arange(12, dtype="float32").reshape(4, 3), CONSTANT.value.numpy()))
    for _ in range(2):
        added = [stored.bytes_of(tensor, Layout.plain(2)) for tensor in (CONSTANT, turned, same)]
        assert added == [48, 48, 48] and hashed == [48, 48, 48]
    stored.add(CompileContext(Machine.detect(), weights=[array_of(CONSTANT)]))
    assert [stored.bytes_of(tensor, Layout.plain(2)) for tensor in (CONSTANT, turned, same)] == [0, 48, 0]
    assert hashed == [48, 48, 48]

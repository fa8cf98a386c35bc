"""The parameter of sizes stands before the results, and extents keep their variables."""

from __future__ import annotations

import pytest
import tvm_ffi
from tvm import te, tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir import Schedule

from tvm_ext.core.machine import Machine
from tvm_ext.core.sizes import BORDER, EXTENTS, SIZES, SYMBOLS, Sizes, Symbol, extents_of
from tvm_ext.passes.steps.kernel_sizes import with_sizes
from tvm_ext.passes.tir.kernel_passes import lower_to_loops


def _kernel() -> tirx.PrimFunc:
    x = te.placeholder((4, 8), name="x")
    return te.create_prim_func([x, te.compute((4, 16), lambda i, j: x[i, j // 2], name="out")])


def test_sizes_stand_before_the_results() -> None:
    sizes = Sizes.of([Symbol("N", 1, 4), Symbol("W", 1, 8)])
    n, w = sizes.vars
    kernel = with_sizes(_kernel(), [[n, w], [n, w * 2]], sizes, border={0: -1.5})
    assert [p.name for p in kernel.params][1:2] == [SIZES]
    assert tuple(kernel.params[1].ty.shape) == (2,) and str(kernel.params[1].ty.dtype) == "int64"
    extents = extents_of(kernel)
    assert extents is not None and extents[0][0].same_as(n) and extents[1][0].same_as(n)
    assert [v.same_as(u) for v, u in zip(kernel.attrs[SYMBOLS], (n, w), strict=True)] == [True, True]
    assert {k: float(v) for k, v in kernel.attrs[BORDER].items()} == {"0": -1.5}
    assert EXTENTS not in _kernel().attrs


def test_a_body_reads_the_sizes() -> None:
    """What a loop to a run-time size fills has the size of the bound, and no variable is left undefined."""
    sizes = Sizes.of([Symbol("N", 1, 64)])
    (n,) = sizes.vars
    x = te.placeholder((64,), name="x")
    k = te.reduce_axis((0, tirx.min(n.astype("int32"), 64)), name="k")
    copy = te.compute((64,), lambda i: x[i] * 2.0, name="copy")
    sch = Schedule(_with(te.create_prim_func([x, te.compute((1,), lambda i: te.sum(copy[k], k), name="out")]), n))
    sch.compute_at(sch.get_sblock("copy"), sch.get_loops(sch.get_sblock("out"))[0])
    kernel = with_sizes(_with(sch.mod["main"]), [[n], [1]], sizes)
    reads: list[str] = []
    tvm_ffi.structural_walk(kernel.body, (TensorLoad, lambda load: reads.append(load.source.name)))
    assert SIZES in reads and not any(v.same_as(n) for v in tirx.analysis.undefined_vars(kernel.body))
    lowered = str(lower_to_loops({"main": kernel}, Machine.detect().target())["main"])
    assert "alloc_buffer((64,)" in lowered


def _with(function: tirx.PrimFunc, *more: tirx.Var) -> tirx.PrimFunc:
    return tirx.PrimFunc([*function.params[:2], *more], function.body, function.ret_type, function.attrs)


def test_numbers_are_int64() -> None:
    sizes = Sizes.of([Symbol("N", 1, 4)])
    extents = extents_of(with_sizes(_kernel(), [[sizes.vars[0], 8], [sizes.vars[0], 16]], sizes))
    assert extents is not None and {str(d.ty.dtype) for shape in extents for d in shape} == {"int64"}


def test_extents_that_do_not_fit_are_an_error() -> None:
    sizes = Sizes.of([Symbol("N", 1, 4)])
    with pytest.raises(ValueError, match="one extent for each dimension"):
        with_sizes(_kernel(), [[sizes.vars[0]], [sizes.vars[0], 16]], sizes)

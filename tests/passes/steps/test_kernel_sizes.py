"""The parameter of sizes stands before the results, and extents keep their variables."""

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir import Schedule

from tvm_ext.core.machine import Machine
from tvm_ext.core.sizes import BORDER, EXTENTS, SIZES, SYMBOLS, Sizes, Symbol, extents_of
from tvm_ext.driver.build import compile_kernels
from tvm_ext.passes.steps.kernel_sizes import bind_sizes, with_sizes
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
    assert [(v.same_as(u), int(bound)) for (v, bound), u in zip(kernel.attrs[SYMBOLS], (n, w), strict=True)] == [
        (True, 4),
        (True, 8),
    ]
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


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "generic"])
def test_quotients_of_a_size_by_constants_times_a_stride(cut: bool) -> None:
    """TVM shifts what may be negative by a multiple of the divisor; times the stride it is beyond an index."""
    sizes, stride = Sizes.of([Symbol("S", 1, 131)]), 7860
    blocks = (tirx.min(sizes.vars[0].astype("int32"), 131) + 15) // 16
    x = te.placeholder((5 * stride,), name="x")
    first = lambda i: (i * blocks * 3 // 2 + i) // 3 * stride  # noqa: E731
    out = te.compute((2, 4), lambda i, j: x[first(i) + j * 2] + x[first(i) + j * 2 + 1], name="out")
    function = te.create_prim_func([x, out]).without_attr("global_symbol")
    kernel = with_sizes(function, [[5 * stride], [2, 4]], sizes) if cut else bind_sizes(function, sizes)
    run = compile_kernels({"main": kernel}, Machine.detect())["main"]
    data = np.arange(5 * stride, dtype="float32")
    for size in (1, 16, 17, 131):
        got = tvm.runtime.tensor(np.zeros((2, 4), "float32"))
        run(tvm.runtime.tensor(data), tvm.runtime.tensor(np.array([size], "int64")), got)
        starts = np.array([[0], [(-(-size // 16) * 3 // 2 + 1) // 3 * stride]]) + [0, 2, 4, 6]
        assert np.array_equal(got.numpy(), data[starts] + data[starts + 1])

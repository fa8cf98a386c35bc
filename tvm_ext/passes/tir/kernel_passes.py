"""From scheduled kernels to what LLVM takes, in two halves: what is done to buffers stands between them.

It is TVM's `default_s_tir_pipeline` without what is for GPUs only, and with passes of this library.
"""

import functools
from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import IRModule
from tvm.target import Target

from ...core.graph.nodes import mentions, nodes_of, substituted
from ...core.kernel_pass import KernelPass, rewriting, run_kernel_passes
from ...runtime.memory.arrays import ARGUMENT_ALIGNMENT
from . import bfloat16, cut_loops, number_pixels, prefetches, quotients, rows_of_padding

#: Attribute of a function that goes through :data:`LOOPS`.
_LOOPS = "tvm_ext.loops"

_S, _T = tvm.s_tir.transform, tirx.transform

_SCHEDULES_ONLY = "blocks are for schedules: no later pass takes them"
_NOT_IN_LLVM = "LLVM has no such type, operation or loop"
_CALLED = "TVM calls a kernel by this interface"


def _any_address() -> tvm.transform.Pass:
    """Kernels for arguments that start where numpy's memory starts, and not at a multiple of 64 bytes.

    Inputs are read in place, by unaligned instructions, which cost nothing where the address is aligned.
    """

    def opened(kernel: tirx.PrimFunc, name: str) -> tirx.PrimFunc:
        new = {
            var: tirx.decl_buffer(
                var.ty.shape, var.ty.dtype, var.name, strides=list(var.ty.strides), elem_offset=var.ty.elem_offset,
                data_alignment=ARGUMENT_ALIGNMENT, offset_factor=var.ty.offset_factor, layout=var.ty.layout,
            )
            for var in kernel.params
            if hasattr(var.ty, "data_alignment")
        }  # fmt: skip
        body = substituted(kernel.body, new)
        kernel_ = tirx.PrimFunc([new.get(v, v) for v in kernel.params], body, kernel.ret_type, kernel.attrs)
        return kernel_.with_attr({"global_symbol": name, _LOOPS: True})

    @tvm.transform.module_pass(opt_level=0, name="tvm_ext.AnyAddress")
    def apply(mod: IRModule, _: object) -> IRModule:
        return IRModule({g: opened(f, g.name_hint) for g, f in mod.functions_items()}, attrs=mod.attrs)

    return apply


def keep_loops_scalar(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Loops over lanes that all store to one place, such as those of a tile of one column, are no loops of vectors.

    TVM's vectorizer visits an intrinsic of scalars twice, and takes no `let` in it a second time.
    """

    def scalar(loop: tirx.For) -> tirx.For:
        if loop.kind != tirx.ForKind.VECTORIZED:
            return loop
        indices = [index for store in nodes_of(loop.body, tirx.BufferStore) for index in store.indices]
        if not indices or any(mentions(index, loop.loop_var) for index in indices):
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.For, scalar)))


def take_scalar_conditions(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Selects of vectors by a condition that all lanes share take it as a scalar, as the pass does that guards reads.

    What stands in a branch was simplified by its condition, so that it may read beyond its memory where that is false.
    So do parts of a condition: c and v ? a : b  ->  if c: v ? a : b, else b
    """

    def factors(x: Any, kind: Any) -> list[Any]:
        return [*factors(x.a, kind), *factors(x.b, kind)] if isinstance(x, kind) else [x]

    def select(x: tirx.Select) -> Any:
        a, b = x.true_value, x.false_value
        for kind in (tirx.And, tirx.Or):
            parts = factors(x.condition, kind)
            rest = [part for part in parts if not isinstance(part, tirx.Broadcast)]
            if len(rest) < len(parts):
                shared = functools.reduce(kind, [p.value for p in parts if isinstance(p, tirx.Broadcast)])
                if not rest:
                    return tirx.Select(shared, a, b)
                within = tirx.Select(functools.reduce(kind, rest), a, b)  # which nothing guards as such
                return tirx.if_then_else(shared, *((within, b) if kind is tirx.And else (a, within)))
        return x

    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.Select, select)))


#: The first half, up to StorageRewrite, which decides what shares memory: blocks are gone, buffers are flat and no
#: larger than needed.
LOOPS: tuple[KernelPass, ...] = (
    KernelPass("take-any-address", _any_address, "numpy's memory starts at any multiple of 16 bytes"),
    # a loop that was cut in parts has each `let` of its body several times
    KernelPass("convert-ssa", _T.ConvertSSA, "TVM's simplifier takes no variable that is bound twice"),
    KernelPass("number-pixels", rewriting(number_pixels.number_pixels), "which tiles a call has is counted by it"),
    KernelPass(
        "bind-target", lambda target: _T.BindTarget(target.with_host(target)), "later passes ask for the target"
    ),
    KernelPass("canonicalize-loops", _S.CanonicalizeLoop, "later passes take loops from 0 in steps of 1"),
    KernelPass("lower-inits", _S.LowerInitBlock, _SCHEDULES_ONLY),
    KernelPass("place-allocations", _S.PlanAndUpdateBufferAllocationLocation, _SCHEDULES_ONLY),
    KernelPass("open-blocks", _S.ConvertBlocksToOpaque, _SCHEDULES_ONLY),
    KernelPass("compact-buffers", _S.CompactBufferAllocation),
    KernelPass("lower-match-buffers", _S.LowerMatchBuffer, _SCHEDULES_ONLY),
    KernelPass("simplify-statements", _S.StmtSimplify),
    KernelPass("annotate-irregular-loops", _S.AnnotateIrregularLoop),
    KernelPass("pipeline-loops", _S.InjectSoftwarePipeline),
    KernelPass("lower-blocks", _S.LowerOpaqueBlock, _SCHEDULES_ONLY),
    KernelPass("leave-out-padding", rewriting(rows_of_padding.leave_out_padding)),
    KernelPass("cut-loops", rewriting(cut_loops.cut_loops), "a size beyond the extents is no size of this call"),
    KernelPass("flatten-buffers", _T.FlattenBuffer, "LLVM reads memory by one index"),
    KernelPass("compute-bf16-in-float32", _T.BF16ComputeLegalize, _NOT_IN_LLVM),
    KernelPass("insert-prefetches", rewriting(prefetches.insert_prefetches)),
    KernelPass("narrow-indices", lambda: _T.NarrowDataType(32)),
    KernelPass("partition-loops", _S.LoopPartition),
    KernelPass("keep-loops-scalar", rewriting(keep_loops_scalar), "the vectorizer takes no such loop"),
    KernelPass("vectorize-loops", lambda: _T.VectorizeLoop(True), _NOT_IN_LLVM),
    KernelPass("round-in-one", rewriting(bfloat16.round_in_one)),
    KernelPass("bring-dots", rewriting(bfloat16.bring_dots), "dot products of bfloat16 are functions that it brings"),
    KernelPass("multiply-quotients", rewriting(quotients.multiply_quotients)),
    KernelPass("share-storage", _T.StorageRewrite, "it gives buffers of vectors their types"),
)

#: The second half: from loops to what LLVM takes.
CODE: tuple[KernelPass, ...] = (
    KernelPass("hoist-conditions", _S.HoistIfThenElse),
    KernelPass("unroll-loops", _T.UnrollLoop, "tile registers are numbers in an instruction"),
    KernelPass("renormalize-splits", _S.RenormalizeSplitPattern),
    KernelPass("simplify-statements", _T.StmtSimplify),
    KernelPass("remove-no-ops", _T.RemoveNoOp),
    KernelPass(
        "take-scalar-conditions", rewriting(take_scalar_conditions), "no select of vectors is guarded otherwise"
    ),
    KernelPass("guard-selects", _S.RewriteUnsafeSelect, "a select reads both sides, one of them beyond its memory"),
    KernelPass("eliminate-common-expressions", _T.CommonSubexprElim),
    KernelPass("compute-fp8-in-float", _T.FP8ComputeLegalize, _NOT_IN_LLVM),
    KernelPass("verify-memory", _T.VerifyMemory, "it finds accesses that no later pass would"),
    KernelPass("annotate-entry", _T.AnnotateEntryFunc, _CALLED),
    KernelPass("split-host-device", _T.SplitHostDevice, _CALLED),
    KernelPass("make-packed-interface", _T.MakePackedAPI, _CALLED),
    KernelPass("store-fp8-as-bytes", _T.FP8StorageLegalize, _NOT_IN_LLVM),
    KernelPass("broadcast-bits", rewriting(bfloat16.broadcast_bits), _NOT_IN_LLVM),
    KernelPass("store-bf16-as-words", _T.BF16StorageLegalize, _NOT_IN_LLVM),
    KernelPass("lower-builtins", _T.LowerTVMBuiltin, _NOT_IN_LLVM),
    KernelPass("lower-intrinsics", _T.LowerIntrin, _NOT_IN_LLVM),
    KernelPass("skip-assertions", _T.SkipAssert, "the runtime checks inputs once, not each kernel its arguments"),
)


def lower_to_loops(kernels: Mapping[str, tirx.PrimFunc], target: Target) -> dict[str, tirx.PrimFunc]:
    """Kernels after the first half.

    Args:
        kernels: name -> scheduled function.
        target: to compile them for.
    """
    if not kernels:
        return {}
    module, _ = run_kernel_passes(LOOPS, IRModule(dict(kernels)), target)
    return {gvar.name_hint: function for gvar, function in module.functions_items()}


def is_lowered(kernel: tirx.PrimFunc) -> bool:
    """Whether a kernel went through the first half."""
    return bool(kernel.attrs and _LOOPS in kernel.attrs)

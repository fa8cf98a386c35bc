"""Batch norm after a convolution or matmul: its scale goes into the weight, its shift becomes the bias."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst, IRModule

from ...core.graph.relax_graph import Rewriter, bindings_of, dtype_of, op_name
from ...core.passes import CompileContext, Pass, PassResult
from ...ops.table import of
from ..steps.batch_norm import BatchNorm, match_batch_norm
from ..steps.constants import channel_constant, channel_vector, constant, same_type, view_of
from ..steps.linear import output_factor
from ..steps.liveness import Readers, without_leftovers


class FoldBatchNorm(Pass):
    """Scale the weight of a convolution (grouped and depthwise too) or matmul instead of its result.

    Before::

        c = R.nn.conv2d(x, W)
        b = R.add(c, bias)                      # may be missing
        n = R.nn.batch_norm(b, gamma, beta, mean, variance)
        y = n[0]

    After, with s = gamma / sqrt(variance + epsilon) over the output channels::

        c = R.nn.conv2d(x, W * s)
        y = R.add(c, beta + (bias - mean) * s)  # a constant of shape (1, C, 1, 1)

    The products are made in float64 and rounded once (Jacob et al., "Quantization and Training of Neural Networks
    for Efficient Integer-Arithmetic-Only Inference", CVPR 2018, section 3.2). A batch norm with nothing before it
    that could take its scale is left to `reduce-strength`.
    """

    name = "fold-batch-norm"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        rw = Rewriter(mod, ctx)
        plan = _plan(rw)
        result = rw.rewrite(lambda binding, rw: plan[binding.var](rw) if binding.var in plan else None)
        return without_leftovers(mod, result)


@dataclass(frozen=True)
class _Fold:
    """A batch norm that can be folded: the anchor's variable and call, and the bias add between, if any."""

    norm: BatchNorm
    anchor: relax.Var
    call: Call
    bias: relax.Var | None
    shift: np.ndarray


def _plan(rw: Rewriter) -> dict[relax.Var, Callable[[Rewriter], Any]]:
    """What to bind instead, for each variable that changes."""
    readers = Readers(rw)
    plan: dict[relax.Var, Callable[[Rewriter], Any]] = {}
    for binding in bindings_of(rw.function):
        norm = match_batch_norm(binding, rw, readers)
        if norm is None:
            continue
        fold = norm if isinstance(norm, str) else _match(norm, rw, readers)
        weight = _new_weight(fold, rw.ctx) if isinstance(fold, _Fold) else fold
        if isinstance(weight, str):
            rw.skip(weight, binding.var)
        elif isinstance(fold, _Fold) and weight is not None:
            plan[fold.anchor] = _anchor_rewrite(fold, weight)
            plan[binding.var] = _result_rewrite(fold)
    return plan


def _match(norm: BatchNorm, rw: Rewriter, readers: Readers) -> _Fold | str | None:
    """The fold for a batch norm; why not; or None if no convolution or matmul comes before it."""
    anchor, bias, shift = norm.data, None, norm.shift
    if bias_add := _bias_add(norm, rw):
        anchor, vector = bias_add
        bias = norm.data
        with np.errstate(all="ignore"):
            shift = shift + vector * norm.scale
    call = rw.definition(anchor)
    name = op_name(call)
    if not of(name).is_linear:
        return None
    for var, reader in ((anchor, bias), (bias, norm.call)) if bias is not None else ((anchor, norm.call),):
        if var is not None and not readers.only(var, [reader]):
            return f"{var.name} ({op_name(rw.definition(var)).removeprefix('relax.')}) is also read elsewhere"
    return _Fold(norm, anchor, call, bias, shift)


def _bias_add(norm: BatchNorm, rw: Rewriter) -> tuple[relax.Var, np.ndarray] | None:
    """(what the bias is added to, the bias as a vector) if the batch norm's operand is such a sum."""
    add = rw.definition(norm.data)
    if op_name(add) != "relax.add":
        return None
    for other, bias in (add.args, reversed(add.args)):
        if isinstance(other, relax.Var) and same_type(other, norm.data):
            vector = channel_vector(bias, int(norm.data.ty.ndim), norm.axis, norm.scale.size)
            if vector is not None:
                return other, vector
    return None


def _new_weight(fold: _Fold, ctx: CompileContext) -> GenericConst | str:
    """The scaled weight, or why it cannot be scaled."""
    weight, scale = view_of(fold.call.args[1]), fold.norm.scale
    if weight is None:
        return "the weight is not a constant"
    if dtype_of(fold.anchor) != str(weight.dtype) or weight.dtype.kind != "f":
        return f"the weight is {weight.dtype}, the result {dtype_of(fold.anchor)}"
    if isinstance(factor := _factor(fold, weight.shape), str):
        return factor
    if not (np.isfinite(scale).all() and np.isfinite(fold.shift).all()):
        return "scale or shift of the batch norm is not finite"
    key = ("scaled weight", fold.call.args[1], factor.shape, factor.tobytes())
    return ctx.once(key, lambda: _scaled(weight, factor))


def _scaled(weight: np.ndarray, factor: np.ndarray) -> GenericConst | str:
    with np.errstate(over="ignore"):
        scaled = np.empty_like(weight)
        np.multiply(weight, factor, out=scaled, dtype=np.float64, casting="same_kind")
    if not np.isfinite(scaled).all():
        return "the scaled weight is not finite"
    return constant(scaled)


def _factor(fold: _Fold, shape: tuple[int, ...]) -> np.ndarray | str:
    """The scale, shaped to multiply a weight of `shape`; or why there is no such shape."""
    scale, axis, rank = fold.norm.scale, fold.norm.axis, int(fold.anchor.ty.ndim)
    if op_name(fold.call) == "relax.matmul":
        if len(shape) != 2 or axis != rank - 1:
            return "the batch norm is not over the columns of a two-dimensional weight"
        return scale
    attrs = fold.call.attrs
    kernel, out = str(attrs.kernel_layout), str(attrs.out_layout) or str(attrs.data_layout)
    if len(kernel) != len(shape) or len(out) != rank or out.find("C") != axis:
        return f"layouts {kernel} and {out} with a batch norm over dimension {axis}"
    if op_name(fold.call).endswith("_transpose") and kernel[:2] != "IO":
        return f"a transposed convolution with weight layout {kernel}"
    return output_factor(fold.call, scale, shape)


def _anchor_rewrite(fold: _Fold, weight: GenericConst) -> Callable[[Rewriter], Any]:
    def rewrite(rw: Rewriter) -> Any:
        rw.absorb(fold.norm.out)
        rw.revalue()
        return Call(fold.call.op, [fold.call.args[0], weight], fold.call.attrs, fold.call.ty_args)

    return rewrite


def _result_rewrite(fold: _Fold) -> Callable[[Rewriter], Any]:
    def rewrite(rw: Rewriter) -> Any:
        if fold.bias is not None:
            rw.absorb(fold.bias)
        what = "bias and shift" if fold.bias is not None else "shift"
        rw.fire(f"scaled into the weight of {fold.anchor.name} ({op_name(fold.call)}); {what} added after it")
        out = fold.norm.out
        return relax.op.add(fold.anchor, channel_constant(fold.shift, int(out.ty.ndim), fold.norm.axis, dtype_of(out)))

    return rewrite

"""Constant folding: what depends on constants alone is computed now, in numpy, never by compiling."""

import math
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst, IRModule
from tvm.tirx import FloatImm, IntImm

from ...core.graph.relax_graph import Rewriter, dtype_of, op_name, shape_of, tuple_item
from ...core.numbers.storage import Growth, outgrows
from ...core.passes import CompileContext, Pass, PassResult
from ...ops.evaluators import NotEvaluated, evaluate
from ...ops.table import of
from ..steps.constants import NUMPY_DTYPES, constant, view_of
from ..steps.liveness import without_leftovers

_BYTES = frozenset({"int8", "uint8"})
_KEPT = {"relax.dequantize": "relax.dequantize is kept: folding it would turn quantized weights into floats"}


class FoldConstants(Pass):
    """Replace operators on constants by their value.

    Before::

        w = R.permute_dims(W, axes=[1, 0])      # W is a constant
        y = R.matmul(x, w)

    After::

        y = R.matmul(x, W')

    A result without any element depends on nothing: it is a constant too.

    A result that is over 1 MiB and over 4 times its operands (a weight of 8 bits as float32) stays an operator: a
    broadcast is cheaper to run than to load, and an artifact stays about as large as its model. So does
    `relax.dequantize`: its operand is the smaller and better form of the weight. A weight of 8 bits that is widened to
    int32 for a product of integers, less one zero point, stays what it is as well.
    """

    name = "fold-constants"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        return without_leftovers(mod, Rewriter(mod, ctx).rewrite(fold))


def fold(binding: relax.VarBinding, rw: Rewriter) -> Any:
    """The value of a binding that depends on constants alone; None if it is none."""
    value = binding.value
    if (empty := _empty(binding, rw)) is not None:
        return empty
    if item := tuple_item(value):
        return _item_of_constants(rw, *item)
    if not isinstance(value, Call) or not op_name(value):
        return None
    if op_name(value) == "relax.shape_of":
        return _known_shape(value, rw)
    operands = [_resolved(rw, a) for a in value.args[:]]
    if _foldable(op_name(value), operands):
        if _is_integer_weight(binding, rw):
            return rw.skip(f"a weight of {dtype_of(value.args[0])}, which its product widens as it reads it")
        return _folded(value, binding.var.ty, operands, rw)
    return _with_shapes_inlined(value, operands, rw)


def folded_call(call: Call, rw: Rewriter) -> Any:
    """The constant that a call with its type inferred is; None if it depends on more than constants."""
    operands = [_resolved(rw, a) for a in call.args]
    return _folded(call, call.ty, operands, rw) if _foldable(op_name(call), operands) else None


def _empty(binding: relax.VarBinding, rw: Rewriter) -> Any:
    """The constant for a tensor of no elements; TVM has no kernel for several operators on one."""
    shape, dtype = shape_of(binding.var), dtype_of(binding.var)
    if shape is None or 0 not in shape or dtype not in NUMPY_DTYPES or isinstance(binding.value, GenericConst):
        return None
    rw.fire("it has no element")
    return constant(np.zeros(shape, dtype))


def _resolved(rw: Rewriter, arg: Any) -> Any:
    """The constant, shape or tuple of constants that an argument stands for; else the argument."""
    value = rw.definition(arg)
    if isinstance(value, relax.Tuple):
        fields = [rw.definition(f) for f in value.fields]
        return relax.Tuple(fields) if all(_is_leaf(f) for f in fields) else arg
    return value if isinstance(value, GenericConst | relax.ShapeExpr) else arg


def _known_shape(call: Call, rw: Rewriter) -> Any:
    shape = call.args[0].ty.shape
    if not _static(shape):
        return None
    rw.fire("the shape is known")
    return shape


def _is_leaf(expr: Any) -> bool:
    return isinstance(expr, GenericConst | IntImm | FloatImm)


def _is_known(expr: Any) -> bool:
    return _is_leaf(expr) or _static(expr) or (isinstance(expr, relax.Tuple) and all(map(_is_leaf, expr.fields)))


def _static(shape: Any) -> bool:
    return isinstance(shape, relax.ShapeExpr) and all(isinstance(d, IntImm) for d in shape.values)


def _foldable(name: str, operands: list[Any]) -> bool:
    """Whether every operand (or its shape, where only that counts) is known."""
    if of(name).shape_read and shape_of(operands[0]) is not None:
        operands = operands[1:]
    elif not operands:
        return False
    return all(map(_is_known, operands))


def _folded(call: Call, ty: Any, operands: list[Any], rw: Rewriter) -> Any:
    name = op_name(call)
    if (evaluator := of(name).numpy) is None:
        return rw.skip(_KEPT.get(name, f"{name} on constants, which has no evaluator"))
    types = _tensor_types(ty)
    if types is None:
        return rw.skip(f"{name}: the result has no static shape, or a dtype numpy lacks")
    growth = rw.ctx.facts.get(Growth)
    if growth.decided(rw.current, _grows(types, operands)) if growth else _grows(types, operands):
        return rw.skip(f"{name}: the result is over 1 MiB and over 4 times its operands")
    try:
        result = evaluate(evaluator, call, [_value(a) for a in operands], types[0][1])
        new = _as_constants(result, types)
    except NotEvaluated as reason:
        return rw.skip(f"{name}: {reason}")
    rw.fire(f"{name.removeprefix('relax.')} of constants computed")
    return new


def _tensor_types(ty: Any) -> list[tuple[tuple[int, ...], str]] | None:
    """(shape, dtype) of each tensor of a result type; None if one is not static or not numpy's."""
    fields = list(ty.fields) if hasattr(ty, "fields") else [ty]
    types = []
    for field in fields:
        probe = relax.Var("probe", field)
        shape, dtype = shape_of(probe), dtype_of(probe)
        if shape is None or dtype not in NUMPY_DTYPES:
            return None
        types.append((shape, dtype))
    return types


def _grows(types: list[tuple[tuple[int, ...], str]], operands: list[Any]) -> bool:
    size = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in types)
    tensors = [t for operand in operands for t in (operand.fields if isinstance(operand, relax.Tuple) else [operand])]
    views = [view for view in map(view_of, tensors) if view is not None]
    return outgrows(size, sum({view.ctypes.data: view.nbytes for view in views}.values()))


def _value(operand: Any) -> Any:
    if isinstance(operand, relax.Tuple):
        return [_value(f) for f in operand.fields]
    if isinstance(operand, relax.ShapeExpr):
        return tuple(int(d) for d in operand.values)
    if isinstance(operand, IntImm | FloatImm):
        return operand.value
    if not isinstance(operand, GenericConst):
        return shape_of(operand)  # an operator that looks at the shape alone
    if (view := view_of(operand)) is None:
        raise NotEvaluated(f"numpy has no dtype {dtype_of(operand)}")
    return view


def _as_constants(result: Any, types: list[tuple[tuple[int, ...], str]]) -> Any:
    """The constant, or tuple of constants, for a result; it must be exactly what type inference promised."""
    arrays = result if isinstance(result, list) else [result]
    got = [(a.shape, str(a.dtype)) for a in arrays]
    if got != types:
        raise NotEvaluated(f"numpy gives {got}, type inference says {types}")
    constants = [constant(a) for a in arrays]
    return relax.Tuple(constants) if isinstance(result, list) else constants[0]


def _item_of_constants(rw: Rewriter, source: Any, index: int) -> Any:
    value = rw.definition(source)
    if not isinstance(value, relax.Tuple) or not isinstance(value.fields[index], GenericConst):
        return None
    rw.fire(f"item {index} of constants taken")
    return value.fields[index]


def _with_shapes_inlined(call: Call, operands: list[Any], rw: Rewriter) -> Any:
    """`reshape(x, s)` with `s` a variable bound to a static shape -> `reshape(x, R.shape([...]))`."""
    args = [new if isinstance(new, relax.ShapeExpr) else old for old, new in zip(call.args, operands, strict=True)]
    if all(a.same_as(b) for a, b in zip(args, call.args, strict=True)):
        return None
    rw.fire("static shape put in place")
    return Call(call.op, args, call.attrs, call.ty_args)


# ------------------------------------------------------------ weights of integers
def _is_integer_weight(binding: relax.VarBinding, rw: Rewriter) -> bool:
    """Whether a binding widens a constant of 8 bits that only products of integers read: it keeps its type.

    conv2d(x, astype(W, int32) - z)        W: a constant of 8 bits, z: one zero point
    """
    value = binding.value
    if op_name(value) != "relax.astype" or dtype_of(value) != "int32" or dtype_of(value.args[0]) not in _BYTES:
        return False
    if not isinstance(rw.definition(value.args[0]), GenericConst):
        return False
    return _all_read(binding.var, rw, lambda reader, var: _multiplies(reader, var, rw))


def _multiplies(reader: relax.Var, var: relax.Var, rw: Rewriter) -> bool:
    """Whether a reader is a product, or takes one zero point away for products."""
    value = rw.defs[reader]
    if of(op_name(value)).integers:
        return True
    if op_name(value) != "relax.subtract" or not value.args[0].same_as(var) or not _one_value(value.args[1], rw):
        return False
    return _all_read(reader, rw, lambda last, _: of(op_name(rw.defs[last])).integers)


def _all_read(var: relax.Var, rw: Rewriter, fits: Any) -> bool:
    readers = rw.uses.get(var, ())
    return bool(readers) and all(reader is not None and fits(reader, var) for reader in readers)


def _one_value(expr: Any, rw: Rewriter) -> bool:
    """Whether an operand is a constant of which all elements are the same, or one in another type or shape."""
    value = rw.definition(expr)
    while op_name(value) in ("relax.astype", "relax.reshape"):
        value = rw.definition(value.args[0])
    view = view_of(value)
    return view is not None and view.size > 0 and bool((view == view.flat[0]).all())

"""Storage prepared for grouping: decodes stand at the readers of stored tensors, encodes where these are made."""

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst, IRModule

from ...core.graph.relax_graph import Rewriter, dtype_of, op_name, shape_of
from ...core.numbers.storage import STORED
from ...core.passes import CompileContext, Pass, PassResult
from ...ops.conversion import along, dequantized
from ...ops.table import of
from ..simplification.fold_constants import fold
from ..simplification.rules import Rule, Site
from ..steps.constants import constant, view_of
from ..steps.liveness import Readers, without_leftovers
from ..steps.movement import is_movement
from ..steps.storage_movement import Movement
from ..steps.stored_values import CAST, DEQUANTIZE, QUANTIZE, decode_of, encode_of, is_constant

_ROWS = "relax.take"


class PrepareStorage(Pass):
    """Decodes stand where kernels read, encodes where they write, and nothing else stands for storage.

    Before -> after (q: stored in 8 bits or bfloat16; C: a constant)::

        dequantize(q, [s, s, s], [z, z, z])        -> dequantize(q, s, z)
        dequantize(C), no product reads both sides -> a float constant       # biases of int32, weights of float layers
        move(dequantize(q))                        -> dequantize(move(q))    # reshape, transpose, slice, split, concat,
                                                                             # pad, take, max pooling, ...
        dequantize(W, s, z), astype(W, int32) - z  -> dequantize(W - z, s, 0), astype(W - z, int32)   # if in int8
        quantize(dequantize(q, s, z), s, z)        -> q                      # exact: see `_stored_again`
        relu(dequantize(q)), clip(dequantize(q))   -> dequantize(q)          # where all stored values are within

    and the same of astype to and from bfloat16. Values are the same bits as before: nothing is rounded elsewhere.
    """

    name = "prepare-storage"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        rw = Rewriter(mod, ctx)
        readers, movement = Readers(rw), Movement()
        folded: set[relax.Var] = set()  # constants that this pass made: what is computed of them is another one

        def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
            if op_name(binding.value) == "" and not isinstance(binding.value, relax.TupleGetItem):
                return None
            site, value, changed = Site(binding, rw, readers), binding.value, None
            while (new := _first(value, site, (*_RULES.get(op_name(value), ()), movement))) is not None:
                value = changed = new
            if changed is None and op_name(value) != DEQUANTIZE and not folded.isdisjoint(_operands(value)):
                changed = fold(binding, rw)
            if isinstance(changed, GenericConst):
                folded.add(binding.var)
            return changed

        return without_leftovers(mod, rw.rewrite(visit))


def _operands(value: Any) -> list[relax.Var]:
    args = [value.tuple_value] if isinstance(value, relax.TupleGetItem) else getattr(value, "args", ())
    parts = [part for a in args for part in getattr(a, "fields", [a])]
    return [part for part in parts if isinstance(part, relax.Var)]


def _first(value: Any, site: Site, rules: tuple[Rule, ...]) -> Any:
    return next((new for rule in rules if (new := rule(value, site)) is not None), None)


# ------------------------------------------------------------ parameters and constants
def _one_number(call: Call, site: Site) -> Any:
    """Scales or zero points that are all the same -> one."""
    args, changed = list(call.args), False
    for k in range(1, len(args)):
        view = view_of(args[k])
        if view is not None and view.size > 1 and bool((view == view.flat[0]).all()):
            args[k], changed = constant(view.reshape(-1)[0].reshape(())), True
    if not changed:
        return None
    site.rw.fire(f"{op_name(call).removeprefix('relax.')}: scales or zero points of one value made a number")
    return Call(call.op, args, call.attrs, call.ty_args)


def _one_shift(call: Call, site: Site) -> Any:
    """astype(q, int32) - [z, z, z] -> astype(q, int32) - z"""
    inner = site.inner(call.args[0], CAST)
    stored = inner is not None and dtype_of(inner.args[0]) in STORED and dtype_of(inner) == "int32"
    return _one_number(call, site) if stored and site.same_type(call.args[0]) else None


def _of_constant(call: Call, site: Site) -> Any:
    """dequantize(C) -> a float constant, unless a kernel of integers or a row of a table is read of it."""
    if not is_constant(call.args[0]) or not all(is_constant(a) for a in call.args[1:]):
        return None
    if dtype_of(call.args[0]) in STORED and (why := _read_as_stored(site.var, call, site)):
        return site.rw.skip(f"stays {dtype_of(call.args[0])}: {why}")
    if any(view_of(a) is None for a in call.args) or not dtype_of(call.args[0]).strip("u").startswith("int"):
        return None
    value, scale, zero = (np.asarray(view_of(a)) for a in call.args)
    floats = constant(dequantized(value, scale, zero, int(call.attrs.axis)))
    dtype = dtype_of(call.args[0])
    return site.replaced(floats, f"dequantize of a constant {dtype} that no kernel of integers reads: a float constant")


def _read_as_stored(var: relax.Var, call: Call, site: Site) -> str:
    """Which reader of a decoded constant works on what is stored; "" if none does."""
    per_axis = any(np.prod(shape_of(a) or ()) > 1 for a in call.args[1:])
    for reader in site.readers.of(var):
        if reader is None:
            continue
        value = site.rw.defs[reader]
        if of(op_name(value)).is_linear and all(_is_decoded(a, site) for a in value.args[:2]):
            return f"{op_name(value).removeprefix('relax.')} of integers reads it"
        if op_name(value) == _ROWS and value.args[0].same_as(var) and not per_axis:
            return "rows are taken of it"
        if is_movement(value) and (why := _read_as_stored(reader, call, site)):
            return why
    return ""


def _is_decoded(operand: Any, site: Site) -> bool:
    """Whether an operand is the decode of a stored tensor, or elements of one."""
    value = site.rw.definition(operand)
    while is_movement(value) or op_name(value) in (_ROWS, "relax.nn.pad"):
        source = value.tuple_value if isinstance(value, relax.TupleGetItem) else value.args[0]
        source = source.fields[0] if isinstance(source, relax.Tuple) else source
        operand, value = source, site.rw.definition(source)
        if isinstance(value, relax.Tuple):
            operand, value = value.fields[0], site.rw.definition(value.fields[0])
    return isinstance(operand, relax.Var) and decode_of(operand, site.rw) is not None


def _signed(call: Call, site: Site) -> Any:
    """dequantize(W, s, z) -> dequantize(W - z, s, 0), and the same of W in int32, where W - z fits into int8.

    W is a constant: what is left of a zero point costs a product a sum over its data.
    """
    axis = int(call.attrs.axis)
    if (signed := _without_zero(call.args[0], call.args[2], axis, site)) is None:
        return None
    none = constant(np.zeros((), np.int8))
    return relax.op.dequantize(signed, call.args[1], none, axis=axis, out_dtype="float32")


def _signed_sum(call: Call, site: Site) -> Any:
    """astype(W, int32) - z -> astype(W - z, int32)"""
    inner = site.inner(call.args[0], CAST)
    if inner is None or not site.same_type(call.args[0]):
        return None
    if (signed := _without_zero(inner.args[0], call.args[1], None, site)) is None:
        return None
    site.take_over(call.args[0])
    return relax.op.astype(signed, "int32")


def _signed_cast(call: Call, site: Site) -> Any:
    """astype(W, int32) of a W of uint8 -> that of int8"""
    if dtype_of(call) != "int32" or dtype_of(call.args[0]) != "uint8":
        return None
    signed = _without_zero(call.args[0], constant(np.zeros((), np.int32)), None, site)
    return None if signed is None else relax.op.astype(signed, "int32")


def _without_zero(weight: Any, zero_point: Any, axis: int | None, site: Site) -> Any:
    """A constant weight less its zero point, in int8; None if it is none, or has no zero point already."""
    stored, zero = view_of(weight), view_of(zero_point)
    if stored is None or zero is None or str(stored.dtype) not in STORED:
        return None
    if stored.dtype == np.int8 and not zero.any():
        return None
    shift = zero if axis is None else along(zero, axis, stored)
    whole = stored.astype(np.int64) - shift.astype(np.int64)
    if whole.min() < -128 or whole.max() > 127:
        return site.rw.skip("the weight less its zero point does not fit into int8")
    return site.replaced(constant(whole, "int8"), "a weight stored as int8, without a zero point")


# ------------------------------------------------------------ conversions that do nothing
def _stored_again(call: Call, site: Site) -> Any:
    """encode(decode(q)) -> q.

    With d = fl(k s), |k| <= 255: fl(d / s) is within 255 * 2^-23 of k, so it rounds to k, which is no tie and not
    saturated; a d that is subnormal is exact. Only an infinite d, or a scale that is none, would differ.
    """
    encode, decode = encode_of(call), decode_of(call.args[0], site.rw)
    if encode is None or decode is None or encode.stored != decode.stored:
        return None
    if not encode.same(decode):
        return site.rw.skip("stored again in another scale or with another zero point")
    if not decode.increases:
        return site.rw.skip("its scale is not known, or none of a number")
    site.take_over(call.args[0])
    site.rw.fire(f"{op_name(call).removeprefix('relax.')} of what it decodes: the stored tensor itself")
    return decode.call.args[0]


def _within(call: Call, site: Site) -> Any:
    """relu or clip of a decode whose numbers are all within its bounds -> the decode."""
    decode = decode_of(call.args[0], site.rw)
    span = decode.stored_range() if decode is not None else None
    if decode is None or span is None:
        return None
    if op_name(call) == "relax.clip":
        low, high = (float(getattr(a, "value", np.nan)) for a in call.args[1:])
    else:
        low, high = 0.0, np.inf
    if not (low <= span[0] and span[1] <= high):
        return None
    return site.replaced(call.args[0], f"no stored value is outside of {low:g} .. {high:g}")


_RULES: dict[str, tuple[Rule, ...]] = {
    QUANTIZE: (_one_number, _stored_again),
    DEQUANTIZE: (_one_number, _of_constant, _signed),
    CAST: (_stored_again, _signed_cast),
    "relax.subtract": (_one_shift, _signed_sum),
    "relax.nn.relu": (_within,),
    "relax.clip": (_within,),
}

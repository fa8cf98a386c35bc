"""One-dimensional convolutions as two-dimensional ones of height 1, for which there are recipes."""

from collections.abc import Sequence
from typing import Any

from tvm import relax
from tvm.ir import Call, GenericConst, IRModule

from ...core.graph.relax_graph import Rewriter, attrs_of, dtype_of, numpy_of, op_name, shape_of, static_tensor
from ...core.passes import CompileContext, Pass, PassResult
from ...ops.table import of

_CONV, _TRANSPOSE = "relax.nn.conv1d", "relax.nn.conv1d_transpose"
_ATTRIBUTES = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout")


class WidenConv1d(Pass):
    """conv1d and conv1d_transpose become conv2d and conv2d_transpose.

    Before -> after::

        y = conv1d(x, w)       ->   y4 = conv2d(reshape(x), reshape(w)); y = reshape(y4)      # N C W -> N C 1 W
        z = relu(add(y, b))    ->   z4 = relu(add(y4, reshape(b))); z = reshape(z4)

    Elementwise operations behind one are widened too, so that they stay its epilogue, and so that the next one reads
    what this one wrote; those behind a convolution of integers too, which the importer has widened. Reshapes nothing
    reads are dead code afterwards.
    """

    name = "widen-conv1d"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        wide: dict[relax.Var, relax.Var] = {}

        def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
            call = binding.value
            if not isinstance(call, Call) or not static_tensor(binding.var) or len(shape_of(binding.var) or ()) != 3:
                return None
            if op_name(call) == "relax.reshape" and _without_height(call, shape_of(binding.var)):
                wide[binding.var] = call.args[0]
                return None
            value = _convolution(call, wide, rw)
            if value is None:
                value = _elementwise(call, binding.var, wide, rw)
            if value is None:
                return None
            wide[binding.var] = rw.emit(value)
            return relax.op.reshape(wide[binding.var], shape_of(binding.var))

        return Rewriter(mod, ctx).rewrite(visit)


def _without_height(call: Call, shape: Sequence[int] | None) -> bool:
    """Whether a reshape takes the height of 1 off N C 1 W, as the importer does behind convolutions of integers."""
    whole = shape_of(call.args[0]) if isinstance(call.args[0], relax.Var) else None
    return whole is not None and shape is not None and tuple(whole) == (*shape[:2], 1, shape[2])


def _convolution(call: Call, wide: dict[relax.Var, relax.Var], rw: Rewriter) -> Any:
    """The two-dimensional convolution of a one-dimensional one; None for anything else."""
    name = op_name(call)
    if name not in (_CONV, _TRANSPOSE) or not all(static_tensor(a) for a in call.args):
        return None
    a = attrs_of(call, _ATTRIBUTES)
    kernel = "OIW" if name == _CONV else "IOW"
    if (a["data_layout"], a["kernel_layout"], a["out_layout"]) != ("NCW", kernel, "NCW"):
        return rw.skip(f"layouts {a['data_layout']}/{a['kernel_layout']} are not NCW/{kernel}")
    before, after = a["padding"] if len(a["padding"]) == 2 else a["padding"] * 2
    common = {
        "strides": (1, *a["strides"]), "padding": (0, before, 0, after), "dilation": (1, *a["dilation"]),
        "groups": a["groups"], "data_layout": "NCHW", "kernel_layout": kernel.replace("W", "HW"),
    }  # fmt: skip
    data, weight = (_widened(x, wide, rw) for x in call.args)
    rw.fire(f"{name.rpartition('.')[2]} of height 1 in two dimensions")
    if name == _CONV:
        return relax.op.nn.conv2d(data, weight, **common)
    more = attrs_of(call, ["output_padding"])["output_padding"]
    return relax.op.nn.conv2d_transpose(data, weight, output_padding=(0, *more), **common)


def _elementwise(call: Call, var: relax.Var, wide: dict[relax.Var, relax.Var], rw: Rewriter) -> Any:
    """An elementwise operation on what a widened one made, in four dimensions; None for anything else."""
    widened = [a for a in call.args if isinstance(a, relax.Var) and a in wide]
    if not of(op_name(call)).is_elementwise or not any(shape_of(a) == shape_of(var) for a in widened):
        return None
    if not all(_tensor_fits(a) for a in call.args):
        return None
    return Call(call.op, [_widened(a, wide, rw) for a in call.args], call.attrs, call.ty_args)


def _tensor_fits(expr: Any) -> bool:
    return not isinstance(expr, relax.Var | GenericConst) or (static_tensor(expr) and len(shape_of(expr) or ()) <= 3)


def _widened(expr: Any, wide: dict[relax.Var, relax.Var], rw: Rewriter) -> Any:
    """An operand with an axis of one before its last one; a scalar attribute, or a row along W, as it is."""
    shape = shape_of(expr) if isinstance(expr, relax.Var | GenericConst) else None
    if shape is None or len(shape) < 2:
        return expr
    if isinstance(expr, relax.Var) and expr in wide:
        return wide[expr]
    new: Sequence[int] = (*shape[:-1], 1, shape[-1])
    if (value := numpy_of(expr)) is not None:
        return relax.const(value.reshape(new), dtype_of(expr))
    if expr not in wide:
        wide[expr] = rw.emit(relax.op.reshape(expr, new))
    return wide[expr]

"""Constants that depend on sizes are computed by kernels, whose literals then are expressions over the symbols.

y = take(x, 36)      at S = 37, and 99 at S = 100   ->   i = call_tir(constant), which stores S - 1; y = take(x, i)

Small ones are stored element by element, others by the rule that they follow (:mod:`.patterns`).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.ir import Call, GenericConst, IRModule
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.graph.relax_graph import Rewriter, array_of
from tvm_ext.core.passes import CompileContext, Pass, PassResult

from .patterns import pattern_of

#: Elements of a constant that is stored one by one, at most.
MOST_ELEMENTS = 64


class ComputeConstants(Pass):
    """Kernels for constants.

    Args:
        places: (variable of `main`, number of an operand of its value) of each -> whether it is stored element by
            element; operands in tuples count one by one.
    """

    name = "compute-constants"
    needed = "they have other values at other sizes"

    def __init__(self, places: Mapping[tuple[str, int], bool]) -> None:
        self._places = places

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
            call, count = binding.value, 0
            args: list[Any] = []
            for arg in getattr(call, "args", ()):
                fields = []
                for operand in getattr(arg, "fields", [arg]):
                    tensor = isinstance(operand, relax.Var | GenericConst)
                    each = self._places.get((binding.var.name, count)) if tensor else None
                    fields.append(operand if each is None else _computed(operand, rw, each))
                    count += tensor
                args.append(relax.Tuple(fields) if isinstance(arg, relax.Tuple) else fields[0])
            if all(new.same_as(old) for new, old in zip(args, getattr(call, "args", ()), strict=True)):
                return None
            rw.fire("a constant is computed of the sizes")
            return Call(call.op, args, call.attrs, call.ty_args)

        return Rewriter(mod, ctx).rewrite(visit)


def _computed(value: GenericConst, rw: Rewriter, each: bool) -> relax.Var | GenericConst:
    """The result of a kernel that stores the elements of a constant, one by one or by its rule; else itself."""
    array = array_of(value)
    pattern = None if each else pattern_of(array)
    if pattern is None and not each:
        return value
    kernel = _stores(array) if pattern is None else pattern.kernel(array.shape, str(array.dtype))
    return rw.emit(relax.call_tir(rw.add_function(kernel, "constant"), [], value.ty))


def _stores(array: np.ndarray) -> tirx.PrimFunc:
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("constant")
        T.func_attr({"tirx.noalias": True})
        shape = [tirx.IntImm("int64", size) for size in array.shape]  # as relax has it: equal buffers are fused
        out = T.arg("out", T.buffer(shape, str(array.dtype)))
        with T.sblock("root"):
            for index in np.ndindex(array.shape):
                T.buffer_store(out, tirx.const(array[index].item(), str(array.dtype)), list(index))
    return builder.get().without_attr("global_symbol")

"""Kernels get the sizes of a call, and know which part of their buffers is in use.

y = call_tir(k, (x, w))   ->   main(x, sizes): y = call_tir(k, (x, w, sizes))
"""

from collections.abc import Mapping
from typing import Any

from tvm import relax, tirx
from tvm.ir import Call, GlobalVar, IRModule

from tvm_ext.core.graph.relax_graph import Rewriter, op_name, with_body, with_main
from tvm_ext.core.passes import CompileContext, Pass, PassResult
from tvm_ext.core.sizes import SIZES, Sizes

from .alignment import Site


class BindSizes(Pass):
    """The sizes are a parameter of `main` behind the inputs, and of each kernel that depends on them.

    Args:
        sizes: of the program.
        sites: variable of `main` -> the call of a kernel that it is bound to, of those that depend on sizes.
        sized: kernel of the bounds -> the one that takes the sizes last of its inputs.
    """

    name = "bind-sizes"
    needed = "a program of symbolic sizes is planned at their bounds"

    def __init__(self, sizes: Sizes, sites: Mapping[str, Site], sized: Mapping[str, tirx.PrimFunc]) -> None:
        self._sizes, self._sites, self._sized = sizes, sites, sized

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        rewriter = Rewriter(mod, ctx)
        argument = relax.Var(SIZES, relax.TensorType((len(self._sizes.symbols),), "int64"))
        kernels: dict[str, GlobalVar] = {}

        def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
            site = self._sites.get(binding.var.name)
            call = binding.value
            if site is None or op_name(call) != "relax.call_tir":
                return None
            name = call.args[0].name_hint
            if name not in kernels:
                kernels[name] = rw.replace_function(call.args[0], self._sized[name])
                if (kernel := ctx.kernels.pop(name, None)) is not None:
                    kernel.name = kernels[name].name_hint
                    ctx.kernels[kernel.name] = kernel
            rw.fire("takes the sizes")
            operands = relax.Tuple([*call.args[1].fields, argument])
            return Call(call.op, [kernels[name], operands, *call.args[2:]], call.attrs, call.ty_args)

        result = rewriter.rewrite(visit)
        main = result.mod["main"]
        function = with_body(main, main.body, [*main.params, argument])
        function = function.with_attr("num_input", len(function.params))
        return PassResult(with_main(result.mod, function), result.fired, result.skipped)

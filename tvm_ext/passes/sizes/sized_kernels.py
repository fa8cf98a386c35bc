"""The kernels of a program of symbolic sizes: those of recipes, to be cut, and exact ones of all others."""

from collections.abc import Sequence

import tvm_ffi
from tvm import tirx
from tvm.ir import IRModule

from tvm_ext.core.passes import CompileContext
from tvm_ext.core.plan import Kernel
from tvm_ext.core.sizes import Sizes
from tvm_ext.schedules import generic

from ..lowering.choose_recipes import ChooseRecipes
from ..steps.kernel_sizes import bind_sizes, with_sizes
from .alignment import Site, by_callee
from .generalize import NotAlike, generalize
from .solver import Solver


class SizedKernels:
    """Kernels that take the sizes.

    Args:
        modules: of one model at several sizes, that of the bounds first.
        ctx: of the compile at the bounds.
        sizes: of the program.
        solver: of the numbers in kernels.
        sites: calls of kernels by `main`.

    Attributes:
        sites: variable of `main` -> the call it is bound to, of kernels that depend on sizes.
        functions: these kernels, scheduled, by their names at the bounds.

    Raises:
        NotAlike: a kernel of the bounds is several at other sizes, or kernels differ in more than numbers.
    """

    def __init__(
        self, modules: Sequence[IRModule], ctx: CompileContext, sizes: Sizes, solver: Solver, sites: Sequence[Site]
    ) -> None:
        self._modules, self._ctx, self._sizes, self._solver = modules, ctx, sizes, solver
        sized = {name: site for name, site in by_callee(sites).items() if self._depends(site)}
        self.sites = {site.variable: site for site in sites if site.callees[0] in sized}
        self.functions = {name: self._function(name, site) for name, site in sized.items()}

    def _depends(self, site: Site) -> bool:
        if site.symbolic:
            return True
        if site.callees[0] in self._ctx.kernels:
            return False
        first, *others = self._functions(site)
        return not all(tvm_ffi.structural_equal(first, other) for other in others)

    def _functions(self, site: Site) -> list[tirx.PrimFunc]:
        return [mod[name] for mod, name in zip(self._modules, site.callees, strict=True)]

    def _function(self, name: str, site: Site) -> tirx.PrimFunc:
        kernel = self._ctx.kernels.get(name)
        if kernel is None:
            return self._generic(name, site)
        border = kernel.plan.recipe.border(kernel.plan.match) if kernel.plan is not None else {}
        return with_sizes(self._modules[0][name], site.extents, self._sizes, site.results, border)

    def _generic(self, name: str, site: Site) -> tirx.PrimFunc:
        try:
            function = generalize(self._functions(site), self._solver, site.results)
        except NotAlike as error:
            raise NotAlike(error.reason, site.variable) from error
        scheduled, how = generic.schedule(function, self._ctx.machine, self._sizes)
        reason = self._ctx.why_skipped(ChooseRecipes, value=name) or "no recipe for this operation"
        self._ctx.kernels[name] = Kernel(name, generic.NAME, {"schedule": how}, reason)
        return bind_sizes(scheduled, self._sizes, site.results)

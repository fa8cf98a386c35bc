"""Rewriting by rules: a table from operator name to small functions, applied to each binding until none fits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.ir import Call, IRModule

from ...core.graph.relax_graph import Rewriter, op_name, tuple_item
from ...core.passes import CompileContext, PassResult
from ..steps.constants import same_type
from ..steps.liveness import Readers, without_leftovers


@dataclass(frozen=True)
class Site:
    """One binding under a rule, and what is known around it."""

    binding: relax.VarBinding
    rw: Rewriter
    readers: Readers

    @property
    def var(self) -> relax.Var:
        """The variable bound here; its type is what any replacement must have."""
        return self.binding.var

    def same_type(self, expr: Any) -> bool:
        """Whether `expr` could stand for the value here (a broadcast or cast in between would change the type)."""
        return same_type(expr, self.var)

    def fits(self, expr: Any) -> Any:
        """`expr` with its type if that is the type wanted here, else None."""
        typed = self.rw.normalize(expr)
        return typed if self.same_type(typed) else None

    def inner(self, expr: Any, name: str) -> Any:
        """The call of operator `name` that the variable `expr` is bound to, else None."""
        value = self.rw.definition(expr)
        return value if op_name(value) == name else None

    def sole(self, expr: Any) -> bool:
        """Whether the variable `expr` (and what it is another name for) has a single reader."""
        while isinstance(expr, relax.Var) and expr in self.rw.defs:
            if not self.readers.sole(expr):
                return False
            expr = self.rw.defs[expr]
        return True

    def take_over(self, expr: Any, above: relax.Var | None = None) -> None:
        """Say that the binding here now also does the work of the variable `expr`.

        Args:
            above: with it, of everything on the way from this variable to `expr` too.
        """
        if not isinstance(expr, relax.Var) or (above is not None and expr.same_as(above)):
            return
        self.rw.absorb(expr)
        value = self.rw.definition(expr) if above is not None else None
        for operand in value.args if isinstance(value, Call) else ():
            self.take_over(operand, above)

    def replaced(self, by: Any, what: str, *over: Any) -> Any:
        """`by`, which a rule binds here, once it is reported what was done, and that it does the work of `over` too."""
        for expr in over:
            self.take_over(expr)
        self.rw.fire(what)
        return by


Rule = Callable[[Any, Site], Any]
"""(value bound at the site, site) -> the expression to bind instead, or None if the rule does not fit.

A rule that fits reports it by :meth:`Site.replaced`; one that nearly fits says why not by `site.rw.skip`.
"""


def rewrite_by_rules(mod: IRModule, ctx: CompileContext, rules: Mapping[str, Sequence[Rule]]) -> PassResult:
    """Apply the rules for each binding's operator until none fits, in order of the bindings.

    Args:
        rules: operator name -> rules; "name[0]" stands for item 0 of that operator's tuple.
    """
    rw = Rewriter(mod, ctx)
    readers = Readers(rw)

    def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
        site, value, changed = Site(binding, rw, readers), binding.value, None
        while (new := _first_that_fits(rules, value, site)) is not None:
            value = changed = new
        return changed

    return without_leftovers(mod, rw.rewrite(visit))


def _first_that_fits(rules: Mapping[str, Sequence[Rule]], value: Any, site: Site) -> Any:
    name = op_name(value)
    if item := tuple_item(value):
        name = f"{op_name(site.rw.definition(item[0]))}[{item[1]}]"
    for rule in rules.get(name, ()):
        if (new := rule(value, site)) is not None:
            return new
    return None

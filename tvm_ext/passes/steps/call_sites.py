"""Call sites of a lowered program: what each call of a kernel reads and writes, read off `main`."""

from tvm import relax
from tvm.ir import IRModule

from ...core.graph.call_site import CallSite, Written
from ...core.graph.nodes import nodes_of
from ...core.graph.relax_graph import dtype_of, main_bindings, op_name, shape_of, tuple_item
from ...core.passes import CompileContext


def note_call_sites(mod: IRModule, ctx: CompileContext) -> None:
    """Put the call sites of `main` into `ctx.kernels`, for the report."""
    bindings = main_bindings(mod)
    items = _items(bindings)
    sources: dict[str, set[int]] = {}  # variable -> the calls whose results are in it
    order = 0
    for binding in bindings:
        name, value = binding.var.name, binding.value
        reads = sorted({call for source in nodes_of(value, relax.Var) for call in sources.get(source.name, ())})
        sources[name] = set(reads)
        if op_name(value) != "relax.call_tir":
            continue
        sources[name] = {order}
        writes = tuple(_written(var, ctx) for var in items.get(name, [binding.var]))
        site = CallSite(order, ctx.provenance.of(name), tuple(reads), writes)
        ctx.kernels[value.args[0].name_hint].sites.append(site)
        order += 1


def _items(bindings: list[relax.VarBinding]) -> dict[str, list[relax.Var]]:
    """Variable of a tuple -> the variables of its items, in order; an item that nothing takes is a new variable."""
    taken: dict[str, dict[int, relax.Var]] = {}
    types = {b.var.name: b.var.ty for b in bindings if isinstance(b.var.ty, relax.TupleType)}
    for binding in bindings:
        item = tuple_item(binding.value)
        if item and isinstance(item[0], relax.Var):
            taken.setdefault(item[0].name, {})[item[1]] = binding.var
    return {
        name: [taken.get(name, {}).get(i, relax.Var(f"{name}.{i}", field)) for i, field in enumerate(ty.fields)]
        for name, ty in types.items()
    }


def _written(var: relax.Var, ctx: CompileContext) -> Written:
    placed = ctx.provenance.placement(var.name)
    layout, shape = placed if placed else (None, shape_of(var) or ())
    return Written(var.name, shape, dtype_of(var), ctx.provenance.held(var.name), layout)

"""Memory: activations and workspace of a program lie in one arena, at offsets that :mod:`.arena` finds.

    main(x, w, out): a = alloc(); k(x, w, a); b = alloc(); g(a, b); f(b, out)
      ->   main(x, w, out, a, b): k(x, w, a); g(a, b); f(b, out)

What the program would allocate are arguments: views of the arena that a caller of the program owns, made once. So a
call allocates nothing, and frees nothing. TVM's own plan (StaticPlanBlockMemory) gives each value a storage that once
held another one, never two in one place, and takes half as much again as lives at any time; it plans what is left here,
values of dtypes that numpy cannot lend.
"""

import math
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Call, GlobalVar, IRModule

from ...core.graph.nodes import nodes_of, substituted
from ...core.graph.relax_graph import bindings_of, dtype_of, op_name, shape_of, with_body, with_main
from ...core.passes import CompileContext, Event, Pass, PassResult
from ...runtime.spec import View
from .arena import WORKSPACE, Arena, Interval, Memory, Pooled, plan
from .updates import can_lend

_ALLOC, _VIEW = "relax.builtin.alloc_tensor", "relax.reshape"


@dataclass(frozen=True)
class Placed:
    """What `main` works in.

    Attributes:
        memory: its arena and pools.
        views: of the arena, which are parameters of `main`.
    """

    memory: Memory
    views: tuple[View, ...]


class PlanMemory(Pass):
    """Activations and workspace are views of one arena, which a caller gives."""

    name = "plan-memory"
    needed = "a call allocates nothing"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        function, arena, views = _with_arena(mod["main"])
        pooled = ctx.fact(Pooled).nbytes
        memory = Memory(arena, tuple(pooled[kernel] for kernel in arena.steps))
        fired = (Event("main", f"{len(arena.intervals)} buffers in {arena.nbytes} bytes"),) if views else ()
        unchecked = function.with_attr("num_input", 0)  # the runtime sees to arguments, once, before a call
        return PassResult(with_main(mod, unchecked), fired, facts=(Placed(memory, views),))


def _with_arena(function: relax.Function) -> tuple[relax.Function, Arena, tuple[View, ...]]:
    """The function that takes views of an arena as last parameters, the arena, and these views.

    Args:
        function: calls kernels in destination-passing style.
    """
    lifetimes = _lifetimes(function)
    called = [b.value.op.name_hint for b in bindings_of(function) if _is_kernel(b.value)]
    arena = plan(list(lifetimes.values()), called)
    params: dict[View, relax.Var] = {}
    memory: dict[relax.Var, relax.Var] = {}

    def place(var: relax.Var, offset: int) -> None:
        view = View(offset, shape_of(var) or (), dtype_of(var))
        memory[var] = params.setdefault(view, relax.Var(f"arena{len(params)}", var.ty))

    offsets = dict(zip(lifetimes, arena.offsets, strict=True))
    for var, offset in offsets.items():
        place(var, offset)
    if not params:
        return function, arena, ()
    for binding in bindings_of(function):  # another shape of a buffer is another view: no instruction makes it
        source = binding.value.args[0] if op_name(binding.value) == _VIEW else binding.value
        if isinstance(source, relax.Var) and source in offsets:
            offsets[binding.var] = offsets[source]
            place(binding.var, offsets[source])
    blocks = [relax.BindingBlock([b for b in block.bindings if b.var not in memory]) for block in function.body.blocks]
    body = substituted(relax.SeqExpr(blocks, function.body.body), memory)
    return with_body(function, body, [*function.params, *params.values()]), arena, tuple(params)


def _lifetimes(function: relax.Function) -> dict[relax.Var, Interval]:
    """Variable of each allocation that can lie in the arena -> when it lives; steps are calls of kernels, in order.

    A value that the caller gets, or that something else than a kernel reads, keeps memory of its own.
    """
    root: dict[relax.Var, relax.Var] = {}
    steps: dict[relax.Var, list[int]] = {}
    names: dict[relax.Var, str] = {}
    kept = set(nodes_of(function.body.body, relax.Var))
    step = -1
    for binding in bindings_of(function):
        value = binding.value
        if op_name(value) == _ALLOC and can_lend(binding.var):
            root[binding.var], steps[binding.var] = binding.var, []
        elif isinstance(value, relax.Var) or op_name(value) == _VIEW:
            source = value if isinstance(value, relax.Var) else value.args[0]
            if source in root:
                root[binding.var] = root[source]
                names.setdefault(root[source], binding.var.name)
        elif _is_kernel(value):
            step += 1
            for var in nodes_of(value, relax.Var):
                if var in root:
                    steps[root[var]].append(step)
        else:
            kept.update(nodes_of(value, relax.Var))
    own = {root[var] for var in kept if var in root}
    return {v: _interval(v, names.get(v, v.name), used) for v, used in steps.items() if used and v not in own}


def _is_kernel(value: Any) -> bool:
    return isinstance(value, Call) and isinstance(value.op, GlobalVar)


def _interval(var: relax.Var, name: str, steps: list[int]) -> Interval:
    nbytes = math.prod(shape_of(var) or ()) * -(-tvm.DataType(dtype_of(var)).bits // 8)
    return Interval(name, nbytes, min(steps), max(steps), var.name.startswith(WORKSPACE))

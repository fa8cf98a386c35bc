"""Names and provenance through TVM's FuseOps, which names its results as it likes, one name twice too.

    a = call_tir(f, x); b = call_tir(g, a)   ->   lv = fused_f_g(x)   ->   b = fused_f_g(x), and b does what a did, too

The calls inside the fused functions are those of before, on operands that can be traced: so each is found again.
"""

from typing import Any

import tvm_ffi
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, IRModule, Tuple

from tvm_ext.core.graph.provenance import Provenance
from tvm_ext.core.graph.relax_graph import bindings_of, main_bindings, tuple_item, uses_of, with_body, with_main

_Names = Any
"""Name of the variable of before that a value is; a tuple of them for a tuple."""


def fuse(mod: IRModule, provenance: Provenance) -> IRModule:
    """FuseOps, with the variables of `main` named as before it, and their provenance completed."""
    _trace_new_names(mod, provenance)
    fused = relax.transform.FuseOps()(mod)
    tracer = _Tracer(mod, fused)
    names: dict[relax.Var, str] = {}
    for binding in main_bindings(fused):
        sources = tracer.sources(binding)
        names[binding.var] = sources[-1] if sources else binding.var.name
        provenance.record(names[binding.var], sources)
    return _renamed(fused, names)


def _renamed(mod: IRModule, names: dict[relax.Var, str]) -> IRModule:
    """The module with these names for variables of `main`."""
    new = {var: type(var)(name, var.ty) for var, name in names.items()}
    main = mod["main"]
    body = tvm_ffi.structural_map(main.body, ((relax.Var, relax.DataflowVar), lambda var: new.get(var, var)))
    return with_main(mod, with_body(main, body))


def _trace_new_names(mod: IRModule, provenance: Provenance) -> None:
    """A variable that legalization added does part of the work of its first reader."""
    uses = uses_of(mod["main"])
    for binding in reversed(main_bindings(mod)):
        if not provenance.of(binding.var.name):
            readers = [v for v in uses.get(binding.var, ()) if v is not None]
            provenance.record(binding.var.name, [v.name for v in readers[:1]])


class _Tracer:
    def __init__(self, before: IRModule, after: IRModule) -> None:
        self._after = after
        self._main = {p: p.name for p in after["main"].params}
        own: dict[Any, _Names] = {p: p.name for p in before["main"].params}
        self._known: dict[Any, list[str]] = {}
        for binding in main_bindings(before):
            own[binding.var] = binding.var.name
            self._known.setdefault(_key(binding.value, own), []).append(binding.var.name)

    def sources(self, binding: relax.VarBinding) -> list[str]:
        """The variables of before that a binding of `main` computes."""
        if (name := self._find(binding.value, self._main)) is not None:
            self._main[binding.var] = name
            return [name]
        value = binding.value
        called = isinstance(value, Call) and isinstance(value.op, GlobalVar)
        if not called or not isinstance(self._after[value.op], relax.Function):
            self._main[binding.var] = _names(value, self._main)
            return []
        names, self._main[binding.var] = self._inside(self._after[value.op], value)
        return names

    def _inside(self, function: relax.Function, call: Call) -> tuple[list[str], _Names]:
        """What a fused function computes, and what its result is."""
        inner = {p: _names(a, self._main) for p, a in zip(function.params, call.args, strict=True)}
        names = []
        for binding in bindings_of(function):
            name = self._find(binding.value, inner)
            inner[binding.var] = _names(binding.value, inner) if name is None else name
            names += [] if name is None else [name]
        return names, _names(function.body.body, inner)

    def _find(self, value: Any, names: dict[Any, _Names]) -> str | None:
        """The variable of before that was bound to this value; of equal ones the next."""
        known = self._known.get(_key(value, names))
        if not known:
            return None
        return known.pop(0) if len(known) > 1 else known[0]


def _key(value: Any, names: dict[Any, _Names]) -> Any:
    """What makes two values equal: the operator or function, and the operands by their names of before."""
    if isinstance(value, Call):
        callee = value.op.name_hint if isinstance(value.op, GlobalVar) else value.op
        return ("call", callee, tvm_ffi.structural_hash(value.attrs), tuple(_key(a, names) for a in value.args))
    if isinstance(value, Tuple):
        return tuple(_key(v, names) for v in value.fields)
    if isinstance(value, GlobalVar):
        return value.name_hint
    named = _names(value, names)
    return tvm_ffi.structural_hash(value) if named is None else named


def _names(value: Any, names: dict[Any, _Names]) -> _Names:
    """Names of before of a variable, a tuple or an item of one; a constant is itself; None for anything else."""
    if isinstance(value, relax.Var):
        return names.get(value)
    if isinstance(value, GenericConst):
        return ("constant", value)
    if isinstance(value, Tuple):
        return tuple(_names(v, names) for v in value.fields)
    if item := tuple_item(value):
        inner = _names(item[0], names)
        return inner[item[1]] if isinstance(inner, tuple) else ("item", inner, item[1])
    return None

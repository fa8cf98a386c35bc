"""Every kernel reads and writes memory as its callers hold it: element types, dimensions, sizes.

    y: float16[2, 3] = exp(x)  ->  y: float32[2, 3] = call_tir(exp, (x,)): an error that names y
    y: float16[2, 3] = call_tir(k, (x,)),  k(x: float16[2, 3], out: float32[2, 3])   ->   an error that names y and k

Compiled kernels check none of it, so one that is called with other memory than it was written for, because a
legalization, a converter or a schedule gives another type than Relax infers, writes beyond the end of it.
"""

from collections.abc import Iterator
from typing import Any

from tvm import relax, tirx
from tvm.ir import Call, GlobalVar, IRModule

from tvm_ext.core.errors import UnsupportedError
from tvm_ext.core.graph.provenance import Provenance
from tvm_ext.core.graph.relax_graph import bindings_of, main_bindings, op_name

_CALLS = ("relax.call_tir", "relax.call_tir_inplace")
_FIX = (
    "TVM makes this kernel wrong for these types: cast the node's inputs to float32 and its outputs back, or give "
    "it other operators; freeze= or initializers let what is known be computed when the model is compiled"
)


def check_kernels(mod: IRModule, provenance: Provenance) -> None:
    """See that the buffers of every kernel are those of the values that it is called with.

    Raises:
        UnsupportedError: names the ONNX nodes, the kernel, its buffer, and both types.
    """
    functions = {gvar.name_hint: function for gvar, function in mod.functions_items()}
    for caller, binding in _bindings(mod):
        if op_name(binding.value) not in _CALLS:
            continue
        name = binding.value.args[0].name_hint
        if wrong := next(_differences(binding.value, functions[name]), ""):
            nodes = _nodes(binding, caller, mod, provenance)
            raise UnsupportedError(f"node {nodes!r}: kernel {name!r} {wrong}", fix=_FIX)


def check_kept(before: IRModule, after: IRModule, provenance: Provenance) -> None:
    """See that every value has the type that it had before its operator became a kernel.

    Raises:
        UnsupportedError: names the ONNX nodes, the kernel, the variable, and both types.
    """
    expected = {(caller, binding.var.name): binding.var for caller, binding in _bindings(before)}
    for caller, binding in _bindings(after):
        old = expected.get((caller, binding.var.name), binding.var)
        if old.same_as(binding.var) or (was := _text(old.ty)) == (now := _text(binding.var.ty)):
            continue
        value = binding.value
        kernel = value.args[0].name_hint if op_name(value) in _CALLS else op_name(value) or str(value)
        wrong = f"kernel {kernel!r} writes {binding.var.name!r} as {now}; its caller holds {was}"
        raise UnsupportedError(f"node {_nodes(binding, caller, before, provenance)!r}: {wrong}", fix=_FIX)


def _bindings(mod: IRModule) -> Iterator[tuple[str, relax.VarBinding]]:
    """Bindings of all Relax functions, each with the name of its function."""
    for gvar, function in mod.functions_items():
        if isinstance(function, relax.Function):
            yield from ((gvar.name_hint, binding) for binding in bindings_of(function))


def _differences(call: Any, kernel: tirx.PrimFunc) -> Iterator[str]:
    """What of a call does not fit the kernel; inputs stand before outputs in its parameters."""
    operands = list(call.args[1].fields)
    results = list(call.ty.fields) if isinstance(call.ty, relax.TupleType) else [call.ty]
    if op_name(call) == "relax.call_tir_inplace":
        results = [r for r, i in zip(results, call.attrs.inplace_indices, strict=True) if int(i) < 0]
    types = [*(operand.ty for operand in operands), *results]
    scalars = len(call.args[2].values) if len(call.args) > 2 else 0
    if len(kernel.params) != len(types) + scalars:
        yield f"has {len(kernel.params)} parameters; its call has {len(types) + scalars}"
    sizes: dict[Any, int] = {}  # of dimensions that the kernel reads off its buffers
    for number, (param, ty) in enumerate(zip(kernel.params, types, strict=False)):
        held = _dims(ty.shape.values)
        needed = _dims(getattr(param.ty, "shape", ()))
        if len(held) == len(needed):
            pairs = zip(needed, held, strict=True)
            needed = [sizes.setdefault(n, h) if isinstance(n, tirx.Var) else n for n, h in pairs]
        if held != needed or str(ty.dtype) != str(param.ty.dtype):
            role = "reads" if number < len(operands) else "writes"
            yield f"{role} its buffer {param.name!r} as {param.ty.dtype}{needed}; its caller holds {ty.dtype}{held}"


def _dims(shape: Any) -> list[Any]:
    return [int(dim.value) if type(dim) is tirx.IntImm else dim for dim in shape[:]]


def _text(ty: Any) -> str:
    """A type as messages show it: float32[2, 3], and what a tuple holds in parentheses."""
    if isinstance(ty, relax.TupleType):
        return f"({', '.join(map(_text, ty.fields))})"
    return f"{ty.dtype}{_dims(ty.shape.values)}" if isinstance(ty, relax.TensorType) and ty.shape else str(ty)


def _nodes(binding: relax.VarBinding, caller: str, mod: IRModule, provenance: Provenance) -> str:
    """The ONNX nodes behind a binding of `main`, or behind the calls of the function that it stands in."""
    names = [binding.var.name]
    if caller != "main":
        names = [b.var.name for b in main_bindings(mod) if _callee(b.value) == caller]
    return ", ".join(dict.fromkeys(node for name in names for node in provenance.of(name))) or ", ".join(names)


def _callee(value: Any) -> str:
    return value.op.name_hint if isinstance(value, Call) and isinstance(value.op, GlobalVar) else ""

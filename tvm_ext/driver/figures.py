"""What a call of each kernel has to do, for the report: arguments, floating-point operations, bytes.

They stand in the report, and so in the artifact, because the groups they are read from are gone when a model is built.

TVM's counter takes no `let` in a value, so what one binds is counted as a store of its own:

    out[i] = let t = a[i] + b[i] in t * t   ->   out[i] = a[i] + b[i]; out[i] = t * t
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir.analysis import estimate_tir_flops

from ..core.cost.work import bytes_of, flops_of, read_in_part
from ..core.graph.relax_graph import main_bindings, op_name
from ..core.plan import Kernel
from ..schedules import generic
from .lower import Lowered


def kernel_figures(lowered: Lowered) -> dict[str, dict[str, Any]]:
    """Kernel -> "arguments", "flops", "executed", "bytes" and "instruction" of one call of it.

    "flops" are operations as the model states them, "executed" those of the kernel: Winograd does fewer, a kernel that
    computes beyond the edge of a tensor more. The operations of what TVM made are counted in its TIR (None where TVM
    cannot count), those of what a back end runs are two a multiply-add. Bytes are those of arguments and results as
    they lie in memory, each once; of a table that rows are taken of, only the rows.
    """
    figures: dict[str, dict[str, Any]] = {}
    for binding in main_bindings(lowered.mod):
        if op_name(binding.value) == "relax.call_tir":
            name = binding.value.args[0].name_hint
            if name not in figures:
                figures[name] = _figures(binding.value, lowered.ctx.kernels[name], lowered.mod)
    return figures


def _figures(call: Any, kernel: Kernel, mod: IRModule) -> dict[str, Any]:
    operands: Sequence[Any] = call.args[1].fields
    results = len(call.ty.fields) if hasattr(call.ty, "fields") else 1
    partial: Mapping[int, int] = read_in_part(kernel.plan.match.group) if kernel.plan else {}
    read = sum(partial.get(number, bytes_of(operand)) for number, operand in enumerate(operands))
    counted = executed_flops(mod[kernel.name])
    stated: float | None = flops_of(kernel.plan.match.group) if kernel.plan else kernel.flops
    if kernel.recipe == generic.NAME:
        stated = counted
    return {
        "arguments": len(operands) + results, "flops": stated, "executed": counted or stated,
        "bytes": read + bytes_of(call),
        "instruction": kernel.plan.recipe.instruction(kernel.plan.match) if kernel.plan else "",
    }  # fmt: skip


def executed_flops(kernel: tirx.PrimFunc) -> float | None:
    """Operations on values of one call, comparisons and index arithmetic left out: of Winograd fewer than its
    convolution states. None where TVM cannot count them."""
    try:
        body = tvm_ffi.structural_map(kernel.body, (tirx.BufferStore, _without_lets))
        plain = tirx.PrimFunc(kernel.params, body, kernel.ret_type, kernel.attrs)
        return float(estimate_tir_flops(IRModule({"main": plain})))
    except Exception:  # TVM raises its own errors, of many kinds, for loops and calls that it cannot count
        return None


def _without_lets(store: tirx.BufferStore) -> Any:
    """Stores of all that is bound in a store's value, then of the value."""
    bound: list[Any] = []

    def unbind(let: Any) -> Any:
        bound.append(let.value)
        return let.body

    value = tvm_ffi.structural_map(store.value, (tirx.Let, unbind))
    if not bound:
        return store
    stores = [tirx.BufferStore(store.buffer, x, store.indices) for x in (*bound, value) if x.ty == value.ty]
    return tirx.SeqStmt(stores) if len(stores) > 1 else stores[0]  # TVM refuses a sequence of one statement

"""What a call of each kernel has to do, for the report: arguments, floating-point operations, bytes.

They stand in the report, and so in the artifact, because the groups they are read from are gone when a model is built.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tvm.ir import IRModule

from ..core.cost.work import bytes_of, flops_of, read_in_part
from ..core.graph.relax_graph import main_bindings, op_name
from ..core.plan import Kernel
from ..schedules import generic
from .executed import executed_flops
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

"""Build: the lowered module becomes a Relax VM executable, by LLVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import IRModule

from ..core.machine import Machine

if TYPE_CHECKING:
    from tvm.relax import VMExecutable


def build(mod: IRModule, machine: Machine) -> VMExecutable:
    """Plan memory, lower to the VM, and compile the kernels.

    Args:
        mod: what the pipeline made: `main` calls scheduled kernels.
        machine: whose target the kernels are compiled for.
    """
    target = machine.target()
    with target:
        return relax.build(mod, target=target, relax_pipeline=_to_vm())


def _to_vm() -> tvm.transform.Pass:
    """TVM's own way from call_tir to the VM, with activations planned into shared storage."""
    t = relax.transform
    return tvm.transform.Sequential(
        [
            t.ToNonDataflow(),
            t.RemovePurityChecking(),
            t.CallTIRRewrite(),
            t.StaticPlanBlockMemory(),
            t.LowerAllocTensor(),
            t.KillAfterLastUse(),
            t.LowerRuntimeBuiltin(),
            t.ComputePrimValue(),
            t.VMShapeLower(),
            t.AttachGlobalSymbol(),
        ]
    )


def has_parallel_loops(mod: IRModule) -> bool:
    """Whether any kernel runs on the thread pool."""
    kinds = set()
    for _, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc):
            tvm_ffi.structural_walk(function.body, (tirx.For, lambda loop: kinds.add(int(loop.kind))))
    return int(tirx.ForKind.PARALLEL) in kinds

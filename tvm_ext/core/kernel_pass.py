"""What a pass over kernels is: one of TVM's over TIR, with a name that reports, switches and bisections use."""

import inspect
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import IRModule
from tvm.target import Target

from .passes import Event, PassReport

#: Kernels do not check shapes and dtypes of their arguments: the runtime checks a model's inputs, and the VM passes
#: kernels what was planned for them. The checks are half of a kernel's machine code and a fifth of its compile time.
_CONFIG = {"tirx.disable_assert": True}


@dataclass(frozen=True)
class KernelPass:
    """A rewrite of kernels, each by itself.

    Attributes:
        name: lower case with dashes; one that stands in both halves of the lowering is one pass that runs twice.
        make: TVM's pass; of a target, if it has a parameter of that name. :func:`rewriting` makes one of a function.
        needed: why a compile cannot do without it; "" of one that may be switched off to find a culprit.
    """

    name: str
    make: Callable[..., tvm.transform.Pass]
    needed: str = ""

    def of(self, target: Target) -> tvm.transform.Pass:
        """TVM's pass for a target."""
        return self.make(target) if "target" in inspect.signature(self.make).parameters else self.make()


def rewriting(rewrite: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> Callable[[], tvm.transform.Pass]:
    """What makes a pass of TVM's that replaces each kernel by what a function makes of it."""
    name = f"tvm_ext.{rewrite.__name__}"
    return lambda: tirx.transform.prim_func_pass(lambda kernel, mod, ctx: rewrite(kernel), opt_level=0, name=name)


def run_kernel_passes(
    passes: Iterable[KernelPass], module: IRModule, target: Target
) -> tuple[IRModule, list[PassReport]]:
    """A module of kernels after passes, with a report of each: the kernels whose statements it made anew."""
    reports, before = [], _bodies(module)
    with tvm.transform.PassContext(opt_level=3, config=_CONFIG):
        for step in passes:
            start = time.perf_counter()
            module = step.of(target)(module)
            after = _bodies(module)
            fired = (Event(name, "rewritten") for name, body in after.items() if not body.same_as(before.get(name)))
            reports.append(PassReport(step.name, tuple(fired), (), time.perf_counter() - start))
            before = after
    return module, reports


def _bodies(module: IRModule) -> dict[str, Any]:
    return {gvar.name_hint: function.body for gvar, function in module.functions_items()}

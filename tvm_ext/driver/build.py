"""Build: the lowered module becomes a Relax VM executable, its kernels compiled by LLVM on all cores."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import GlobalVar, IRModule

from ..core.errors import BuildError, naming
from ..core.machine import Machine
from ..passes.memory.workspace import in_destination_style
from ..passes.tir.loops import PIPELINE, is_lowered, lower_to_loops, with_stack_buffers
from ..passes.tir.shares import kernels_of, on_all_cores

if TYPE_CHECKING:
    from tvm.relax import VMExecutable

    from ..core.plan import Kernel


#: Kernels do not check shapes and dtypes of their arguments: the runtime checks a model's inputs, and the VM passes
#: kernels what was planned for them. The checks are half of a kernel's machine code and a fifth of its compile time.
_CONFIG = {"tirx.disable_assert": True}


def build(mod: IRModule, machine: Machine, kernels: Mapping[str, Kernel] | None = None) -> VMExecutable:
    """Plan memory, lower to the VM, and compile the kernels; nothing is linked, so it can run in this process.

    Args:
        mod: what the pipeline made: `main` calls scheduled kernels.
        machine: whose target the kernels are compiled for.
        kernels: what errors say of them, by name.

    Raises:
        BuildError: names the kernel that cannot be compiled, with its nodes.
    """
    return _link(mod, machine, _compiled(mod, machine, lambda part, _: part, kernels or {}))


@contextmanager
def build_objects(
    mod: IRModule, machine: Machine, kernels: Mapping[str, Kernel] | None = None
) -> Iterator[VMExecutable]:  # fmt: skip
    """Like :func:`build`, with machine code already written to object files: for an executable that is only exported.

    The object files exist while the context is open.
    """
    with tempfile.TemporaryDirectory(prefix="tvm-ext-") as folder:

        def emit(part: Any, index: int) -> Any:
            path = str(Path(folder, f"kernels{index}.o"))
            part.write_to_file(path)
            return tvm.runtime.load_static_library(path, func_names=[])

        yield _link(mod, machine, _compiled(mod, machine, emit, kernels or {}))


def _compiled(
    mod: IRModule, machine: Machine, finish: Callable[[Any, int], Any], known: Mapping[str, Kernel]
) -> list[Any]:  # fmt: skip
    """The kernels as runtime modules."""

    def compile_share(share: Mapping[str, tirx.PrimFunc], scheduled: bool, index: int) -> Any:
        return finish(compile_kernels(share, machine, scheduled=scheduled), index)

    return on_all_cores(mod, compile_share, known)


def compile_kernels(kernels: Mapping[str, tirx.PrimFunc], machine: Machine, *, scheduled: bool = True) -> Any:
    """Kernels as one runtime module, by name; the code a model has, and a tuner measures.

    Args:
        kernels: name -> function.
        machine: whose target they are compiled for.
        scheduled: whether they were scheduled for it; see :meth:`.machine.Machine.target`.
    """
    target = machine.target(scheduled=scheduled)
    fresh = {name: kernel for name, kernel in kernels.items() if not is_lowered(kernel)}
    loops = {name: with_stack_buffers(kernel) for name, kernel in lower_to_loops(fresh, target).items()}
    with tvm.transform.PassContext(opt_level=3, config=_CONFIG):
        return tirx.build(IRModule({**kernels, **loops}), target=target, pipeline=PIPELINE)


def _link(mod: IRModule, machine: Machine, libraries: list[Any]) -> VMExecutable:
    """The VM executable of the Relax functions, over kernels that are compiled already."""
    target = machine.target()
    with target, naming(BuildError, lambda: "the program over its kernels cannot be made"):
        lowered = _to_vm()(in_destination_style()(mod))
        kernels = kernels_of(mod)
        rest: dict[GlobalVar, Any] = {g: f for g, f in lowered.functions_items() if g.name_hint not in kernels}
        rest[GlobalVar(_NOTHING)] = _nothing()
        attrs = {**dict(lowered.attrs or {}), "external_mods": libraries}
        return relax.build(IRModule(rest, attrs=attrs), target=target, relax_pipeline=None)


_NOTHING = "tvm_ext_nothing"


def _nothing() -> tirx.PrimFunc:
    """A kernel that does nothing. Without any, TVM puts an empty C source in its place: running it takes a compiler."""
    return tirx.PrimFunc([], tirx.Evaluate(0)).with_attr("global_symbol", _NOTHING)


def _to_vm() -> tvm.transform.Pass:
    """TVM's own way from there to the VM; what a function still allocates itself is planned into shared storage."""
    t = relax.transform
    return tvm.transform.Sequential(
        [
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

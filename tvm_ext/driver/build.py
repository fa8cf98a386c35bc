"""Build: the lowered module becomes a Relax VM executable, its kernels compiled by LLVM on all cores."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.relax import VMExecutable

from ..core.errors import BuildError, naming
from ..core.graph.nodes import kernels_of, nodes_of
from ..core.kernel_pass import KernelPass, run_kernel_passes
from ..core.machine import Machine
from ..core.passes import CompileContext, PassReport, run_passes
from ..passes.pipeline import IN_PLACE, TO_CODE, TO_VM
from ..passes.tir.buffers import with_stack_buffers
from ..passes.tir.kernel_passes import CODE, is_lowered, lower_to_loops
from ..passes.tir.shares import note_reports, on_all_cores


def build(mod: IRModule, ctx: CompileContext) -> VMExecutable:
    """Lower a module to the VM, and compile its kernels; nothing is linked, so it can run in this process.

    Args:
        mod: `main` calls scheduled kernels, or those of placed programs.
        ctx: of the compile: the machine, what errors say of kernels, what is off and who watches.

    Raises:
        BuildError: names the kernel that cannot be compiled, with its nodes.
        PassError: a pass to the VM failed.
    """
    return _link(mod, ctx, _compiled(mod, ctx, lambda part, _: part))


@contextmanager
def build_objects(mod: IRModule, ctx: CompileContext) -> Iterator[VMExecutable]:
    """Like :func:`build`, with machine code already written to object files: for an executable that is only exported.

    The object files exist while the context is open.
    """
    with tempfile.TemporaryDirectory(prefix="tvm-ext-") as folder:

        def emit(part: Any, index: int) -> Any:
            path = str(Path(folder, f"kernels{index}.o"))
            part.write_to_file(path)
            return tvm.runtime.load_static_library(path, func_names=[])

        yield _link(mod, ctx, _compiled(mod, ctx, emit))


def _compiled(mod: IRModule, ctx: CompileContext, finish: Callable[[Any, int], Any]) -> list[Any]:
    """The kernels as runtime modules."""
    passes = tuple(step for step in CODE if step.name not in ctx.switches.passes)
    if ctx.instruments.watch is not None and all(map(is_lowered, kernels_of(mod).values())):
        mod, passes = TO_CODE.run(mod, ctx), ()  # pass by pass, for whoever watches
    told: list[list[PassReport]] = []

    def compile_share(share: Mapping[str, tirx.PrimFunc], scheduled: bool, index: int) -> Any:
        code, reports = _machine_code(share, ctx.machine, scheduled, passes)
        told.append(reports)
        return finish(code, index)

    libraries = on_all_cores(mod, compile_share, ctx.kernels)
    note_reports(ctx, told)
    return libraries


def compile_kernels(kernels: Mapping[str, tirx.PrimFunc], machine: Machine, *, scheduled: bool = True) -> Any:
    """Kernels as one runtime module, by name; the code a model has, and a tuner measures.

    Args:
        kernels: name -> function.
        machine: whose target they are compiled for.
        scheduled: whether they were scheduled for it; see :meth:`.machine.Machine.target`.
    """
    return _machine_code(kernels, machine, scheduled)[0]


def _machine_code(
    kernels: Mapping[str, tirx.PrimFunc], machine: Machine, scheduled: bool, passes: Iterable[KernelPass] = CODE
) -> tuple[Any, list[PassReport]]:
    """Kernels as one runtime module, and what the passes of the second half of the lowering did."""
    target = machine.target(scheduled=scheduled)
    fresh = {name: kernel for name, kernel in kernels.items() if not is_lowered(kernel)}
    loops = {name: with_stack_buffers(kernel) for name, kernel in lower_to_loops(fresh, target).items()}
    lowered, reports = run_kernel_passes(passes, IRModule({**kernels, **loops}), target)
    return tvm.get_global_func("target.build.llvm")(lowered, target), reports


def _link(mod: IRModule, ctx: CompileContext, libraries: list[Any]) -> VMExecutable:
    """The VM executable of the Relax functions, over kernels that are compiled already."""
    target, kernels = ctx.machine.target(), kernels_of(mod)
    with target, naming(BuildError, lambda: "the program over its kernels cannot be made"):
        placed = any(is_lowered(kernel) for kernel in kernels.values())
        lowered = TO_VM.run(mod if placed else run_passes(IN_PLACE, mod, ctx, owners=False), ctx)
        rest = {g: f for g, f in lowered.functions_items() if g.name_hint not in kernels}
        builder = relax.ExecBuilder()
        tvm.get_global_func("relax.VMCodeGen")(builder, IRModule(rest, attrs=lowered.attrs))
        first, *others = libraries if libraries and libraries[0].kind == "llvm" else (_nothing(ctx.machine), *libraries)
        return relax.VMExecutable(tvm.get_global_func("relax.VMLink")(builder, target, first, others, {}))


def _nothing(machine: Machine) -> Any:
    """A runtime module that does nothing. Where there is none of LLVM, TVM puts an empty C source in its place: running
    it takes a compiler."""
    kernel = tirx.PrimFunc([], tirx.Evaluate(0)).with_attr("global_symbol", "tvm_ext_nothing")
    return compile_kernels({"tvm_ext_nothing": kernel}, machine)


def has_parallel_loops(mod: IRModule) -> bool:
    """Whether any kernel runs on the thread pool."""
    loops = (loop for kernel in kernels_of(mod).values() for loop in nodes_of(kernel.body, tirx.For))
    return any(int(loop.kind) == int(tirx.ForKind.PARALLEL) for loop in loops)

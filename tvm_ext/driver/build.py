"""Build: the lowered module becomes a Relax VM executable, its kernels compiled by LLVM on all cores."""

from __future__ import annotations

import concurrent.futures
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import GlobalVar, IRModule

from ..core.group import RECIPE
from ..core.machine import Machine, available_cores
from ..runtime.arrays import ARGUMENT_ALIGNMENT

if TYPE_CHECKING:
    from tvm.relax import VMExecutable


#: Kernels do not check shapes and dtypes of their arguments: the runtime checks a model's inputs, and the VM passes
#: kernels what was planned for them. The checks are half of a kernel's machine code and a fifth of its compile time.
_CONFIG = {"tirx.disable_assert": True}


def build(mod: IRModule, machine: Machine) -> VMExecutable:
    """Plan memory, lower to the VM, and compile the kernels; nothing is linked, so it can run in this process.

    Args:
        mod: what the pipeline made: `main` calls scheduled kernels.
        machine: whose target the kernels are compiled for.
    """
    return _link(mod, machine, _compiled(mod, machine, lambda part, _: part))


@contextmanager
def build_objects(mod: IRModule, machine: Machine) -> Iterator[VMExecutable]:
    """Like :func:`build`, with machine code already written to object files: for an executable that is only exported.

    The object files exist while the context is open.
    """
    with tempfile.TemporaryDirectory(prefix="tvm-ext-") as folder:

        def emit(part: Any, index: int) -> Any:
            path = str(Path(folder, f"kernels{index}.o"))
            part.write_to_file(path)
            return tvm.runtime.load_static_library(path, func_names=[])

        yield _link(mod, machine, _compiled(mod, machine, emit))


def _compiled(mod: IRModule, machine: Machine, finish: Callable[[Any, int], Any]) -> list[Any]:
    """The kernels as runtime modules, a share of them on each core: LLVM works without Python's lock."""
    kernels = {g.name_hint: f for g, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)}
    shares = [*_shares(kernels, scheduled=True), *_shares(kernels, scheduled=False)]

    def compile_share(index: int) -> Any:
        share, scheduled = shares[index]
        return finish(compile_kernels(share, machine, scheduled=scheduled), index)

    with concurrent.futures.ThreadPoolExecutor(available_cores()) as pool:
        return list(pool.map(compile_share, range(len(shares))))


def _shares(kernels: Mapping[str, tirx.PrimFunc], *, scheduled: bool) -> list[tuple[dict[str, tirx.PrimFunc], bool]]:
    """The kernels that recipes scheduled, or the others, in one part a core."""
    chosen = [(name, f) for name, f in kernels.items() if bool(f.attrs and RECIPE in f.attrs) == scheduled]
    workers = min(available_cores(), len(chosen))
    return [(dict(chosen[index::workers]), scheduled) for index in range(workers)]


def compile_kernels(kernels: Mapping[str, tirx.PrimFunc], machine: Machine, *, scheduled: bool = True) -> Any:
    """Kernels as one runtime module, by name; the code a model has, and a tuner measures.

    Args:
        kernels: name -> function.
        machine: whose target they are compiled for.
        scheduled: whether they were scheduled for it; see :meth:`.machine.Machine.target`.
    """
    named = {name: _any_address(kernel).with_attr("global_symbol", name) for name, kernel in kernels.items()}
    with tvm.transform.PassContext(opt_level=3, config=_CONFIG):
        # a loop that was cut in parts has each `let` of its body several times, which TVM's simplifier does not take
        module = tirx.transform.ConvertSSA()(IRModule(named))
        return tirx.build(module, target=machine.target(scheduled=scheduled))


def _any_address(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel for arguments that start where numpy's memory starts, and not at a multiple of 64 bytes.

    Inputs are read in place, by unaligned instructions, which cost nothing where the address is aligned.
    """
    new = {
        var: tirx.decl_buffer(
            var.ty.shape, var.ty.dtype, var.name, strides=list(var.ty.strides), elem_offset=var.ty.elem_offset,
            data_alignment=ARGUMENT_ALIGNMENT, offset_factor=var.ty.offset_factor, layout=var.ty.layout,
        )
        for var in kernel.params
        if hasattr(var.ty, "data_alignment")
    }  # fmt: skip
    body = tvm_ffi.structural_map(kernel.body, (tvm.ir.Var, lambda var: new.get(var, var)))
    return tirx.PrimFunc([new.get(v, v) for v in kernel.params], body, kernel.ret_type, kernel.attrs)


def _link(mod: IRModule, machine: Machine, libraries: list[Any]) -> VMExecutable:
    """The VM executable of the Relax functions, over kernels that are compiled already."""
    target = machine.target()
    with target:
        lowered = _to_vm()(mod)
        rest: dict[GlobalVar, Any] = {
            g: f for g, f in lowered.functions_items() if g.name_hint not in _kernel_names(mod)
        }
        rest[GlobalVar(_NOTHING)] = _nothing()
        attrs = {**dict(lowered.attrs or {}), "external_mods": libraries}
        return relax.build(IRModule(rest, attrs=attrs), target=target, relax_pipeline=None)


_NOTHING = "tvm_ext_nothing"


def _nothing() -> tirx.PrimFunc:
    """A kernel that does nothing. Without any, TVM puts an empty C source in its place: running it takes a compiler."""
    return tirx.PrimFunc([], tirx.Evaluate(0)).with_attr("global_symbol", _NOTHING)


def _kernel_names(mod: IRModule) -> set[str]:
    return {g.name_hint for g, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)}


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

"""Programs of offloaded regions as one text that may be edited, and the module with programs that were.

==== region npu_region_0 of npu ====
LOAD ...
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar, IRModule

from ...byoc.registry import backend_named
from ...core.errors import OptionError, ProgramError, StageError
from ...core.graph.offload_plan import OffloadedRegion
from ...core.graph.relax_graph import Rewriter, array_of, op_name
from ...core.passes import CompileContext
from ...runtime import control_flow
from .file import StageFile

_TITLE = re.compile(r"^==== region (?P<region>\S+) of \S+ ====\n", re.MULTILINE)
#: How an assembler says which of its lines is wrong.
_LINE = re.compile(r"^line (\d+)\b:? ?")


def programs_text(regions: Iterable[OffloadedRegion]) -> str:
    """The programs of all regions, as their back ends write them.

    Raises:
        OptionError: a back end has no disassembler.
    """
    parts = [f"==== region {region.name} of {region.backend} ====\n{program_text(region)}" for region in regions]
    return "\n".join(parts)


def program_text(region: OffloadedRegion) -> str:
    """The program of a region.

    Raises:
        OptionError: its back end has no disassembler.
    """
    if region.backend == control_flow.NAME:
        return program_bytes(region).decode()
    disassemble = backend_named(region.backend).disassemble
    if disassemble is None:
        wrong = f"back end {region.backend!r} has no disassembler"
        raise OptionError(wrong, fix="its author gives Backend(disassemble=...)")
    return disassemble(program_bytes(region))


def program_bytes(region: OffloadedRegion) -> bytes:
    """The program of a region, as its driver gets it."""
    return bytes(array_of(region.program).tobytes())


def base_of(file: StageFile) -> Path:
    """The stage file that a text of programs belongs to."""
    return file.path.with_name(file.manifest.base)


def with_programs(mod: IRModule, ctx: CompileContext, file: StageFile) -> IRModule:
    """The scheduled module with the programs of a text; a program whose text is as it was keeps its bytes.

    Args:
        mod: its constants are those of the regions in `ctx.offload`.
        ctx: its regions and kernels are changed.
        file: the text.

    Raises:
        StageError: a region is unknown, or a program is none; names file and line.
    """
    regions = {item.name: item for item in ctx.offload.regions} if ctx.offload else {}
    changed = _changed(file, regions)

    def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
        call = binding.value
        called = [name for name in changed if op_name(call) == "relax.call_tir" and _calls(call, regions[name])]
        if not called:
            return None
        region, program = regions[called[0]], changed[called[0]]
        kernel: GlobalVar = call.args[0]
        if len(program) != int(mod[kernel].params[0].ty.shape[0]):
            resized = _resized(mod[kernel], len(program))
            kernel = rw.add_function(resized, f"{kernel.name_hint}_of_{len(program)}_bytes")
            ctx.kernels.setdefault(kernel.name_hint, replace(ctx.kernels[region.kernel], name=kernel.name_hint))
        region.program, region.kernel = relax.const(np.frombuffer(program, np.uint8)), kernel.name_hint
        rw.fire(f"its program is that of {file.path.name}", region.name)
        arguments = relax.Tuple([region.program, *call.args[1].fields[1:]])
        return Call(call.op, [kernel, arguments, *call.args[2:]], call.attrs, call.ty_args)

    if not changed:
        return mod
    return relax.transform.DeadCodeElimination()(Rewriter(mod, ctx).rewrite(visit).mod)


def _calls(call: Call, region: OffloadedRegion) -> bool:
    fields = call.args[1].fields
    return bool(len(fields)) and fields[0].same_as(region.program)


def _changed(file: StageFile, regions: Mapping[str, OffloadedRegion]) -> dict[str, bytes]:
    """The regions whose text is another than that of their program, and the program it says."""
    marks = list(_TITLE.finditer(file.text))
    ends = [*(mark.start() for mark in marks[1:]), len(file.text)]
    changed = {}
    for mark, end in zip(marks, ends, strict=True):
        line, text = file.text.count("\n", 0, mark.end()), file.text[mark.end() : end]
        if mark["region"] not in regions:
            wrong = f"{file.path}:{line}: there is no region {mark['region']!r}"
            raise StageError(wrong, fix=f"regions: {', '.join(regions)}")
        region = regions[mark["region"]]
        if text.rstrip() != program_text(region).rstrip():
            changed[region.name] = _assembled(region, text, file, line)
    return changed


def _assembled(region: OffloadedRegion, text: str, file: StageFile, line: int) -> bytes:
    """The bytes of an edited program, which its driver takes.

    Raises:
        StageError: it is none, or its back end has no assembler.
    """
    backend = None if region.backend == control_flow.NAME else backend_named(region.backend)
    if backend is None or backend.assemble is None:
        wrong = f"{file.path}:{line}: back end {region.backend!r} has no assembler for what was changed"
        raise StageError(wrong, fix="its author gives Backend(assemble=...)")
    try:
        program = backend.assemble(text, program_bytes(region))
        backend.driver(program)
    except ProgramError as error:
        match = _LINE.match(error.message)
        at, what = (line + int(match[1]), error.message[match.end() :]) if match else (line, error.message)
        raise StageError(f"{file.path}:{at}: region {region.name}: {what}", fix=error.fix) from error
    return program


def _resized(kernel: tirx.PrimFunc, length: int) -> tirx.PrimFunc:
    """The kernel of a region, for a program of so many bytes."""
    old = kernel.params[0]
    new = tirx.decl_buffer([length], "uint8", old.name)
    body = tvm_ffi.structural_map(kernel.body, (tvm.ir.Var, lambda var: new if var.same_as(old) else var))
    return tirx.PrimFunc([new, *kernel.params[1:]], body, kernel.ret_type, kernel.attrs)

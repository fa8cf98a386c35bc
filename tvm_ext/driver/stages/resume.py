"""Goes on from a stage file: what is left of the pipeline runs on the module that the file makes, edited or not."""

import functools
import operator
import os
import re
from dataclasses import replace
from typing import Any

import onnx
from tvm import relax
from tvm.ir import IRModule

from ...core.errors import OptionError, PassError, StageError, TvmExtError
from ...core.graph.ownership import Role
from ...core.graph.relax_graph import dtype_of, shape_of
from ...core.machine import Machine
from ...core.passes import CompileContext
from ...core.settings.states import state_pairs
from ...frontend.importer import Imported
from ...frontend.reading.narrow import computed, stored
from ...frontend.reading.reader import Source
from ...passes.pipeline import LOWER, Pipeline
from ...runtime.model import CompiledModel
from ..assemble import assemble
from ..compile import in_memory
from ..lower import SCHEDULED, Clock, Lowered, Programs
from .catalog import Stage, stage_named
from .file import StageFile, read_stage
from .kernels import attach_plans
from .programs import base_of, with_programs
from .state import context_of, options_of


def resume(path: str | os.PathLike[str]) -> CompiledModel:
    """Compile on from a stage that `dump` or `write` of :func:`tvm_ext.inspect` wrote, edited or not.

    A stage file is Python, and reading it runs it: go on only from files of your own, as with any program.

    Args:
        path: of a stage's text: "relax", "grouped", "layout", "scheduled" or "program". Its manifest (.json) and its
            tensors (.npz), which are read without pickle, lie beside it. Options are those of the first compile.

    Returns:
        A program, as of :func:`tvm_ext.compile`; of a file that was not edited, its outputs are the same bit by bit.

    Raises:
        StageError: the file, its tensors or its manifest is missing or damaged, is of other versions or of a machine
            that this one cannot stand for, or says what does not hold (names file and line).
    """
    lowered = lower_from(path)
    return in_memory(assemble(Programs(lowered.imported.inputs, lowered.imported.outputs, (lowered,))))


def lower_from(path: str | os.PathLike[str]) -> Lowered:
    """The model of a stage file after all passes.

    Args:
        path: the file; reading it runs it. Its tensors (NAME.npz) and its manifest (NAME.json) lie beside it.

    Raises:
        StageError: the file is damaged, or says what does not hold; names file and line.
    """
    clock = Clock()
    file = read_stage(path)
    base = read_stage(base_of(file)) if file.manifest.base else file
    ctx, stage = _context(base), stage_named(base.manifest.stage)
    clock.lap("read")
    assert base.mod is not None
    _check_main(base)
    attach_plans(base, ctx, scheduled=stage.name == "scheduled")
    ctx.ownership.see(stage.after, base.mod, ctx.provenance, role=_role(stage))
    mod = with_programs(base.mod, ctx, file) if file is not base else base.mod
    after = _go_on(stage, mod, ctx, base)
    clock.lap("passes")
    source, imported = _source(base), _imported(base, file, ctx)
    ctx.states = state_pairs(ctx.options.state, imported.inputs, imported.outputs, source.name)
    return Lowered(source, imported, after, ctx, clock)


def _role(stage: Stage) -> Role:
    """What the work of nodes is in the module of a stage."""
    count = next((number for number, step in enumerate(LOWER, start=1) if step.stage == stage.name), 0)
    return functools.reduce(operator.or_, (step.role for step in LOWER[:count]), Role.NONE)


def _context(base: StageFile) -> CompileContext:
    """What the compile had decided when the file was written.

    Raises:
        StageError: the manifest does not have it.
    """
    manifest = base.manifest
    try:
        machine = Machine.of(manifest.machine)
        options = options_of(manifest.options)
        return context_of(manifest.context, options, machine, lambda name: getattr(base.weights, name))
    except OptionError as error:
        fix = error.fix or "dump the stages again"
        raise StageError(f"{base.path.with_suffix('.json')}: {error.message}", fix=fix) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        wrong = f"{base.path.with_suffix('.json')}: damaged: {type(error).__name__}: {error}"
        raise StageError(wrong, fix="dump the stages again") from error


def _go_on(stage: Stage, mod: IRModule, ctx: CompileContext, base: StageFile) -> IRModule:
    """The module after the passes behind a stage.

    Raises:
        StageError: a pass failed, on what the file says.
    """
    options = ctx.options if stage.name == "relax" else replace(ctx.options, offload=None, offload_options=())
    passes = Pipeline.of(options).before(SCHEDULED).after(stage.after)
    try:
        return passes.run(mod, ctx)
    except PassError as error:
        named = re.search(r"kernel '(\w+)'", error.message)
        raise base.error(named[1] if named else "main", error.message, error.fix) from error
    except TvmExtError as error:
        raise base.error("main", error.message, error.fix) from error


def _check_main(base: StageFile) -> None:
    """Whether `main` takes and gives what the model does.

    Raises:
        StageError: it is missing, or does not.
    """
    assert base.mod is not None
    if "main" not in {gvar.name_hint for gvar in base.mod.get_global_vars()}:
        raise StageError(f"{base.path}:1: there is no function 'main'", fix="keep its name")
    main = base.mod["main"]
    inputs = [f"{stored(spec.dtype)}{list(spec.shape)}" for spec in base.manifest.inputs]
    if (taken := [_text(param.ty) for param in main.params]) != inputs:
        raise base.error("main", f"main takes {', '.join(taken)}; the model's inputs are {', '.join(inputs)}")
    results = list(main.ret_ty.fields) if hasattr(main.ret_ty, "fields") else [main.ret_ty]
    outputs = [f"{computed(spec.dtype)}{list(spec.shape)}" for spec in base.manifest.outputs]
    if (returned := [_text(result) for result in results]) != outputs:
        raise base.error("main", f"main returns {', '.join(returned)}; the model's outputs are {', '.join(outputs)}")


def _text(ty: Any) -> str:
    value = relax.Var("value", ty)
    return f"{dtype_of(value)}{list(shape_of(value) or ())}"


def _source(base: StageFile) -> Source:
    """Stands for the model, which is not read again."""
    manifest = base.manifest
    model = manifest.model["name"], manifest.model["sha256"]
    return Source(onnx.ModelProto(), *model, None, arguments=manifest.arguments)


def _imported(base: StageFile, file: StageFile, ctx: CompileContext) -> Imported:
    manifest = base.manifest
    edited = [f"made from {other.path.name}, which was changed" for other in (file, base) if other.edited]
    warnings = (*manifest.warnings, *dict.fromkeys(edited))
    assert base.mod is not None
    types = ctx.ownership.types
    imported = Imported(base.mod, manifest.inputs, manifest.outputs, ctx.provenance, warnings, types, {})
    return replace(imported, results=manifest.results)

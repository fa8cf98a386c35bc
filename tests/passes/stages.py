"""ONNX models taken through the pipeline up to a pass, and what `main` then calls."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar, IRModule

import tvm_ext
from tvm_ext.core.graph.relax_graph import bindings_of, main_bindings, op_name
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.passes import CompileContext, Pass, PassReport
from tvm_ext.frontend.importer import import_model
from tvm_ext.frontend.reading.reader import read_model
from tvm_ext.passes.pipeline import pipeline
from tvm_ext.runtime.model import CompiledModel


class Stage(NamedTuple):
    """A module after some pass, and what is known by then."""

    mod: IRModule
    ctx: CompileContext

    @property
    def report(self) -> PassReport:
        """Of the last pass."""
        return self.ctx.reports[-1]

    @property
    def fired(self) -> dict[str, str]:
        """Value -> what the last pass did."""
        return {e.value: e.detail for e in self.report.fired}

    @property
    def skipped(self) -> dict[str, str]:
        """Value -> why the last pass left it alone."""
        return {e.value: e.detail for e in self.report.skipped}

    @property
    def calls(self) -> list[str]:
        """What `main` calls, in order: a group or kernel by its name, an operator by its own."""
        return [name for b in main_bindings(self.mod) if (name := _called(b.value))]

    @property
    def groups(self) -> list[str]:
        """The operators of each group that `main` calls, in order: "conv2d add relu"."""
        called = [b.value.op for b in main_bindings(self.mod) if _is_group_call(b.value, self.mod)]
        return [" ".join(_short(op_name(b.value)) for b in bindings_of(self.mod[g])) for g in called]

    @property
    def recipes(self) -> list[str]:
        """The recipe of each kernel that `main` calls, in order."""
        return [self.ctx.kernels[name].recipe for name in self.calls if name in self.ctx.kernels]


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _is_group_call(value: Any, mod: IRModule) -> bool:
    return isinstance(value, Call) and isinstance(value.op, GlobalVar) and isinstance(mod[value.op], relax.Function)


def _called(value: Any) -> str:
    if not isinstance(value, Call):
        return ""
    if op_name(value) == "relax.call_tir":
        return str(value.args[0].name_hint)
    return str(value.op.name_hint) if isinstance(value.op, GlobalVar) else _short(op_name(value))


def stage(model: onnx.ModelProto, last: type[Pass], threads: int = 2, **options: Any) -> Stage:
    """The model after the last pass of this type in the pipeline."""
    chosen = CompileOptions(threads=threads, **options)
    imported = import_model(read_model(model), chosen)
    ctx = CompileContext(Machine.detect(chosen.target, threads), chosen, imported.provenance)
    mod, passes = imported.mod, pipeline().before("states").passes
    for step in passes[: max(i for i, p in enumerate(passes) if isinstance(p, last)) + 1]:
        mod = step(mod, ctx).mod
    return Stage(mod, ctx)


def primfuncs(mod: IRModule) -> dict[str, tirx.PrimFunc]:
    """The kernels of a module by name."""
    return {g.name_hint: f for g, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)}


def agrees(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray] | None = None, **options: Any) -> CompiledModel:
    """Compile, and assert that every output is onnxruntime's."""
    compiled = tvm_ext.compile(model, cache=False, **{"threads": 2, **options})
    report = tvm_ext.verify(compiled, model, inputs)
    assert report.ok, str(report)
    return compiled

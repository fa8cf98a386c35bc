"""The text of each stage: a Python file with TVMScript, or what the compiler's parts print of themselves."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.printer
from tvm.ir import GlobalVar, IRModule

from ..core.errors import OptionError
from ..core.graph.nodes import kernels_of
from ..core.options import CompileOptions
from ..driver.lower import Lowered
from ..driver.machine_code import machine_code
from ..driver.stages.catalog import Stage, stage_named
from ..driver.stages.file import GROUPS, MODULE
from ..driver.stages.programs import programs_text
from ..frontend.checks.checker import check_model
from ..frontend.reading.freezing import frozen_source
from ..frontend.reading.reader import Source
from ..frontend.reading.shapes import type_name
from .constants import FileNaming, Tensors
from .script import canonical, script
from .snapshots import Snapshots

_HEAD = """\
# {what}
# Change it, and go on from it: tvm-ext compile --from FILE. Reading this file runs it, so go on from your own only.
from __future__ import annotations

from typing import TypeVar

from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm.tirx.layout import Axis
"""
_TENSORS = """
from tvm_ext.driver.stages.constants import constants

{name} = constants(__file__)  # the tensors beside this file
"""
_CLASS = re.compile(r"^@I\.ir_module\nclass Module:", re.MULTILINE)
#: At this stage kernels write what their schedule gives another shape: types fit when they are scheduled.
_LOOSE = "layout"


@dataclass(frozen=True)
class StageText:
    """A Python file of a stage.

    Attributes:
        text: of the file.
        mod: what it makes when it is read.
        tensors: names of those it reads.
    """

    text: str
    mod: IRModule
    tensors: tuple[str, ...]


def python_text(
    stage: Stage, model: str, mod: IRModule, tensors: Tensors, groups: Mapping[str, Any] | None = None
) -> StageText:
    """The file of a stage that is a module.

    Args:
        stage: which.
        model: its name.
        mod: the module.
        tensors: its tensors are added to these.
        groups: functions that its kernels were made of, for a class of their own.
    """
    written, naming = canonical(mod), FileNaming(tensors)
    loose = "(check_well_formed=False)" if stage.name == _LOOSE else ""
    body = _CLASS.sub(f"@I.ir_module{loose}\nclass {MODULE}:", script(written, naming))
    if groups and stage.resumes:
        body = f"{_groups_text(groups, naming)}\n\n{body}"
    head = _HEAD.format(what=f"Stage {stage.name!r} of {model}: {stage.summary}.")
    if naming.used:
        name = next(n for n in ("W", "weights", "tensors_") if not re.search(rf"\b{n}\b", body))
        body = re.sub(rf"\b{naming.place}\b", name, body)
        head += _TENSORS.format(name=name)
    return StageText(f"{head}\n\n{body.rstrip()}\n", written, tuple(naming.used))


def _groups_text(groups: Mapping[str, Any], naming: FileNaming) -> str:
    """The groups as a class: recipes read them to schedule their kernels."""
    body = script(IRModule({GlobalVar(name): function for name, function in groups.items()}), naming)
    return _CLASS.sub(
        f"@I.ir_module\nclass {GROUPS}:  # what the kernels compute; no part of the module", body
    ).rstrip()


def kernels_module(snapshots: Snapshots) -> IRModule:
    """The module of all kernels before they are scheduled: those of recipes, and those of TVM's own lowering."""
    layout, rest = snapshots.of(stage_named("layout").after), snapshots.of(stage_named("tir").after)
    assert layout is not None and rest is not None
    first = kernels_of(layout.mod)
    return IRModule({GlobalVar(name): kernel for name, kernel in {**first, **kernels_of(rest.mod), **first}.items()})


def other_text(stage: Stage, lowered: Lowered) -> str:
    """The text of a stage that is no module.

    Raises:
        OptionError: programs are asked for, and nothing is offloaded.
    """
    if stage.name == "onnx":
        return onnx_text(lowered.source, lowered.ctx.options)
    if stage.name == "program":
        plan = lowered.ctx.offload
        if plan is None or not plan.regions:
            fix = "--offload-report says why; with --offload-option when=always a back end gets all it takes"
            raise OptionError(f"stage 'program': no part of {lowered.source.name!r} is offloaded", fix=fix)
        return programs_text(plan.regions)
    comment = ";" if stage.name == "llvm" else "#"
    kernels = machine_code(lowered, stage.name)
    return "\n".join(f"{comment} kernel {name}\n{text}" for name, text in kernels.items())


# ------------------------------------------------------------ the ONNX model as text
#: Elements of a tensor that is written out.
SHOWN_ELEMENTS = 16


def onnx_text(source: Source, options: CompileOptions) -> str:
    """The model in ONNX's own text syntax, after lines about the tensors whose values are left out.

    Raises:
        ModelError, OptionError, UnsupportedError: as the import says them.
    """
    converted = options.fallback == "error"  # else some nodes may be none that can be
    checked = check_model(frozen_source(source, options.freeze), dict(options.shapes), operators=converted)
    model = type(source.proto)()
    model.ir_version, model.producer_name = source.proto.ir_version, source.proto.producer_name
    for domain, version in checked.opsets.items():
        model.opset_import.add(domain=domain, version=version)
    _fill(model.graph, checked.graph)
    left_out = []
    for node in checked.nodes:
        if (elements := _large(node)) is None:
            model.graph.node.add().CopyFrom(node)
        else:
            left_out.append(f"{elements} {node.output[0]}, by {node.op_type}")
    for tensor in checked.graph.initializer:
        if np.prod(tensor.dims, dtype=np.int64) <= SHOWN_ELEMENTS:
            model.graph.initializer.add().CopyFrom(tensor)
        else:
            left_out.append(f"{_type_text(tensor)} {tensor.name}")
    head = (
        [f"# {source.name}: tensors without their values:", *(f"#   {line}" for line in left_out)] if left_out else []
    )
    return "\n".join([*head, onnx.printer.to_text(model)]).rstrip() + "\n"


def _fill(graph: onnx.GraphProto, source: onnx.GraphProto) -> None:
    graph.name = source.name or "graph"
    weights = {tensor.name for tensor in source.initializer}
    graph.input.extend(value for value in source.input if value.name not in weights)
    graph.output.extend(source.output)


def _large(node: onnx.NodeProto) -> str | None:
    """Type and shape of a constant that is too large to write out; None for any other node."""
    if node.op_type != "Constant":
        return None
    tensors = [attribute.t for attribute in node.attribute if attribute.name == "value"]
    large = [tensor for tensor in tensors if np.prod(tensor.dims, dtype=np.int64) > SHOWN_ELEMENTS]
    return _type_text(large[0]) if large else None


def _type_text(tensor: onnx.TensorProto) -> str:
    return f"{type_name(tensor.data_type).lower()}{list(tensor.dims)}"

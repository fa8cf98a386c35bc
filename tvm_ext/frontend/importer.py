"""Imports an ONNX model to Relax: checked, shapes bound, with the ONNX nodes behind every variable."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx
from tvm.ir import IRModule

from ..core.errors import UnsupportedError, naming
from ..core.graph.offload_plan import OffloadedRegion, OffloadPlan
from ..core.graph.ownership import OFFLOAD, Ownership
from ..core.graph.provenance import Provenance
from ..core.graph.relax_graph import dtype_of, shape_of
from ..core.numbers.storage import Growth
from ..core.options import CompileOptions
from ..core.passes import CompileContext
from ..core.plan import Kernel
from ..runtime.spec import TensorSpec
from ..runtime.table import few
from ..runtime.values import Value
from .checks.checker import Checked, check_model
from .checks.inference import check_shapes, dims_known, types_of_outputs
from .checks.refusal import UNFIT
from .fallback.node import operators_of
from .graph_importer import GraphImporter
from .known_values import value_of
from .naming import node_label, node_labels
from .reading.freezing import frozen_source
from .reading.narrow import NARROW
from .reading.reader import Source
from .reading.shapes import agree, dims_of, text_of, type_name
from .relax_names import named_module
from .trace import Trace, folded_nodes
from .types import type_of


@dataclass(frozen=True)
class Imported:
    """A model in Relax.

    Attributes:
        mod: the module; `main` takes the inputs and returns the output, or a tuple of them, in graph order. Weights
            are constants of it.
        inputs, outputs: ONNX names, static shapes and dtypes, in graph order; behind the outputs their counts.
        results: outputs as callers have them, where some are sequences or optionals; else none.
        provenance: Relax variable name -> ONNX nodes.
        warnings: what is odd but allowed, such as NaN among the weights.
        types: ONNX node -> operator, of all nodes of the graph.
        folded: ONNX node that is no work any more -> why.
        regions: of nodes that no converter takes and a back end runs, and of control flow; the module calls their
            kernels.
        bodies: of loops, by name.
    """

    mod: IRModule
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    provenance: Provenance
    warnings: tuple[str, ...]
    types: Mapping[str, str]
    folded: Mapping[str, str]
    regions: tuple[OffloadedRegion, ...] = ()
    bodies: Mapping[str, Imported] = field(default_factory=dict)
    results: tuple[Value, ...] = ()

    def enter(self, ctx: CompileContext) -> None:
        """Let the passes know who has the work of each node so far, and what the regions are."""
        ctx.ownership = Ownership(self.types, self.folded)
        ctx.ownership.see("import", self.mod, self.provenance)
        if self.regions:
            ctx.offload = OffloadPlan.of_regions(self.regions)
            ctx.kernels |= {r.kernel: Kernel(r.kernel, f"{OFFLOAD}{r.backend}") for r in self.regions}


def import_model(source: Source, options: CompileOptions, growth: Growth | None = None) -> Imported:
    """Convert a model with the converters of `tvm.relax.frontend.onnx`.

    Args:
        source: the model.
        options: `shapes` binds free dimensions of inputs, `freeze` fixes values of them, `fallback` says what becomes
            of nodes that cannot be converted.
        growth: decides which constants the program computes, of one that is made for several sizes.

    Raises:
        ModelError: the model is not valid, or dimensions stay free.
        OptionError: `shapes` or `freeze` contradicts the model.
        UnsupportedError: a node cannot be converted, or an output's shape is only known at run time; names the node.
    """
    source = frozen_source(source, options.freeze)
    try:
        return _import(source, options, growth)
    except UnsupportedError as error:
        if options.fallback == "error":
            raise
        from .fallback.search import with_regions

        return _import(with_regions(source, options, error), options, growth)


def _import(source: Source, options: CompileOptions, growth: Growth | None) -> Imported:
    with naming(UnsupportedError, lambda: f"{source.name}: its import failed"):
        checked = check_model(source, dict(options.shapes))
        importer = GraphImporter(checked, source.name, growth=growth)
        return imported(checked, importer.trace_graph(), source.name)


def import_body(proto: onnx.ModelProto, model: str, name: str) -> Imported:
    """Import one step of a loop, a model of static shapes.

    Args:
        model: the model's name, for messages.
        name: of the body.

    Raises:
        ModelError, UnsupportedError: see :func:`import_model`.
    """
    checked = check_model(Source(proto, model, "", None), {})
    body = imported(checked, GraphImporter(checked, model, f"{name}_").trace_graph(), model)
    if counted := [spec for spec in body.outputs if spec.count is not None]:
        wrong = f"{model}: output {counted[0].name!r} of a step of a loop has a size that values decide"
        raise UnsupportedError(wrong, fix="give it one size in all steps")
    return body


def imported(checked: Checked, trace: Trace, model: str) -> Imported:
    """The module that the import of a checked model left behind.

    Raises:
        UnsupportedError: a value has not the shape that ONNX says, or an output's is only known at run time.
    """
    check_shapes(checked.types, trace.values, trace.makers, model)
    outputs = []
    warnings = [*checked.warnings, *(_told(region) for region in trace.regions if "body" not in region.facts)]
    wrong_rank = functools.partial(_wrong_rank, checked.nodes, trace.values, checked.opset)
    for stated, var in zip(trace.returned, trace.outputs, strict=False):
        maker = f"output {stated.name!r} of node {trace.makers.get(stated.name, '')!r}"
        spec = replace(_output_spec(stated, var, maker, model), count=trace.counts.get(stated.name))
        outputs.append(spec)
        warnings += _difference(stated, spec, model, wrong_rank)
    outputs += [TensorSpec(size, (1,), "int64") for size in trace.sizes]
    mod, provenance = named_module(trace, [spec.name for spec in outputs])
    labelled = zip(checked.graph.node, node_labels(checked.graph.node), strict=True)
    types = {name: op for node, label in labelled for name, op in operators_of(node, label).items()}
    folded = folded_nodes(checked.graph.node, trace, provenance)
    tensors = checked.inputs, tuple(outputs)
    regions = tuple(trace.regions)
    warned = tuple(warnings)
    return Imported(mod, *tensors, provenance, warned, types, folded, regions, trace.bodies, trace.signature)


def _told(region: OffloadedRegion) -> str:
    """What a user should know of a region: its nodes cost what they cost elsewhere."""
    told = [f"{node!r} ({why})" for node, why in region.facts["reasons"].items()]
    return f"{region.name}: {region.backend} runs {few(told, 2)}"


def _output_spec(stated: onnx.ValueInfoProto, var: Any, maker: str, model: str) -> TensorSpec:
    shape, dtype = shape_of(var), dtype_of(var)
    if shape is None or not dtype:
        fix = "fix all input dimensions with shapes="
        raise UnsupportedError(f"{model}: {maker} has a shape that is only known at run time ({var.ty})", fix=fix)
    if dtype.startswith("float4"):
        fix = "cast it to a float of 8 bits or more in the model"
        raise UnsupportedError(f"{model}: {maker} has elements of type {dtype}", fix=fix)
    return TensorSpec(stated.name, shape, _narrow(stated) or dtype)


def _narrow(stated: onnx.ValueInfoProto) -> str:
    """The dtype of an output of less than 8 bits, which the program holds in bytes; "" of any other."""
    name = type_name(stated.type.tensor_type.elem_type).lower()
    return name if name in NARROW else ""


def _difference(stated: onnx.ValueInfoProto, spec: TensorSpec, model: str, wrong_rank: Callable[[], str]) -> list[str]:
    """A warning where the model states another shape: exporters often state that of an example run.

    Raises:
        UnsupportedError: the number of dimensions differs, and a node is known where it begins to.
    """
    dims, axis = dims_of(stated), None if spec.count is None else spec.count.axis
    if dims is None or agree([None if at == axis else dim for at, dim in enumerate(dims)], spec.shape):
        return []
    if len(dims) != len(spec.shape) and (culprit := wrong_rank()):
        wrong = f"{spec.shape}; the model states {text_of(dims)}: {culprit}"
        raise UnsupportedError(f"{model}: output {spec.name!r} gets shape {wrong}", fix=UNFIT)
    return [f"output {spec.name!r} has shape {spec.shape}; the model states {text_of(dims)}"]


def _wrong_rank(nodes: Sequence[onnx.NodeProto], values: Mapping[str, Any], opset: int) -> str:
    """The first node whose output has another number of dimensions than ONNX infers from the node's own operands.

    Args:
        nodes: of the graph, in order.
        values: name -> Relax expression, of every value of the graph.
        opset: version of the standard operators.

    Returns:
        A sentence; "" if there is no such node. Nodes that inference knows nothing of are passed over.
    """
    for node in nodes:
        for name, rank in _inferred_ranks(node, values, opset).items():
            shape = dims_known(type_of(values.get(name)))
            if shape is not None and len(shape) != rank:
                return f"node {node_label(node)!r} ({node.op_type}) makes {name!r} with shape {shape}, not {rank}-D"
    return ""


def _inferred_ranks(node: onnx.NodeProto, values: Mapping[str, Any], opset: int) -> dict[str, int]:
    """Output -> its number of dimensions, as far as ONNX infers it."""
    inputs = {name: values[name] for name in node.input if name in values}
    types = {name: type_of(value) for name, value in inputs.items()}
    known = {name: array for name, value in inputs.items() if (array := value_of(value)) is not None}
    inferred = types_of_outputs(node, {"": opset}, types, known)
    return {name: len(dims) for name, kind in inferred.items() if (dims := dims_known(kind)) is not None}

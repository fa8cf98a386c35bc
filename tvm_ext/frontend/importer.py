"""Imports an ONNX model to Relax: checked, shapes bound, with the ONNX nodes behind every variable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.errors import UnsupportedError
from ..core.options import CompileOptions
from ..core.provenance import Provenance
from ..runtime.spec import TensorSpec
from .checker import check_model
from .freezing import frozen_source
from .reader import Source
from .shapes import dims_of, text_of

if TYPE_CHECKING:
    import onnx
    from tvm.ir import IRModule


@dataclass(frozen=True)
class Imported:
    """A model in Relax.

    Attributes:
        mod: the module; `main` takes the inputs and returns the output, or a tuple of them, in graph order. Weights
            are constants of it.
        inputs, outputs: ONNX names, static shapes and dtypes, in graph order.
        provenance: Relax variable name -> ONNX nodes.
        warnings: what is odd but allowed, such as NaN among the weights.
    """

    mod: IRModule
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    provenance: Provenance
    warnings: tuple[str, ...]


def import_model(source: Source, options: CompileOptions) -> Imported:
    """Convert a model with the converters of `tvm.relax.frontend.onnx`.

    Args:
        source: the model.
        options: `shapes` binds free dimensions of inputs, `freeze` fixes values of them.

    Raises:
        ModelError: the model is not valid, or dimensions stay free.
        OptionError: `shapes` or `freeze` contradicts the model.
        UnsupportedError: a node cannot be converted, or an output's shape is only known at run time; names the node.
    """
    from .graph_importer import GraphImporter
    from .relax_names import named_module

    checked = check_model(frozen_source(source, options.freeze), dict(options.shapes))
    trace = GraphImporter(checked, source.name).convert()
    outputs = []
    warnings = list(checked.warnings)
    for stated, var in zip(checked.graph.output, trace.outputs, strict=True):
        maker = f"output {stated.name!r} of node {trace.makers.get(stated.name, '')!r}"
        outputs.append(_output_spec(stated, var, maker, source.name))
        warnings += _differences(stated, outputs[-1], maker, source.name)
    mod, provenance = named_module(trace, [spec.name for spec in outputs])
    return Imported(mod, checked.inputs, tuple(outputs), provenance, tuple(warnings))


def _output_spec(stated: onnx.ValueInfoProto, var: Any, maker: str, model: str) -> TensorSpec:
    from ..core.relax_graph import dtype_of, shape_of

    shape, dtype = shape_of(var), dtype_of(var)
    if shape is None or not dtype:
        raise UnsupportedError(
            f"{model}: {maker} has a shape that is only known at run time ({var.ty})",
            fix="fix all input dimensions with shapes=; outputs whose size depends on values cannot be compiled",
        )
    return TensorSpec(stated.name, shape, _narrow(stated) or dtype)


def _narrow(stated: onnx.ValueInfoProto) -> str:
    """The dtype of an output of less than 8 bits, which the program holds in bytes; "" of any other."""
    from .narrow import NARROW
    from .tensors import type_name

    name = type_name(stated.type.tensor_type.elem_type).lower()
    return name if name in NARROW else ""


def _differences(stated: onnx.ValueInfoProto, found: TensorSpec, maker: str, model: str) -> list[str]:
    """Exporters often state sizes of an example run; another number of dimensions is a converter's mistake."""
    dims = dims_of(stated)
    if dims is None:
        return []
    if len(dims) != len(found.shape):
        raise UnsupportedError(
            f"{model}: {maker} gets shape {found.shape} from its converter; the model states {text_of(dims)}",
            fix="TVM's converter is wrong here: leave this output out, or compute it with other operators",
        )
    if all(not isinstance(d, int) or d == size for d, size in zip(dims, found.shape, strict=True)):
        return []
    return [f"output {found.name!r} has shape {found.shape}; the model states {text_of(dims)}"]

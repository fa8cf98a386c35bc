"""Takes an import's markers out and names every variable after its ONNX node, each name once; keeps origins."""

from collections.abc import Iterable, Mapping, Sequence

import tvm_ffi
from tvm import relax
from tvm.ir import IRModule

from ..core.graph.provenance import Held, Provenance
from ..core.graph.relax_graph import dtype_of, uses_of, with_body, with_main
from ..core.numbers.precision import NARROW_FLOATS
from .converters import unread
from .naming import Names, identifier
from .trace import Trace


def named_module(trace: Trace, output_names: Iterable[str]) -> tuple[IRModule, Provenance]:
    """The module with clean names, and the ONNX nodes of each of its variables.

    Before:  lv = R.nn.conv2d(...); lv1 = 0; lv2 = R.nn.batch_norm(...); lv3 = lv2[0]; lv4 = 1; gv = (lv3,)
    After:   conv1 = R.nn.conv2d(...); bn1_1 = R.nn.batch_norm(...); bn1 = bn1_1[0]; and bn1 is returned

    An output's variable has the output's ONNX name, another variable that of its node (or of its value, where a node
    has several outputs), further variables of a node a number; characters that no identifier has become "_".
    """
    assert trace.mod is not None
    output_names = list(output_names)
    function = trace.mod["main"]
    origins = _origins(function, trace)
    for var in unread(trace.wide, uses_of(function)):
        origins.pop(var, None)
    names = _names(function.params, trace, output_names, origins)
    outputs = set(trace.outputs)
    fresh = {var: _renamed(var, name, var in outputs) for var, name in names.items()}
    result = trace.outputs[0] if len(trace.outputs) == 1 else relax.Tuple(trace.outputs)
    body = relax.SeqExpr(_blocks(function, origins), result)
    named = tvm_ffi.structural_map(with_body(function, body), (relax.Var, lambda var: fresh.get(var, var)))
    mod = relax.transform.Normalize()(with_main(trace.mod, named))  # gives the new body its type
    held = _held(trace, names, output_names, list(function.params))
    return mod, Provenance({names[var]: labels for var, labels in origins.items()}, held, _narrow(trace))


def _held(
    trace: Trace, names: Mapping[relax.Var, str], output_names: Sequence[str], params: Sequence[relax.Var]
) -> dict[str, list[Held]]:
    """Name of a variable -> the ONNX values that it is: of those whose size values decide it is more."""
    held: dict[str, list[Held]] = {}
    padded = {*trace.counts, *trace.sizes}
    pairs = zip(output_names, trace.outputs, strict=True)
    outputs = {name: var for name, var in pairs if name not in padded}
    own = set(params)
    inputs = [value for value, var in trace.values.items() if isinstance(var, relax.Var) and var in own]
    for value in dict.fromkeys([*inputs, *trace.makers, *outputs]):
        var = outputs.get(value, trace.values.get(value))
        for variable in (var, trace.wide.get(var) if isinstance(var, relax.Var) else None):
            if isinstance(variable, relax.Var) and variable in names:
                held.setdefault(names[variable], []).append(Held(value))
    return held


def _narrow(trace: Trace) -> dict[str, str]:
    """ONNX value -> dtype, of those that are narrow floats."""
    kinds = {name: dtype_of(var) for name, var in trace.values.items() if isinstance(var, relax.Var)}
    return {name: kind for name, kind in kinds.items() if kind in NARROW_FLOATS}


def _origins(function: relax.Function, trace: Trace) -> dict[relax.Var, list[str]]:
    """Labels of the nodes behind each variable; markers, and the stock gathering of outputs, are not in it."""
    origins: dict[relax.Var, list[str]] = {}
    segment: list[relax.Var] = []
    for block in function.body.blocks:
        for binding in block.bindings:
            if (labels := trace.segments.get(binding.var)) is None:
                segment.append(binding.var)
            else:
                origins.update({var: list(labels) for var in segment})
                segment = []
    for var, (_, labels) in trace.results.items():  # nodes that only passed a variable on
        origins[var] = list(labels)
    return origins


def _blocks(function: relax.Function, origins: Mapping[relax.Var, object]) -> list[relax.BindingBlock]:
    blocks = []
    for block in function.body.blocks:
        kept = [binding for binding in block.bindings if binding.var in origins]
        if kept:
            blocks.append(type(block)(kept))
    return blocks


def _names(
    params: Sequence[relax.Var], trace: Trace, output_names: list[str], origins: Mapping[relax.Var, list[str]]
) -> dict[relax.Var, str]:
    """Variable -> name; inputs and outputs choose first, then the values of ONNX nodes, then all between."""
    names = Names()
    chosen = {param: names.fresh(identifier(param.name)) for param in params}
    for var, name in zip(trace.outputs, output_names, strict=True):
        chosen.setdefault(var, names.fresh(identifier(name)))
    for var, (hint, _) in trace.results.items():
        if var not in chosen:
            chosen[var] = names.fresh(identifier(hint))
    for var, labels in origins.items():
        if var not in chosen:
            chosen[var] = names.fresh(identifier(labels[0] if labels else var.name))
    return chosen


def _renamed(var: relax.Var, name: str, output: bool) -> relax.Var:
    """What a dataflow block hands out must not be a dataflow variable."""
    kind = relax.DataflowVar if isinstance(var, relax.DataflowVar) and not output else relax.Var
    return kind(name, var.ty)

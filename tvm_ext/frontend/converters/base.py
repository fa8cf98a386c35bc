"""What converters share: their form, attributes, constants, kernels written in TE, and the stock converters."""

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
import tvm
from tvm import relax, te
from tvm.ir import GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from ...core.graph.relax_graph import dtype_of, shape_of
from ..checks.refusal import Refusal
from ..control_flow.subgraph import Graph

T = TypeVar("T")
Attributes = dict[str, Any]
Converter = Callable[[Any, Attributes, int], Any]
"""(inputs, attributes, opset) -> Relax expression, or a `relax.Tuple` of one expression an output.

Inputs are a list that gives None beyond its end; `attributes["tvm_custom"]` has more of the node, which
:func:`outputs_of` and :func:`graph_of` read.
"""
#: Domains beside the standard one, "": of onnxruntime, of its layouts for one processor, and of classical models, whose
#: converters are told its own version; others are told that of the standard domain.
MICROSOFT, NCHWC, ML = "com.microsoft", "com.microsoft.nchwc", "ai.onnx.ml"
#: Operator of the standard domain -> own converter; and domain beside it -> operator -> own converter.
CONVERTERS: dict[str, Converter] = {}
FOREIGN: dict[str, dict[str, Converter]] = {MICROSOFT: {}, NCHWC: {}, ML: {}}


def converts(operators: str, domain: str = "") -> Callable[[Converter], Converter]:
    """The decorator that makes a function the own converter of operators, which goes before TVM's.

    Args:
        operators: names, separated by blanks.
    """

    def register(convert: Converter) -> Converter:
        FOREIGN.get(domain, CONVERTERS).update(dict.fromkeys(operators.split(), convert))
        return convert

    return register


def outputs_of(attributes: Attributes) -> int:
    """How many outputs the node has, those left out in the middle included."""
    return int(attributes["tvm_custom"]["num_outputs"])


def graph_of(attributes: Attributes) -> Graph:
    """The graph that the node is converted into."""
    return attributes["tvm_custom"]["graph"]


def once(attributes: Attributes, numbers: Sequence[int], what: Hashable, make: Callable[[], T]) -> T:
    """What `make` returns of the node's operands of these numbers: the same object in all imports of a model at several
    sizes, where they are initializers.

    Args:
        what: all else that it depends on.
    """
    graph = graph_of(attributes)
    names = tuple(graph.node.input[number] for number in numbers if number < len(graph.node.input))
    known = graph.shared
    if known is None or any(name and graph.value(name) is not known.weights.get(name) for name in names):
        return make()
    key = (graph.node.op_type, names, what)
    if key not in known.derived:
        known.derived[key] = make()
    return known.derived[key]


def one_or_all(result: Any) -> Any:
    """What a converter made; the one output of a node as it is, not as a tuple of one."""
    return result.fields[0] if isinstance(result, relax.Tuple) and len(result.fields) == 1 else result


def text(attributes: Attributes, name: str, default: str) -> str:
    """A string attribute."""
    value = attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def static_shape(x: Any, what: str) -> tuple[int, ...]:
    """The shape of an input.

    Raises:
        Refusal: it is known at run time only.
    """
    shape = shape_of(x)
    if shape is None:
        raise Refusal(f"{what} has a shape that is known at run time only", unknown=x)
    return shape


def known(x: Any, what: str) -> np.ndarray:
    """The value of an input that decides a shape, or the program.

    Raises:
        Refusal: it is none that is known when the model is compiled.
    """
    if isinstance(x, relax.ShapeExpr) and all(isinstance(d, tvm.tirx.IntImm) for d in x.values):
        return np.array([int(d) for d in x.values], np.int64)
    if not isinstance(x, GenericConst):
        raise Refusal(f"its {what} must be known when it is compiled", unknown=x)
    return np.asarray(x.value.numpy())


def constant(value: Any, dtype: str = "") -> Any:
    """A constant of exactly this dtype; `relax.const` narrows arrays of int64 and float64."""
    array = np.asarray(value, dtype or None)
    return relax.const(tvm.runtime.tensor(np.ascontiguousarray(array).reshape(array.shape)), str(array.dtype))


def scalar(value: float | int | bool, x: Any) -> Any:
    """A constant number of the dtype of `x`."""
    return relax.const(value, dtype_of(x))


def as_dtype(x: Any, dtype: str) -> Any:
    """A tensor in a dtype; the tensor itself if it has it."""
    return x if dtype_of(x) == dtype else emit(relax.op.astype(x, dtype))


def takes_integers(convert: Converter) -> Converter:
    """The converter of a function of floats, which takes integers too: they go through float64 and are cut off."""

    @functools.wraps(convert)
    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        if "float" in (dtype := dtype_of(inputs[0])):
            return convert(inputs, attributes, opset)
        wide = operands([as_dtype(inputs[0], "float64"), *list(inputs)[1:]])
        return as_dtype(emit(convert(wide, attributes, opset)), dtype)

    return converter


def widest(*operands: Any) -> str:
    """The float that these tensors are computed in together: float64 if one of them is, else float32."""
    return "float64" if "float64" in map(dtype_of, operands) else "float32"


def emit(expr: Any) -> Any:
    """Bind an expression to a variable, so that its type is known."""
    return relax.BlockBuilder.current().emit(expr)


def kernel(compute: Callable[..., Any], *operands: Any, name: str) -> Any:
    """A kernel written in TE.

    Args:
        compute: takes one TE tensor for each operand; returns one, or a list of them.
        name: of the kernel.
    """
    builder = relax.BlockBuilder.current()
    return builder.call_te(compute, *map(builder.normalize, operands), primfunc_name_hint=name)


def elementwise(function: Callable[[Any], Any], x: Any, name: str) -> Any:
    """A kernel of this name: a function of each element, in TIR."""
    return kernel(lambda data: te.compute(data.shape, lambda *i: function(data(*i)), name="out"), x, name=name)


def broadcast(combine: Callable[[Any, Any], Any], x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """An elementwise TE computation over two tensors of static shapes that broadcast."""
    shapes = [tuple(int(d) for d in t.shape) for t in (x, y)]
    shape = np.broadcast_shapes(*shapes)

    def element(tensor: te.Tensor, own: tuple[int, ...], index: Sequence[Any]) -> Any:
        inner = index[len(index) - len(own) :]
        return tensor(*(0 if d == 1 else i for d, i in zip(own, inner, strict=True)))

    return te.compute(shape, lambda *i: combine(element(x, shapes[0], i), element(y, shapes[1], i)), name="out")


def stock(op_type: str, inputs: Sequence[Any], attributes: Attributes, opset: int) -> Any:
    """What TVM's own converter makes of a node."""
    convert = onnx_frontend._get_convert_map()[op_type].get_converter(opset)
    return convert(relax.BlockBuilder.current(), operands(inputs), attributes, [{}, {}])


def operands(inputs: Sequence[Any]) -> Any:
    """Inputs in the list that converters take, which gives None beyond its end."""
    padded = onnx_frontend.onnx_input()
    padded.extend(inputs)
    return padded

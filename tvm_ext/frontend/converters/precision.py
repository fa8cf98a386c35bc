"""Numbers of float16 and bfloat16 are computed in float32, and rounded where a value of the model is needed as it is.

    y = MatMul(a, b); z = Relu(y)   ->   y' = MatMul(float32(a), float32(b)); z' = Relu(y'); z = float16(z')

So does onnxruntime; TVM would round after every addition. Which values lie in memory as the model has them is decided
later (:mod:`tvm_ext.passes.lowering.lower_precision`). What reads a step off a number (`Floor`, `Less`, a cast to
integers) reads the rounded one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax
from tvm.ir import GenericConst

from ...core.graph.relax_graph import dtype_of, numpy_of
from ...core.numbers.precision import NARROW_FLOATS
from ...ops import Kind, of
from .base import constant

#: Jumps in whose result a rounding before them can make a step.
_STEPS = ("whole", "quantized", "step")
#: Outputs of onnxruntime's operators that are float32 whatever their operands are.
_FLOAT32 = {
    (name, number) for number in (1, 2)
    for name in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalization")
}  # fmt: skip


class InFloat32:
    """The float32 numbers behind narrow variables of a graph while it is converted.

    Attributes:
        wide: narrow variable -> the variable that it was rounded from.
    """

    def __init__(self) -> None:
        self.wide: dict[relax.Var, relax.Var] = {}
        self._decoded: dict[relax.Var, relax.Var] = {}

    def __call__(
        self, op_type: str, inputs: Any, convert: Callable[[Any], Any], is_narrow: Callable[[int, str], bool]
    ) -> Any:
        """What `convert` makes of the inputs, in float32 where they are narrower floats.

        Args:
            op_type: the operator.
            inputs: the importer's list of inputs.
            convert: takes inputs, and returns an expression or a tuple of them.
            is_narrow: (number of an output, narrow dtype) -> whether the model has it in that dtype.
        """
        kinds = {dtype_of(x) for x in inputs if _is_tensor(x)} & NARROW_FLOATS
        row = of(op_type)
        moves = row.kind in (Kind.VIEW, Kind.MOVE) or row.part_read
        moved = moves and not any(isinstance(x, relax.Var) and x in self.wide for x in inputs)
        if not kinds or row.own_type or moved:
            return convert(inputs)
        wide = type(inputs)()
        for x in inputs:
            wide.append(self._widened(x, row.jump in _STEPS) if _is_tensor(x) and dtype_of(x) in kinds else x)
        results = _items(convert(wide))
        for i, result in enumerate(results):
            if narrow := next((kind for kind in sorted(kinds) if is_narrow(i, kind)), ""):
                results[i] = self._rounded(result, narrow)
        return results[0] if len(results) == 1 else relax.Tuple(results)

    def _widened(self, x: Any, exactly: bool) -> Any:
        """An operand in float32.

        Args:
            exactly: whether a computed one is rounded as the model has it.
        """
        if isinstance(x, GenericConst):
            array = numpy_of(x)
            assert array is not None
            return constant(array.astype("float32"))
        if not isinstance(x, relax.Var):
            return relax.BlockBuilder.current().emit(relax.op.astype(x, "float32"))
        if x in self.wide and not exactly:
            return self.wide[x]
        if x not in self._decoded:
            self._decoded[x] = relax.BlockBuilder.current().emit(relax.op.astype(x, "float32"))
        return self._decoded[x]

    def _rounded(self, result: Any, narrow: str) -> Any:
        """A result of float32, rounded to the dtype that the model has it in; anything else as it is."""
        if not _is_tensor(result) or dtype_of(result) != "float32":
            return result
        builder = relax.BlockBuilder.current()
        wide = result if isinstance(result, relax.Var) else builder.emit(result)
        var = builder.emit(relax.op.astype(wide, narrow))
        self.wide[var] = wide
        return var


def is_narrow(op_type: str, number: int, dtype: str, operands: Sequence[str]) -> bool:
    """Whether an output is of a narrow dtype, where ONNX infers no types: onnxruntime's operators give an output the
    dtype of their first operand, if that is a float.

    Args:
        number: of the output.
        operands: dtypes of the inputs; "" for one that is left out.
    """
    if (op_type, number) in _FLOAT32:
        return False
    return not operands or operands[0] == dtype or "float" not in operands[0]


def unread(wide: Mapping[relax.Var, relax.Var], uses: Mapping[relax.Var, Any]) -> set[relax.Var]:
    """Narrow variables that nothing reads: all readers take the numbers they were rounded from."""
    return {var for var in wide if not uses.get(var)}


def _items(result: Any) -> list[Any]:
    """The results that a converter made, typed."""
    builder = relax.BlockBuilder.current()
    result = builder.normalize(result)
    if isinstance(result, relax.Tuple):
        return [builder.normalize(field) for field in result.fields]
    if not isinstance(result.ty, relax.TupleType):
        return [result]
    whole = builder.emit(result)
    return [builder.normalize(relax.TupleGetItem(whole, i)) for i in range(len(result.ty.fields))]


def _is_tensor(x: Any) -> bool:
    return isinstance(x, relax.Expr) and isinstance(x.ty, relax.TensorType)

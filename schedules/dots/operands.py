"""What the recipes over dot-product instructions share: which operands they take, and what a sum stands for.

    int8:   f32(sum - shift[o]) * (scale of x * scale of w[o])        decoded by `dequantize`
            sum - shift[o]                                            decoded by `astype` to int32 and `subtract`
    bf16:   sum

where shift[o] is what zero points add to the sums (:mod:`tvm_ext.core.numbers.dot_weight`).
"""

from dataclasses import dataclass, replace
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.numbers.dot_weight import DotWeight
from tvm_ext.core.recipe import Config, Group, Machine, Miss, Param

from ..blocked.kernel import BlockedMatch, LoadWeight, Units
from ..steps.arguments import Arguments
from ..steps.storage import Decoding
from .instructions import Dot, dot_of

#: What the anchor computes, by the kind of its operands.
_COMPUTED = {"dequantize": "float32", "shift": "int32", "widen": "float32"}


@dataclass(frozen=True)
class Operands:
    """The operands of a convolution or matmul on narrow numbers.

    Attributes:
        dot: what multiplies them as they lie in memory.
        kind: "dequantize", "shift" or "widen".
        zero_point: of the data.
        data_scale: a number, or a parameter of one element.
        weight_scale: a number, or a parameter: one element an output.
    """

    dot: Dot
    kind: str
    zero_point: int
    data_scale: float | Param
    weight_scale: float | Param

    @property
    def copied_dot(self) -> Dot:
        """What multiplies data that the kernel has copied: it is unsigned then, or wider."""
        return replace(self.dot, data="uint16" if self.kind == "widen" else "int16" if self.dot.widens else "uint8")

    @property
    def shift(self) -> int | None:
        """What the sum of an output's weights is multiplied by, to be taken from its results; None if nothing is."""
        return (self.zero_point + self.dot.raised) or None

    def copied(self, value: Any) -> Any:
        """An element of the data as the kernel copies it."""
        if self.kind == "widen":
            return tirx.reinterpret("uint16", value)
        if self.dot.raised:
            value = value.astype("int32") + tirx.const(self.dot.raised, "int32")
        return value.astype(self.copied_dot.data)

    @property
    def border(self) -> Any:
        """The element, copied, that stands for zero."""
        return tirx.const(self.zero_point + self.dot.raised, self.copied_dot.data)


@dataclass(frozen=True)
class DotMatch(BlockedMatch):
    """A blocked reduction of narrow numbers.

    Attributes:
        operands: what is multiplied.
        copied: whether the kernel copies the data.
    """

    operands: Operands
    copied: bool

    @property
    def dot(self) -> Dot:
        """What multiplies data that is copied, or as it lies in memory."""
        return self.operands.copied_dot if self.copied else self.operands.dot


def operands_of(group: Group, machine: Machine, output_axis: int) -> Operands | Miss:
    """The operands of a group whose anchor multiplies narrow numbers; or why they are none.

    Args:
        output_axis: the axis of the weight that runs over outputs.
    """
    data, weight = group.operand(0), group.operand(1)
    if data is None or weight is None:
        return Miss("an operand is computed inside the group")
    if not weight.constant:
        return Miss("the weight is not a constant, so it cannot be packed")
    dot = dot_of(data.dtype, weight.dtype, machine)
    x, w = Decoding.of(group, data), Decoding.of(group, weight)
    if dot is None or x.kind != w.kind or _COMPUTED.get(x.kind) != group.computed:
        return Miss(f"{data.dtype} by {weight.dtype}: no instruction multiplies these")
    if missing := dot.missing(machine):
        return Miss(missing)
    if x.zero_point is None or (isinstance(x.scale, Param) and x.scale.shape not in ((), (1,))):
        return Miss("scale or zero point of the data is no number")
    if w.zero_point != (128 if weight.dtype == "uint8" else 0):
        return Miss(f"zero point {w.zero_point} of {weight.dtype} weights: only signed weights around 0 are multiplied")
    if isinstance(w.scale, Param) and w.scale.shape not in ((), (1,)) and w.axis != output_axis:
        return Miss(f"weight scales along axis {w.axis}: outputs have axis {output_axis}")
    return Operands(dot, x.kind, int(x.zero_point), x.scale, w.scale)


def shifts(operands: Operands, weight: te.Tensor, tile_o: int, lanes: int, blocks: int) -> te.Tensor | None:
    """What is taken from the sums of each output: (blocks, lanes), the stage "shift"; None if nothing is.

    Args:
        weight: packed as :class:`..DotWeight`.
        tile_o: blocks of outputs that are packed together.
        blocks: of all outputs.
    """
    if operands.shift is None:
        return None
    group = operands.dot.group

    def value(o: Any, j: Any) -> Any:
        number: Any = None
        for k in range(4):
            flat = k % group * tile_o * lanes + o % tile_o * lanes + j
            byte = weight(o // tile_o, k // group, flat // group, flat % group)
            if k < 3:
                byte = tirx.reinterpret("uint8", byte) if operands.dot.weight == "int8" else byte
            elif operands.dot.weight == "uint8":
                byte = tirx.reinterpret("int8", byte)
            part = byte.astype("int32") * tirx.const(1 << 8 * k, "int32")
            number = part if number is None else number + part
        return number

    return te.compute((blocks, lanes), value, name="shift")


class AnchorValue:
    """The anchor's value of accumulated sums.

    Args:
        match: of a convolution or matmul.
        args, config: of the kernel.
    """

    def __init__(self, match: DotMatch, args: Arguments, config: Config) -> None:
        self._args, self._operands, self._lanes = args, match.operands, match.problem.lanes
        weight = args.tensor(match.weight)
        self._shift = shifts(match.operands, weight, config["tile_o"], self._lanes, match.problem.output_blocks)

    def __call__(self, total: Any, o: Any, j: Any) -> Any:
        """The value of output `j` of block `o` whose sum is `total`."""
        operands = self._operands
        if self._shift is not None:
            total = total - self._shift(o, j)
        if operands.kind != "dequantize":
            return total
        factor = self._scale(operands.data_scale, 0) * self._scale(operands.weight_scale, o * self._lanes + j)
        return total.astype("float32") * factor

    def _scale(self, scale: float | Param, output: Any) -> Any:
        if not isinstance(scale, Param):
            return tirx.const(scale, "float32")
        index = self._args.layout(scale).index([output if d > 1 else 0 for d in scale.shape])
        return self._args.tensor(scale)(*index)


def weight_layout(match: DotMatch, config: Config) -> DotWeight:
    """How the weight lies in memory."""
    p, operands = match.problem, match.operands
    out, outer_o = p.lanes * config["tile_o"], Units.of(p, config).outer_o
    return DotWeight.of(len(match.weight.shape), p.inner, out, outer_o, operands.dot.group, operands.shift)


def words_of(match: DotMatch, weight: te.Tensor) -> LoadWeight:
    """Reads the weight that lies as :func:`weight_layout` says."""
    p, first = match.problem, 0 if match.operands.shift is None else 4 // match.dot.group
    kh, kw = p.taps

    def load(n: Any, o: Any, block: Any, ry: Any, rx: Any, ri: Any, j: Any, rk: Any) -> Any:
        return weight(o, first + ((block * kh + ry) * kw + rx) * p.inner + ri, j, rk)

    return load


def schedule_shifts(sch: Schedule, match: DotMatch, unit: Any) -> None:
    """The stage of :func:`shifts`, if there is one: in each unit for its outputs, in vectors."""
    if match.operands.shift is not None:
        block = sch.get_sblock("shift")
        sch.compute_at(block, unit, preserve_unit_loops=True)
        sch.vectorize(sch.get_loops(block)[-1])

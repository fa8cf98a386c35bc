"""Counterparts: for each tensor that a kernel writes the ONNX values that it must equal, and how closely.

A kernel may write what no value of the model is: a fold moved a scale through it, or a pass made it. Then the calls
that read it answer for its part of the difference too: they are compared with wider chains of nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from ..core.graph.call_site import Written
from ..core.numbers.precision import NARROW_FLOATS, rounded
from ..frontend.reading.walk import attribute
from ..ops.table import of
from ..runtime.memory.arrays import NamedArrays
from .kernel_calls import Call, Graph, KernelCalls
from .magnitude import BY_NORMS, Chain
from .tolerance import Tolerance, winograd_growth


@dataclass(frozen=True)
class Counterpart:
    """One tensor that a call writes.

    Attributes:
        call: that writes it; written: the tensor.
        nodes: in order, of the call and of all calls behind it that no value shows.
        behind: numbers of those.
        roundings: how many times operands are rounded to `narrow` among these calls, one behind the other.
        narrow: the dtype that `precision` rounds to; "" of a program that rounds nothing.
    """

    call: Call
    written: Written
    nodes: tuple[onnx.NodeProto, ...]
    behind: tuple[int, ...]
    roundings: int = 0
    narrow: str = ""

    def expected(self, values: NamedArrays) -> dict[str, np.ndarray] | str:
        """ONNX value -> logical array that the tensor must equal; or why there is none."""
        if not self.written.held:
            return "no value of the model is what it writes: a pass made it, or moved a factor through it"
        arrays, reason = {}, ""
        for held in self.written.held:
            if held.value not in values:
                reason = f"{held.value!r} is no tensor of the model's graph: it lies within a function or a branch"
                continue
            try:
                array = held.apply(values[held.value])
            except ValueError as error:
                reason = f"{held.value!r} has shape {values[held.value].shape} in the reference: {error}"
                continue
            if array.shape != self.written.shape:
                reason = f"{held.value!r} has shape {array.shape} in the reference, {self.written.shape} here"
            elif self.narrow and (array.dtype.name, self.written.dtype) == ("float32", self.narrow):
                arrays[held.value] = rounded(array, self.narrow)
            elif array.dtype.name in NARROW_FLOATS and self.written.dtype == "float32":  # not rounded yet
                arrays[held.value] = array.astype("float32")
            elif array.dtype.name != self.written.dtype:
                reason = f"{held.value!r} is {array.dtype.name} in the reference, {self.written.dtype} here"
            else:
                arrays[held.value] = array
        if any(of(node.op_type).random for node in self.nodes):
            return "it draws random numbers"
        return arrays or reason

    def tolerance(self, value: str, arrays: NamedArrays) -> Tolerance:
        """How far the tensor may be from an ONNX value, when all that is read from outside is right."""
        chain = Chain(self.nodes, arrays)
        growth = self._growth(arrays)
        rounds = any(of(node.op_type).jump == "quantized" for node in self.nodes)
        length, magnitude = chain.length(), chain.magnitude(value)
        stated = arrays[value].dtype.name if value in arrays else self.written.dtype
        if not self.narrow:
            dtype = stated if stated in NARROW_FLOATS and self.written.dtype == "float32" else self.written.dtype
            return Tolerance(dtype, length, magnitude, growth, max(1, len(self.nodes)), int(rounds))
        moved = not length and self.written.dtype == self.narrow  # rounded values are moved, and the reference's too
        times = 0 if moved else self.roundings
        return Tolerance(self.written.dtype, length, magnitude, growth, 1, int(rounds), times, self.narrow)

    def _growth(self, arrays: NamedArrays) -> float:
        if self.call.kernel["recipe"] != "conv2d_winograd":
            return 1.0
        m = int(self.call.kernel["config"]["m"])
        growths = [1.0]
        for node in self.nodes:
            if node.op_type == "Conv" and node.input[1] in arrays:
                stride = max(attribute(node, "strides", (1,)))
                growths.append(winograd_growth(m, -(-arrays[node.input[1]].shape[-1] // stride)))
        return max(growths)

    @property
    def jump(self) -> str:
        """An operator in whose result a rounding before it can make a step; "" if there is none."""
        jumps = [node.op_type for node in self.nodes if of(node.op_type).jump in ("whole", "step")]
        return jumps[0] if jumps and len(self.nodes) > 1 else ""

    def wanted(self) -> set[str]:
        """ONNX values to ask the reference for, besides the one that is compared."""
        inside = {name for node in self.nodes for name in node.output}
        by_norms = [n for n in self.nodes if of(n.op_type).magnitude in BY_NORMS or "Norm" in n.op_type]
        read = {name for node in self.nodes for name in node.input if name not in inside}
        return read.union(*(node.input for node in by_norms)) - {""}


#: Recipe of kernels that bring a value to another layout: they are of the nodes that want it so, and compute nothing.
_TRANSFORM = "layout_transform"


def counterparts(program: KernelCalls, graph: Graph) -> list[Counterpart]:
    """One for each tensor that the program's kernels write, in the order they run."""
    hidden: dict[int, tuple[int, ...]] = {}  # call -> calls that no value shows, itself included
    nodes = {call.site.order: set(call.site.nodes) for call in program.calls if call.kernel["recipe"] != _TRANSFORM}
    tensors = []
    layers = program.lowered_layers
    stored = {c.site.order for c in program.calls if any(w.dtype == program.narrow for w in c.site.writes)}
    for call in program.calls:
        order = call.site.order
        behind = tuple(dict.fromkeys(number for read in call.site.reads for number in hidden.get(read, ())))
        computed = {node for number in (order, *behind) for node in nodes.get(number, ())}
        chain = graph.ordered(computed)
        times = 0
        if layers is not None:
            times = max(sum(not computed.isdisjoint(layer) for layer in layers), int(bool(stored & {*call.site.reads})))
        rest = (tuple(chain), behind, times, program.narrow)
        tensors += [Counterpart(call, written, *rest) for written in call.site.writes]
        known = graph.written | graph.inputs
        if not all(any(held.value in known for held in written.held) for written in call.site.writes):
            hidden[order] = (*behind, order)
    return tensors


def wanted_values(compared: Sequence[Counterpart], graph: Graph) -> list[str]:
    """ONNX values to ask the reference for."""
    names = {held.value for counterpart in compared for held in counterpart.written.held}
    names.update(*(counterpart.wanted() for counterpart in compared))
    return sorted(names & graph.written)

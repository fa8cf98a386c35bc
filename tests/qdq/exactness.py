"""Whether stored values are what they must be: the nearest of 256, and where a tie decides, one of the two nearest.

Every value in 8 bits is compared with the truth: what stands between it and the stored values it depends on, computed
in float64. float32 sums of another order differ by a rounding, so that a number next to the middle of two stored
values may fall to either side; the distance to the middle must be within what float32 is off: for sums of n terms, four
times sqrt(n) roundings of the sum of their magnitudes (Higham and Mary, "A new approach to probabilistic rounding error
analysis", SIAM J. Sci. Comput. 41(5), 2019).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.onnx_graphs import model, value
from tests.oracles.float64 import in_floats
from tvm_ext.core.machine import Machine

Arrays = Mapping[str, np.ndarray]
_EPS = 2.0**-24
#: Operators whose float32 result is within some roundings of their operands' largest, not of sums of products.
_CURVES = frozenset({"Sigmoid", "Softmax", "LayerNormalization", "Tanh", "Erf", "HardSwish", "Gelu"})


@dataclass(frozen=True)
class Judgement:
    """What a comparison found.

    Attributes:
        elements: stored values that were compared.
        ties: those that are next to a middle, as close as float32 may be off.
        off: those that are not the nearest one of float64; all of them ties, one step off.
    """

    elements: int
    ties: int
    off: int


def stored_names(model: onnx.ModelProto) -> list[str]:
    """Outputs of QuantizeLinear."""
    return [n.output[0] for n in model.graph.node if n.op_type == "QuantizeLinear"]


def exposed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every stored value as an output."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    points = {n.output[0]: n.input[2] if len(n.input) > 2 else "" for n in model.graph.node}
    types = {i.name: i.data_type for i in model.graph.initializer}
    known = {o.name for o in model.graph.output}
    for name in stored_names(model):
        if name not in known:
            dtype = types.get(points[name], TensorProto.UINT8)
            proto.graph.output.append(helper.make_tensor_value_info(name, dtype, None))
    return proto


def multiplies_bytes() -> bool:
    """Whether this CPU has VNNI: convolutions sum integers then. Without it some pay more as Winograd's of float32."""
    return "avx512vnni" in Machine.detect().features


class Judge:
    """Compares stored values of one model with float64.

    Args:
        model: a QDQ model.
        feeds: its inputs.
    """

    def __init__(self, model: onnx.ModelProto, feeds: Arrays) -> None:
        self._model, self._feeds = model, feeds
        self._maker = {name: n for n in model.graph.node for name in n.output}
        self._constants = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}

    def __call__(self, outputs: Arrays) -> Judgement:
        """Judge all stored values of a run.

        Raises:
            AssertionError: one is more than a step off, or off without a tie.
        """
        elements = ties = off = 0
        for name in stored_names(self._model):
            one = self._judge(name, outputs)
            elements, ties, off = elements + one.elements, ties + one.ties, off + one.off
        return Judgement(elements, ties, off)

    def _judge(self, name: str, outputs: Arrays) -> Judgement:
        maker = self._maker[name]
        scale = self._constants[maker.input[1]].astype(np.float64)
        zero = self._constants[maker.input[2]] if len(maker.input) > 2 else np.zeros((), np.uint8)
        info, offset = np.iinfo(zero.dtype), zero.astype(np.int64)
        truth, error = self._truth(maker.input[0], outputs)
        axis = next((a.i for a in maker.attribute if a.name == "axis"), 1)
        if scale.size > 1:
            shape = [-1 if i == axis % truth.ndim else 1 for i in range(truth.ndim)]
            scale, offset = scale.reshape(shape), offset.reshape(shape)
        steps = truth / scale
        wanted = np.clip(np.rint(steps) + offset, info.min, info.max)
        from_middle = np.abs(steps - np.floor(steps) - 0.5)
        tie = from_middle <= error / scale + 4 * _EPS * np.abs(steps)
        difference = np.abs(outputs[name].astype(np.int64) - wanted)
        worst = np.unravel_index(int(np.argmax(difference)), difference.shape)
        assert difference.max(initial=0) <= 1, (name, worst, outputs[name][worst], steps[worst])
        wrong = (difference > 0) & ~tie
        assert not wrong.any(), (name, int(wrong.sum()), steps[wrong][:3], (error / scale + 0 * steps)[wrong][:3])
        return Judgement(truth.size, int(tie.sum()), int((difference > 0).sum()))

    def _truth(self, name: str, outputs: Arrays) -> tuple[np.ndarray, np.ndarray]:
        """A float value in float64, of the stored values it depends on; and how far float32 may be off."""
        nodes, starts = self._between(name)
        if not nodes:
            value = starts[name](outputs)
            return value, np.abs(value) * _EPS
        values = {n: make(outputs) for n, make in starts.items()}
        depth = max(self._depth(n, values) for n in nodes) + 2 * len(nodes) + 2
        truth = _run(nodes, values, name)
        if any(n.op_type in _CURVES for n in nodes):
            bound = np.full(truth.shape, max(float(np.abs(truth).max()), 1.0))
            return truth, 4 * (depth + 16) * _EPS * bound
        magnitude = _run(nodes, {n: np.abs(v) if v.dtype == np.float64 else v for n, v in values.items()}, name)
        return truth, 4 * np.sqrt(depth) * _EPS * np.maximum(np.abs(magnitude), np.abs(truth))

    def _between(self, name: str) -> tuple[list[onnx.NodeProto], dict]:
        """Float operators that a value depends on, in order, and the tensors that they start from."""
        needed, starts, todo = set(), {}, [name]
        while todo:
            one = todo.pop()
            maker = self._maker.get(one)
            if one in starts or one in needed or not one:
                continue
            if one in self._constants:
                starts[one] = lambda outputs, c=self._constants[one]: _double(c)
            elif maker is None:
                starts[one] = lambda outputs, x=self._feeds[one]: _double(x)
            elif maker.op_type == "DequantizeLinear":
                starts[one] = lambda outputs, m=maker: self._dequantized(m, outputs)
            else:
                needed.update(maker.output)
                todo.extend(maker.input)
        return [n for n in self._model.graph.node if needed & set(n.output)], starts

    def _dequantized(self, maker: onnx.NodeProto, outputs: Arrays) -> np.ndarray:
        inputs = [self._constants.get(n) if n in self._constants else outputs.get(n) for n in maker.input]
        q, scale = inputs[0], inputs[1].astype(np.float64)
        zero = inputs[2].astype(np.int64) if len(inputs) > 2 else np.zeros((), np.int64)
        axis = next((a.i for a in maker.attribute if a.name == "axis"), 1)
        if scale.size > 1:
            shape = [-1 if i == axis % q.ndim else 1 for i in range(q.ndim)]
            scale, zero = scale.reshape(shape), zero.reshape(shape)
        return (q.astype(np.int64) - zero) * scale

    @staticmethod
    def _depth(n: onnx.NodeProto, values: Arrays) -> int:
        """Terms of the sums of an operator."""
        weight = next((values[i] for i in n.input[1:2] if i in values), None)
        if n.op_type == "Conv" and weight is not None:
            return int(np.prod(weight.shape[1:]))
        if n.op_type in ("MatMul", "Gemm") and weight is not None:
            return max(weight.shape)
        return 64 if "Pool" in n.op_type or "Reduce" in n.op_type or n.op_type in _CURVES else 2


def _double(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if x.dtype == np.float32 else x


def _run(nodes: list[onnx.NodeProto], values: Arrays, name: str) -> np.ndarray:
    """A graph of float operators in float64."""
    inputs = [value(n, v.shape, helper.np_dtype_to_tensor_dtype(v.dtype)) for n, v in values.items()]
    proto = model(nodes, inputs, [value(name, None, TensorProto.DOUBLE)])
    with np.errstate(all="ignore"):
        return np.asarray(
            ReferenceEvaluator(in_floats(proto, TensorProto.DOUBLE)).run([name], dict(values))[0], np.float64
        )

"""A small builder of ONNX graphs that the zoo's models share: torch's layers, torch's names, static shapes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ..naming import Names
from .parameters import Init, Parameters, between, kaiming

OPSET = 17
IR_VERSION = 8


class Value(NamedTuple):
    """A tensor in the graph."""

    name: str
    shape: tuple[int, ...]


class GraphBuilder:
    """Collects nodes and initializers; every method adds one node (and its constants) and returns its output.

    Names follow torch: a node has its module's name ("layer1.0.conv1"), its initializers that name and ".weight",
    ".bias", ..., as in a state dict. A module used twice gets a number. Layouts are NCHW and OIHW.

    Args:
        name: of the graph.
        parameters: where weights come from.
    """

    def __init__(self, name: str, parameters: Parameters) -> None:
        self.name, self._parameters = name, parameters
        self._names = Names()
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._constants: dict[float | tuple[int, ...], Value] = {}

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Value:
        """An input."""
        self._inputs.append(_value_info(name, shape, dtype))
        return Value(name, tuple(shape))

    def parameter(self, name: str, shape: tuple[int, ...], init: Init, transposed: bool = False) -> str:
        """A float32 initializer; returns its name.

        Args:
            name: in the state dict.
            shape: in the state dict.
            init: its values where none are stored.
            transposed: the file holds the transpose, under the name with "^T" behind it.
        """
        array = self._parameters.get(name, shape, init)
        if transposed:
            name, array = f"{name}^T", array.T
        self._initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def constant(self, value: float | tuple[int, ...]) -> Value:
        """A Constant node, shared by all who want that value: a float32 scalar, or a vector of int64."""
        if value not in self._constants:
            array = np.array(value, np.int64 if isinstance(value, tuple) else np.float32)
            tensor = numpy_helper.from_array(array, "value")
            self._constants[value] = self.node("Constant", "constant", [], array.shape, value=tensor)
        return self._constants[value]

    def node(self, op_type: str, name: str, inputs: Sequence[str], shape: Sequence[int], **attributes: Any) -> Value:
        """Any operator with one output, whose shape the caller knows."""
        name = self._names.fresh(name)
        self._nodes.append(helper.make_node(op_type, list(inputs), [f"{name}.out"], name, **attributes))
        return Value(f"{name}.out", tuple(shape))

    def conv(
        self, x: Value, name: str, channels: int, kernel: int, stride: int = 1, pad: int = 0, groups: int = 1,
        bias: bool = False, gain: float = 2.0,
    ) -> Value:  # fmt: skip
        """2-D convolution with a square kernel: [N, C, H, W] -> [N, channels, H', W']."""
        per_group = x.shape[1] // groups
        init = kaiming(per_group * kernel * kernel, gain)
        inputs = [x.name, self.parameter(f"{name}.weight", (channels, per_group, kernel, kernel), init)]
        if bias:
            inputs.append(self.parameter(f"{name}.bias", (channels,), between(-0.05, 0.05)))
        return self.node(
            "Conv", name, inputs, (x.shape[0], channels, *_window(x, kernel, stride, pad)), group=groups,
            dilations=[1, 1], kernel_shape=[kernel] * 2, pads=[pad] * 4, strides=[stride] * 2,
        )  # fmt: skip

    def batch_norm(self, x: Value, name: str, scale: tuple[float, float] = (0.8, 1.2)) -> Value:
        """Batch norm with running statistics, unfolded.

        Args:
            scale: range of the random weights; smaller on a branch that is added to a residual, so that the sum
                does not grow from block to block.
        """
        shape = x.shape[1:2]
        # a convolution by kaiming() doubles the mean square of its input, which after a ReLU is about a half
        statistics = {"weight": between(*scale), "bias": between(-0.1, 0.1), "running_mean": between(-0.1, 0.1),
                      "running_var": between(0.7, 1.5)}  # fmt: skip
        inputs = [self.parameter(f"{name}.{key}", shape, init) for key, init in statistics.items()]
        return self.node("BatchNormalization", name, [x.name, *inputs], x.shape, epsilon=1e-5)

    def layer_norm(self, x: Value, name: str, epsilon: float = 1e-12) -> Value:
        """Layer norm over the last axis; Hugging Face's default epsilon for BERT."""
        shape = x.shape[-1:]
        weight = self.parameter(f"{name}.weight", shape, between(0.8, 1.2))
        bias = self.parameter(f"{name}.bias", shape, between(-0.1, 0.1))
        return self.node("LayerNormalization", name, [x.name, weight, bias], x.shape, axis=-1, epsilon=epsilon)

    def relu(self, x: Value, name: str) -> Value:
        """max(x, 0)."""
        return self.node("Relu", name, [x.name], x.shape)

    def relu6(self, x: Value, name: str) -> Value:
        """min(max(x, 0), 6), as the Clip that exporters write."""
        return self.node("Clip", name, [x.name, self.constant(0.0).name, self.constant(6.0).name], x.shape)

    def add(self, a: Value, b: Value, name: str) -> Value:
        """a + b of one shape."""
        return self.node("Add", name, [a.name, b.name], a.shape)

    def binary(self, op_type: str, name: str, a: Value, b: Value) -> Value:
        """An elementwise operator with broadcasting: "Mul", "Div", "Sub", ..."""
        return self.node(op_type, name, [a.name, b.name], np.broadcast_shapes(a.shape, b.shape))

    def max_pool(self, x: Value, name: str, kernel: int, stride: int, pad: int = 0) -> Value:
        """2-D max pooling: [N, C, H, W] -> [N, C, H', W']."""
        return self.node(
            "MaxPool", name, [x.name], (*x.shape[:2], *_window(x, kernel, stride, pad)),
            kernel_shape=[kernel] * 2, pads=[pad] * 4, strides=[stride] * 2,
        )  # fmt: skip

    def global_average_pool(self, x: Value, name: str) -> Value:
        """Mean over H and W: [N, C, H, W] -> [N, C, 1, 1]."""
        return self.node("GlobalAveragePool", name, [x.name], (*x.shape[:2], 1, 1))

    def flatten(self, x: Value, name: str) -> Value:
        """[N, ...] -> [N, C H W]."""
        return self.node("Flatten", name, [x.name], (x.shape[0], int(np.prod(x.shape[1:]))), axis=1)

    def reshape(self, x: Value, name: str, shape: tuple[int, ...]) -> Value:
        """The same elements in another shape, without -1. A batch that stays is written as 0: any batch."""
        written = (0, *shape[1:]) if shape[:1] == x.shape[:1] else shape
        return self.node("Reshape", name, [x.name, self.constant(written).name], shape)

    def transpose(self, x: Value, name: str, axes: Sequence[int]) -> Value:
        """Axes in another order."""
        return self.node("Transpose", name, [x.name], [x.shape[axis] for axis in axes], perm=list(axes))

    def matmul(self, a: Value, b: Value, name: str) -> Value:
        """[..., M, K] x [..., K, N] -> [..., M, N]."""
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return self.node("MatMul", name, [a.name, b.name], (*batch, a.shape[-2], b.shape[-1]))

    def softmax(self, x: Value, name: str) -> Value:
        """Over the last axis."""
        return self.node("Softmax", name, [x.name], x.shape, axis=-1)

    def linear(self, x: Value, name: str, features: int, gain: float = 2.0) -> Value:
        """x W^T + b, W stored as torch does, [features, inputs]: [N, inputs] -> [N, features]."""
        inputs = x.shape[1]
        weight = self.parameter(f"{name}.weight", (features, inputs), kaiming(inputs, gain))
        bias = self.parameter(f"{name}.bias", (features,), between(-0.05, 0.05))
        return self.node("Gemm", name, [x.name, weight, bias], (x.shape[0], features), transB=1)

    def projection(self, x: Value, name: str, features: int, gain: float = 1.0) -> Value:
        """A linear layer on the last axis of any rank: [..., inputs] -> [..., features].

        Exporters write it as "name/MatMul", with the weight transposed to [inputs, features], and "name/Add".
        """
        inputs, shape = x.shape[-1], (*x.shape[:-1], features)
        weight = self.parameter(f"{name}.weight", (features, inputs), kaiming(inputs, gain), transposed=True)
        bias = self.parameter(f"{name}.bias", (features,), between(-0.05, 0.05))
        product = self.node("MatMul", f"{name}/MatMul", [x.name, weight], shape)
        return self.node("Add", f"{name}/Add", [bias, product.name], shape)

    def build(self, **outputs: Value) -> onnx.ModelProto:
        """The model; keywords name its outputs.

        Raises:
            ModelError: stored weights do not fit; see :meth:`Parameters.finish`.
        """
        self._parameters.finish(self.name)
        renamed = {value.name: name for name, value in outputs.items()}
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [renamed.get(name, name) for name in names]
        infos = [_value_info(name, value.shape) for name, value in outputs.items()]
        graph = helper.make_graph(self._nodes, self.name, self._inputs, infos, self._initializers)
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="tvm-ext")


def _window(x: Value, kernel: int, stride: int, pad: int) -> tuple[int, ...]:
    return tuple((size + 2 * pad - kernel) // stride + 1 for size in x.shape[2:])


def _value_info(name: str, shape: Sequence[int], dtype: str = "float32") -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))

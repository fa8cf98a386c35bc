"""Small ONNX models from lines of text, such as "y = Conv(x, w) strides=[2,2]"."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

_LINE = re.compile(r"(?P<outputs>[\w, ]+) = (?P<op>\w+)\((?P<inputs>[\w, ]*)\)(?P<attributes>.*)")


@dataclass(frozen=True)
class Tensor:
    """An input: its shape, a name in it being a batch of any size, and its dtype."""

    shape: tuple[int | str, ...]
    dtype: str = "float32"


@dataclass(frozen=True, eq=False)
class KitModel:
    """A small model that a back end is checked on.

    Attributes:
        name: unique in the kit.
        about: what is special about it.
        proto: the model.
        anchors: TVM's names of the operators it is about; the kit takes it for back ends that have one of them.
        dtypes: dtypes a back end must take for the model to say anything about it.
        specialize: sizes of a symbolic batch to make programs for; none if its shapes are static.
        tolerance: largest error of the output's range. None is that of the dtype, 1e-5 for float32.
    """

    name: str
    about: str
    proto: onnx.ModelProto
    anchors: tuple[str, ...] = ("relax.matmul",)
    dtypes: tuple[str, ...] = ("float32",)
    specialize: tuple[int, ...] = ()
    tolerance: float | None = None

    @property
    def compile_options(self) -> dict[str, Any]:
        """What `tvm_ext.compile` is given for it."""
        if not self.specialize:
            return {}
        shapes = {
            value.name: tuple(dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim)
            for value in self.proto.graph.input
        }
        return {"shapes": shapes, "specialize": {"N": self.specialize}}

    def __str__(self) -> str:
        return self.name


def graph(
    lines: Sequence[str], inputs: Mapping[str, Tensor], constants: Mapping[str, np.ndarray], outputs: Sequence[str] = ()
) -> onnx.ModelProto:
    """A model of opset 17.

    Args:
        lines: a node each; its name is made of its operator and its first output.
        inputs: by name.
        constants: initializers by name.
        outputs: names besides those that nothing reads.
    """
    nodes = [_node(line) for line in lines]
    read = {name for node in nodes for name in node.input}
    last = [name for node in nodes for name in node.output if name not in read or name in outputs]
    element_types = {t.dtype: int(helper.np_dtype_to_tensor_dtype(np.dtype(t.dtype))) for t in inputs.values()}
    specs = [helper.make_tensor_value_info(n, element_types[t.dtype], t.shape) for n, t in inputs.items()]
    wanted = [onnx.ValueInfoProto(name=name) for name in last]
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    body = helper.make_graph(nodes, "kit", specs, wanted, weights)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return shape_inference.infer_shapes(model, strict_mode=True)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal float32 numbers, the same each time."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def int8(*shape: int, seed: int = 0) -> np.ndarray:
    """All of int8, the same each time."""
    return np.random.default_rng([seed, *shape]).integers(-128, 128, shape).astype(np.int8)


def _node(line: str) -> onnx.NodeProto:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"{line!r}: 'y = Op(x, w) attribute=[1,2]' is needed")
    outputs, inputs = (re.split(r", ?", match[part]) for part in ("outputs", "inputs"))
    attributes = {k: ast.literal_eval(v) for k, v in re.findall(r"(\w+)=(\S+)", match["attributes"])}
    return helper.make_node(match["op"], inputs, outputs, f"{match['op'].lower()}_{outputs[0]}", **attributes)

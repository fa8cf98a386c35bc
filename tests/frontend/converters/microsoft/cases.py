"""Nodes of one operator in a model, each with inputs of its own, against onnxruntime's kernels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

import tvm_ext
from tests.frontend.graphs import model, value
from tests.oracles.reference import onnxruntime_outputs

_VERSIONS = {"com.microsoft": 1, "ai.onnx.ml": 3}


@dataclass(frozen=True)
class Known:
    """An operand that is an initializer."""

    array: np.ndarray


@dataclass(frozen=True)
class Case:
    """A node.

    Attributes:
        inputs: arrays that are fed, initializers, None for what is left out.
        attributes: of the node.
        outputs: how many of them; or which, True for one that is there.
    """

    inputs: Sequence[Any]
    attributes: dict[str, Any]
    outputs: Sequence[bool] = (True,)


def case(*inputs: Any, outputs: int | Sequence[bool] = 1, **attributes: Any) -> Case:
    """A node of these inputs."""
    return Case(inputs, attributes, (True,) * outputs if isinstance(outputs, int) else tuple(outputs))


def rng_of(*seed: int) -> np.random.Generator:
    """Random numbers of a test."""
    return np.random.default_rng(list(seed))


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal numbers of float32."""
    return np.float32(rng.standard_normal(shape))


def built(
    operator: str, cases: Sequence[Case], domain: str, stated: str = ""
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of all nodes, whose outputs have no types yet or this one, and what it is fed with."""
    nodes, feeds, weights, outputs = [], {}, {}, []
    for number, each in enumerate(cases):
        names = [f"x{number}_{i}" if x is not None else "" for i, x in enumerate(each.inputs)]
        results = [f"y{number}_{i}" if there else "" for i, there in enumerate(each.outputs)]
        for name, x in zip(names, each.inputs, strict=True):
            if isinstance(x, Known):
                weights[name] = np.asarray(x.array)
            elif x is not None:
                feeds[name] = np.asarray(x)
        nodes.append(
            helper.make_node(operator, names, results, f"{operator}_{number}", domain=domain, **each.attributes)
        )
        outputs += filter(None, results)
    inputs = [value(name, x.shape, _code(x.dtype)) for name, x in feeds.items()]
    results = [value(n, None, _code(stated)) if stated else helper.make_empty_tensor_value_info(n) for n in outputs]
    proto = model(nodes, inputs, results, weights, opset=17, domains=[domain] if domain else [])
    proto.ir_version = 10  # which has integers of 4 bits
    if domain:
        proto.opset_import[1].version = 5 if operator == "TreeEnsemble" else _VERSIONS.get(domain, 1)
    return proto, feeds


def _code(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def typed(proto: onnx.ModelProto, results: dict[str, np.ndarray]) -> onnx.ModelProto:
    """The model with the element types of its outputs."""
    outputs = [value(n, None, _code(x.dtype)) for n, x in results.items()]
    del proto.graph.output[:]
    proto.graph.output.extend(outputs)
    return proto


def agree(
    operator: str, *cases: Case, domain: str = "com.microsoft", rtol: float = 1e-5, atol: float = 2e-6,
    wanted: Sequence[np.ndarray] | None = None, varied: bool = True, stated: str = "",
) -> None:  # fmt: skip
    """Compile the nodes, and compare every output, its dtype and shape.

    Args:
        rtol, atol: of floats; integers are equal.
        wanted: the outputs, where onnxruntime has no kernel for a CPU.
        stated: the dtype of all outputs, where onnxruntime cannot tell it.
        varied: whether each output has several values, as it does unless it counts something.
    """
    proto, feeds = built(operator, cases, domain, stated)
    names = [o.name for o in proto.graph.output]
    results = onnxruntime_outputs(proto, feeds) if wanted is None else dict(zip(names, wanted, strict=True))
    outputs = tvm_ext.compile(typed(proto, results), cache=False, threads=2).run(feeds)
    for name, want in results.items():
        assert (outputs[name].dtype, outputs[name].shape) == (want.dtype, want.shape), name
        assert not varied or want.size < 3 or len(np.unique(want)) > 1, f"{name} tells nothing"
        if want.dtype.kind == "f":
            np.testing.assert_allclose(outputs[name], want, rtol, atol, err_msg=name)
        else:
            np.testing.assert_array_equal(outputs[name], want, err_msg=name)

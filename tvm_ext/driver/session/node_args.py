"""Inputs, outputs and the model itself, as onnxruntime describes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...frontend.reading.outline import Outline
from ...runtime.spec import TensorSpec
from ...runtime.values import ONNX_TYPES, TENSOR, Value

_NUMPY_TYPES = {onnx: numpy for numpy, onnx in ONNX_TYPES.items()}
_NO_VERSION = (1 << 63) - 1


@dataclass(frozen=True)
class NodeArg:
    """An input or output as onnxruntime describes one: `name`, `shape` (numbers, names of free dimensions, None for one
    without a name; empty where even their number is free), `type` ("tensor(float)").
    """

    name: str
    shape: list[int | str | None]
    type: str

    @classmethod
    def of(cls, value: Value, specs: Iterable[TensorSpec]) -> NodeArg:
        """An input or output of a compiled program, whose tensors `specs` has; a sequence has no shape."""
        shapes = {spec.name: spec.shape for spec in specs}
        return cls(value.name, list(shapes[value.name]) if value.kind == TENSOR else [], value.type)

    @classmethod
    def of_onnxruntime(cls, arg: Any) -> NodeArg:
        """One of onnxruntime's own."""
        return cls(arg.name, list(arg.shape), arg.type)


def dtype_of(type_name: str) -> np.dtype[Any] | None:
    """numpy's dtype for onnxruntime's name of a type, as "tensor(float)"; None of strings and of what is no tensor."""
    tensor = re.fullmatch(r"tensor\((\w+)\)", type_name)
    if tensor is None or tensor[1] == "string":
        return None
    import ml_dtypes  # noqa: F401  (it gives numpy the names of the small floats)

    return np.dtype(_NUMPY_TYPES.get(tensor[1], tensor[1]))


def element_dtype(type_name: str) -> np.dtype[Any] | None:
    """The dtype of a tensor, or of those of a sequence or optional: "optional(seq(tensor(float)))"; None of others."""
    nested = re.fullmatch(r"(optional\()?(seq\()?(tensor\(\w+\))\)*", type_name)
    return None if nested is None else dtype_of(nested[3])


@dataclass(frozen=True)
class ModelMeta:
    """What is known of the model: the fields of onnxruntime's; its SHA-256 stands in `custom_metadata_map` too."""

    graph_name: str
    custom_metadata_map: dict[str, str]
    producer_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = _NO_VERSION

    @classmethod
    def of(cls, model: Outline, sha256: str) -> ModelMeta:
        """Of an ONNX model."""
        version = _NO_VERSION if model.version is None else model.version
        return cls(
            model.graph_name, _with_hash(model.properties, sha256), model.producer, model.domain, model.description,
            model.graph_description, version,
        )  # fmt: skip

    @classmethod
    def of_artifact(cls, model: Mapping[str, str]) -> ModelMeta:
        """Of an exported model, which keeps its name and hash."""
        return cls(model["name"], _with_hash({}, model["sha256"]))


def _with_hash(properties: Mapping[str, str], sha256: str) -> dict[str, str]:
    return {**properties, "sha256": sha256}

"""Inputs, outputs and the model itself, as onnxruntime describes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...frontend.reading.outline import Outline
from ...runtime.spec import TensorSpec

_ONNX_TYPES = {
    "float32": "float", "float64": "double", "float8_e4m3fn": "float8e4m3fn", "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2", "float8_e5m2fnuz": "float8e5m2fnuz", "float4_e2m1fn": "float4e2m1",
}  # fmt: skip
"""numpy's name (or ml_dtypes') -> ONNX's, where they differ."""
_NUMPY_TYPES = {onnx: numpy for numpy, onnx in _ONNX_TYPES.items()}
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
    def of(cls, spec: TensorSpec) -> NodeArg:
        """An input or output of a compiled program."""
        return cls(spec.name, list(spec.shape), f"tensor({_ONNX_TYPES.get(spec.dtype, spec.dtype)})")

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

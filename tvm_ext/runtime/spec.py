"""What is known of a compiled model besides its code: tensors, machine, versions, report. JSON both ways."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.errors import ArtifactError
from .tvm_runtime import tvm_version

FORMAT_VERSION = 1


@dataclass(frozen=True)
class TensorSpec:
    """Name, static shape and dtype (numpy's name, or ml_dtypes': "float32", "bfloat16") of a tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @functools.cached_property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype as numpy knows it.

        Raises:
            TypeError: numpy and ml_dtypes do not know it.
        """
        try:
            return np.dtype(self.dtype)
        except TypeError:
            import tvm.runtime  # noqa: F401  (it imports ml_dtypes, which gives numpy these names)

            return np.dtype(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        count = 1
        for dim in self.shape:
            count *= dim
        return count * self.numpy_dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Metadata:
    """What an artifact says of itself.

    Attributes:
        inputs, outputs: in the order of the compiled function, by their ONNX names.
        weights: in the order in which the compiled function takes them, after the inputs.
        threads: threads the kernels were made for.
        parallel: whether any kernel runs on the thread pool.
        machine: the machine compiled for: "isa", "mcpu", "triple", "features" and more.
        versions: of "tvm", "tvm_ffi" and "tvm_ext".
        model: "name" and "sha256" of the model.
        report: what the compiler did; plain JSON that the runtime does not look into.
        format: version of the artifact format.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: tuple[TensorSpec, ...]
    threads: int
    parallel: bool
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    model: Mapping[str, str]
    report: Mapping[str, Any] = field(default_factory=dict)
    format: int = FORMAT_VERSION

    def to_json(self) -> str:
        """One line of JSON."""
        tensors = {key: [[t.name, list(t.shape), t.dtype] for t in getattr(self, key)] for key in _TENSORS}
        plain = {key: dict(getattr(self, key)) for key in ("machine", "versions", "model", "report")}
        rest = {"format": self.format, "threads": self.threads, "parallel": self.parallel}
        return json.dumps({**rest, **tensors, **plain}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Metadata:
        """Read what :meth:`to_json` wrote.

        Raises:
            ArtifactError: it is no JSON, or a field is missing or of another type; the message names it.
        """
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"the metadata is not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise ArtifactError(f"the metadata is no JSON object but {type(fields).__name__}")
        for key, kind in _FIELDS.items():
            value = fields.get(key)
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                raise ArtifactError(f"metadata field {key!r} is {value!r}; {kind.__name__} is needed")
        for group, keys in _TEXTS.items():
            for key in keys:
                if not isinstance(fields[group].get(key), str):
                    raise ArtifactError(f"metadata field {group}[{key!r}] is not text")
        features = fields["machine"].get("features")
        if not isinstance(features, list) or not all(isinstance(f, str) for f in features):
            raise ArtifactError("metadata field machine['features'] is no list of names")
        for key in _TENSORS:
            fields[key] = tuple(_tensor(key, row) for row in fields[key])
        return cls(**{key: fields[key] for key in _FIELDS})


_TENSORS = ("inputs", "outputs", "weights")
_FIELDS: dict[str, type] = {
    "format": int, "threads": int, "parallel": bool, "inputs": list, "outputs": list, "weights": list,
    "machine": dict, "versions": dict, "model": dict, "report": dict,
}  # fmt: skip
_TEXTS = {"machine": ("isa", "mcpu", "triple"), "versions": ("tvm", "tvm_ffi"), "model": ("name", "sha256")}


def _tensor(key: str, row: Any) -> TensorSpec:
    """One tensor of the JSON, checked."""
    try:
        name, shape, dtype = row
        if not (isinstance(name, str) and isinstance(dtype, str) and isinstance(shape, list)):
            raise TypeError("a row is [name, shape, dtype]")
        if not all(type(dim) is int and dim >= 0 for dim in shape):
            raise ValueError("dimensions are whole numbers, 0 or more")
        spec = TensorSpec(name, tuple(shape), dtype)
        if spec.numpy_dtype.hasobject:
            raise TypeError(f"no dtype of numbers: {dtype}")
        return spec
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"metadata field {key!r} has the tensor {row!r}: {error}") from error


def installed_versions() -> dict[str, str]:
    """Versions that an artifact records, and must find again: of "tvm", "tvm_ffi" and "tvm_ext"."""
    from importlib import metadata

    import tvm_ffi

    try:
        own = metadata.version("tvm-ext")
    except metadata.PackageNotFoundError:  # a source tree that was never installed
        own = "0+unknown"
    return {"tvm": tvm_version(), "tvm_ffi": tvm_ffi.__version__, "tvm_ext": own}

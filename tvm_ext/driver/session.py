"""InferenceSession: a drop-in for onnxruntime's, over a compiled model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import InputError, ModelError, OptionError
from ..runtime.library import ELF_MAGIC
from ..runtime.model import CompiledModel, load
from ..runtime.spec import TensorSpec

PROVIDER = "TvmExtExecutionProvider"

_ONNX_TYPES = {"float32": "float", "float64": "double"}
"""numpy's name -> ONNX's, where they differ."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output as onnxruntime describes one: `name`, `shape` (numbers, and the name of a symbolic batch),
    `type` ("tensor(float)").
    """

    name: str
    shape: list[int | str]
    type: str

    @classmethod
    def of(cls, spec: TensorSpec) -> NodeArg:
        return cls(spec.name, list(spec.shape), f"tensor({_ONNX_TYPES.get(spec.dtype, spec.dtype)})")


@dataclass(frozen=True)
class ModelMeta:
    """What is known of the model: the field of onnxruntime's that an artifact keeps, and the model's SHA-256."""

    graph_name: str
    custom_metadata_map: dict[str, str]


class InferenceSession:
    """Runs a model with the calls of `onnxruntime.InferenceSession`.

    Args:
        path_or_bytes: an ONNX model (path, bytes or `onnx.ModelProto`), or the path of an exported model.
        sess_options: onnxruntime's `SessionOptions`, or None; `intra_op_num_threads` is used (0: the default), the
            rest says how onnxruntime works and is ignored.
        providers, provider_options: accepted and ignored: there is one provider, this CPU.
        **compile_options: as for :func:`tvm_ext.compile`, but `fallback` is "onnxruntime" unless it is given: what runs
            there runs here; for an exported model `threads_wait` alone.

    Raises:
        OptionError: options for an exported model, or two different numbers of threads.
        ModelError, UnsupportedError: as :func:`tvm_ext.compile`.
        ArtifactError: as :func:`tvm_ext.load`.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        **compile_options: Any,
    ) -> None:
        options = _with_threads(compile_options, getattr(sess_options, "intra_op_num_threads", 0))
        if _is_artifact(path_or_bytes):
            wait = compile_options.pop("threads_wait", None)
            if compile_options:
                fix = "give them when the model is compiled"
                raise OptionError(f"{path_or_bytes}: compiled already; no use for {sorted(compile_options)}", fix=fix)
            self._compiled = load(path_or_bytes, threads_wait=wait)
        else:
            from .compile import compile_model

            self._compiled = compile_model(path_or_bytes, **{"fallback": "onnxruntime", **options})
        self._output_names = [spec.name for spec in self._compiled.outputs]

    @property
    def compiled(self) -> CompiledModel:
        """The compiled model behind the session."""
        return self._compiled

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[np.ndarray]:
        """Run once.

        Args:
            output_names: which outputs, in which order; None or an empty list is all of them.
            input_feed: input name -> array.
            run_options: accepted and ignored.

        Returns:
            The outputs, in the order of `output_names`.

        Raises:
            InputError: an unknown output, or inputs that do not fit.
        """
        names = output_names or self._output_names
        if not isinstance(names, Iterable) or isinstance(names, str):
            what = "one name" if isinstance(names, str) else "no list"
            raise InputError(f"output_names={names!r} is {what}; give a list", fix=f"choose of {self._output_names}")
        if unknown := [name for name in names if name not in self._output_names]:
            raise InputError(f"no output {unknown}; give a list", fix=f"choose of {self._output_names}")
        if not isinstance(input_feed, Mapping):
            raise InputError(f"input_feed is {type(input_feed).__name__}", fix="pass a dict: input name -> array")
        outputs = self._compiled.run(input_feed)
        return [outputs[name] for name in names]

    def get_inputs(self) -> list[NodeArg]:
        """The inputs, in the model's order."""
        return [NodeArg.of(spec) for spec in self._compiled.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the model's order."""
        return [NodeArg.of(spec) for spec in self._compiled.outputs]

    def get_providers(self) -> list[str]:
        """Always this library's one provider."""
        return [PROVIDER]

    def get_modelmeta(self) -> ModelMeta:
        """Name and SHA-256 of the model."""
        model = self._compiled.metadata.model
        return ModelMeta(model["name"], {"sha256": model["sha256"]})


def _with_threads(options: dict[str, Any], threads: int) -> dict[str, Any]:
    """Compile options, with onnxruntime's number of threads; 0 leaves the default."""
    if not threads:
        return options
    if options.get("threads") not in (None, threads):
        given = f"threads={options['threads']!r} and sess_options.intra_op_num_threads={threads!r}"
        raise OptionError(f"two numbers of threads: {given}", fix="set one of them")
    return {**options, "threads": threads}


def _is_artifact(source: Any) -> bool:
    """Whether this is the path of a shared library.

    Raises:
        ModelError: the bytes of one.
    """
    if isinstance(source, str | os.PathLike):
        try:
            with Path(source).open("rb") as file:
                return file.read(len(ELF_MAGIC)) == ELF_MAGIC
        except (OSError, ValueError):
            return False  # the reader of models says what is wrong
    if isinstance(source, bytes | bytearray | memoryview) and bytes(source[: len(ELF_MAGIC)]) == ELF_MAGIC:
        raise ModelError("these bytes are a shared library, not an ONNX model", fix="pass the artifact's path")
    return False

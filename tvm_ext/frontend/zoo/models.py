"""The zoo's models by name, and how one is written to a file."""

import inspect
import os
import pathlib
from collections.abc import Callable
from typing import Any

import onnx

from ...core.errors import OptionError, choose_of
from ...runtime.files import write_whole
from .encoder import bert
from .mobilenet import mobilenet_v2
from .perceptron import mlp
from .resnet import resnet18, resnet34, resnet50

#: Model name -> builder.
MODELS: dict[str, Callable[..., onnx.ModelProto]] = {
    "mlp": mlp, "resnet18": resnet18, "resnet34": resnet34, "resnet50": resnet50, "mobilenet_v2": mobilenet_v2,
    "bert": bert,
}  # fmt: skip


def save(name: str, path: str | os.PathLike[str], **options: Any) -> pathlib.Path:
    """Build a model and write it; the file appears whole or not at all.

    Args:
        name: one of :data:`MODELS`.
        path: the ONNX file to write; replaced if it exists.
        **options: keywords of the builder (`batch`, `seed`, `weights`, ...).

    Returns:
        The path written.

    Raises:
        OptionError: an unknown model, or an option its builder does not take.
        ToolError: the file cannot be written.
    """
    if name not in MODELS:
        raise OptionError(f"the zoo has no model {name!r}", fix=choose_of(name, "models", sorted(MODELS)))
    path = pathlib.Path(path)
    data = _build(name, options).SerializeToString(deterministic=True)
    write_whole(path, lambda file: file.write(data))
    return path


def _build(name: str, options: dict[str, Any]) -> onnx.ModelProto:
    known = inspect.signature(MODELS[name]).parameters
    for option in options:
        if option not in known:
            raise OptionError(f"{name} has no option {option!r}", fix=f"options: {', '.join(known)}")
    return MODELS[name](**options)

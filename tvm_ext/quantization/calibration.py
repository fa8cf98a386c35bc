"""Calibration samples: what a user gives, checked against the model's inputs and cut into single batches."""

import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ..core.errors import InputError, OptionError, UnsupportedError
from ..verification.arrays import load_npy, load_npz

Sample = dict[str, np.ndarray]

_FIX = (
    "give inputs that are typical of what the model will see (some hundred are enough): an iterable of arrays or of "
    "dicts input name -> array, an .npz file (a stack for each input), an .npy file, or a folder of such files"
)


@dataclass(frozen=True)
class InputSpec:
    """An input of an ONNX model: sizes are numbers, or names where the model leaves them free ("" has no name)."""

    name: str
    dtype: np.dtype
    shape: tuple[int | str, ...]


def input_specs(model: Any) -> tuple[InputSpec, ...]:
    """The inputs of an `onnx.ModelProto` that are no weights.

    Raises:
        UnsupportedError: one is a sequence or an optional.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    if nested := [i.name for i in model.graph.input if not i.type.HasField("tensor_type")]:
        fix = "quantize the weights alone: weights='int8'"
        raise UnsupportedError(f"input {nested[0]!r} is no tensor: ranges are measured on tensors", fix=fix)
    return tuple(
        InputSpec(i.name, np.dtype(onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)), _shape(i))
        for i in model.graph.input
        if i.name not in weights
    )


def read_samples(calibration: Any, model: Any) -> list[Sample]:
    """Samples of one batch each, in the order given; files of a folder by their names.

    Args:
        calibration: an array, a dict, an iterable of these, or the path of an .npz or .npy file or of a folder of
            them. An array that is a stack of batches along its first axis is cut into them.
        model: the `onnx.ModelProto`; it says what an input looks like.

    Raises:
        OptionError: there is no calibration, or it is something else.
        InputError: a sample does not fit the model; the message says which one.
    """
    if calibration is None:
        raise OptionError("quantize needs calibration=: ranges of activations cannot be known without inputs", fix=_FIX)
    specs, splits = input_specs(model), _splits(model)
    samples = [
        part
        for label, sample in _labelled(calibration)
        for part in _cut(_checked(sample, specs, label), specs, splits)
    ]  # fmt: skip
    if not samples:
        raise InputError(f"calibration={_short(calibration)}: no sample in it", fix=_FIX)
    return samples


class OneSample:
    """A sample as onnxruntime's calibrators read it: the sample, then None."""

    def __init__(self, sample: Sample) -> None:
        self._left: list[Sample] = [sample]

    def get_next(self) -> Sample | None:
        """The sample at the first call."""
        return self._left.pop() if self._left else None


def _labelled(calibration: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(calibration, str | os.PathLike):
        yield from _read(pathlib.Path(calibration))
    elif isinstance(calibration, np.ndarray | Mapping):
        yield "calibration", calibration
    elif isinstance(calibration, Iterable):
        yield from ((f"calibration sample {number}", sample) for number, sample in enumerate(calibration))
    else:
        raise OptionError(f"calibration={_short(calibration)}: no samples", fix=_FIX)


def _read(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (".npz", ".npy"))
        if not files:
            raise InputError(f"calibration={str(path)!r}: no .npz or .npy file is in the folder", fix=_FIX)
        for file in files:
            yield from _read(file)
    elif path.suffix == ".npz":
        yield path.name, load_npz(path)
    elif path.suffix == ".npy":
        yield path.name, load_npy(path)
    else:
        raise InputError(f"calibration={str(path)!r}: neither .npz, nor .npy, nor a folder", fix=_FIX)


def _checked(sample: Any, specs: tuple[InputSpec, ...], label: str) -> Sample:
    """A sample as arrays by input name, each of which fits its input.

    Raises:
        InputError: it has not the inputs of the model, or an array of another type or shape.
    """
    if not isinstance(sample, Mapping):
        if len(specs) != 1:
            names = ", ".join(spec.name for spec in specs)
            raise InputError(f"{label} is one array, and the model has inputs {names}", fix="give dicts name -> array")
        sample = {specs[0].name: sample}
    if unknown := [name for name in sample if name not in {spec.name for spec in specs}]:
        names = ", ".join(spec.name for spec in specs)
        raise InputError(f"{label}: {unknown[0]!r} is no input of the model; inputs: {names}")
    return {spec.name: _array(sample, spec, label) for spec in specs}


def _array(sample: Mapping[str, Any], spec: InputSpec, label: str) -> np.ndarray:
    if spec.name not in sample:
        raise InputError(f"{label}: input {spec.name!r} is missing")
    array = np.asarray(sample[spec.name])
    wanted = f"{spec.dtype.name}[{', '.join(str(size or '?') for size in spec.shape)}]"
    actual = f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"
    if array.dtype != spec.dtype:
        raise InputError(
            f"{label}: input {spec.name!r} is {actual}, and the model takes {wanted}",
            fix=f"preprocess samples as for the model itself; array.astype('{spec.dtype.name}') changes the type only",
        )
    sizes = zip(array.shape[1:], spec.shape[1:], strict=False)
    fits = array.ndim == len(spec.shape) and all(isinstance(size, str) or size == n for n, size in sizes)
    if fits and array.ndim and isinstance(spec.shape[0], int):
        fits = array.shape[0] > 0 and array.shape[0] % spec.shape[0] == 0
    if not fits or not array.size:
        raise InputError(f"{label}: input {spec.name!r} is {actual}, and the model takes {wanted}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{label}: input {spec.name!r} has NaN or infinite elements, of which there is no range")
    return array


def _splits(model: Any) -> bool:
    """Whether the first axis is free and the same one, a batch, in every input and output."""
    weights = {tensor.name for tensor in model.graph.initializer}
    ends = [*(value for value in model.graph.input if value.name not in weights), *model.graph.output]
    first = {(_shape(value) or ("",))[0] for value in ends}
    return len(first) == 1 and all(isinstance(size, str) and size for size in first)


def _cut(sample: Sample, specs: tuple[InputSpec, ...], splits: bool) -> Iterator[Sample]:
    """Batches of the model's own size; of a free batch, single rows, so that memory holds one at a time."""
    sizes = {spec.name: 1 if isinstance(spec.shape[0], str) else spec.shape[0] for spec in specs if spec.shape}
    free = any(isinstance(spec.shape[0], str) for spec in specs if spec.shape)
    counts = {sample[name].shape[0] // size for name, size in sizes.items()}
    if len(sizes) < len(specs) or len(counts) != 1 or (free and not splits):
        yield sample
        return
    for index in range(counts.pop()):
        yield {name: sample[name][index * size : (index + 1) * size] for name, size in sizes.items()}


def _shape(value: Any) -> tuple[int | str, ...]:
    sizes = value.type.tensor_type.shape.dim
    return tuple(dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else dim.dim_param for dim in sizes)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"

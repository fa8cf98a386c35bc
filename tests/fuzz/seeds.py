"""What mutants are made of: small models with inputs, and files beside them."""

import functools
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import external_data_helper, numpy_helper

from ..onnx_backend.cases import Case, all_cases
from .models import all_models

#: Names of node cases of up to 6,000 bytes, in an order that stays: another list would be another series of mutants.
_NAMES = pathlib.Path(__file__).with_name("seed_cases.txt")


@dataclass(frozen=True)
class Seed:
    """A model that compiles, and agrees with onnxruntime.

    Attributes:
        name: for people.
        model: serialized.
        feeds: input name -> value.
        files: name -> content, of the model's external data.
    """

    name: str
    model: bytes
    feeds: Mapping[str, np.ndarray] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


@functools.cache
def all_seeds() -> tuple[tuple[Seed, ...], tuple[Seed, ...]]:
    """Models of several nodes; and ONNX's own cases of single operators, two of each that both sides pass."""
    models = [Seed(name, proto.SerializeToString()) for name, proto in all_models().items()]
    models += [_external(name) for name in ("convolutional 17", "quantized", "functions")]
    cases = [all_cases()[name] for name in _NAMES.read_text().split() if name in all_cases()]
    return tuple(models), tuple(map(_of_case, cases))


def _of_case(case: Case) -> Seed:
    """The case with the inputs that decide a shape as initializers."""
    model = onnx.ModelProto.FromString(case.model)
    feeds = dict(zip([value.name for value in model.graph.input], case.inputs, strict=True))
    kept = [value for value in model.graph.input if value.name not in case.frozen]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(feeds.pop(name), name) for name in case.frozen)
    return Seed(case.name, model.SerializeToString(), feeds)


def _external(name: str) -> Seed:
    """A model whose tensors lie in two files."""
    model, files = all_models()[name], {"weights.bin": b"", "more/tail.bin": b"\x01" * 5}
    tensors = [*model.graph.initializer, *(a.t for n in model.graph.node for a in n.attribute if a.HasField("t"))]
    for number, tensor in enumerate(tensors):
        data, file = numpy_helper.to_array(tensor).tobytes(), list(files)[number % 2]
        for held in ("float_data", "int32_data", "int64_data"):
            tensor.ClearField(held)
        tensor.raw_data = data
        external_data_helper.set_external_data(tensor, file, offset=len(files[file]), length=len(data))
        tensor.ClearField("raw_data")
        files[file] += data
    return Seed(f"{name}, external", model.SerializeToString(), {}, files)

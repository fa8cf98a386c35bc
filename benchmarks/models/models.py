"""The models that are timed: of the zoo, of wheels, and of one operator each; with shapes and
inputs that make sense."""

import functools
import pathlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from tests.real_models.models import MODELS as REAL
from tvm_ext.core.sample_inputs import seeded_inputs
from tvm_ext.frontend import zoo
from tvm_ext.frontend.reading.reader import read_model
from tvm_ext.frontend.reading.shapes import input_specs
from tvm_ext.frontend.zoo.builder import GraphBuilder
from tvm_ext.frontend.zoo.parameters import Parameters, kaiming
from tvm_ext.runtime.spec import TensorSpec

Inputs = dict[str, np.ndarray]
Write = Callable[[pathlib.Path], pathlib.Path]


@dataclass(frozen=True)
class Model:
    """An ONNX model.

    Attributes:
        title: for tables that name models.
        write: puts it into a folder, or finds it, and returns its path; raises Unavailable where it
            cannot.
        draw: seed -> arrays for inputs whose values matter, and whose dimensions may be free; the
            others are drawn by seed, standard normal.
    """

    title: str
    write: Write
    draw: Callable[[int], Inputs] = field(default=lambda seed: {})

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the inputs that it draws."""
        return {name: array.shape for name, array in self.draw(0).items()}

    def inputs(self, folder: pathlib.Path, seed: int = 0) -> Inputs:
        """Inputs by name, of the same shapes for every seed; the model is written to the folder."""
        specs = _specs(self.write(folder), tuple(self.shapes.items()))
        return {**seeded_inputs(specs, seed), **self.draw(seed)}


@functools.cache
def _specs(path: pathlib.Path, shapes: tuple[tuple[str, Any], ...]) -> tuple[TensorSpec, ...]:
    source = read_model(path)
    return input_specs(source.proto.graph, dict(shapes), source.name)


def outputs_of(path: pathlib.Path) -> list[str]:
    """Names of a model's outputs."""
    return [output.name for output in onnx.load(path, load_external_data=False).graph.output]


def of_zoo(title: str, name: str, **options: Any) -> Model:
    """A model of the zoo, seeded."""
    suffix = "".join(f"_{key}{value}" for key, value in options.items())

    def write(folder: pathlib.Path) -> pathlib.Path:
        path = folder / f"{name}{suffix}.onnx"
        return path if path.exists() else zoo.save(name, path, **options)

    return Model(title, write)


def of_wheel(title: str, key: str) -> Model:
    """A trained model, with the first size and the inputs of its test."""
    model = REAL[key]
    return Model(title, lambda _: model.file(), lambda seed: model.inputs(model.sizes[0], seed))


def of_graph(title: str, name: str, build: Callable[[GraphBuilder], Any]) -> Model:
    """A model of few operators."""

    def write(folder: pathlib.Path) -> pathlib.Path:
        graph = GraphBuilder(name, Parameters(seed=0))
        path = folder / f"{name}.onnx"
        path.write_bytes(graph.build(output=build(graph)).SerializeToString())
        return path

    return Model(title, write)


def conv3x3(channels: int, size: int) -> Model:
    """One 3x3 convolution of stride 1 with padding, as many channels out as in."""

    def build(g: GraphBuilder) -> Any:
        x = g.input("input", (1, channels, size, size))
        return g.conv(x, "conv", channels, kernel=3, pad=1)

    return of_graph("", f"conv3x3_{channels}_{size}", build)


def dense(m: int, k: int, n: int) -> Model:
    """[m, k] x constant [k, n]."""

    def build(g: GraphBuilder) -> Any:
        x, w = g.input("input", (m, k)), g.parameter("weight", (k, n), kaiming(k, 1.0))
        return g.node("MatMul", "matmul", [x.name, w], (m, n))

    return of_graph(f"MatMul {m}x{k}x{n}, constant weights", f"dense_{m}_{k}_{n}", build)


def matmul(a: tuple[int, ...], b: tuple[int, ...]) -> Model:
    """Both operands are inputs."""

    def build(g: GraphBuilder) -> Any:
        return g.matmul(g.input("a", a), g.input("b", b), "matmul")

    return of_graph("", "matmul_" + "x".join(map(str, a)), build)


#: key -> its model
MODELS: Mapping[str, Model] = {
    "resnet18": of_zoo("ResNet-18", "resnet18"),
    "resnet18-b16": of_zoo("ResNet-18, batch 16", "resnet18", batch=16),
    "resnet34": of_zoo("ResNet-34", "resnet34"),
    "resnet50": of_zoo("ResNet-50", "resnet50"),
    "mobilenet-v2": of_zoo("MobileNetV2", "mobilenet_v2"),
    "mlp": of_zoo("MLP", "mlp"),
    "mlp-b64": of_zoo("MLP, batch 64", "mlp", batch=64),
    "bert": of_zoo("BERT layer", "bert"),
    "open-nsfw": of_wheel("open-nsfw (trained)", "open-nsfw"),
    "pp-ocr-rec": of_wheel("PP-OCRv4 rec (trained), 1x3x48x320", "pp-ocr-rec"),
    "minilm": of_wheel("paraphrase-MiniLM-L3 (trained), 64 tokens", "minilm-l3"),
    "matmul-512-weights": dense(512, 512, 512),
    "matmul-512-inputs": matmul((512, 512), (512, 512)),
    "matmul-1x512x1000": dense(1, 512, 1000),
    "batch-matmul": matmul((12, 64, 64), (12, 64, 64)),
    "conv3x3-56": conv3x3(64, 56),
    "conv3x3-28": conv3x3(128, 28),
    "conv3x3-14": conv3x3(256, 14),
    "conv3x3-7": conv3x3(512, 7),
    "dense-1x1024x4096": dense(1, 1024, 4096),
    "dense-1x8192x6144": dense(1, 8192, 6144),
}

"""The models of the suite: of the zoo, of wheels, and of one operator each; with shapes and inputs that make sense."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from _pinned import MINI_LM, OPEN_NSFW, PP_OCR

from tvm_ext.frontend import zoo
from tvm_ext.frontend.zoo.builder import GraphBuilder
from tvm_ext.frontend.zoo.parameters import Parameters, kaiming

Inputs = dict[str, np.ndarray]


def _drawn() -> Inputs:
    """None: the benchmark draws them, standard normal."""
    return {}


@dataclass(frozen=True)
class Model:
    """An ONNX model.

    Attributes:
        write: puts it into a folder, or finds it, and returns its path; raises Unavailable where it cannot.
        shapes: of inputs whose dimensions are free.
        inputs: arrays for inputs whose values matter.
    """

    write: Callable[[pathlib.Path], pathlib.Path]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: Callable[[], Inputs] = _drawn


def of_zoo(name: str, **options: Any) -> Model:
    """A model of the zoo, seeded."""
    suffix = "".join(f"_{key}{value}" for key, value in options.items())
    return Model(lambda folder: zoo.save(name, folder / f"{name}{suffix}.onnx", **options))


def of_graph(name: str, build: Callable[[GraphBuilder], Any]) -> Model:
    """A model of one operator."""

    def write(folder: pathlib.Path) -> pathlib.Path:
        graph = GraphBuilder(name, Parameters(seed=0))
        proto = graph.build(output=build(graph))
        path = folder / f"{name}.onnx"
        path.write_bytes(proto.SerializeToString())
        return path

    return Model(write)


def conv3x3(channels: int, size: int) -> Model:
    """One 3x3 convolution of stride 1 with padding, as many channels out as in."""

    def build(g: GraphBuilder) -> Any:
        return g.conv(g.input("input", (1, channels, size, size)), "conv", channels, kernel=3, pad=1)

    return of_graph(f"conv3x3_{channels}_{size}", build)


def dense(m: int, k: int, n: int) -> Model:
    """[m, k] x constant [k, n]."""

    def build(g: GraphBuilder) -> Any:
        x = g.input("input", (m, k))
        return g.node("MatMul", "matmul", [x.name, g.parameter("weight", (k, n), kaiming(k, 1.0))], (m, n))

    return of_graph(f"dense_{m}_{k}_{n}", build)


def matmul(a: tuple[int, ...], b: tuple[int, ...]) -> Model:
    """Both operands are inputs."""

    def build(g: GraphBuilder) -> Any:
        return g.matmul(g.input("a", a), g.input("b", b), "matmul")

    return of_graph("matmul_" + "x".join(map(str, a)), build)


def _pixels() -> Inputs:
    """Pixels of 0 to 255 less the mean colour of ImageNet, BGR, channels last: what open-nsfw was trained on."""
    pixels = np.random.default_rng(0).uniform(0, 255, (1, 224, 224, 3))
    return {"input:0": (pixels - (104, 117, 123)).astype(np.float32)}


def _text_line() -> Inputs:
    """A line of text's pixels in -1 to 1."""
    return {"x": np.random.default_rng(0).uniform(-1, 1, (1, 3, 48, 320)).astype(np.float32)}


def _tokens() -> Inputs:
    """64 tokens of the vocabulary of 30,522, [CLS] before and [SEP] behind, none of them padding."""
    ids = np.random.default_rng(0).integers(1000, 30522, (1, 64))
    ids[0, 0], ids[0, -1] = 101, 102
    return {"input_ids": ids, "attention_mask": np.ones((1, 64), np.int64)}


#: key of a row -> its model
MODELS: dict[str, Model] = {
    "resnet18": of_zoo("resnet18"),
    "resnet18-b16": of_zoo("resnet18", batch=16),
    "resnet34": of_zoo("resnet34"),
    "resnet50": of_zoo("resnet50"),
    "mobilenet-v2": of_zoo("mobilenet_v2"),
    "mlp": of_zoo("mlp"),
    "mlp-b64": of_zoo("mlp", batch=64),
    "bert": of_zoo("bert"),
    "open-nsfw": Model(lambda _: OPEN_NSFW.file(), {"input:0": (1, 224, 224, 3)}, _pixels),
    "pp-ocr-rec": Model(lambda _: PP_OCR.file("ch_PP-OCRv4_rec_infer.onnx"), {"x": (1, 3, 48, 320)}, _text_line),
    "minilm": Model(lambda _: MINI_LM.file(), {"input_ids": (1, 64), "attention_mask": (1, 64)}, _tokens),
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

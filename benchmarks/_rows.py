"""The rows of the suite: what is measured, and the bar it is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import _measures as measures
from _measures import Outcome, Settings

RATIO = "time / onnxruntime's"


@dataclass(frozen=True)
class SuiteRow:
    """One row.

    Attributes:
        key: its name, for `--only`.
        title: what is measured, for the table.
        bar: the most the figure may be; the least with `at_least`.
        figure: what the figure is; rows of :data:`RATIO` are drawn in the chart.
        measure: how it is found.
        model: of the models, whose program is timed, and profiled where the bar is missed; "" where nothing is timed.
    """

    key: str
    title: str
    bar: float
    measure: Callable[[Settings], Outcome]
    figure: str = RATIO
    at_least: bool = False
    model: str = ""

    def met(self, value: float | None) -> bool:
        """Whether the bar is met; without a figure it is not."""
        if value is None:
            return False
        return value >= self.bar if self.at_least else value <= self.bar


def _race(key: str, title: str, bar: float) -> SuiteRow:
    return SuiteRow(key, title, bar, lambda settings: measures.race(key, settings), model=key)


def _bandwidth(k: int, n: int) -> SuiteRow:
    key = f"dense-1x{k}x{n}"
    title = f"Dense 1x{k}x{n}, {4 * k * n / 1e6:.0f} MB of weights"
    return SuiteRow(
        key, title, 0.8, lambda s: measures.bandwidth(key, k, n, s), "bytes a second / a plain read's", True, key
    )


def _size(key: str, title: str) -> SuiteRow:
    return SuiteRow(f"size-{key}", title, 2.0, lambda s: measures.size(key, s), "artifact / ONNX file, bytes")


def _memory(key: str, title: str) -> SuiteRow:
    what = "peak memory / onnxruntime's"
    return SuiteRow(
        f"memory-{key}", title, 2.0, lambda s: measures.memory(key, s), what
    )  # fmt: skip


ROWS: tuple[SuiteRow, ...] = (
    _race("resnet18", "ResNet-18", 0.65),
    _race("resnet18-b16", "ResNet-18, batch 16", 0.65),
    _race("resnet34", "ResNet-34", 0.65),
    _race("resnet50", "ResNet-50", 0.85),
    _race("mobilenet-v2", "MobileNetV2", 0.9),
    _race("mlp", "MLP 784-512-512-10", 0.9),
    _race("mlp-b64", "MLP 784-512-512-10, batch 64", 0.9),
    _race("bert", "BERT layer, sequence 128, hidden 768", 0.9),
    _race("open-nsfw", "open-nsfw (trained)", 0.8),
    _race("pp-ocr-rec", "PP-OCRv4 rec (trained), 1x3x48x320", 0.55),
    _race("minilm", "paraphrase-MiniLM-L3 (trained), sequence 64", 0.75),
    _race("matmul-512-weights", "MatMul 512x512x512, constant weights", 0.95),
    _race("matmul-512-inputs", "MatMul 512x512x512, both inputs", 1.05),
    _race("matmul-1x512x1000", "MatMul 1x512x1000, constant weights", 1.0),
    _race("batch-matmul", "Batch matmul 12x64x64x64", 1.0),
    _race("conv3x3-56", "Conv 3x3, 64 channels, 56x56", 0.6),
    _race("conv3x3-28", "Conv 3x3, 128 channels, 28x28", 0.5),
    _race("conv3x3-14", "Conv 3x3, 256 channels, 14x14", 0.7),
    _race("conv3x3-7", "Conv 3x3, 512 channels, 7x7", 1.0),
    _bandwidth(1024, 4096),
    _bandwidth(8192, 6144),
    SuiteRow("compile-resnet50", "ResNet-50", 15.0, measures.compile_cold,
             "compile in a cold process, seconds"),
    _size("resnet18", "ResNet-18"),
    _size("resnet50", "ResNet-50"),
    _size("mobilenet-v2", "MobileNetV2"),
    _size("minilm", "paraphrase-MiniLM-L3"),
    _memory("resnet18", "ResNet-18"),
    _memory("resnet50", "ResNet-50"),
    _memory("mobilenet-v2", "MobileNetV2"),
    _memory("minilm", "paraphrase-MiniLM-L3"),
    SuiteRow("scaling-resnet18", "ResNet-18", 1.1, measures.scaling,
             "2 threads / 1 thread, over an FMA loop's", model="resnet18"),
)  # fmt: skip

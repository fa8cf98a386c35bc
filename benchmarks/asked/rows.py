"""The rows of the suite: what is measured, and the bar it is held to."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.asked import measures
from benchmarks.asked.measures import Outcome
from benchmarks.asked.settings import Settings

RATIO = "time / onnxruntime's"


@dataclass(frozen=True)
class SuiteRow:
    """One row.

    Attributes:
        key: its name, for `--only`.
        title: what is measured, for the table.
        bar: the most the figure may be; the least with `at_least`.
        measure: how it is found.
        figure: what the figure is; rows of :data:`RATIO` are drawn in the chart.
        at_least: whether the bar is the least that the figure may be.
        model: of the models, whose program is timed, and profiled where the bar is missed; "" where
            nothing is timed.
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
    return SuiteRow(key, title, bar, partial(measures.race, key), model=key)


def _bandwidth(k: int, n: int) -> SuiteRow:
    key, title = f"dense-1x{k}x{n}", f"Dense 1x{k}x{n}, {4 * k * n / 1e6:.0f} MB of weights"
    measure = partial(measures.bandwidth, key, k, n)
    return SuiteRow(key, title, 0.8, measure, "bytes a second / a plain read's", True, key)


def _exported(key: str, title: str) -> list[SuiteRow]:
    """An artifact's size, and the memory it takes."""
    size, memory = partial(measures.size, key), partial(measures.memory, key)
    return [
        SuiteRow(f"size-{key}", title, 2.0, size, "artifact / ONNX file, bytes"),
        SuiteRow(f"memory-{key}", title, 2.0, memory, "peak memory / onnxruntime's"),
    ]


_ARTIFACTS = [
    _exported("resnet18", "ResNet-18"), _exported("resnet50", "ResNet-50"),
    _exported("mobilenet-v2", "MobileNetV2"), _exported("minilm", "paraphrase-MiniLM-L3"),
]  # fmt: skip
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
    *(size for size, _ in _ARTIFACTS),
    *(memory for _, memory in _ARTIFACTS),
    SuiteRow("scaling-resnet18", "ResNet-18", 1.1, measures.scaling,
             "2 threads / 1 thread, over an FMA loop's", model="resnet18"),
)  # fmt: skip

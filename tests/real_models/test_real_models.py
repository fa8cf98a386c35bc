"""Trained models agree with onnxruntime, several inputs and sizes each; what cannot be downloaded is not tested."""

import onnx
import pytest

import tvm_ext
from tvm_ext.core.errors import ModelError
from tvm_ext.frontend.reading.shapes import free_shapes
from tvm_ext.runtime.model import CompiledModel

from .models import MODELS, Inputs, RealModel, Unavailable
from .pieces import pieces_of
from .reference import judge, onnxruntime_of, verdict_on
from .table import read_table

SEEDS = range(2)
#: Of the sizes of the others the last one, which is odder, is compiled here; the first one is that of the table.
EVERY_SIZE = {"silero-vad-rates"}  # the sample rate chooses a branch
#: Seconds of a compile in the table beyond which a model is fetched and compiled by `refresh` alone.
_LONGEST = 3.5
#: Of open-nsfw the other export, which computes its pads, is among them.
QUICK = [
    n for n, row in read_table().items() if row["ours"].get("compile seconds", 0.0) < _LONGEST and n != "open-nsfw"
]
REQUANTIZING = [name for name, model in MODELS.items() if model.requantizes]


def file_of(model: RealModel) -> bytes:
    """The model; the test is skipped where it cannot be had."""
    try:
        return model.file().read_bytes()
    except Unavailable as error:
        pytest.skip(f"not tested: download failed: {error}")


def compiled_for(data: bytes | onnx.ModelProto, inputs: Inputs) -> CompiledModel:
    return tvm_ext.compile(data, shapes={name: x.shape for name, x in inputs.items()}, cache=False)


@pytest.mark.long
@pytest.mark.parametrize("name", QUICK)
def test_a_trained_model_agrees_with_onnxruntime(name: str) -> None:
    model = MODELS[name]
    data = file_of(model)
    for size in model.sizes if name in EVERY_SIZE else model.sizes[-1:]:
        compiled = compiled_for(data, model.inputs(size, 0))
        for seed in SEEDS:
            inputs = model.inputs(size, seed)
            verdict = verdict_on(model, data, inputs, compiled.run(inputs))
            assert not verdict.reason, f"{name}, size {size}, seed {seed}: {verdict.reason}"


@pytest.mark.long
@pytest.mark.parametrize("name", REQUANTIZING)
def test_pieces_of_a_requantizing_model(name: str) -> None:
    """Fed with onnxruntime's own values: integers bit for bit, the rest within the tolerance of any model."""
    model = MODELS[name]
    proto = onnx.ModelProto.FromString(file_of(model))
    inputs = model.inputs(model.sizes[0], 0)
    values = onnxruntime_of(pieces_of(proto).watched.SerializeToString(), inputs)
    pieces = pieces_of(proto, values)
    for piece in (pieces.roundings, pieces.rest):
        feeds = {value.name: {**inputs, **values}[value.name] for value in piece.graph.input}
        outputs = compiled_for(piece, feeds).run(feeds)
        verdict = judge(outputs, {output: values[output] for output in outputs})
        assert not verdict.reason
        assert len(outputs) >= 32


@pytest.mark.long
@pytest.mark.parametrize("name", ["minilm-l3", "attacut-sc", "pp-ocr-cls"])
def test_what_is_free_is_of_any_size_or_asked_for(name: str) -> None:
    """Without `shapes` one program agrees at all sizes of the model; or the message holds the line to write."""
    model, data = MODELS[name], file_of(MODELS[name])
    feeds = [model.inputs(size, 0) for size in model.sizes]
    shapes = free_shapes(onnx.ModelProto.FromString(data).graph, {})
    sizes: dict[str, list[int]] = {}
    for key, array in ((key, array) for feed in feeds for key, array in feed.items()):
        for dim, extent in zip(shapes.get(key, ()), array.shape, strict=False):
            sizes.setdefault(str(dim), []).append(extent)
    dims = {dim: (min(extents), max(extents)) for dim, extents in sizes.items() if not dim.isdigit()}
    try:
        compiled = tvm_ext.compile(data, dims=dims, cache=False, records=None)
    except ModelError as error:
        assert "inputs with free dimensions" in error.message and (error.fix or "").startswith("shapes={")
        return
    for feed in feeds:
        verdict = verdict_on(model, data, feed, compiled.run(feed))
        assert not verdict.reason, f"{name}, {dims}: {verdict.reason}"


@pytest.mark.long
@pytest.mark.parametrize("name", ["nudenet", "aecmos"])
def test_sizes_that_a_model_admits_are_read_off_it(name: str) -> None:
    """Steps of 32 and centers of cells of a detector; the batch and the least length of a model of speech."""
    model, data = MODELS[name], file_of(MODELS[name])
    compiled = tvm_ext.compile(data, cache=False, records=None)
    for size in model.sizes:
        feed = model.inputs(size, 0)
        verdict = verdict_on(model, data, feed, compiled.run(feed))
        assert not verdict.reason, f"{name}, {size}: {verdict.reason}"

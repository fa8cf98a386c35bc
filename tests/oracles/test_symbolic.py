"""Symbolic variants of a model: which dimensions agree, and at which sizes it runs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.onnx_graphs import text_model

from .reference import onnxruntime_outputs
from .symbolic import Variants


def answer(model: bytes, feeds: Mapping[str, Any]) -> list[Any]:
    return list(onnxruntime_outputs(model, feeds).values())


def variants(text: str, **feeds: np.ndarray) -> Variants:
    model = text_model(text)
    return Variants(model.SerializeToString(), feeds, answer)


def test_dimensions_that_must_agree_have_one_symbol() -> None:
    x, y = np.arange(20, dtype="float32").reshape(4, 5), np.ones((4, 5), "float32")
    symbolic = variants("add (float[4, 5] x, float[4, 5] y) => (float[4, 5] z) { z = Add(x, y) }", x=x, y=y).of([0])
    assert symbolic is not None and symbolic.dims == {"D0": (1, 4)}
    assert [run.sizes for run in symbolic.runs] == [{"D0": 1}, {"D0": 4}, {"D0": 3}, {"D0": 1}]
    assert [run.outputs[0].shape for run in symbolic.runs] == [(1, 5), (4, 5), (3, 5), (1, 5)]


def test_a_model_of_one_size_has_none() -> None:
    text = "flat (float[4, 5] x) => (float[20] z) { to = Constant <value_ints = [20]> () z = Reshape(x, to) }"
    assert variants(text, x=np.zeros((4, 5), "float32")).of([0]) is None

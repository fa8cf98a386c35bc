"""Models of the page on any size are files with free dimensions, which onnxruntime runs at the sizes measured."""

import pathlib

import numpy as np
import onnxruntime
import pytest

from benchmarks import any_size
from benchmarks.models.wheels import Wheel
from tvm_ext.runtime.sizes.symbols import shape_at


@pytest.mark.parametrize("key", [key for key in any_size.CASES if key not in ("minilm", "pp-ocr-rec")])
def test_a_model_of_the_zoo_has_free_dimensions(key: str, tmp_path: pathlib.Path) -> None:
    case = any_size.CASES[key]
    session = onnxruntime.InferenceSession(any_size._file(key, tmp_path), providers=["CPUExecutionProvider"])
    assert {value.name: tuple(value.shape) for value in session.get_inputs()} == case.shapes
    lows = {symbol: low for symbol, (low, _) in case.dims.items()}
    for sizes in (lows, dict(zip(case.dims, (3, 97, 64), strict=False))):
        shapes = {name: shape_at(shape, sizes) for name, shape in case.shapes.items()}
        outputs = session.run(None, any_size._inputs(shapes))
        assert outputs[0].shape[0] == sizes["N"] and all(np.isfinite(output).all() for output in outputs)


def test_the_others_are_files_of_wheels(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def place(wheel: Wheel, name: str = "") -> pathlib.Path:
        members = {pathlib.PurePosixPath(member).name for member in wheel.members}
        return tmp_path / (name if name in members else members.pop() if len(members) == 1 and not name else "none")

    monkeypatch.setattr(Wheel, "file", place)
    for key, name in (("minilm", "paraphrase-MiniLM-L3-v2.onnx"), ("pp-ocr-rec", "ch_PP-OCRv4_rec_infer.onnx")):
        assert any_size._file(key, tmp_path).name == name

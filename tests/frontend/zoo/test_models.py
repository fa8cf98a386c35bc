"""The zoo by name, and files that appear whole or not at all."""

import onnx
import pytest

from tvm_ext.core.errors import ModelError, OptionError, ToolError
from tvm_ext.frontend import zoo
from tvm_ext.frontend.reading.reader import fingerprint, read_model

SMALL = {"hidden": (4,), "inputs": 3, "classes": 2}


def test_names():
    assert sorted(zoo.MODELS) == ["bert", "mlp", "mobilenet_v2", "resnet18", "resnet34", "resnet50"]
    for builder in zoo.MODELS.values():
        assert builder.__doc__


def test_a_saved_model_is_the_one_built(tmp_path):
    path = zoo.save("mlp", tmp_path / "mlp.onnx", **SMALL)
    proto = zoo.mlp(**SMALL)
    assert onnx.load(path) == proto and read_model(path).sha256 == fingerprint(proto)[0]
    assert [p.name for p in tmp_path.iterdir()] == ["mlp.onnx"]


def test_saving_again_replaces_the_file(tmp_path):
    zoo.save("mlp", tmp_path / "mlp.onnx", **SMALL)
    zoo.save("mlp", tmp_path / "mlp.onnx", **SMALL, seed=1)
    assert onnx.load(tmp_path / "mlp.onnx") == zoo.mlp(**SMALL, seed=1)


def test_a_failure_leaves_nothing_and_keeps_what_was(tmp_path):
    zoo.save("mlp", tmp_path / "mlp.onnx", **SMALL)
    before = (tmp_path / "mlp.onnx").read_bytes()
    with pytest.raises(ModelError):
        zoo.save("mlp", tmp_path / "mlp.onnx", weights=tmp_path / "none.safetensors")
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [before]


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(ToolError, match="nowhere"):
        zoo.save("mlp", tmp_path / "nowhere" / "mlp.onnx", **SMALL)


def test_an_unknown_model_suggests_the_nearest(tmp_path):
    with pytest.raises(OptionError) as error:
        zoo.save("resnet-18", tmp_path / "m.onnx")
    assert "did you mean 'resnet18'" in error.value.fix and "mlp" in error.value.fix


def test_an_unknown_option_lists_those_of_the_model(tmp_path):
    with pytest.raises(OptionError, match="'layers'") as error:
        zoo.save("mlp", tmp_path / "m.onnx", layers=3)
    assert "hidden" in error.value.fix

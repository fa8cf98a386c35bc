"""Stored weights: read like the safetensors package reads them; misfits are listed."""

import json

import ml_dtypes
import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file

from tvm_ext.core.errors import ModelError
from tvm_ext.frontend import zoo
from tvm_ext.frontend.zoo.state_dict import read_state_dict

SIZES = {"hidden": (7,), "inputs": 5, "classes": 3}


@pytest.fixture
def weights():
    rng = np.random.default_rng(9)
    shapes = {"fc1.weight": (7, 5), "fc1.bias": (7,), "fc2.weight": (3, 7), "fc2.bias": (3,)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def initializers(proto):
    return {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}


def test_weights_of_a_model_are_those_stored(tmp_path, weights):
    tracked = {"bn1.num_batches_tracked": np.array(3, np.int64)}
    save_file({**weights, **tracked}, tmp_path / "w.safetensors", metadata={"format": "pt"})
    result = initializers(zoo.mlp(**SIZES, weights=tmp_path / "w.safetensors"))
    assert result.keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(result[name], array)


def test_resnet18_round_trip(tmp_path):
    proto = zoo.resnet18(seed=5)
    save_file(initializers(proto), tmp_path / "resnet18.safetensors")
    again = zoo.resnet18(seed=0, weights=tmp_path / "resnet18.safetensors")
    assert again.SerializeToString(deterministic=True) == proto.SerializeToString(deterministic=True)


@pytest.mark.parametrize("dtype", ["float64", "float16", "float32", "int64", "int32", "uint8", "int8"])
def test_dtypes_come_back_as_they_were(tmp_path, dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    save_file({"a": array, "empty": np.zeros((0, 4), dtype)}, tmp_path / "w.safetensors")
    result = read_state_dict(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(result["a"], array)
    assert result["a"].dtype == array.dtype and result["empty"].shape == (0, 4)


def test_bfloat16_becomes_float32(tmp_path):
    array = np.array([1.5, -2.0, 3e38], np.float32).astype(ml_dtypes.bfloat16)
    write(tmp_path / "w.safetensors", {"a": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}, array.tobytes())
    result = read_state_dict(tmp_path / "w.safetensors")["a"]
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, array.astype(np.float32))


def test_half_precision_weights_are_widened(tmp_path, weights):
    save_file({k: v.astype(np.float16) for k, v in weights.items()}, tmp_path / "w.safetensors")
    result = initializers(zoo.mlp(**SIZES, weights=tmp_path / "w.safetensors"))
    np.testing.assert_array_equal(result["fc1.weight"], weights["fc1.weight"].astype(np.float16).astype(np.float32))


def test_missing_extra_misshaped_and_mistyped_tensors_are_all_listed(tmp_path, weights):
    del weights["fc1.bias"]
    weights["fc2.weight"] = weights["fc2.weight"].T.copy()
    weights["fc2.bias"] = np.arange(3)
    weights["head.weight"] = np.zeros(2, np.float32)
    save_file(weights, tmp_path / "w.safetensors")
    with pytest.raises(ModelError) as error:
        zoo.mlp(**SIZES, weights=tmp_path / "w.safetensors")
    text = str(error.value)
    assert "w.safetensors" in text and "1 missing: fc1.bias (7,)" in text
    assert "fc2.weight (7, 3) instead of (3, 7)" in text and "fc2.bias of dtype int64" in text
    assert "1 not of this model: head.weight" in text and error.value.fix


def write(path, header, data=b""):
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        ({"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}, "needs 12 bytes"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}, "cut off"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}, "needs 8 bytes"),
        ({"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}, "F8_E4M3"),
        ({"dtype": "F32", "shape": [2]}, "data_offsets"),
        ({"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}, "damaged"),
        ({"dtype": "F32", "shape": [2], "data_offsets": ["a", "b"]}, "damaged"),
        (7, "damaged"),
    ],
)
def test_a_damaged_entry_names_file_and_tensor(tmp_path, entry, word):
    write(tmp_path / "w.safetensors", {"t": entry}, bytes(8))
    with pytest.raises(ModelError, match=word) as error:
        read_state_dict(tmp_path / "w.safetensors")
    assert "w.safetensors" in str(error.value) and "'t'" in str(error.value)


def test_every_cut_is_an_error_that_names_the_file(tmp_path, weights):
    save_file(weights, tmp_path / "whole.safetensors")
    data = (tmp_path / "whole.safetensors").read_bytes()
    for size in range(len(data)):
        (tmp_path / "cut.safetensors").write_bytes(data[:size])
        with pytest.raises(ModelError, match=r"cut\.safetensors"):
            read_state_dict(tmp_path / "cut.safetensors")


@pytest.mark.parametrize("data", [b"PK\x03\x04" + bytes(30), b"\x02\0\0\0\0\0\0\0[]", b"\xff" * 20])
def test_another_kind_of_file(tmp_path, data):
    (tmp_path / "w.bin").write_bytes(data)
    with pytest.raises(ModelError, match=r"w\.bin: not a safetensors file"):
        read_state_dict(tmp_path / "w.bin")


def test_no_such_file(tmp_path):
    with pytest.raises(ModelError, match=r"none\.safetensors") as error:
        zoo.mlp(weights=tmp_path / "none.safetensors")
    assert error.value.fix

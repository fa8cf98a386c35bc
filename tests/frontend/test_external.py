"""External data: read, hashed, and refused when it is missing, short, or elsewhere."""

import os
import shutil

import numpy as np
import onnx
import pytest

from tvm_ext.core.errors import ModelError
from tvm_ext.frontend.reader import fingerprint, read_model

from .graphs import linear_model, message


@pytest.fixture
def path(tmp_path):
    """linear.onnx with its weights in weights.bin."""
    folder = tmp_path / "model"
    folder.mkdir()
    onnx.save(
        linear_model(), folder / "linear.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0,
        all_tensors_to_one_file=True,
    )  # fmt: skip
    return folder / "linear.onnx"


def _set(path, **entries):
    """Change what the first initializer states of its external data."""
    proto = onnx.load(path, load_external_data=False)
    stated = {entry.key: entry for entry in proto.graph.initializer[0].external_data}
    for key, text in entries.items():
        stated[key].value = text
    path.write_bytes(proto.SerializeToString())


def test_data_is_inside_after_reading(path):
    whole = linear_model()
    proto = read_model(path).proto
    for found, expected in zip(proto.graph.initializer, whole.graph.initializer, strict=True):
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(found), onnx.numpy_helper.to_array(expected))
        assert found.data_location == onnx.TensorProto.DEFAULT and not found.external_data


def test_fingerprint_covers_the_data_file(path):
    before = fingerprint(path)[0]
    assert before == read_model(path).sha256
    data = bytearray((path.parent / "weights.bin").read_bytes())
    data[-1] ^= 1
    (path.parent / "weights.bin").write_bytes(data)
    assert fingerprint(path)[0] == read_model(path).sha256 != before


@pytest.mark.parametrize("read", [fingerprint, read_model])
def test_a_missing_file_is_named(path, read):
    os.unlink(path.parent / "weights.bin")
    with pytest.raises(ModelError) as error:
        read(path)
    assert "linear.onnx" in message(error.value) and "weights.bin" in error.value.message


def test_a_short_file_names_the_tensor_and_both_sizes(path):
    file = path.parent / "weights.bin"
    size = file.stat().st_size
    os.truncate(file, size - 1)
    with pytest.raises(ModelError) as error:
        read_model(path)
    assert "initializer 'b'" in message(error.value) and f"{size - 1} bytes" in error.value.message


def test_less_data_than_the_shape_needs(path):
    _set(path, length="56")
    with pytest.raises(ModelError) as error:
        from .graphs import imported

        imported(read_model(path).proto)
    assert "initializer 'w'" in message(error.value) and "needs 60 bytes and has 56" in error.value.message


@pytest.mark.parametrize("location", ["../secret.bin", "a/../../secret.bin", "/etc/hostname", "..\\secret.bin"])
@pytest.mark.parametrize("read", [fingerprint, read_model])
def test_a_location_outside_the_folder_is_refused(path, location, read):
    (path.parent.parent / "secret.bin").write_bytes(bytes(100))
    _set(path, location=location)
    with pytest.raises(ModelError, match="outside the model's folder") as error:
        read(path)
    assert repr(location) in message(error.value)


def test_a_link_that_leads_outside_is_refused(path):
    shutil.move(path.parent / "weights.bin", path.parent.parent / "secret.bin")
    (path.parent / "weights.bin").symlink_to(path.parent.parent / "secret.bin")
    with pytest.raises(ModelError, match="outside the model's folder"):
        read_model(path)


def test_a_model_and_its_data_linked_from_one_store_are_read(path, tmp_path):
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for name in ("linear.onnx", "weights.bin"):
        (snapshot / name).symlink_to(path.parent / name)
    assert read_model(snapshot / "linear.onnx").sha256 == read_model(path).sha256


@pytest.mark.parametrize("entries", [{"offset": "x"}, {"length": "-4"}, {"offset": "999999"}])
def test_numbers_that_cannot_be_name_the_tensor(path, entries):
    _set(path, **entries)
    with pytest.raises(ModelError, match="initializer 'w'"):
        read_model(path)


def test_a_model_without_a_folder_says_to_give_the_path(path):
    bare = onnx.load(path, load_external_data=False)
    for given in (bare, path.read_bytes()):
        for read in (fingerprint, read_model):
            with pytest.raises(ModelError, match=r"weights\.bin") as error:
                read(given)
            assert "path" in error.value.fix


def test_data_of_an_attribute_is_read(tmp_path):
    tensor = onnx.numpy_helper.from_array(np.arange(6, dtype=np.float32), "t")
    (tmp_path / "t.bin").write_bytes(bytes(8) + tensor.raw_data)
    onnx.external_data_helper.set_external_data(tensor, "t.bin", offset=8, length=24)
    tensor.ClearField("raw_data")
    proto = linear_model()
    proto.graph.node.append(onnx.helper.make_node("Constant", [], ["c"], "constant", value=tensor))
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    read = read_model(tmp_path / "m.onnx").proto.graph.node[-1].attribute[0].t
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(read), np.arange(6))

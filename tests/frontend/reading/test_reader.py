"""Reading models: what is read, the fingerprint, and one clear error for everything that is no model."""

import hashlib
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import onnx
import pytest

from tvm_ext.core.errors import ModelError
from tvm_ext.frontend.reading import reader
from tvm_ext.frontend.reading.reader import Deferred, fingerprint, read_model

from ..graphs import linear_model, message, relu_model


@pytest.fixture
def path(tmp_path):
    onnx.save(linear_model(), tmp_path / "linear.onnx")
    return tmp_path / "linear.onnx"


def test_a_path_bytes_and_a_proto_give_the_same_model(path):
    proto = linear_model()
    for source in (path, str(path), path.read_bytes(), bytearray(path.read_bytes()), proto):
        assert read_model(source).proto == proto
    assert read_model(path).name == "linear.onnx"
    assert read_model(path).folder == path.parent
    assert read_model(path.read_bytes()).name == read_model(proto).name == "small"
    assert read_model(proto).folder is None


class OfText(Deferred):
    """A model whose name is that of a graph; of the text of a file."""

    name = "text"

    def __init__(self, path):
        self.path, self.makes = path, 0

    def sha256(self):
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def make(self):
        self.makes += 1
        proto = linear_model()
        proto.graph.name = self.path.read_text()
        return proto


def test_a_model_that_is_made_later_is_known_by_what_it_is_made_of(tmp_path):
    later = OfText(tmp_path / "name.txt")
    later.path.write_text("first")
    assert fingerprint(later) == (hashlib.sha256(b"first").hexdigest(), "text") and later.makes == 0
    source = read_model(later)
    assert (source.proto.graph.name, source.name, source.folder, later.makes) == ("first", "text", None, 1)
    assert source.sha256 == fingerprint(later)[0]


def test_what_changes_while_a_model_is_made_of_it_is_refused(tmp_path):
    class Changed(OfText):
        def make(self):
            proto = super().make()
            self.path.write_text("second")
            return proto

    later = Changed(tmp_path / "name.txt")
    later.path.write_text("first")
    with pytest.raises(ModelError):
        read_model(later)


def test_a_proto_is_taken_as_it_is_and_never_changed():
    proto = linear_model()
    before = proto.SerializeToString()
    source = read_model(proto)
    assert source.proto is proto
    assert proto.SerializeToString() == before


def test_fingerprint_is_the_hash_of_the_file_and_of_what_is_read(path):
    sha256, name = fingerprint(path)
    assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest() == read_model(path).sha256
    assert name == "linear.onnx"
    assert fingerprint(path.read_bytes()) == (sha256, "small")


def test_fingerprint_changes_with_one_weight(path):
    proto = linear_model()
    data = bytearray(proto.graph.initializer[0].raw_data)
    data[0] ^= 1
    proto.graph.initializer[0].raw_data = bytes(data)
    assert fingerprint(proto)[0] != fingerprint(path)[0]


def test_fingerprint_of_a_path_imports_neither_onnx_nor_tvm(path):
    code = (
        "import sys; from tvm_ext.frontend.reading.reader import fingerprint; fingerprint(sys.argv[1]); "
        "print([m for m in ('onnx', 'tvm') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("read", [fingerprint, read_model])
def test_no_such_file_names_it_and_the_nearest(path, read):
    with pytest.raises(ModelError) as error:
        read(path.with_name("liner.onnx"))
    assert "liner.onnx" in error.value.message
    assert "did you mean" in error.value.fix and "linear.onnx" in error.value.fix


def test_no_such_folder(tmp_path):
    with pytest.raises(ModelError) as error:
        read_model(tmp_path / "nowhere" / "model.onnx")
    assert "nowhere" in error.value.fix


def test_a_folder_names_a_model_inside(path):
    with pytest.raises(ModelError) as error:
        read_model(path.parent)
    assert "is a folder" in message(error.value) and "linear.onnx" in error.value.fix


def test_an_empty_file(tmp_path):
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(ModelError, match=r"empty\.onnx.*0 bytes"):
        read_model(tmp_path / "empty.onnx")
    with pytest.raises(ModelError, match="0 bytes"):
        read_model(b"")


FOREIGN = {
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS", "git lfs pull"),
    "zip": (b"PK\x03\x04" + bytes(40), "zip", "torch.onnx.export"),
    "pickle": (pickle.dumps({"a": 1}, protocol=2), "pickle", "torch.onnx.export"),
    "html": (b"<!DOCTYPE html><html><body>404</body></html>", "web page", "download"),
    "tflite": (b"\x1c\0\0\0TFL3" + bytes(64), "TensorFlow Lite", "tf2onnx"),
    "ort": (b"\x1c\0\0\0ORTM" + bytes(64), "ORT format", "ONNX"),
    "text": (b"just some words that are not a model\n", "not an ONNX model", "onnx.save"),
    "json": (b'{"model": 1}', "not an ONNX model", "onnx.save"),
    "zeros": (bytes(100), "not an ONNX model", "onnx.save"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_files_of_other_kinds_are_named(tmp_path, kind):
    data, what, fix = FOREIGN[kind]
    (tmp_path / "thing.onnx").write_bytes(data)
    with pytest.raises(ModelError) as error:
        read_model(tmp_path / "thing.onnx")
    assert "thing.onnx" in error.value.message and what in error.value.message
    assert fix in error.value.fix


@pytest.mark.parametrize("seed", range(10))
def test_random_bytes_are_no_model(tmp_path, seed):
    (tmp_path / "noise.onnx").write_bytes(np.random.default_rng(seed).bytes(1000))
    with pytest.raises(ModelError, match=r"noise\.onnx"):
        read_model(tmp_path / "noise.onnx")


def test_every_cut_is_an_error_that_names_the_file(path):
    data = path.read_bytes()
    cut = path.with_name("cut.onnx")
    for size in range(len(data)):
        cut.write_bytes(data[:size])
        with pytest.raises(ModelError) as error:
            read_model(cut)
        assert "cut.onnx" in message(error.value)
    cut.write_bytes(data)
    assert read_model(cut).proto == linear_model()


def test_a_cut_inside_the_graph_is_called_cut_off(path):
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ModelError, match=r"linear\.onnx: cut off or damaged"):
        read_model(path)


@pytest.mark.parametrize("field", ["graph", "opset_import"])
def test_a_model_without_one_part_names_it(field):
    proto = relu_model()
    proto.ClearField(field)
    with pytest.raises(ModelError, match=f"no {field.removesuffix('_import')} in it"):
        read_model(proto.SerializeToString())


def test_more_than_two_gibibytes_say_how_to_save(tmp_path, monkeypatch):
    large = tmp_path / "large.onnx"
    with large.open("wb") as file:
        file.truncate(reader.LIMIT + 1)  # sparse: takes no room
    for read in (fingerprint, read_model):
        with pytest.raises(ModelError, match=r"large\.onnx.*2 GiB") as error:
            read(large)
        assert "save_as_external_data=True" in error.value.fix
    monkeypatch.setattr(reader, "LIMIT", 10)
    for source in (relu_model(), relu_model().SerializeToString()):
        with pytest.raises(ModelError, match="2 GiB") as error:
            read_model(source)
        assert "save_as_external_data=True" in error.value.fix


@pytest.mark.parametrize("source", [None, 3, ["model.onnx"]])
def test_something_else_names_its_type(source):
    with pytest.raises(ModelError, match=type(source).__name__) as error:
        read_model(source)
    assert "ModelProto" in error.value.fix


def test_a_file_without_permission_or_with_a_bad_name():
    with pytest.raises(ModelError, match="cannot be read"):
        read_model(pathlib.Path("a\0b.onnx"))


@pytest.mark.parametrize("old", [b"act", b"small", b"x"])
def test_names_that_are_no_text_are_refused(old):
    data = relu_model().SerializeToString().replace(old, b"\xff" * len(old))
    with pytest.raises(ModelError, match="no UTF-8 text") as error:
        read_model(data)
    assert message(error.value)


def test_a_location_that_is_no_text_is_refused(tmp_path):
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[2], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="weights.bin")
    proto = relu_model()
    proto.graph.initializer.append(tensor)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString().replace(b"weights.bin", b"weights\xff\xfe\xfdx"))
    with pytest.raises(ModelError, match=r"no UTF-8 text|does not exist"):
        read_model(tmp_path / "m.onnx")

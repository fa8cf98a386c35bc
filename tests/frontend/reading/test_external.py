"""External data: read, hashed, and refused when it is missing, short, or elsewhere."""

import os
import shutil

import numpy as np
import onnx
import pytest

from tvm_ext.core.errors import ModelError
from tvm_ext.frontend.reading.reader import content_of, fingerprint, read_model

from ..graphs import linear_model, message


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
    for tensor, expected in zip(proto.graph.initializer, whole.graph.initializer, strict=True):
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), onnx.numpy_helper.to_array(expected))
        assert tensor.data_location == onnx.TensorProto.DEFAULT and not tensor.external_data


def test_fingerprint_covers_the_data_file(path):
    before = fingerprint(path)[0]
    assert before == read_model(path).sha256
    data = bytearray((path.parent / "weights.bin").read_bytes())
    data[-1] ^= 1
    (path.parent / "weights.bin").write_bytes(data)
    assert fingerprint(path)[0] == read_model(path).sha256 != before


def test_data_that_are_replaced_while_they_are_read_are_refused(path):
    """Else a program of the new weights is cached under the hash of the old ones."""
    content = content_of(path)
    assert content.sha256 == fingerprint(path)[0]
    (path.parent / "weights.bin").write_bytes(bytes(1000))
    with pytest.raises(ModelError, match="changed since reading began"):
        read_model(content)


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
        from ..graphs import imported

        imported(read_model(path).proto)
    assert "initializer 'w'" in message(error.value) and "needs 60 bytes and has 56" in error.value.message


@pytest.mark.parametrize("sub", ["missing", "folder", "link"])
@pytest.mark.parametrize("location", ["sub/../weights.bin", "./sub/.././weights.bin", "sub\\..\\weights.bin"])
@pytest.mark.parametrize("read", [fingerprint, read_model])
def test_a_location_that_leaves_a_folder_inside_stays_inside(path, location, sub, read):
    if sub == "folder":
        (path.parent / "sub").mkdir()
    elif sub == "link":
        (path.parent / "beside").mkdir()
        (path.parent / "sub").symlink_to("beside")
    _set(path, location=location)
    read(path)


@pytest.mark.parametrize("read", [fingerprint, read_model])
def test_a_link_is_followed_before_what_leaves_it(path, read):
    (path.parent.parent / "beside").mkdir()
    shutil.copy(path.parent / "weights.bin", path.parent.parent / "secret.bin")
    (path.parent / "sub").symlink_to("../beside")  # sub/.. is the folder above, where weights.bin would lie
    _set(path, location="sub/../secret.bin")
    with pytest.raises(ModelError, match="outside the model's folder"):
        read(path)


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
    for source in (bare, path.read_bytes()):
        for read in (fingerprint, read_model):
            with pytest.raises(ModelError, match=r"weights\.bin") as error:
                read(source)
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


# ------------------------------------------------------------ what lies in the folder may be anything
def _content(path):
    """Bytes of all tensors that were read."""
    return b"".join(tensor.raw_data for tensor in read_model(path).proto.graph.initializer)


@pytest.mark.parametrize("read", [fingerprint, read_model])
@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_regular_file_is_refused_at_once(path, read, kind):
    file = path.parent / "weights.bin"
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)  # nobody writes to it: reading it would never end
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to("/dev/zero")
    with pytest.raises(ModelError, match=r"no regular file|outside the model's folder"):
        read(path)


def test_links_within_the_folder_are_followed(path):
    before = _content(path)
    (path.parent / "store").mkdir()
    shutil.move(path.parent / "weights.bin", path.parent / "store" / "blob")
    (path.parent / "weights.bin").symlink_to("store/blob")
    assert _content(path) == before


@pytest.mark.parametrize("links", [{"weights.bin": "hop", "hop": "../secret.bin"}, {"weights.bin": "weights.bin"}])
def test_chains_and_circles_of_links(path, links):
    (path.parent.parent / "secret.bin").write_bytes(bytes(100))
    (path.parent / "weights.bin").unlink()
    for name, target in links.items():
        (path.parent / name).symlink_to(target)
    with pytest.raises(ModelError, match=r"outside the model's folder|cannot be read|does not exist"):
        read_model(path)


def test_a_linked_folder_that_leads_outside_is_refused(path):
    (path.parent.parent / "secret.bin").write_bytes(bytes(100))
    (path.parent / "out").symlink_to("..")
    _set(path, location="out/secret.bin")
    with pytest.raises(ModelError, match="outside the model's folder"):
        read_model(path)


def test_a_folder_beside_whose_name_begins_alike_is_outside(path):
    other = path.parent.with_name("model2")
    other.mkdir()
    (other / "secret.bin").write_bytes(bytes(100))
    (path.parent / "weights.bin").unlink()
    (path.parent / "weights.bin").symlink_to("../model2/secret.bin")
    with pytest.raises(ModelError, match="outside the model's folder"):
        read_model(path)


def test_a_link_that_is_put_in_place_between_check_and_opening(path, monkeypatch):
    secret = path.parent.parent / "secret.bin"
    secret.write_bytes(bytes(1000))
    opened = os.open

    def late(name, *rest, **more):
        if str(name).endswith("weights.bin"):
            os.unlink(name)
            os.symlink(secret, name)
        return opened(name, *rest, **more)

    monkeypatch.setattr(os, "open", late)
    with pytest.raises(ModelError, match="cannot be read"):
        read_model(path)


def test_a_folder_that_becomes_a_link_between_check_and_opening(path, monkeypatch):
    inside, outside = path.parent / "data", path.parent.parent / "data"
    for folder in (inside, outside):
        folder.mkdir()
        shutil.copy(path.parent / "weights.bin", folder)
    _set(path, location="data/weights.bin")
    opened = os.open

    def late(name, *rest, **more):
        if str(name).endswith("weights.bin") and not inside.is_symlink():
            shutil.rmtree(inside)
            inside.symlink_to(outside)
        return opened(name, *rest, **more)

    monkeypatch.setattr(os, "open", late)
    with pytest.raises(ModelError, match="outside the model's folder"):
        read_model(path)


@pytest.mark.parametrize("location", ["", "weights.bin\0", "a" * 5000, "\udcff"])
def test_locations_that_are_no_paths(path, location):
    if location == "\udcff":  # protobuf takes no such text: the bytes are put there
        data = path.read_bytes()
        path.write_bytes(data.replace(b"weights.bin", b"weights.b\xff\xfe"))
    else:
        _set(path, location=location)
    with pytest.raises(ModelError) as error:
        read_model(path)
    assert len(error.value.message) < 1000


@pytest.mark.parametrize("text", ["9" * 5000, "1_0", "\u0663", " 4", "0x10", "1e3", "4.0", ""])
@pytest.mark.parametrize("key", ["offset", "length"])
def test_numbers_are_digits_only(path, key, text):
    _set(path, **{key: text})
    with pytest.raises(ModelError, match=f"{key} of its external data") as error:
        read_model(path)
    assert len(error.value.message) < 300

"""Reads an ONNX model from a path, bytes or ModelProto, and fingerprints it for the compile cache."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import difflib
import functools
import hashlib
import os
import pathlib
import sys
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.errors import ModelError
from . import wire
from .external import Folder, hash_files, load_external

if TYPE_CHECKING:
    import onnx

    from ...runtime.values import Value

T = TypeVar("T")
#: Protobuf's limit on one message, in bytes.
LIMIT = (1 << 31) - 1

# first bytes, at which offset, what such a file is, what to do
_FOREIGN = (
    (b"version https://git-lfs", 0, "a Git LFS pointer, not the model it stands for", "fetch it with `git lfs pull`"),
    (b"PK\x03\x04", 0, "a zip archive, as PyTorch saves", "unpack it, or export the model with torch.onnx.export"),
    (b"\x80\x02", 0, "a Python pickle, as old PyTorch saves", "export the model with torch.onnx.export"),
    (b"\x89HDF", 0, "an HDF5 file, as Keras saves", "export the model with tf2onnx"),
    (b"TFL3", 4, "a TensorFlow Lite model", "export the model with tf2onnx"),
    (b"ORTM", 4, "onnxruntime's own ORT format", "give the ONNX model it was made from"),
    (b"\x1f\x8b", 0, "a gzip archive", "unpack it"),
    (b"<", 0, "text, perhaps a web page that a failed download left", "download the model again"),
)


@dataclass(frozen=True)
class Source:
    """A model that was read.

    Attributes:
        proto: the model with all tensor data inside. If the caller gave a ModelProto it is that very object:
            never change it.
        name: the file's name, or the graph's name if there is no file; for messages and reports.
        sha256: of the content, external data included; see :func:`fingerprint`.
        folder: the folder of the model file; None if there is none.
        arguments: its inputs as callers have them, where some were sequences or optionals, and are tensors now.
        shared: what imports at several sizes have in common (:meth:`once`); None of a model that is imported once.
    """

    proto: onnx.ModelProto
    name: str
    sha256: str
    folder: pathlib.Path | None
    shared: dict[Hashable, Any] | None = dataclasses.field(default=None, repr=False, compare=False)
    arguments: tuple[Value, ...] = ()

    @contextlib.contextmanager
    def sharing(self) -> Iterator[Source]:
        """The model, to be imported at several sizes until the context ends."""
        shared: dict[Hashable, Any] = {}
        try:
            yield replace(self, shared=shared)
        finally:
            shared.clear()

    def with_proto(self, proto: onnx.ModelProto) -> Source:
        """Another model by the same name."""
        return replace(self, proto=proto, shared=None if self.shared is None else {})

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returns, which does not depend on sizes; the same object again for the same key."""
        if self.shared is None:
            return make()
        if key not in self.shared:
            self.shared[key] = make()
        return self.shared[key]


def fingerprint(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> tuple[str, str]:
    """(SHA-256 of the content, name) of a model, without decoding it.

    The hash is that of the file's bytes (what `sha256sum` prints), so a cache hit costs one reading of the file. If
    tensors lie in external files, their locations and whole contents are hashed on top; the locations are found by
    :mod:`tvm_ext.frontend.reading.wire`, which steps over the weights. A ModelProto is serialized first, bytes in
    fixed order.

    Raises:
        ModelError: there is no such file, it cannot be read, is empty or over 2 GiB, or external data is missing.
    """
    content = content_of(model)
    return content.sha256, content.name


def read_model(model: str | os.PathLike[str] | bytes | onnx.ModelProto | Deferred | Content | Source) -> Source:
    """Read a model and its external data.

    Args:
        model: a path, the bytes of an ONNX file, a ModelProto (never changed) or what makes one; or what was read of
            it before.

    Raises:
        ModelError: one message for whatever is wrong: no such file, a folder, no ONNX file, cut off, external data
            missing, too short or outside the model's folder, over 2 GiB.
    """
    if isinstance(model, Source):
        return model
    content = content_of(model)
    sha256 = content.sha256  # external data that are missing are told first
    proto = content.model()
    _check_complete(proto, content)
    if where := _no_text(proto):
        wrong = f"{content.name}: {where} is no UTF-8 text: the file is damaged"
        raise ModelError(wrong, fix="download or export the model again")
    if content.data and content.proto is None:
        load_external(proto, content.folder, content.name)
    return Source(proto, content.name, sha256, content.folder.path.parent if content.folder else None)


class Deferred(abc.ABC):
    """A model that is made only where it is not compiled yet: it is known by a hash of what it is made of.

    Attributes:
        name: of the model.
    """

    name: str

    @abc.abstractmethod
    def sha256(self) -> str:
        """A hash of all that it is made of, as it is now.

        Raises:
            ModelError: that cannot be read.
        """

    @abc.abstractmethod
    def make(self) -> onnx.ModelProto:
        """The model.

        Raises:
            ModelError: what it is made of makes none.
        """


@dataclass(frozen=True)
class Content:
    """A model that was read and not decoded.

    Attributes:
        data: the bytes of an ONNX file; none of a model that is made later.
        name: the file's, or the graph's.
        folder: of the file; None of what is no file.
        proto: the model, where it was one.
        deferred: what makes it, where it was that.
    """

    data: bytes
    name: str
    folder: Folder | None = None
    proto: onnx.ModelProto | None = None
    deferred: Deferred | None = None

    def model(self) -> onnx.ModelProto:
        """The model, decoded or made.

        Raises:
            ModelError: it is none; or what it is made of is not what was hashed any more.
        """
        if self.deferred is None:
            return self.proto or _decode(self)
        known, proto = self.sha256, self.deferred.make()
        if self.deferred.sha256() != known:
            raise ModelError(f"{self.name}: it was changed while it was read", fix="compile it again")
        return proto

    @functools.cached_property
    def sha256(self) -> str:
        """The hash that :func:`fingerprint` explains; it reads external data.

        Raises:
            ModelError: that is missing.
        """
        if self.deferred is not None:
            return self.deferred.sha256()
        digest = hashlib.sha256(self.data)
        if locations := wire.external_locations(self.data):
            if self.folder is None:
                wrong = "a model given as bytes or ModelProto has no folder to find them in"
                wrong = f"{self.name}: tensors lie in external files ({', '.join(locations[:3])}), and {wrong}"
                raise ModelError(wrong, fix="give the path of the model, or load it whole: onnx.load(path)")
            hash_files(digest, locations, self.folder)
        return digest.hexdigest()


def content_of(model: Any) -> Content:
    """The bytes of a model; see :func:`read_model`."""
    if isinstance(model, Content):
        return model
    if isinstance(model, Deferred):
        return Content(b"", model.name, deferred=model)
    if isinstance(model, (bytes, bytearray, memoryview)):
        data = bytes(model)
        _check_size(len(data), "the bytes given")
        return Content(data, _printable(wire.graph_name(data)))
    if isinstance(model, (str, os.PathLike)):
        return _file_content(pathlib.Path(model))
    onnx = sys.modules.get("onnx")  # a ModelProto cannot exist without it
    if onnx is not None and isinstance(model, onnx.ModelProto):
        return _proto_content(model)
    fix = "give the path of an ONNX file, its bytes, or an onnx.ModelProto"
    raise ModelError(f"model is a {type(model).__name__}", fix=fix)


def _printable(name: str | bytes) -> str:
    """A graph's name as messages show it."""
    text = name if isinstance(name, str) else name.decode(errors="replace")
    return "".join(c if c.isprintable() else "?" for c in text[:100]) or "model"


def _proto_content(proto: onnx.ModelProto) -> Content:
    name = _printable(proto.graph.name)
    try:
        data = proto.SerializeToString(deterministic=True)
    except Exception as error:  # protobuf has no one class for "over 2 GiB"
        raise ModelError(f"{name}: the ModelProto cannot be serialized ({error})", fix=_SPLIT) from error
    _check_size(len(data), f"{name}: the ModelProto")
    return Content(data, name, None, proto)


_SPLIT = "ONNX limits one file to 2 GiB: save it with external data, "
_SPLIT += "onnx.save(model, path, save_as_external_data=True), and give the path"
_AGAIN = "download or export the model again"


def _check_size(size: int, what: str) -> None:
    if size > LIMIT:
        raise ModelError(f"{what} has {size} bytes, over 2 GiB", fix=_SPLIT)
    if size == 0:
        raise ModelError(f"{what} has 0 bytes: an ONNX model is needed", fix=_AGAIN)


def _file_content(path: pathlib.Path) -> Content:
    if os.path.isdir(path):  # unlike pathlib, of a name that is too long too
        inside = ", ".join(sorted(p.name for p in path.glob("*.onnx"))[:3])
        fix = f"give one of its files: {inside}" if inside else "give an ONNX file"
        raise ModelError(f"{str(path)!r} is a folder", fix=fix)
    with _reading(path):
        size = path.stat().st_size
    _check_size(size, repr(str(path)))
    with _reading(path):
        data = path.read_bytes()
    return Content(data, path.name, Folder(path.name, path))


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ModelError(f"there is no file {str(path)!r}", fix=_nearest(path)) from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"{str(path)!r} cannot be read: {reason}", fix="check the path and its permissions") from error


def _nearest(path: pathlib.Path) -> str:
    if not os.path.isdir(path.parent):
        return f"the folder {str(path.parent)!r} does not exist either"
    files = [p.name for p in path.parent.iterdir()]
    near = difflib.get_close_matches(path.name, files, n=1) or sorted(f for f in files if f.endswith(".onnx"))[:1]
    return f"did you mean {str(path.parent / near[0])!r}?" if near else "check the path"


def _decode(content: Content) -> onnx.ModelProto:
    import onnx

    try:
        return onnx.ModelProto.FromString(content.data)
    except Exception as error:  # protobuf's DecodeError
        if content.data[0] == 0x08:  # as every ONNX file begins: field 1, the IR version
            wrong = f"its {len(content.data)} bytes begin like an ONNX model and do not decode"
            raise ModelError(f"{content.name}: cut off or damaged: {wrong}", fix=_AGAIN) from error
        raise _not_onnx(content) from error


def _check_complete(proto: onnx.ModelProto, content: Content) -> None:
    there = {"ir_version": bool(proto.ir_version), "graph": proto.HasField("graph"), "opset": bool(proto.opset_import)}
    missing = [field for field, is_there in there.items() if not is_there]
    if len(missing) > 1:  # what decodes and has next to nothing of a model is something else
        raise _not_onnx(content)
    if missing:
        wrong = f"{content.name}: no {missing[0]} in it: cut off, or never complete"
        raise ModelError(wrong, fix="download or export the model again")


def _no_text(message: Any) -> str:
    """The first field for text, of a message and all within it, that holds other bytes; "" if none does."""
    for field, value in _fields(message):
        values = value if hasattr(value, "extend") else (value,)  # what is repeated, in any version of protobuf
        if field.type == field.TYPE_STRING and not all(isinstance(part, str) for part in values):
            return f"field {field.name!r} of a {message.DESCRIPTOR.name}"
        if field.type == field.TYPE_MESSAGE:
            for part in values:
                if where := _no_text(part):
                    return where
    return ""


def _fields(message: Any) -> list[tuple[Any, Any]]:
    """(descriptor, value) of fields that are there; of a tensor without its data, which Python would copy."""
    if message.DESCRIPTOR.name != "TensorProto":
        return list(message.ListFields())
    names = ("name", "doc_string", "external_data")
    return [(message.DESCRIPTOR.fields_by_name[name], getattr(message, name)) for name in names]


def _not_onnx(content: Content) -> ModelError:
    for magic, offset, what, fix in _FOREIGN:
        if content.data[offset : offset + len(magic)] == magic:
            return ModelError(f"{content.name}: not an ONNX model but {what}", fix=fix)
    return ModelError(f"{content.name}: not an ONNX model", fix="give a file that torch.onnx.export or onnx.save wrote")

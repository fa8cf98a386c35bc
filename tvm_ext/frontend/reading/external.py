"""External data of a model: tensors whose bytes lie in files of their own beside the model file.

Nothing outside the model's folder is read, whatever a model states and whatever links lie in the folder: a file is
opened first, without following a link that was put in its place meanwhile, and judged by what was opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from ...core.errors import ModelError
from .walk import model_tensors

if TYPE_CHECKING:
    import onnx

_INSIDE = "keep the data file in the model's folder and state a relative location; onnx.save(..., location=...) does"
_CUT_OFF = "the external data file is cut off or belongs to another model: copy it again"
#: Digits of the largest file there can be; Python reads far longer numbers.
_NUMBER = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True)
class Folder:
    """Where a model's external files may lie: beside the path given, or beside the file that it links to.

    Args:
        model: the model's name, for messages.
        path: the model file.

    Attributes:
        opened_as: real path of each file that was opened -> which file it was: number, bytes, time of change.
    """

    model: str
    path: pathlib.Path
    opened_as: dict[str, tuple[int, int, int]] = field(default_factory=dict, compare=False, repr=False)

    @contextlib.contextmanager
    def opened(self, location: str, user: str) -> Iterator[tuple[BinaryIO, int]]:
        """The file at `location`, open, and its bytes.

        Args:
            location: as the model states it, relative to the model's folder.
            user: what uses the file, for messages.

        Raises:
            ModelError: the location leaves the folder (symbolic links followed), no file is there that can be read, or
                another one than when it was opened before.
        """
        real = self._inside(location, user)
        try:  # NONBLOCK: a pipe that nobody writes to opens at once, and is seen to be none
            descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError as error:
            wrong = f"{self.model}: {user} lies in {_short(location)}, and {_short(real)} does not exist"
            fix = "put the external data file beside the model; both belong together"
            raise ModelError(wrong, fix=fix) from error
        except OSError as error:
            raise self._unreadable(location, user, error.strerror or str(error)) from error
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise self._unreadable(location, user, "it is no regular file")
        with open(descriptor, "rb") as stream:
            # between the two steps a folder on the way may have become a link: what was opened counts
            if not self._is_inside(os.readlink(f"/proc/self/fd/{descriptor}")):
                raise self._outside(location, user)
            known = status.st_ino, status.st_size, status.st_mtime_ns
            if self.opened_as.setdefault(real, known) != known:  # its hash is that of the file before
                raise self._unreadable(location, user, "it changed since reading began")
            yield stream, status.st_size

    def _inside(self, location: str, user: str) -> str:
        """The path of a location, links followed."""
        relative = location.replace("\\", "/")
        if not location or "\0" in location:
            raise self._unreadable(location, user, "that is no path")
        if relative.startswith("/") or posixpath.normpath(relative).split("/")[0] == "..":
            raise self._outside(location, user)
        try:  # what ".." leaves may be a link, so the way is gone before it is judged
            real = os.path.realpath(os.path.join(self.path.parent, relative))
        except OSError as error:
            raise self._unreadable(location, user, error.strerror or str(error)) from error
        if not self._is_inside(real):
            raise self._outside(location, user)
        return real

    def _is_inside(self, real: str) -> bool:
        roots = (os.path.realpath(self.path.parent), os.path.dirname(os.path.realpath(self.path)))
        return any(os.path.commonpath((root, real)) == root for root in roots)

    def _outside(self, location: str, user: str) -> ModelError:
        return ModelError(f"{self.model}: {user} lies at {_short(location)}, outside the model's folder", fix=_INSIDE)

    def _unreadable(self, location: str, user: str, why: str) -> ModelError:
        return ModelError(f"{self.model}: {user} lies in {_short(location)}, which cannot be read: {why}", fix=_INSIDE)


def _short(location: str) -> str:
    return repr(location if len(location) <= 200 else f"{location[:200]}...")


def hash_files(digest: hashlib._Hash, locations: Iterable[str], folder: Folder) -> None:
    """Add the whole content of external files to a hash, with their locations.

    Raises:
        ModelError: see :meth:`Folder.opened`.
    """
    for location in locations:
        with folder.opened(location, "external data") as (stream, size):
            digest.update(f"\0{location}\0{size}\0".encode(errors="surrogatepass"))
            while block := stream.read(1 << 22):
                digest.update(block)


def load_external(proto: onnx.ModelProto, folder: Folder | None, model: str) -> None:
    """Read the external data of every tensor into `proto` itself.

    Raises:
        ModelError: there is no folder to look in, or a file is missing, too short or elsewhere.
    """
    for owner, tensor in model_tensors(proto):
        if tensor.data_location == tensor.EXTERNAL:
            if folder is None:
                wrong = f"{model}: {owner} has external data, and a model given as bytes or ModelProto has no folder"
                raise ModelError(wrong, fix="give the path of the model, or load it whole: onnx.load(path)")
            tensor.raw_data = _read(tensor, owner, folder)
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")


def _read(tensor: onnx.TensorProto, owner: str, folder: Folder) -> bytes:
    stated = {entry.key: entry.value for entry in tensor.external_data}
    if "location" not in stated:
        raise ModelError(f"{folder.model}: {owner} is marked as external and states no location", fix=_INSIDE)
    with folder.opened(stated["location"], owner) as (stream, size):
        offset = _number(stated.get("offset", "0"), f"{folder.model}: {owner}: offset")
        length = _number(stated.get("length", str(max(size - offset, 0))), f"{folder.model}: {owner}: length")
        if offset + length > size:
            place = f"bytes {offset} to {offset + length} of {_short(stated['location'])}"
            raise ModelError(f"{folder.model}: {owner} states {place}, which has {size} bytes", fix=_CUT_OFF)
        stream.seek(offset)
        data = stream.read(length)
    if len(data) < length:
        raise ModelError(f"{folder.model}: {owner}: its file was cut off while it was read", fix=_CUT_OFF)
    return data


def _number(text: str, what: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ModelError(f"{what} of its external data is {text[:40]!r}, no number of bytes", fix=_CUT_OFF)
    return int(text)

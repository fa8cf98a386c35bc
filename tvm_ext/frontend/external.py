"""External data of a model: tensors whose bytes lie in files of their own beside the model file."""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.errors import ModelError
from .walk import model_tensors

if TYPE_CHECKING:
    import onnx

_INSIDE = "keep the data file in the model's folder and state a relative location; onnx.save(..., location=...) does"


@dataclass(frozen=True)
class Folder:
    """Where a model's external files may lie: beside the path given, or beside the file that it links to.

    Args:
        model: the model's name, for messages.
        path: the model file.
    """

    model: str
    path: pathlib.Path

    def find(self, location: str, user: str) -> pathlib.Path:
        """The file at `location`.

        Args:
            location: as the model states it, relative to the model's folder.
            user: what uses the file, for messages.

        Raises:
            ModelError: the location leaves the folder (symbolic links followed), or no file is there.
        """
        relative = pathlib.PurePosixPath(location.replace("\\", "/"))
        file = self.path.parent / relative
        roots = (os.path.realpath(self.path.parent), os.path.dirname(os.path.realpath(self.path)))
        real = os.path.realpath(file)
        inside = any(os.path.commonpath((root, real)) == root for root in roots)
        if relative.is_absolute() or ".." in relative.parts or not inside:
            raise ModelError(f"{self.model}: {user} lies at {location!r}, outside the model's folder", fix=_INSIDE)
        if not file.is_file():
            raise ModelError(
                f"{self.model}: {user} lies in {location!r}, and {str(file)!r} does not exist",
                fix="put the external data file beside the model; both belong together",
            )
        return file


def hash_files(digest: hashlib._Hash, locations: Iterable[str], folder: Folder) -> None:
    """Add the whole content of external files to a hash, with their locations.

    Raises:
        ModelError: see :meth:`Folder.find`.
    """
    for location in locations:
        file = folder.find(location, "external data")
        digest.update(f"\0{location}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
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
                raise ModelError(
                    f"{model}: {owner} has external data, and a model given as bytes or ModelProto has no folder",
                    fix="give the path of the model, or load it whole: onnx.load(path)",
                )
            tensor.raw_data = _read(tensor, owner, folder)
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")


def _read(tensor: onnx.TensorProto, owner: str, folder: Folder) -> bytes:
    stated = {entry.key: entry.value for entry in tensor.external_data}
    if "location" not in stated:
        raise ModelError(f"{folder.model}: {owner} is marked as external and states no location", fix=_INSIDE)
    file = folder.find(stated["location"], owner)
    size = file.stat().st_size
    try:
        offset = int(stated.get("offset", 0))
        length = int(stated.get("length", size - offset))
    except ValueError as error:
        raise ModelError(f"{folder.model}: {owner}: offset or length of its external data: {error}") from error
    if offset < 0 or length < 0 or offset + length > size:
        raise ModelError(
            f"{folder.model}: {owner} states bytes {offset} to {offset + length} of {stated['location']!r}, "
            f"which has {size} bytes",
            fix="the external data file is cut off or belongs to another model: copy it again",
        )
    with file.open("rb") as stream:
        stream.seek(offset)
        return stream.read(length)

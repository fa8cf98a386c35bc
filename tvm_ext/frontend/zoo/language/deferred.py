"""Language models of GGUF files that are made only where they are not compiled yet."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from ....core.errors import ModelError
from ....runtime.files import path_of
from ...reading.reader import Deferred
from .shared_cache import check_arguments

if TYPE_CHECKING:
    import onnx

_CHUNK = 1 << 20


class GGUFModel(Deferred):
    """The model that :func:`.gguf_file.gguf` makes of the same arguments, but only where it is not compiled yet: a
    start from the cache reads the file once, to hash it, and needs neither onnx nor gguf.

    What the file does not fit is told when it is made. It stands for a model wherever one is taken, to be
    compiled, verified or profiled; `make()` returns the ONNX model.
    """

    def __init__(
        self, path: str | os.PathLike[str], capacity: int = 2048, every: bool = False, exact: bool = False,
        cache: str = "float32", sequences: int = 0, pages: int = 0,
    ) -> None:  # fmt: skip
        self._path = path_of(path, ModelError, "the path of a GGUF file")
        self.name = os.path.basename(self._path)
        check_arguments(capacity, cache, sequences, pages)
        self._arguments = (capacity, every, exact, cache, sequences, pages)

    def sha256(self) -> str:
        """A hash of the file's bytes, its name, and the arguments.

        Raises:
            ModelError: the file cannot be read.
        """
        digest = hashlib.sha256(repr((type(self).__name__, self.name, *self._arguments)).encode())
        try:
            with open(self._path, "rb", buffering=0) as file:
                buffer = bytearray(_CHUNK)
                while count := file.readinto(buffer):
                    digest.update(memoryview(buffer)[:count])
        except OSError as error:
            wrong = f"{self._path!r} cannot be read as GGUF: {error.strerror or error}"
            raise ModelError(wrong, fix="give a whole .gguf file") from error
        return digest.hexdigest()

    def make(self) -> onnx.ModelProto:
        """The ONNX model; raises what :func:`.gguf_file.gguf` raises."""
        from .gguf_file import gguf

        return gguf(self._path, *self._arguments)

    def __repr__(self) -> str:
        return f"GGUFModel({self._path!r})"

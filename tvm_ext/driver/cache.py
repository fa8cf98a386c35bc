"""The on-disk cache of compiled models: one artifact a key, bounded, safe for several processes without locks.

An entry appears by an atomic rename and vanishes by an unlink; a process that is reading one keeps its open file.
The cache only ever saves time: whatever goes wrong in it is a warning, and the model is compiled.
"""

import hashlib
import json
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ..core.errors import ArtifactError, OptionError, TvmExtError, essence
from ..core.machine import Machine
from ..core.options import NOT_OF_THE_PROGRAM, CompileOptions
from ..runtime.artifact import read_metadata
from ..runtime.files import TEMPORARY_SUFFIX, default_folder, temporary_name
from ..runtime.model import CompiledModel, load

DEFAULT_BYTES = 2 << 30
#: A temporary file this old was left by a writer that was killed: writing takes seconds.
_LEFTOVER_SECONDS = 3600.0
_SUFFIX = ".so"
#: Begin of the names of tuning logs with times of this machine, for `choose="measure"`.
TIMINGS = "timings-"
_KEY = re.compile(r"[0-9a-f]{64}")


class CacheWarning(UserWarning):
    """The cache could not be used; the result is right, but was, or will be, compiled again."""


@dataclass(frozen=True)
class Entry:
    """A cached artifact.

    Attributes:
        key: what :func:`cache_key` gave.
        model: name of the model; "" if the file is damaged.
        size: bytes of the file.
        last_use: seconds since the epoch.
        path: the file.
    """

    key: str
    model: str
    size: int
    last_use: float
    path: Path


def cache_key(model_sha256: str, machine: Machine, options: CompileOptions, versions: Mapping[str, str]) -> str:
    """What a compiled model depends on, as 64 hexadecimal digits.

    Args:
        model_sha256: hash of the model, its external data included.
        machine: the machine compiled for, with its number of threads.
        options: all of them count, but those that leave the program as it is.
        versions: of all that takes part in compiling: TVM, this library, its records.
    """
    choices = {key: value for key, value in asdict(options).items() if key not in NOT_OF_THE_PROGRAM}
    parts = {"model": model_sha256, "machine": machine.as_dict(), "options": choices, "versions": dict(versions)}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def default_limit(environ: Mapping[str, str] = os.environ) -> int:
    """$TVM_EXT_CACHE_BYTES, else 2 GiB.

    Raises:
        OptionError: the variable is no whole number of 0 or more.
    """
    text = environ.get("TVM_EXT_CACHE_BYTES")
    if text is None:
        return DEFAULT_BYTES
    if not text.strip().isdecimal():
        fix = "set it to a whole number of 0 or more, or unset it"
        raise OptionError(f"TVM_EXT_CACHE_BYTES={text!r} is no number of bytes", fix=fix)
    return int(text)


class Cache:
    """A folder of artifacts by key.

    Args:
        folder: where; None for :func:`default_folder`. It is made when the first entry is written.
        limit: bytes it may hold; beyond them the least recently used entries go. None for :func:`default_limit`.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, limit: int | None = None) -> None:
        self.folder = default_folder() if folder is None else Path(folder)
        self.limit = default_limit() if limit is None else limit

    def get(self, key: str) -> Path | None:
        """The artifact of a key, or None. Counts as a use."""
        path = self._path(key)
        try:
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError:  # a cache that may only be read: a hit all the same
            return path if path.is_file() else None
        return path

    def load(self, key: str) -> CompiledModel | None:
        """The loaded model of a key, or None. An entry that does not load is dropped, with a warning."""
        path = self.get(key)
        if path is None:
            return None
        try:
            return load(path)
        except Exception as error:
            if path.exists():  # else another process has just removed it
                _warn(f"a damaged entry is dropped, the model is compiled again: {essence(error)}")
                self.drop(key)
            return None

    def drop(self, key: str) -> None:
        """Remove an entry, if it is there and can be removed."""
        with suppress(OSError):
            self._path(key).unlink()

    def put(self, key: str, writer: Callable[[Path], None]) -> Path | None:
        """Add an entry; an old one of this key is replaced.

        Args:
            key: what :func:`cache_key` gave.
            writer: writes the artifact to a path; for example `CompiledModel.export`.

        Returns:
            The entry's path; None, with a warning, if it could not be written or is larger than the whole cache.
        """
        path = self._path(key)
        temporary = temporary_name(path)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # artifacts are code: nobody else writes here
            writer(temporary)
            if (size := temporary.stat().st_size) > self.limit:
                _warn(f"the model is not kept: {size} bytes, {self.folder} may hold {self.limit}")
                return None
            os.replace(temporary, path)
        except (OSError, TvmExtError) as error:
            _warn(f"{self.folder} cannot be used, so models are compiled every time: {error}")
            return None
        finally:
            with suppress(OSError):
                temporary.unlink()
        self._trim(keep=path)
        return path

    def ls(self) -> list[Entry]:
        """All entries, last used first."""
        entries = []
        for path, status in self._files(_SUFFIX):
            if not _KEY.fullmatch(path.stem):
                continue
            try:
                model = read_metadata(path).model["name"]
            except ArtifactError:
                if not path.exists():
                    continue
                model = ""
            entries.append(Entry(path.stem, model, status.st_size, status.st_mtime, path))
        return sorted(entries, key=lambda entry: -entry.last_use)

    def timings(self) -> list[Path]:
        """Timing caches: one a machine, number of threads, and version."""
        return [path for path, _ in self._files(".json") if path.name.startswith(TIMINGS)]

    def clear(self) -> int:
        """Remove all entries, times of kernels and leftovers; how many entries there were.

        Raises:
            OSError: one cannot be removed.
        """
        entries = [path for path, _ in self._files(_SUFFIX) if _KEY.fullmatch(path.stem)]
        leftovers = [path for path, _ in self._files(TEMPORARY_SUFFIX) if path.name.startswith(".")]
        for path in [*entries, *self.timings(), *leftovers]:
            path.unlink(missing_ok=True)
        return len(entries)

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"no cache key: {key!r}; cache_key() makes them")
        return self.folder / f"{key}{_SUFFIX}"

    def _files(self, suffix: str) -> Iterator[tuple[Path, os.stat_result]]:
        try:
            names = sorted(os.listdir(self.folder))
        except OSError:
            return
        for name in names:
            if name.endswith(suffix):
                with suppress(OSError):  # removed meanwhile
                    yield self.folder / name, (self.folder / name).stat()

    def _trim(self, keep: Path) -> None:
        """Remove what killed writers left, and the least recently used entries beyond the limit, but not `keep`."""
        for path, status in self._files(TEMPORARY_SUFFIX):
            if path.name.startswith(".") and time.time() - status.st_mtime > _LEFTOVER_SECONDS:
                with suppress(OSError):
                    path.unlink()
        files = [(path, status) for path, status in self._files(_SUFFIX) if _KEY.fullmatch(path.stem)]
        entries = [(status.st_mtime, status.st_size, path) for path, status in files]
        excess = sum(size for _, size, _ in entries) - self.limit
        for _, size, path in sorted(entries, key=lambda entry: entry[0]):
            if excess <= 0:
                return
            if path != keep:
                with suppress(OSError):
                    path.unlink()
                excess -= size


_warned: set[str] = set()


def _warn(message: str) -> None:
    """Warn, once a process for each message."""
    if message not in _warned:
        _warned.add(message)
        warnings.warn(f"tvm-ext cache: {message}", CacheWarning, stacklevel=3)

"""Files that appear whole or not at all, and the folder of those that this library keeps."""

import errno
import os
import resource
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from ..core.errors import ToolError, TvmExtError

TEMPORARY_SUFFIX = ".tmp"
#: What object files and libraries of a model may need.
_ROOM = 32 << 20


def path_of(value: Any, kind: type[TvmExtError], what: str) -> str:
    """A path as text.

    Args:
        value: by a user.
        kind: of the error.
        what: the path is of, for the message.

    Raises:
        TvmExtError: it is no path that the system takes.
    """
    try:
        path = os.fspath(value)
    except TypeError as error:
        raise kind(f"{what} is a {type(value).__name__}", fix="give a path") from error
    if not isinstance(path, str) or not path or "\0" in path:
        raise kind(f"{what} is {path[:100]!r}, no path", fix="give a path as text") from None
    return path


def default_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """$TVM_EXT_CACHE, else tvm-ext in $XDG_CACHE_HOME, else ~/.cache/tvm-ext."""
    if stated := environ.get("TVM_EXT_CACHE"):
        return Path(stated).expanduser()
    base = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: a relative path is to be ignored
        base = os.path.expanduser("~/.cache")
    return Path(base, "tvm-ext")


def temporary_name(path: Path) -> Path:
    """A new hidden name beside `path`, on the same file system."""
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}")


@contextmanager
def whole_file(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends well, and vanishes when it raises.

    Args:
        path: the file.
        sync: wait until the data is on disk, so that the file is whole after a power cut too.

    Raises:
        OSError: it cannot be written, or is no file: a device or a pipe must not be replaced by one.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "it is there, and no regular file", str(path))
    temporary = temporary_name(path)
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


@contextmanager
def scratch_folder(room: int = _ROOM) -> Iterator[Path]:
    """A temporary folder for the parts of a library, which goes when the block ends.

    Args:
        room: bytes that may be written to it. LLVM ends the process where it cannot write an object file.

    Raises:
        ToolError: no temporary folder can be made, or it has less room.
    """
    fix = "set TMPDIR to a folder with room"
    try:
        folder = tempfile.TemporaryDirectory(prefix="tvm-ext-")
    except OSError as error:
        raise ToolError(f"no temporary folder can be made ({error.strerror or error})", fix=fix) from error
    with folder as name:
        largest = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        free = shutil.disk_usage(name).free
        if min(free, free if largest == resource.RLIM_INFINITY else largest) < room:
            wrong = f"{free} bytes are free in {tempfile.gettempdir()}, and a file may have {largest} (-1: any number)"
            raise ToolError(f"no room for a library: {wrong}; {room} are needed", fix=fix)
        yield Path(name)


def make_folder(path: str | os.PathLike[str]) -> Path:
    """A folder, which is made if it is not there.

    Raises:
        ToolError: it is no path, or cannot be made.
    """
    folder = Path(path_of(path, ToolError, "the path of a folder"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ToolError(f"{folder}: the folder cannot be made ({error.strerror})", fix="give another path") from error
    return folder


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text in UTF-8, the whole file or none.

    Raises:
        ToolError: it is no path, or the folder is missing or cannot be written.
    """
    write_whole(path, lambda stream: stream.write(text.encode()))


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it: readers never see a part of it.

    Raises:
        ToolError: it is no path, or the folder is missing or cannot be written.
    """
    target = Path(path_of(path, ToolError, "the path to write to"))
    try:
        with whole_file(target) as stream:
            write(stream)
    except OSError as error:
        why = error.strerror or error
        raise ToolError(f"{target}: cannot be written ({why})", fix="give another path") from error

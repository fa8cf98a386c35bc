"""Loading a shared library from checked bytes, without a file that could change under it."""

import itertools
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core.errors import ArtifactError, naming
from .cpu import architecture
from .tvm_runtime import load_shared_library

ELF_MAGIC = b"\x7fELF"
_ARCHITECTURE_OF_ELF = {62: "x86_64", 183: "aarch64"}
_counter = itertools.count(1)


def elf_end(head: bytes | memoryview) -> int | None:
    """Where a 64-bit little-endian ELF file ends: its section headers come last. None if it is no such file."""
    if len(head) < 64 or bytes(head[:6]) != ELF_MAGIC + b"\x02\x01":
        return None
    (sections,) = struct.unpack_from("<Q", head, 40)
    size, count = struct.unpack_from("<HH", head, 58)
    return int(sections + size * count)


def is_artifact(source: Any) -> bool:
    """Whether this is the path of a shared library, as every artifact is one."""
    if not isinstance(source, str | os.PathLike):
        return False
    try:
        if not os.path.isfile(source):  # a pipe may never open
            return False
        with open(source, "rb") as file:
            return file.read(len(ELF_MAGIC)) == ELF_MAGIC
    except (OSError, ValueError):  # whoever reads it says what is wrong
        return False


def check_architecture(library: memoryview, path: str) -> None:
    """Refuse a library of another architecture.

    Raises:
        ArtifactError: it is made for another one.
    """
    (machine,) = struct.unpack_from("<H", library, 18)
    needed, here = _ARCHITECTURE_OF_ELF.get(machine, f"ELF machine {machine}"), architecture()
    if needed != here:
        raise ArtifactError(f"{path}: compiled for {needed}, this machine is {here}", fix="compile it for this machine")


def load_library(library: memoryview, path: str) -> Any:
    """The TVM module of a shared library, given as the bytes that were checked.

    Raises:
        ArtifactError: the system cannot load it.
    """
    what = f"{path}: the system cannot load its library part"
    with _as_file(library) as file, naming(ArtifactError, lambda: what, fix="compile it again"):
        return load_shared_library(file)


def write_library(library: memoryview, path: Path) -> None:
    """Write the library as a file of its own."""
    path.write_bytes(library)


@contextmanager
def _as_file(library: memoryview) -> Iterator[str]:
    """A path of these bytes that no library was loaded from before.

    Anonymous memory, because a mapped file that someone truncates is a SIGBUS; a temporary file where the system
    gives none.
    """
    try:
        descriptor = os.memfd_create("tvm-ext", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        with tempfile.TemporaryDirectory(prefix="tvm-ext-") as folder:
            path = os.path.join(folder, "library.so")
            with open(path, "wb") as file:
                file.write(library)
            yield path
        return
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(library)
        yield _fresh_name(descriptor)
    finally:
        os.close(descriptor)


def _fresh_name(descriptor: int) -> str:
    """A path of a descriptor that is spelt as none before.

    dlopen returns the old library when the path of a loaded one is given again, and descriptor numbers do come
    again. So the path spells a counter in binary: "/." for one and "/" for zero both stay in the same directory.
    """
    spelling = "".join("/." if bit == "1" else "/" for bit in f"{next(_counter):b}")
    return f"/proc/self/fd{spelling}/{descriptor}"

"""The artifact: one file with the shared library, the weights and the metadata of a compiled model.

    library (ELF: kernels and VM bytecode) | mark | weights, each at a multiple of 64 bytes | metadata (JSON) | footer

Weights that can be expanded from a smaller form (see `expansion`) are stored in it; in the cache's own files also as
they are.

The system's loader ignores what follows the library, so the file is also a plain shared library. The mark behind
the library tells a cut-off artifact from another program's library. The footer holds where the parts lie and a
SHA-256 of everything before it. It finds damage, it is no signature: an artifact is code, load only what you trust.
"""

import hashlib
import os
import stat
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import numpy as np

from ..core.errors import ArtifactError, ToolError
from .cpu import OTHER_MACHINE_FIX, why_not_here
from .files import path_of, whole_file
from .library import ELF_MAGIC, check_architecture, elf_end
from .memory.arrays import ALIGNMENT, Arrays, mapped_empty
from .spec import FORMAT_VERSION, Metadata, TensorSpec, installed_versions

MAGIC = b"tvm-ext\x00\r\n\x1a\n"
_MARK = struct.Struct("<12sIQ40x")  # magic, format, bytes of the whole file
_FOOTER = struct.Struct("<5QI12s32s")  # library, weights, metadata, its length, whole file; format; magic; sha256
_DIGEST_BYTES = 32
_CHUNK = 4 << 20
_RECOMPILE = "compile the model again with this installation, and export it"


@dataclass(frozen=True)
class Artifact:
    """A checked artifact in memory.

    Attributes:
        metadata: what it says of itself.
        library: the shared library's bytes.
        weights: 64-byte aligned arrays in the order of `metadata.weights`: over the file's one buffer, or expanded.
        compact: the stored form of those that have one.
    """

    metadata: Metadata
    library: memoryview
    weights: tuple[np.ndarray, ...]
    compact: Mapping[int, np.ndarray]


@dataclass(frozen=True)
class _Layout:
    """Offsets in bytes; `library` and `metadata_bytes` are lengths."""

    library: int
    weights: int
    metadata: int
    metadata_bytes: int
    file: int

    def offsets(self, specs: Sequence[TensorSpec]) -> list[int]:
        """Where each weight starts, and where the last one ends (padded)."""
        offsets = [self.weights]
        for spec in specs:
            offsets.append(_padded(offsets[-1] + spec.nbytes))
        return offsets


def _padded(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


# ------------------------------------------------------------------------------------------------ writing
def write_artifact(
    path: Path, library: Path, weights: Arrays, metadata: Metadata,
    compact: Mapping[int, np.ndarray] | None = None, *, sync: bool = True,
) -> None:  # fmt: skip
    """Write an artifact; `path` holds the whole of it, or what it held before.

    Args:
        path: the file to write.
        library: the shared library.
        weights: arrays in the order of `metadata.weights`, of the same shapes and dtypes.
        metadata: what the artifact says of itself.
        compact: number of the weight -> its stored form, for all of `metadata.compact`.
        sync: wait for the disk; a cache need not, its entries are checked when they are read.

    Raises:
        ToolError: the file cannot be written.
        ArtifactError: the weights are not those of the metadata.
    """
    small = compact or {}
    stored = [small.get(i, weight) for i, weight in enumerate(weights)]
    if metadata.expanded:
        stored = [*weights, *(small[form.weight] for form in metadata.compact)]
    _check_weights(stored, metadata.stored())
    text = metadata.to_json().encode()
    size = library.stat().st_size
    start = _padded(size) + _MARK.size
    end = start + sum(_padded(spec.nbytes) for spec in metadata.stored())
    layout = _Layout(size, start, end, len(text), end + len(text) + _FOOTER.size)
    try:
        with whole_file(Path(path), sync=sync) as file:
            _write(_Hashing(file), layout, library, stored, text)
    except OSError as error:
        raise ToolError(f"{path}: cannot be written: {error.strerror or error}") from error


class _Hashing:
    """Writes, pads and hashes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest, self._at = file, hashlib.sha256(), 0

    def write(self, data: bytes | memoryview) -> None:
        self.digest.update(data)
        self._file.write(data)
        self._at += len(data)

    def pad(self) -> None:
        self.write(bytes(_padded(self._at) - self._at))


def _write(out: _Hashing, layout: _Layout, library: Path, weights: Arrays, text: bytes) -> None:
    with open(library, "rb") as source:
        while chunk := source.read(_CHUNK):
            out.write(chunk)
    out.pad()
    out.write(_MARK.pack(MAGIC, FORMAT_VERSION, layout.file))
    for weight in weights:
        out.write(np.ascontiguousarray(weight).reshape(-1).view(np.uint8).data)
        out.pad()
    out.write(text)
    fields = (layout.library, layout.weights, layout.metadata, layout.metadata_bytes, layout.file)
    out.write(_FOOTER.pack(*fields, FORMAT_VERSION, MAGIC, bytes(_DIGEST_BYTES))[:-_DIGEST_BYTES])
    out.write(out.digest.digest())


def _check_weights(weights: Arrays, specs: Sequence[TensorSpec]) -> None:
    actual = [(tuple(w.shape), w.dtype) for w in weights]
    wanted = [(spec.shape, spec.numpy_dtype) for spec in specs]
    if actual != wanted:
        wrong = next((i for i, pair in enumerate(zip(actual, wanted, strict=False)) if pair[0] != pair[1]), None)
        where = f"weight {specs[wrong].name!r} is not {specs[wrong]}" if wrong is not None else "another number"
        raise ArtifactError(f"{len(actual)} weights do not fit the metadata's {len(wanted)}: {where}")


# ------------------------------------------------------------------------------------------------ reading
def read_artifact(path: str | os.PathLike[str]) -> Artifact:
    """Read and check an artifact; nothing of it is executed.

    The file is read once, into one buffer; what follows (checks, weights, library) uses that buffer only, so that
    a file which changes afterwards cannot matter.

    Args:
        path: the file.

    Raises:
        ArtifactError: the file is missing, foreign, cut off, altered, of another version, or needs instructions
            that this CPU lacks.
    """
    path = path_of(path, ArtifactError, "the artifact's path")
    data, digest = _read(path)
    layout = _checked_layout(data, digest, path)
    view = data.data
    try:
        metadata = Metadata.from_json(bytes(view[layout.metadata : layout.metadata + layout.metadata_bytes]))
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error.message}", fix=_RECOMPILE) from error
    _check_versions(metadata, path)
    library = view[: layout.library]
    _check_machine(metadata, library, path)
    return Artifact(metadata, library, *_weights(_stored(data, layout, metadata, path), metadata))


def read_metadata(path: str | os.PathLike[str]) -> Metadata:
    """The metadata alone, without reading, or checking, the rest of the file.

    Raises:
        ArtifactError: the file is missing, foreign, cut off or of another version.
    """
    path = path_of(path, ArtifactError, "the artifact's path")
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _FOOTER.size))
        layout = _layout(file.read(_FOOTER.size), size, path)
        if layout is None:
            raise ArtifactError(f"{path}: not an artifact of tvm-ext, or a cut-off one")
        file.seek(layout.metadata)
        return Metadata.from_json(file.read(layout.metadata_bytes))


def _at_once(path: str, flags: int) -> int:
    """Opens a pipe that nobody writes to as well, which is seen to be none then."""
    return os.open(path, flags | os.O_NONBLOCK)


def _opened(path: str) -> BufferedReader:
    try:
        file = open(path, "rb", opener=_at_once)  # noqa: SIM115  (the caller closes it)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ArtifactError(f"{path}: not a regular file")
    return file


def _read(path: str) -> tuple[np.ndarray, bytes]:
    """The file in a 64-byte aligned, writable buffer, and its SHA-256; a foreign one is refused before the whole of it
    is read."""
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _FOOTER.size))
        if _layout(file.read(_FOOTER.size), size, path) is None:
            file.seek(0)
            raise _not_an_artifact(file, size, path)
        file.seek(0)
        return _read_and_hashed(file, size, path)


def _read_and_hashed(file: BufferedReader, size: int, path: str) -> tuple[np.ndarray, bytes]:
    """So many bytes, and the SHA-256 of all but its own: a part is hashed while the next is read.

    Raises:
        ArtifactError: there are fewer.
    """
    data, digest, parts = mapped_empty(size), hashlib.sha256(), SimpleQueue[memoryview | None]()

    def hash_parts() -> None:
        for part in iter(parts.get, None):
            digest.update(part)

    hashing = threading.Thread(target=hash_parts) if size > _CHUNK else None
    if hashing is not None:
        hashing.start()
    try:
        for start in range(0, size, _CHUNK):
            part = data[start : start + _CHUNK]
            if file.readinto(part.data) != part.size:
                raise ArtifactError(f"{path}: it was cut off while it was read")
            parts.put(data[start : min(start + _CHUNK, size - _DIGEST_BYTES)].data)
    finally:
        parts.put(None)
        if hashing is not None:
            hashing.join()
    if hashing is None:
        hash_parts()
    return data, digest.digest()


def _layout(footer: bytes, size: int, path: str) -> _Layout | None:
    """The layout in a footer; None if these bytes are no footer of a file of this size.

    Raises:
        ArtifactError: it is one, of another version of the format.
    """
    if len(footer) < _FOOTER.size:
        return None
    *fields, version, magic, _ = _FOOTER.unpack(footer)
    if magic != MAGIC:
        return None
    if version != FORMAT_VERSION:
        wrong = f"artifact format {version}; this installation reads {FORMAT_VERSION}"
        raise ArtifactError(f"{path}: {wrong}", fix=_RECOMPILE)
    layout = _Layout(*fields)
    parts = (64, layout.library, layout.weights, layout.metadata, layout.metadata + layout.metadata_bytes)
    ordered = list(parts) == sorted(parts) and layout.weights % ALIGNMENT == 0
    return layout if ordered and parts[-1] + _FOOTER.size == layout.file == size else None


def _not_an_artifact(file: BufferedReader, size: int, path: str) -> ArtifactError:
    """Which of the ways a file can fail to be an artifact this one is."""
    if size == 0:
        return ArtifactError(f"{path}: the file is empty")
    head = file.read(64)
    if not head.startswith(ELF_MAGIC[: len(head)]):
        fix = "pass an ONNX model to tvm_ext.compile" if path.endswith(".onnx") else ""
        return ArtifactError(f"{path}: not an artifact of tvm-ext", fix=fix)
    end = elf_end(head)
    if end is None or end > size:
        return ArtifactError(f"{path}: cut off: it ends within its shared library, after {size} bytes")
    file.seek(_padded(end))
    mark = file.read(_MARK.size)
    if len(mark) == _MARK.size and mark.startswith(MAGIC):
        whole = _MARK.unpack(mark)[2]
        how = f"cut off: {size} of {whole} bytes are here" if size < whole else "altered: its end is not that of one"
        return ArtifactError(f"{path}: an artifact of tvm-ext, but {how}", fix="copy the file again")
    return ArtifactError(f"{path}: a shared library, but no artifact of tvm-ext, or one cut off after the library")


def _checked_layout(data: np.ndarray, digest: bytes, path: str) -> _Layout:
    layout = _layout(data[-_FOOTER.size :].tobytes(), data.size, path)
    if layout is None or digest != data[-_DIGEST_BYTES:].tobytes():
        wrong = f"{path}: altered: its contents do not give the SHA-256 it was written with"
        raise ArtifactError(wrong, fix="copy the file again")
    return layout


def _check_versions(metadata: Metadata, path: str) -> None:
    if metadata.format != FORMAT_VERSION:
        raise ArtifactError(f"{path}: metadata of format {metadata.format}, not {FORMAT_VERSION}", fix=_RECOMPILE)
    here = installed_versions()
    for package in ("tvm", "tvm_ffi"):
        if metadata.versions[package] != here[package]:
            wrong = f"{package} {metadata.versions[package]}, here is {here[package]}"
            raise ArtifactError(f"{path}: made with {wrong}", fix=f"{_RECOMPILE}, or install that version")


def _check_machine(metadata: Metadata, library: memoryview, path: str) -> None:
    if elf_end(library) is None:
        raise ArtifactError(f"{path}: its library part is no 64-bit ELF file")
    check_architecture(library, path)
    if reason := why_not_here(metadata.machine):
        raise ArtifactError(f"{path}: {reason}", fix=OTHER_MACHINE_FIX)


def _stored(data: np.ndarray, layout: _Layout, metadata: Metadata, path: str) -> list[np.ndarray]:
    """The arrays of a file, over its buffer."""
    offsets = layout.offsets(metadata.stored())
    if offsets[-1] != layout.metadata:
        raise ArtifactError(f"{path}: the weights its metadata lists are not those it holds", fix=_RECOMPILE)
    return [_array(data, start, spec) for start, spec in zip(offsets, metadata.stored(), strict=False)]


def _array(data: np.ndarray, start: int, spec: TensorSpec) -> np.ndarray:
    return data[start : start + spec.nbytes].view(spec.numpy_dtype).reshape(spec.sizes)


def _weights(stored: Arrays, metadata: Metadata) -> tuple[tuple[np.ndarray, ...], dict[int, np.ndarray]]:
    """The weights as kernels read them, and the compact forms among the stored arrays."""
    count = len(metadata.weights)
    if metadata.expanded:
        return tuple(stored[:count]), {form.weight: a for form, a in zip(metadata.compact, stored[count:], strict=True)}
    weights, compact = list(stored), {form.weight: stored[form.weight] for form in metadata.compact}
    buffer = mapped_empty(sum(_padded(metadata.weights[i].nbytes) for i in compact))
    start = 0
    for form in metadata.compact:
        spec = metadata.weights[form.weight]
        weights[form.weight] = _array(buffer, start, spec)
        form.expansion.into(compact[form.weight], weights[form.weight])
        start += _padded(spec.nbytes)
    return tuple(weights), compact

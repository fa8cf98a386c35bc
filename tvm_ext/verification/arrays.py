"""Named arrays in .npy and .npz files: any ONNX name is a key, and a file appears whole or not at all."""

import math
import os
import zipfile
from typing import IO

import numpy as np

from ..core.errors import InputError
from ..runtime.files import write_whole
from ..runtime.memory.arrays import NamedArrays


def save_npz(path: str | os.PathLike[str], arrays: NamedArrays) -> None:
    """Write arrays by name, readable by `numpy.load`.

    `numpy.savez` takes names as keywords, so it cannot store one called "file".

    Raises:
        ToolError: the file cannot be written.
    """

    def write(stream: IO[bytes]) -> None:
        with zipfile.ZipFile(stream, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)

    write_whole(path, write)


def save_npy(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Write one array, readable by `numpy.load`.

    Raises:
        ToolError: the file cannot be written.
    """
    write_whole(path, lambda stream: np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False))


def load_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read what :func:`save_npz` or `numpy.savez` wrote. Nothing of it is executed: pickled objects are refused.

    Raises:
        InputError: the file is missing, no .npz of plain arrays, or states more than it can hold.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            _check_archive(stored.zip, os.path.getsize(path))
            return {name: stored[name] for name in stored.files}
    except Exception as error:  # numpy, zipfile, zlib, tokenize and struct have a dozen classes for it
        raise InputError(f"{os.fspath(path)}: not a readable .npz file ({error})") from error


def load_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """Read one array. Nothing of it is executed: pickled objects are refused.

    Raises:
        InputError: the file is missing, no .npy of a plain array, or states more than it holds.
    """
    try:
        with open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if stream.read(len(_NPY)) == _NPY:
                stream.seek(0)
                _check_header(stream, size)
        array = np.load(path, allow_pickle=False)
    except Exception as error:  # numpy, zipfile, zlib, tokenize and struct have a dozen classes for it
        raise InputError(f"{os.fspath(path)}: not a readable .npy file ({error})") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{os.fspath(path)}: an archive of arrays, where one array (.npy) is needed")
    return array


_NPY = np.lib.format.MAGIC_PREFIX
#: An archive may hold this much, or so many times its own size: deflate can make a thousand bytes of one.
_FREE_BYTES, _MOST_INFLATION = 1 << 30, 100


def _check_archive(archive: zipfile.ZipFile, size: int) -> None:
    """Raises ValueError where members state more than such a file holds, before memory is taken for it."""
    members = archive.infolist()
    if sum(member.file_size for member in members) > max(_FREE_BYTES, _MOST_INFLATION * size):
        raise ValueError(f"{size} bytes of archive state {sum(member.file_size for member in members)} bytes of arrays")
    for member in members:
        with archive.open(member) as stream:
            if stream.read(len(_NPY)) != _NPY:
                continue  # numpy hands it out as bytes
        with archive.open(member) as stream:
            _check_header(stream, member.file_size)


def _check_header(stream: IO[bytes], size: int) -> None:
    """Raises ValueError where the header of an array states more bytes than the `size` of its file."""
    version = np.lib.format.read_magic(stream)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:  # of version 3, for names of fields that are no Latin-1: no plain array has such
        raise ValueError(f"version {version} of the format, for dtypes with names")
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are pickled")
    if math.prod(shape) * dtype.itemsize > size or min(shape, default=0) < 0:
        raise ValueError(f"its header states {dtype} of shape {shape}, and its file has {size} bytes")

"""Named arrays in .npy and .npz files: any ONNX name is a key, and a file appears whole or not at all."""

from __future__ import annotations

import os
import pathlib
import zipfile
from collections.abc import Callable, Mapping
from typing import IO

import numpy as np

from ..core.errors import InputError, ToolError
from ..runtime.files import whole_file


def save_npz(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
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
    """Read what :func:`save_npz` or `numpy.savez` wrote.

    Raises:
        InputError: the file is missing or no .npz of plain arrays.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, AttributeError, TypeError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{os.fspath(path)}: not a readable .npz file ({error})") from error


def load_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """Read one array.

    Raises:
        InputError: the file is missing or no .npy of a plain array.
    """
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{os.fspath(path)}: not a readable .npy file ({error})") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{os.fspath(path)}: an archive of arrays, where one array (.npy) is needed")
    return array


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it: readers never see a part of it.

    Raises:
        ToolError: the folder is missing or cannot be written.
    """
    target = pathlib.Path(path)
    try:
        with whole_file(target) as stream:
            write(stream)
    except OSError as error:
        why = error.strerror or error
        raise ToolError(f"{target}: cannot be written ({why})", fix="give another path") from error

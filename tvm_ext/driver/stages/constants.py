"""Tensors of a stage file: they lie beside it in one .npz, and the file reads them as `W.conv1`.

W = constants(__file__)
... R.nn.conv2d(x, W.conv1, ...)
"""

from __future__ import annotations

import functools
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from ...core.errors import StageError, did_you_mean
from ...runtime.memory.arrays import NamedArrays
from .manifest import read_manifest

#: Kinds of dtypes that numpy's own file format knows; arrays of others are kept as bytes.
_NATIVE = "biufc"


def constants(stage_file: str | os.PathLike[str]) -> Constants:
    """The tensors that belong to a stage file.

    Args:
        stage_file: its path; in the file itself, `__file__`.

    Raises:
        StageError: the file of tensors is missing or damaged.
    """
    manifest = read_manifest(Path(stage_file).with_suffix(".json"))
    path = Path(stage_file).with_name(manifest.tensors)
    try:
        arrays = np.load(path, allow_pickle=False)
        names = set(arrays.files)
    except FileNotFoundError:
        fix = f"keep the files of a stage in one folder: {path.name} goes with it"
        raise StageError(f"the tensors of this stage are missing: there is no {str(path)!r}", fix=fix) from None
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError) as error:
        raise StageError(f"{str(path)!r} is damaged: {error}", fix="dump the stages again") from error
    return Constants(path, arrays, names, manifest.constants)


class Constants:
    """Tensors by name, as attributes; one name is one object.

    Args:
        path: of the file.
        arrays: what numpy read.
        names: of the arrays.
        stated: name -> "dtype" and "shape", of those that were written.
    """

    def __init__(
        self, path: Path, arrays: NamedArrays, names: set[str], stated: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._path, self._arrays, self._names, self._stated = path, arrays, names, stated
        self._made: dict[str, GenericConst] = {}

    def __getattr__(self, name: str) -> GenericConst:
        if name.startswith("__") or name not in self._names:
            wrong = f"{self._path.name} has no tensor {name!r}; {did_you_mean(name, self._names)}"
            raise AttributeError(wrong.rstrip("; "))
        if name not in self._made:
            array = self._array(name)
            self._made[name] = relax.const(tvm.runtime.tensor(np.ascontiguousarray(array).reshape(array.shape)))
        return self._made[name]

    def _array(self, name: str) -> np.ndarray:
        try:
            array = self._arrays[name]
        except (OSError, ValueError, zipfile.BadZipFile) as error:  # ValueError: an array of objects, by pickle
            raise StageError(f"tensor {name!r} of {self._path.name}: {error}", fix="dump the stages again") from error
        stated = self._stated.get(name, {})
        dtype = str(stated.get("dtype", array.dtype))
        return array if str(array.dtype) == dtype else from_bytes(array, dtype, tuple(stated["shape"]))


def file_form(array: np.ndarray) -> np.ndarray:
    """The array as it is kept in the file: as it is, or its bytes if numpy's format does not know its dtype."""
    native = array.dtype.kind in _NATIVE and array.dtype.isbuiltin == 1
    return array if native else np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def from_bytes(data: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """The inverse of :func:`file_form` for a dtype of ml_dtypes."""
    return np.frombuffer(data.tobytes(), _numpy_dtype(dtype)).reshape(shape)


@functools.cache
def _numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(name)

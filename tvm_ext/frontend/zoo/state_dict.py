"""Reads a `.safetensors` file: the weights of a model, by name.

The format (https://github.com/huggingface/safetensors, "Format") is eight bytes of header length, a JSON header, and
the raw data; forty lines read it, so the library needs no package for it.
"""

import json
import math
import os
import pathlib
from typing import Any

import numpy as np

from ...core.errors import ModelError

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1"}
#: Of an array: more than any weight has, and as much as numpy 1 takes.
_MOST, _DIMENSIONS = 1 << 40, 32
_AGAIN = "save the weights again: safetensors.torch.save_file(model.state_dict(), path)"


def read_state_dict(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Tensors of a `.safetensors` file by name; BF16 ones become float32.

    Raises:
        ModelError: no such file, not safetensors, cut off, or a dtype other than common floats and integers.
    """
    path = pathlib.Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"weights {str(path)!r} cannot be read: {error.strerror or error}", fix=_AGAIN) from error
    start = 8 + int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:start]) if len(data) >= start > 8 else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise ModelError(f"{path.name}: not a safetensors file, or cut off", fix=_AGAIN)
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    return {name: _tensor(data, start, name, entry, path.name) for name, entry in entries.items()}


def _tensor(data: bytes, start: int, name: str, entry: Any, file: str) -> np.ndarray:
    try:
        dtype, shape, (first, last) = str(entry["dtype"]), tuple(entry["shape"]), entry["data_offsets"]
        if not all(type(n) is int and 0 <= n < _MOST for n in (*shape, first, last)):
            raise TypeError("sizes and offsets are whole numbers, 0 or more")
        count = math.prod(shape)
    except (TypeError, ValueError, KeyError) as error:
        raise ModelError(f"{file}: the entry of tensor {name!r:.100} is damaged: {error}", fix=_AGAIN) from error
    if len(shape) > _DIMENSIONS or (dtype not in _DTYPES and dtype != "BF16"):
        kind = f"{dtype:.40} and {len(shape)} dimensions"
        wrong = f"{file}: tensor {name!r:.100} has dtype {kind}"
        raise ModelError(wrong, fix=f"{', '.join(_DTYPES)} and BF16 can be read")
    stored = np.dtype("<u2" if dtype == "BF16" else _DTYPES[dtype])
    if not 0 <= first <= last <= len(data) - start or last - first != count * stored.itemsize:
        wrong = f"{count * stored.itemsize} bytes; the file states bytes {first} to {last} of {len(data) - start}"
        what = f"{file}: tensor {name!r} of shape {shape} and dtype {dtype}"
        raise ModelError(f"{what} needs {wrong}: damaged or cut off", fix=_AGAIN)
    array = np.frombuffer(data, stored, count, start + first).reshape(shape)
    if dtype == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(array.dtype.newbyteorder("="), copy=False)

"""Language models of GGUF files, as ONNX: the weights keep their bits."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.errors import ModelError
from ....core.extras import extra
from .graph import LlamaSizes, language_model
from .weights import BlockMatrix, Matrix, nibbles

if TYPE_CHECKING:
    import onnx

#: Numbers of a block of the types that have such.
_BLOCK = 32


def gguf(
    path: str | os.PathLike[str], capacity: int = 2048, every: bool = False, exact: bool = False
) -> onnx.ModelProto:
    """The model of a GGUF file of the Llama family, with the interface of :func:`.llama.llama`.

    Weights of Q4_0, Q4_1 and Q8_0 keep their bits as MatMulNBits; F16, BF16 and F32 become float32.

    Args:
        path: the file.
        capacity: tokens that a sequence may have; at most the context of the model is taken.
        every: logits of all tokens; else of the last one.
        exact: products of float32; else they may be of 8-bit numbers.

    Raises:
        ModelError: no GGUF file, another architecture, another type of weights, tensors missing or left over.
        ToolError: the package `gguf` is not installed.
    """
    reader = open_gguf(path)
    read = Fields(reader, path)
    heads, hidden = read.whole("attention.head_count"), read.whole("embedding_length")
    kv_heads = read.whole("attention.head_count_kv", heads)
    sizes = LlamaSizes(
        read.whole("block_count"), hidden, heads, kv_heads, read.vocabulary(),
        min(capacity, read.whole("context_length", capacity)), read.number("rope.freq_base", 10000.0),
        read.number("attention.layer_norm_rms_epsilon", 1e-5),
    )  # fmt: skip
    turned = read.whole("rope.dimension_count", sizes.size)
    if hidden % heads or turned != sizes.size or read.whole("attention.key_length", sizes.size) != sizes.size:
        raise ModelError(f"{os.fspath(path)!r}: heads of {sizes.size} numbers, of which {turned} are turned")
    weights = {str(tensor.name): _matrix(tensor, path) for tensor in reader.tensors}
    return language_model(os.path.basename(os.fspath(path)), sizes, weights, every, exact)


def open_gguf(path: str | os.PathLike[str]) -> Any:
    """A reader of the package `gguf`.

    Raises:
        ModelError: no such file, or no GGUF file.
        ToolError: the package is not installed.
    """
    package = extra("gguf", "gguf", "a GGUF file")
    try:
        return package.GGUFReader(os.fspath(path))
    except (OSError, ValueError, IndexError) as error:
        raise ModelError(f"{os.fspath(path)!r} cannot be read as GGUF: {error}", fix="give a .gguf file") from error


class Fields:
    """Metadata of a file of the Llama family, by the names that follow the architecture's.

    Raises:
        ModelError: another architecture.
    """

    def __init__(self, reader: Any, path: str | os.PathLike[str]) -> None:
        self._reader, self._path = reader, os.fspath(path)
        kind = self.value("general.architecture")
        if kind != "llama":
            raise ModelError(f"{self._path!r}: architecture {kind!r}", fix="models of architecture 'llama' are read")

    def value(self, name: str, default: Any = None) -> Any:
        """A field by its whole name."""
        field = self._reader.get_field(name)
        return default if field is None else field.contents()

    def number(self, name: str, default: float | None = None) -> float:
        """A number by its name behind "llama."."""
        value = self.value(f"llama.{name}", default)
        if not isinstance(value, int | float):
            raise ModelError(f"{self._path!r} says llama.{name}={value!r}, where a number is needed")
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number, as :meth:`number`."""
        return int(self.number(name, default))

    def vocabulary(self) -> int:
        """Tokens: rows of the embedding."""
        return next((int(t.shape[-1]) for t in self._reader.tensors if t.name == "token_embd.weight"), 0)


def _q4_0(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """18 bytes: a scale, then 32 codes around 8, of which the first 16 are lower halves."""
    return _split(raw[..., 2:]), _half(raw, 0), None


def _q4_1(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """20 bytes: a scale, the smallest number, then 32 codes from 0. The zero point is the code of 0: -smallest / scale;
    where the scale is 0, all are the smallest, which codes of 0 are with the scale 1."""
    scale, least, codes = _half(raw, 0), _half(raw, 2), _split(raw[..., 4:])
    flat = scale == 0
    codes = np.where(flat[..., None], 0, codes).astype(np.uint8)
    scale = np.where(flat, 1, scale).astype(np.float32)
    return codes, scale, -least / scale


def _q8_0(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """34 bytes: a scale, then 32 signed numbers."""
    return raw[..., 2:] ^ np.uint8(128), _half(raw, 0), None


def _half(raw: np.ndarray, start: int) -> np.ndarray:
    """The float16 in two bytes of each block, as float32."""
    two = np.ascontiguousarray(raw[..., start : start + 2])
    return two.view("<f2")[..., 0].astype(np.float32)


def _split(packed: np.ndarray) -> np.ndarray:
    """16 bytes whose lower halves come first -> 16 bytes of neighbours."""
    return nibbles(np.concatenate([packed & 15, packed >> 4], -1))


_Decode = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, "np.ndarray | None"]]
#: Type of a tensor -> bytes of a block, bits of a code, and what takes blocks apart: codes, scales, zero points.
_TYPES: dict[str, tuple[int, int, _Decode]] = {"Q4_0": (18, 4, _q4_0), "Q4_1": (20, 4, _q4_1), "Q8_0": (34, 8, _q8_0)}


def _matrix(tensor: Any, path: str | os.PathLike[str]) -> Matrix:
    """A tensor; GGUF names the innermost dimension first."""
    kind, shape = str(tensor.tensor_type.name), tuple(int(d) for d in reversed(tensor.shape))
    if kind in ("F32", "F16"):
        return np.asarray(tensor.data).reshape(shape).astype(np.float32)
    if kind == "BF16":
        bits = np.asarray(tensor.data).view(np.uint16).reshape(shape).astype(np.uint32) << 16
        return bits.view(np.float32)
    if kind not in _TYPES or len(shape) != 2:
        known = ", ".join((*_TYPES, "F16", "BF16", "F32"))
        raise ModelError(f"{os.fspath(path)!r}: {tensor.name} {shape} is of type {kind}", fix=f"types: {known}")
    size, bits_of_code, decode = _TYPES[kind]
    raw = np.asarray(tensor.data).view(np.uint8).reshape(shape[0], shape[1] // _BLOCK, size)
    return BlockMatrix(*decode(raw), bits_of_code, shape[1])

"""Language models of GGUF files, as ONNX: the weights keep their bits."""

from __future__ import annotations

import math
import os
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from ....core.errors import ModelError, is_number, naming
from ....core.extras import extra
from .graph import LlamaSizes, language_model
from .shared_cache import Pages, check_arguments
from .weights import BlockMatrix, Matrix

#: Numbers of a block of the types that have such.
_BLOCK = 32


def gguf(
    path: str | os.PathLike[str], capacity: int = 2048, every: bool = False, exact: bool = False,
    cache: str = "float32", sequences: int = 0, pages: int = 0,
) -> onnx.ModelProto:  # fmt: skip
    """The model of a GGUF file of the Llama family, with the interface of :func:`.llama.llama`.

    Weights of Q4_0, Q4_1 and Q8_0 keep their bits as MatMulNBits; F16, BF16 and F32 become float32.

    Args:
        path: the file.
        capacity: tokens that a sequence may have; at most the context of the model is taken.
        every: logits of all tokens; else of the last one.
        exact: products of float32; else they may be of 8-bit numbers.
        cache, sequences, pages: see :func:`.llama.llama`.

    Raises:
        ModelError: no GGUF file, or a damaged one; another architecture or type of weights; positions that are scaled
            in another way than linearly; tensors missing or left over.
        OptionError: `capacity` is below 1, or there is no such `cache`.
        ToolError: the package `gguf` is not installed.
    """
    check_arguments(capacity, cache, sequences, pages)
    reader = open_gguf(path)
    sizes = _sizes(Fields(reader, path), capacity)
    weights = {str(tensor.name): _matrix(tensor, path) for tensor in reader.tensors}
    shared = Pages.of(sequences, pages, sizes.capacity)
    return language_model(os.path.basename(os.fspath(path)), sizes, weights, every, exact, shared, cache)


def _sizes(read: Fields, capacity: int) -> LlamaSizes:
    """What the metadata say.

    Raises:
        ModelError: metadata that are missing, or of a model that is not computed.
    """
    heads, hidden = read.whole("attention.head_count"), read.whole("embedding_length")
    kv_heads = read.whole("attention.head_count_kv", heads)
    sizes = LlamaSizes(
        read.whole("block_count"), hidden, heads, kv_heads, read.vocabulary(),
        min(int(capacity), read.whole("context_length", capacity)), read.number("rope.freq_base", 10000.0, least=1),
        read.number("attention.layer_norm_rms_epsilon", 1e-5), stretch=_stretch(read),
    )  # fmt: skip
    if hidden % (2 * heads) or heads % kv_heads:
        raise read.error(f"hidden={hidden}, heads={heads}, kv_heads={kv_heads}: heads of an even width, whole for keys")
    for name in ("rope.dimension_count", "attention.key_length", "attention.value_length"):
        if read.whole(name, sizes.size) != sizes.size:
            raise read.error(f"llama.{name}={read.whole(name)}, where heads have {sizes.size} numbers")
    scale = read.number("attention.scale", 0.0)
    if scale and not math.isclose(scale, sizes.size**-0.5, rel_tol=1e-5):
        raise read.error(f"llama.attention.scale={scale}, where {sizes.size**-0.5} is computed")
    return sizes


def _stretch(read: Fields) -> float:
    """What positions are divided by: the factor of linear scaling, which 0 and the type "none" leave out."""
    kind = read.value("llama.rope.scaling.type", "linear")
    if kind not in ("none", "linear"):
        raise read.error(f"llama.rope.scaling.type={kind!r}", fix="'linear' and 'none' are computed")
    factor = read.number("rope.scaling.factor", read.number("rope.scale_linear", 0.0))
    return 1.0 if kind == "none" or factor == 0 else factor


def open_gguf(path: str | os.PathLike[str]) -> Any:
    """A reader of the package `gguf`.

    Raises:
        ModelError: no such file, or no GGUF file, or not all of it.
        ToolError: the package is not installed.
    """
    package: Any = extra("gguf", "gguf", "a GGUF file")
    base: Any = package.GGUFReader
    kinds = package.GGUFValueType

    class Reader(base):
        def _get(self, offset: int, dtype: Any, count: int = 1, **order: Any) -> np.ndarray:
            """Numbers at an offset; the package's own gives fewer behind the end, for as many as the file claims."""
            array: np.ndarray = super()._get(offset, dtype, count, **order)
            if len(array) < count:
                raise ValueError(f"it ends before byte {offset}")
            return array

        def _get_field_parts(self, offset: int, kind: int) -> tuple[int, list[Any], list[int], list[Any]]:
            """(bytes, parts, which of them are data, types) of a value. Of a list of numbers all are one part, of
            strings each is a view of the file: the package makes an array a number, and four a string."""
            if kind == kinds.ARRAY:
                head = [self._get(offset, np.uint32), self._get(offset + 4, np.uint64)]
                inner, count = kinds(int(head[0][0])), int(head[1][0])
                types = [kinds.ARRAY, *[inner] * bool(count)]
                if (number := self.gguf_scalar_to_np.get(inner)) is not None:
                    values = self._get(offset + 12, number, count)
                    return 12 + values.nbytes, [*head, values], [2], types
                if inner == kinds.STRING:
                    strings, size = _strings(memoryview(self.data)[offset + 12 :], count, self.byte_order == "S")
                    return 12 + size, [*head, *strings], [*range(2, 2 + count)], types
            return super()._get_field_parts(offset, kind)

    with naming(ModelError, lambda: f"{os.fspath(path)!r} cannot be read as GGUF", fix="give a whole .gguf file"):
        return Reader(os.fspath(path))


def _strings(data: memoryview, count: int, swapped: bool) -> tuple[list[memoryview], int]:
    """So many strings, each behind its length in 8 bytes, and how many bytes they take together.

    Args:
        swapped: lengths have the byte order that is not this machine's.

    Raises:
        ValueError: the data end before.
    """
    order = "<>"[(sys.byteorder == "big") != swapped]
    length_at, strings, place = struct.Struct(f"{order}Q").unpack_from, [], 0
    for _ in range(count):
        if place + 8 > len(data) or (end := place + 8 + length_at(data, place)[0]) > len(data):
            raise ValueError(f"it ends within a list of {count} strings")
        strings.append(data[place + 8 : end])
        place = end
    return strings, place


class Fields:
    """Metadata of a file of the Llama family, by the names that follow the architecture's.

    Raises:
        ModelError: another architecture; of methods: the field is missing or damaged, or says something else.
    """

    def __init__(self, reader: Any, path: str | os.PathLike[str]) -> None:
        self._reader, self._path = reader, os.fspath(path)
        kind = self.value("general.architecture")
        if kind != "llama":
            raise self.error(f"architecture {kind!r}", fix="models of architecture 'llama' are read")

    def error(self, wrong: str, fix: str = "") -> ModelError:
        """An error that names the file."""
        return ModelError(f"{self._path!r}: {wrong}", fix=fix)

    def value(self, name: str, default: Any = None) -> Any:
        """A field by its whole name."""
        field = self._reader.get_field(name)
        with naming(ModelError, lambda: f"{self._path!r}: field {name}", fix="the file is damaged"):
            return default if field is None else field.contents()

    def items(self, name: str, kind: type, default: list[Any] | None = None) -> list[Any]:
        """A list of strings or of numbers, by its whole name."""
        value = self.value(name, default)
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise self.error(f"field {name} is no list of {kind.__name__}")
        return value

    def number(self, name: str, default: float | None = None, least: float = 0) -> float:
        """A finite number of `least` or more by its name behind "llama."."""
        value = self.value(f"llama.{name}", default)
        if not is_number(value) or value < least:
            raise self.error(f"llama.{name}={value!r}, where a number of {least} or more is needed")
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number of 1 or more, as :meth:`number`."""
        value = self.number(name, default, least=1)
        if value != int(value):
            raise self.error(f"llama.{name}={value!r} is no whole number")
        return int(value)

    def vocabulary(self) -> int:
        """Tokens: rows of the embedding."""
        tables = [t for t in self._reader.tensors if t.name == "token_embd.weight" and len(t.shape) == 2]
        if not tables or not tables[0].shape[-1]:
            raise self.error("there is no matrix 'token_embd.weight'")
        return int(tables[0].shape[-1])


def _q4_0(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """18 bytes: a scale, then 32 codes around 8, of which the first 16 are lower halves."""
    return _split(raw[..., 2:]), _half(raw, 0), None


def _q4_1(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """20 bytes: a scale, the smallest number, then 32 codes from 0. The zero point is the code of 0: -smallest / scale;
    where the scale is 0, all are the smallest, which codes of 0 are with the scale 1."""
    scale, least, codes = _half(raw, 0), _half(raw, 2), _split(raw[..., 4:])
    flat = scale == 0
    codes[flat] = 0
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
    """16 bytes whose lower halves come first -> 16 bytes of neighbours; two bytes at a time."""
    pairs, out = np.ascontiguousarray(packed).view("<u2"), np.empty(packed.shape, np.uint8)
    higher = pairs >> 4
    out[..., :8] = (pairs & 0x0F) | (higher & 0xF0)
    out[..., 8:] = (higher & 0x0F) | (pairs >> 8 & 0xF0)
    return out


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

"""What stands for a constant in a text: the name of a tensor in a file, a number, or dtype, shape and a digest."""

import hashlib

import numpy as np
from tvm.ir import GenericConst

from ..core.graph.relax_graph import array_of
from ..frontend.naming import Names, identifier

#: dtypes of scalars that stand in the text, if the text says each of their bits.
_INLINE = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float16", "float32", "float64")


class Tensors:
    """Tensors of one or several stage files, equal ones once, with names by what reads them first.

    Attributes:
        arrays: name -> value, of all files.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._by_digest: dict[bytes, str] = {}
        self._names = Names()
        self._known: dict[GenericConst, str] = {}

    def name_of(self, constant: GenericConst, reader: str) -> str:
        """The name of a constant's tensor."""
        if constant not in self._known:
            array = array_of(constant)
            digest = _digest(array)
            if digest not in self._by_digest:
                self._by_digest[digest] = self._names.fresh(identifier(reader))
                self.arrays[self._by_digest[digest]] = array
            self._known[constant] = self._by_digest[digest]
        return self._known[constant]


class FileNaming:
    """Texts for constants in a stage file.

    Args:
        tensors: where they are kept.
        held: constants that stay tensors, though they may be numbers: programs of regions.

    Attributes:
        used: names of the tensors that the file reads.
        place: what stands for the namespace of tensors.
    """

    place = "tvm_ext_tensors"

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors
        self.used: dict[str, None] = {}

    def __call__(self, constant: GenericConst, reader: str) -> str:
        inline = scalar_text(array_of(constant))
        if inline:
            return inline
        name = self._tensors.name_of(constant, reader)
        self.used[name] = None
        return f"{self.place}.{name}"


def scalar_text(array: np.ndarray) -> str:
    """`R.const(0.5, "float32")` for a scalar that this says bit by bit; "" for anything else."""
    dtype = str(array.dtype)
    if array.shape != () or dtype not in _INLINE or not np.isfinite(array):
        return ""
    value = array.item()
    exact = np.array(value, dtype).tobytes() == array.tobytes()
    return f'R.const({value!r}, "{dtype}")' if exact else ""


class ElidedNaming:
    """Texts that only show which constant it is: equal ones are equal, through all steps of a compile."""

    def __init__(self) -> None:
        self._known: dict[GenericConst, str] = {}

    def __call__(self, constant: GenericConst, reader: str) -> str:
        if constant not in self._known:
            array = array_of(constant)
            short = scalar_text(array).removeprefix("R.const")
            shape = ", ".join(map(str, array.shape))
            self._known[constant] = short or f"<{array.dtype}[{shape}] {_digest(array).hex()[:6]}>"
        return self._known[constant]


def _digest(array: np.ndarray) -> bytes:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return hashlib.blake2b(data.data, digest_size=16, key=f"{array.dtype}{array.shape}".encode()[:64]).digest()

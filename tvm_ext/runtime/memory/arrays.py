"""numpy arrays and TVM tensors over the same memory, aligned as compiled kernels need it."""

from __future__ import annotations

import ctypes
import math
import mmap
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

#: Of memory that this library allocates: a cache line, and the widest vector register.
ALIGNMENT = 64
#: Of arguments of a model, as numpy and malloc give it. Kernels use unaligned instructions, but TVM states an alignment
#: of its own to LLVM: an argument at any other address could be a segmentation fault.
ARGUMENT_ALIGNMENT = 16
#: Of larger arrays: a page, from _MANY_PAGES bytes on.
_PAGE, _MANY_PAGES = 4096, 16 * 4096

#: Kinds of numpy's own dtypes that DLPack and numpy exchange without a copy: boolean, integers, floats. Those of
#: ml_dtypes have kind "V", but one of them "f".
_NATIVE_KINDS = "biuf"


#: Integers of less than 8 bits: a byte each, in numpy and in programs.
_NARROW = frozenset(["int2", "uint2", "int4", "uint4"])


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The same memory in the dtype that programs have for it: bytes, for integers of less than 8 bits."""
    return array.view(np.uint8) if array.dtype.kind == "V" and array.dtype.name in _NARROW else array


def aligned_empty(shape: Iterable[int], dtype: np.dtype[Any] | type | str) -> np.ndarray:
    """An array with unset values whose memory starts at a multiple of 64 bytes; of a page, where it is large.

    A CPU compares the low 12 bits of addresses first. Numpy's own large arrays start 16 bytes into a page: results at
    64 would make each load wait for the store just before it, and cost an elementwise kernel a third of its time.
    """
    shape, dtype = tuple(shape), np.dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    alignment = ALIGNMENT if nbytes < _MANY_PAGES else _PAGE
    memory = np.empty(nbytes + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    return np.ndarray(shape, dtype, memory, start)


def mapped_empty(nbytes: int) -> np.ndarray:
    """Bytes with unset values in fresh pages of memory, huge ones where the system has them.

    A hundred megabytes of weights are filled many times faster so: small pages cost a page fault for each 4 KiB, and
    later a translation for each that a kernel streams through.
    """
    memory = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8, nbytes)


def together(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Copies of arrays in one mapping, as by :func:`zeros`; a kernel that streams through them takes up to a sixth less
    than from small pages, of which each waits for its translation (twelve convolutions of 113 MB of weights)."""
    copies = zeros((array.shape, array.dtype) for array in arrays)
    for copy, array in zip(copies, arrays, strict=True):
        np.copyto(copy, array)
    return copies


def zeros(kinds: Iterable[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[np.ndarray]:
    """Arrays of zeros of these shapes and dtypes, aligned as by :func:`aligned_empty`, in one mapping.

    Many caches of a megabyte each get huge pages so, which none of them could have alone.
    """
    kinds, starts, end = list(kinds), [], 0
    for shape, dtype in kinds:
        nbytes = math.prod(shape) * dtype.itemsize
        alignment = ALIGNMENT if nbytes < _MANY_PAGES else _PAGE
        starts.append(-(-end // alignment) * alignment)
        end = starts[-1] + nbytes
    memory = mapped_empty(end)
    return [np.ndarray(shape, dtype, memory, start) for (shape, dtype), start in zip(kinds, starts, strict=True)]


def is_aligned(array: np.ndarray) -> bool:
    """Whether kernels may read this memory as it is."""
    return array.flags.c_contiguous and array.ctypes.data % ARGUMENT_ALIGNMENT == 0


def zero_copy(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Whether numpy can lend such an array to TVM: not ml_dtypes' types, nor empty ones (numpy gives strides of 0)."""
    return dtype.kind in _NATIVE_KINDS and dtype.type.__module__ == "numpy" and 0 not in shape


def to_tensor(array: np.ndarray) -> Any:
    """A TVM tensor of an array's values; over the array's own memory if that is aligned and writable."""
    array = as_bytes(array)
    name = "" if zero_copy(array.dtype, array.shape) else str(array.dtype)
    if name:
        import tvm.runtime

        if 0 in array.shape or tvm.DataType(name).bits != 8 * array.itemsize:
            return tvm.runtime.empty(array.shape, name) if 0 in array.shape else tvm.runtime.tensor(array)
    import tvm_ffi

    if not (is_aligned(array) and array.flags.writeable):  # numpy lends no read-only memory
        copy = aligned_empty(array.shape, array.dtype.newbyteorder("="))
        np.copyto(copy, array)
        array = copy
    if name:  # a dtype of ml_dtypes: numpy lends its bytes
        return tvm_ffi.from_dlpack(array.view(f"u{array.itemsize}"))._create_view(array.shape, name)
    return tvm_ffi.from_dlpack(array)


#: Tensors over arrays that are passed call after call, by the array's identity; they go with their arrays.
_lent: dict[int, tuple[weakref.ref[np.ndarray], Any]] = {}


def lend(array: np.ndarray) -> None:
    """Make the tensor that :func:`lent_tensor` has of an array, if that is aligned, writable memory of another one."""
    if array.base is None or not (zero_copy(array.dtype, array.shape) and is_aligned(array) and array.flags.writeable):
        return
    import tvm_ffi

    key = id(array)
    reference = weakref.ref(array, lambda _: _lent.pop(key, None))
    _lent[key] = reference, tvm_ffi.from_dlpack(array.view())  # of the memory: the tensor does not hold the array


def lent_tensor(array: np.ndarray) -> Any | None:
    """The tensor over an array, where :func:`lend` has one."""
    reference, tensor = _lent.get(id(array), (None, None))
    return tensor if reference is not None and reference() is array else None


def to_array(tensor: Any, *, copy: bool) -> np.ndarray:
    """A writable array of a tensor's values; over the tensor's own memory unless `copy`."""
    try:
        array = np.from_dlpack(tensor)
    except (BufferError, RuntimeError):  # a dtype of ml_dtypes: whoever made the spec has imported tvm.runtime
        return tensor.numpy()
    if copy or not array.flags.writeable:
        return array.copy()
    return array


def memory_at(address: int, shape: Iterable[int], dtype: np.dtype[Any], owner: Any = None) -> np.ndarray:
    """The memory at an address as a writable array, which keeps its owner alive.

    By its address: an argument that compiled code passes is a view on its stack, without an owner, and numpy's own way
    to it (DLPack) ends the process.
    """
    shape = tuple(map(int, shape))
    nbytes = math.prod(shape) * dtype.itemsize
    if not nbytes:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_char * nbytes).from_address(address)
    memory.owner = owner
    return np.ndarray(shape, dtype, memory)

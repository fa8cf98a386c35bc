"""The functional view: what a program computes, exactly and fast, numpy over whole tiles.

int8 products are summed exactly: in float32 while no sum can pass 2^24, else in float64. int32 accumulators wrap
around at 2^31, as registers do. float32 is summed in the order of BLAS, bfloat16 in that of the array: in float32, from
0 along k, in ws and is a fold of `rows` after the other, and each fold (in os all of k) is added to the accumulator; in
rs from 0 in each PE, then from PE to PE up the column, and each pass to the accumulator.
With `backend="stepper"` every GEMM runs register by register instead, to prove that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ....core.errors import InputError, OptionError
from ..bfloat16 import from_bits, to_bits
from ..code.check import loaded_itemsize
from ..code.isa import Conv, Gemm, Load, LoadConstant, LoadWindows, Reduce, SparseGemm, Store, Vector, padded_size
from ..code.program import Program, Tensor
from ..code.sparse import expanded, kept, sparse_bytes
from ..config import Accelerator, Dataflow
from .cost import block_of
from .partition import blocks
from .row_stationary import RowShape, row_mapping, row_parts
from .stepper import step_conv, step_gemm
from .vector import apply, reduced

BACKENDS = ("numpy", "stepper")
#: -128 * -128 * 1024 = 2^24: up to here every partial sum of int8 products is a float32.
_FLOAT32_EXACT_DEPTH = 1024
#: OpenBLAS, interface/gemm.c: products of up to SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD stay on one thread.
_ONE_THREAD_MACS = 65536 * 4
_LEAST_DEPTH = 16


def run(program: Program, inputs: Mapping[str, np.ndarray], backend: str = "numpy") -> dict[str, np.ndarray]:
    """Runs a program.

    Args:
        program: what to run.
        inputs: name -> array of exactly the shape and dtype of each input tensor.
        backend: "numpy", or "stepper", which moves the registers of every PE (for small programs).

    Returns:
        Name -> array of every output tensor, new memory.

    Raises:
        InputError: an input is missing, unknown, or of another shape or dtype.
        ProgramError: the queues deadlock; names the instruction.
    """
    if backend not in BACKENDS:
        raise OptionError(f"backend={backend!r} is unknown", fix=f"choose {' or '.join(map(repr, BACKENDS))}")
    outputs = {tensor.name: np.empty(tensor.shape, tensor.dtype) for tensor in program.of_role("output")}
    run_into(program, in_order(program, inputs), list(outputs.values()), backend)
    return outputs


def in_order(program: Program, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The arrays of a program's inputs, in its order.

    Raises:
        InputError: one is missing or unknown.
    """
    names = [tensor.name for tensor in program.of_role("input")]
    if set(inputs) != set(names):
        raise InputError(f"inputs {sorted(inputs)} were given; the program takes {sorted(names)}")
    return [inputs[name] for name in names]


def run_into(
    program: Program, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], backend: str = "numpy"
) -> None:
    """Runs a program on arrays, without a copy of contiguous ones; several threads may do so at once.

    Args:
        program: what to run.
        inputs, outputs: arrays in the order of its tensors of these roles; outputs are written, and contiguous. What no
            instruction writes becomes zero.
        backend: see :func:`run`.

    Raises:
        InputError: their number, a shape or a dtype is another one.
        ProgramError: the queues deadlock; names the instruction.
    """
    state = _State(program, _bound(program, inputs, outputs), backend)
    with np.errstate(all="ignore"):
        for index in program.order:
            instruction = program.instructions[index]
            if (step := _STEPS.get(type(instruction))) is not None:  # SYNC and FINISH compute nothing
                step(state, instruction)


class _State:
    """Memories while a program runs; tensors and constants are flat."""

    def __init__(self, program: Program, tensors: Sequence[np.ndarray], backend: str) -> None:
        self.program, self.backend = program, backend
        hardware = program.accelerator
        self.scratchpad = np.zeros(hardware.scratchpad_bytes, np.uint8)
        self.tensors = [
            memory if tensor.address is None else self.tile(tensor.address, (tensor.size,), tensor.dtype)
            for tensor, memory in zip(program.tensors, tensors, strict=True)
        ]
        self.words = np.zeros(hardware.accumulator_bytes // 4, np.int32)
        self.constants = [values.reshape(-1) for values in program.constants]
        self.images: dict[int, dict[tuple[int, ...], np.ndarray]] = {}
        self._places = {
            at: (tensor.address, tensor.address + tensor.nbytes)
            for at, tensor in enumerate(program.tensors)
            if tensor.address is not None
        }

    def forget(self, begin: int, nbytes: int) -> None:
        """Drops the images of tensors that lie in these bytes of the scratchpad, which are written."""
        places = ((tensor, self._places.get(tensor)) for tensor in self.images)
        for tensor in [at for at, place in places if place and begin < place[1] and place[0] < begin + nbytes]:
            del self.images[tensor]

    def put(self, address: int, values: np.ndarray) -> None:
        """Writes a tile of the scratchpad."""
        self.forget(address, values.nbytes)
        self.tile(address, values.shape, values.dtype)[...] = values

    def tile(self, address: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """A tile of the scratchpad, as a view."""
        return np.ndarray(shape, dtype, buffer=self.scratchpad, offset=address)

    def operand(self, address: int, shape: tuple[int, ...]) -> np.ndarray:
        """An operand of the array, in its dtype; bfloat16 in float32."""
        dtype = self.program.accelerator.dtype
        return (
            from_bits(self.tile(address, shape, np.uint16)) if dtype == "bfloat16" else self.tile(address, shape, dtype)
        )

    def loaded(self, values: np.ndarray, operand: str) -> np.ndarray:
        """What a load puts into the scratchpad of values of a tensor."""
        if values.dtype == np.uint8:
            return (values ^ np.uint8(0x80)).view(np.int8)
        size = loaded_itemsize(self.program.accelerator, str(values.dtype), operand)
        return values if size == values.itemsize else to_bits(values)

    def sums(self, address: int, rows: int, cols: int) -> np.ndarray:
        """A tile of the accumulator, int32, as a view."""
        return self.words[address : address + rows * cols].reshape(rows, cols)


def _bound(program: Program, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The memory of every tensor, flat."""
    arrays_of: dict[str, np.ndarray] = {}
    for role, arrays in (("input", inputs), ("output", outputs)):
        tensors = program.of_role(role)
        if len(arrays) != len(tensors):
            raise InputError(f"{len(arrays)} {role}s were given; the program has {len(tensors)}")
        for tensor, array in zip(tensors, arrays, strict=True):
            _check_array(tensor, array)
            arrays_of[tensor.name] = np.ascontiguousarray(array).reshape(-1)
    for tensor in program.of_role("output"):
        arrays_of[tensor.name].fill(0)
    scratch = {tensor.name: np.zeros(tensor.size, tensor.dtype) for tensor in program.of_role("scratch")}
    memories = arrays_of | scratch
    return [memories[tensor.name] for tensor in program.tensors]


def _check_array(tensor: Tensor, array: np.ndarray) -> None:
    if not isinstance(array, np.ndarray):
        raise InputError(f"{tensor.role} {tensor.name} is no array but {type(array).__name__}")
    shape, dtype = tuple(array.shape), str(array.dtype)
    if (shape, dtype) != (tensor.shape, tensor.dtype):
        what = f"{tensor.role} {tensor.name}"
        raise InputError(f"{what} is {dtype} {shape}; the program takes {tensor.dtype} {tensor.shape}")
    if tensor.role == "output" and not (array.flags.c_contiguous and array.flags.writeable):
        raise InputError(f"output {tensor.name} is not contiguous, or cannot be written")


def _load(state: _State, load: Load) -> None:
    state.put(load.dst, state.loaded(_strided(state.tensors[load.tensor], load), load.operand))


def _load_windows(state: _State, load: LoadWindows) -> None:
    image, padded_width = _padded_image(state, load)
    plane, down, across = image.size // load.channels, load.dilation_height * padded_width, load.dilation_width
    begins = _window_begins(
        load.row_begin, load.rows, load.out_width, load.stride_height * padded_width, load.stride_width
    )
    taps = _tap_steps(load.col_begin, load.cols, load.kernel_height, load.kernel_width, plane, down, across)
    tile = state.tile(load.dst, (load.rows, load.cols), image.dtype)
    state.forget(load.dst, tile.nbytes)
    np.take(image, begins[:, None] + taps, out=tile, mode="clip")  # no index is out: clip only saves a buffer


@functools.lru_cache(maxsize=256)
def _window_begins(first: int, count: int, width: int, down: int, across: int) -> np.ndarray:
    """Where in an image the windows of so many pixels of an output begin."""
    y, x = np.divmod(np.arange(first, first + count), width)
    return np.asarray(y * down + x * across)


@functools.lru_cache(maxsize=256)
def _tap_steps(first: int, count: int, height: int, width: int, plane: int, down: int, across: int) -> np.ndarray:
    """How far from the begin of a window so many columns of the im2col matrix lie."""
    channel, taps = np.divmod(np.arange(first, first + count), height * width)
    y, x = np.divmod(taps, width)
    return np.asarray(channel * plane + y * down + x * across)


def _padded_image(state: _State, load: LoadWindows) -> tuple[np.ndarray, int]:
    """The image with its padding, flat, and its padded width; kept until its tensor, or where it lies, is written."""
    height, width = padded_size(load)
    sizes = (load.offset, load.channels, load.height, load.width, height, width)
    key = (*sizes, load.pad_top, load.pad_left, load.pad_value)
    images = state.images.setdefault(load.tensor, {})
    if key not in images:
        count = load.channels * load.height * load.width
        source = state.tensors[load.tensor][load.offset : load.offset + count]
        pad = np.float32(-np.inf if load.pad_value else 0) if source.dtype == np.float32 else load.pad_value
        fill = state.loaded(np.full(1, pad, np.float32), load.operand) if source.dtype == np.float32 else pad
        source = state.loaded(source, load.operand)
        image = np.full((load.channels, height, width), fill, source.dtype)
        inner = image[:, load.pad_top : load.pad_top + load.height, load.pad_left : load.pad_left + load.width]
        inner[...] = source.reshape(load.channels, load.height, load.width)
        images[key] = image.reshape(-1)
    return images[key], width


def _load_constant(state: _State, load: LoadConstant) -> None:
    count = load.rows * load.cols
    state.put(load.dst, state.constants[load.constant][load.offset : load.offset + count])


def _gemm(state: _State, gemm: Gemm) -> None:
    hardware = state.program.accelerator
    a, places = state.operand(gemm.a, (gemm.m, gemm.k)), None
    b = state.operand(gemm.b, (sparse_bytes(gemm.k, gemm.n),) if gemm.is_sparse else (gemm.k, gemm.n))
    if gemm.is_sparse:
        b, places = kept(b, gemm.k, gemm.n)
    c = state.sums(gemm.c, gemm.m, gemm.n).view(hardware.accumulator_dtype)
    if state.backend == "stepper":
        _step_gemm(hardware, gemm, a, b, places, c)
        return
    if places is not None:
        b = expanded(b, places, gemm.k)
    depth = gemm.k if gemm.dataflow == Dataflow.OS else hardware.rows
    folds = ([range(begin, min(begin + depth, gemm.k))] for begin in range(0, gemm.k, depth))
    _multiply(hardware.dtype, c, a, b, bool(gemm.accumulate), folds)


def _step_gemm(hardware: Accelerator, gemm: Gemm, a: np.ndarray, b: np.ndarray, places: Any, c: np.ndarray) -> None:
    """A GEMM register by register, an array after the other; b with its places where it is of 2:4."""
    acc, overlapped = c.copy() if gemm.accumulate else None, hardware.compute_model == "overlapped"
    for rows, cols in blocks(gemm.m, gemm.n, block_of(hardware, gemm.dataflow, gemm.m, gemm.depth, gemm.n)):
        part, of = None if acc is None else acc[rows, cols], None if places is None else places[:, cols]
        array = hardware.rows, hardware.cols, part, overlapped, of
        c[rows, cols] = step_gemm(a[rows], b[:, cols], gemm.dataflow, *array)[0]


def _conv(state: _State, conv: Conv) -> None:
    hardware, (m, k, n) = state.program.accelerator, conv.sizes
    b, c = state.operand(conv.b, (k, n)), state.sums(conv.c, m, n).view(hardware.accumulator_dtype)
    inner = state.operand(conv.a, (conv.channels, conv.height, conv.width))
    image = np.full((conv.channels, *padded_size(conv)), conv.pad_value, inner.dtype)
    image[:, conv.pad_top : conv.pad_top + conv.height, conv.pad_left : conv.pad_left + conv.width] = inner
    for (rows, filters), part in row_parts(conv, hardware):
        _conv_part(state, part, image, conv.pad_top - part.pad_top, b[:, filters], c[rows, filters])


def _conv_part(state: _State, conv: Conv, image: np.ndarray, first: int, b: np.ndarray, c: np.ndarray) -> None:
    """What an array computes of a convolution: its windows begin in row `first` of the image with its padding."""
    hardware, (m, k, n), shape = state.program.accelerator, conv.sizes, RowShape.of(conv)
    mapping = row_mapping(shape, hardware)[1]
    if state.backend == "stepper":
        filters, array = b.T.reshape(n, conv.channels, *shape.kernel), (hardware.rows, hardware.cols)
        acc = c.copy() if conv.accumulate else None
        c[...] = step_conv(image[:, first:], filters, mapping, *array, acc, hardware.compute_model == "overlapped")[0]
        return
    plane, row, item = image.strides
    steps = row * conv.stride_height, item * conv.stride_width
    taps = row * conv.dilation_height, item * conv.dilation_width
    sizes, strides = (*shape.out_size, conv.channels, *shape.kernel), (*steps, plane, *taps)
    windows = np.ndarray(sizes, image.dtype, image, first * row, strides)
    _multiply(hardware.dtype, c, windows.reshape(m, k), b, bool(conv.accumulate), mapping.depth_order())


def _multiply(
    dtype: str, c: np.ndarray, a: np.ndarray, b: np.ndarray, accumulate: bool, folds: Iterable[Sequence[Sequence[int]]]
) -> None:
    """c = a b, or c += a b. In bfloat16 each of `folds` is added to c one after the other: the sum along the PEs of a
    column, each with a sum of its own, from 0, over these products."""
    if dtype != "bfloat16":
        product = _product(a, b) if dtype == "float32" else _exact_product(a, b)
        if accumulate:
            product += c
        c[...] = product
        return
    if not accumulate:
        c.fill(0)
    product = np.empty_like(c)
    for fold in folds:
        column = np.zeros_like(c)
        for depths in fold:
            total = np.zeros_like(c)
            for at in depths:
                total += np.multiply(a[:, at, None], b[at], out=product)
            column += total
        c += column


def _exact_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    dtype = np.float32 if a.shape[1] <= _FLOAT32_EXACT_DEPTH else np.float64
    return _product(a.astype(dtype), b.astype(dtype)).astype(np.int32)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a b as a sum over pieces of k that numpy's OpenBLAS computes on the calling thread.

    Its threads, which it starts for larger products, spin; beside those of TVM or of another process that made tiles of
    this size up to 40 times slower on two cores.
    """
    (m, k), n = a.shape, b.shape[1]
    depth = _ONE_THREAD_MACS // (m * n)
    if depth >= k or depth < _LEAST_DEPTH:
        return a @ b
    pieces = k // depth
    head = pieces * depth
    left = a[:, :head].reshape(m, pieces, depth).transpose(1, 0, 2)
    total = (left @ b[:head].reshape(pieces, depth, n)).sum(axis=0)
    if head < k:
        total += a[:, head:] @ b[head:]
    return total


def _reduce(state: _State, reduce: Reduce) -> None:
    a = state.operand(reduce.a, (reduce.rows, reduce.cols, reduce.taps))
    b = state.operand(reduce.b, (reduce.taps, reduce.cols)) if reduce.op == "dot" else None
    c = state.sums(reduce.c, reduce.rows, reduce.cols).view(state.program.accelerator.accumulator_dtype)
    values = reduced(reduce.op, a, b, c.dtype)
    if reduce.accumulate:
        values = np.maximum(c, values) if reduce.op == "max" else c + values
    c[...] = values


def _vector(state: _State, vector: Vector) -> None:
    operand = None
    if vector.source != "none":
        shape = (vector.cols,) if vector.source == "row" else (vector.rows, vector.cols)
        operand = state.tile(vector.address, shape, vector.dtype)
    apply(vector, state.sums(vector.c, vector.rows, vector.cols), operand)


def _store(state: _State, store: Store) -> None:
    memory = state.tensors[store.tensor]
    words = state.sums(store.c, store.rows, store.cols)
    if memory.itemsize == 4:
        values = words.view(memory.dtype)
    else:
        values = np.clip(words, -128, 127) + np.int32(128 if memory.dtype == np.uint8 else 0)
    _write(state, store, values)


def _write(state: _State, store: Store, values: np.ndarray) -> None:
    _strided(state.tensors[store.tensor], store)[...] = values
    state.images.pop(store.tensor, None)
    if (address := state.program.tensors[store.tensor].address) is not None:
        state.forget(address, state.program.tensors[store.tensor].nbytes)


def _strided(memory: np.ndarray, access: Load | Store) -> np.ndarray:
    size = memory.itemsize
    strides = (access.row_stride * size, access.col_stride * size)
    return np.ndarray((access.rows, access.cols), memory.dtype, memory, access.offset * size, strides)


_STEPS: dict[type[Any], Callable[[_State, Any], None]] = {
    Load: _load, LoadWindows: _load_windows, LoadConstant: _load_constant, Gemm: _gemm, SparseGemm: _gemm, Conv: _conv,
    Reduce: _reduce, Vector: _vector, Store: _store,
}  # fmt: skip


class TileMover:
    """DRAM as hardware sees it at its DMA port: the bytes of the tiles that loads bring and stores take away.

    Args and errors are those of :func:`run_into`.
    """

    def __init__(self, program: Program, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        self._state = _State(program, _bound(program, inputs, outputs), "numpy")

    def load(self, load: Load | LoadWindows | LoadConstant) -> bytes:
        """The tile of a load as it is to lie in the scratchpad."""
        _STEPS[type(load)](self._state, load)
        state = self._state
        source = state.constants[load.constant] if isinstance(load, LoadConstant) else state.tensors[load.tensor]
        return state.scratchpad[load.dst : load.dst + load.rows * load.cols * source.itemsize].tobytes()

    def store(self, store: Store, data: bytes) -> None:
        """Writes the tile of a store, in the dtype of its tensor, row-major."""
        dtype = self._state.tensors[store.tensor].dtype
        _write(self._state, store, np.frombuffer(data, dtype).reshape(store.rows, store.cols))

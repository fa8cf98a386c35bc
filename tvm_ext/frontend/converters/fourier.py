"""Windows; and DFT and STFT: a matmul with the matrix of the transform, in float64, because spectra hold what cancels.

    X[w] = sum over t of x[t] exp(-2 pi i w t / n)   ->   matmul(x as (.., n * parts), matrix of (n * parts, m * parts))

Real and imaginary parts stand beside each other, so that one real matrix is any of: of real or complex numbers, of one
side only, the inverse, with zeros behind the signal or the end of it cut off.
"""

import math
from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype
from tvm import relax

from ...core.graph.relax_graph import dtype_of
from ..checks.refusal import Refusal
from .base import Attributes, Converter, constant, converts, emit, known, static_shape

#: Elements of a matrix.
_MOST = 1 << 24
#: From this version on the axis is an input.
_AXIS_IS_INPUT = 20


@converts("DFT")
def dft(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """DFT(x, length) along an axis; the last dimension of x holds real and imaginary parts, or real ones only."""
    x, stated = inputs[0], inputs[1]
    shape = static_shape(x, "the input of DFT")
    inverse, onesided = bool(attributes.get("inverse", 0)), bool(attributes.get("onesided", 0))
    if opset < _AXIS_IS_INPUT:
        axis = int(attributes.get("axis", 1))
    else:
        axis = -2 if inputs[2] is None else int(known(inputs[2], "axis").reshape(-1)[0])
    axis %= len(shape)
    length = 2 * (shape[axis] - 1) if inverse and onesided else shape[axis]
    if stated is not None:
        length = int(known(stated, "dft_length").reshape(-1)[0])
    matrix = _matrix(shape[axis], shape[-1], length, inverse, onesided)
    others = [i for i in range(len(shape) - 1) if i != axis]
    rows = emit(relax.op.permute_dims(x, [*others, axis, len(shape) - 1]))
    spectrum = _product(rows, [shape[i] for i in others], matrix)
    order = list(range(len(others)))
    order.insert(axis, len(others))
    return relax.op.permute_dims(spectrum, [*order, len(others) + 1])


@converts("STFT")
def stft(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """STFT(signal, frame_step, window, frame_length): the DFT of every frame, times the window."""
    x, window = inputs[0], inputs[2]
    batch, samples, *complex_ = static_shape(x, "the signal of STFT")
    parts = math.prod(complex_)  # which onnxruntime takes without the last dimension, too
    step = int(known(inputs[1], "frame_step").reshape(-1)[0])
    if inputs[3] is not None:
        length = int(known(inputs[3], "frame_length").reshape(-1)[0])
    else:
        length = samples if window is None else static_shape(window, "the window")[0]
    if not 0 < length <= samples or step < 1:
        raise Refusal(f"frames of {length} with steps of {step} in {samples} samples")
    count = 1 + (samples - length) // step
    matrix = _matrix(length, parts, length, False, bool(attributes.get("onesided", 1)))
    if not batch:
        return constant(np.zeros((0, count, *matrix.shape[2:])), dtype_of(x))
    places = np.arange(count)[:, None] * step + np.arange(length)
    frames = emit(relax.op.take(x, constant(places.reshape(-1)), 1, mode="wrap"))
    frames = emit(relax.op.reshape(frames, (batch, count, length, parts)))
    if window is not None:
        frames = emit(frames * relax.op.reshape(window, (length, 1)))
    return _product(frames, [batch, count], matrix)


def _product(rows: Any, others: list[int], matrix: np.ndarray) -> Any:
    """(others, n, parts) by a matrix (n, parts, m, parts) -> (others, m, parts)."""
    n, parts, m, results = matrix.shape
    dtype = dtype_of(rows)
    flat = emit(relax.op.astype(relax.op.reshape(rows, (-1, n * parts)), "float64"))
    product = emit(relax.op.matmul(flat, constant(matrix.reshape(n * parts, m * results))))
    return emit(relax.op.reshape(relax.op.astype(product, dtype), (*others, m, results)))


def _matrix(size: int, parts: int, length: int, inverse: bool, onesided: bool) -> np.ndarray:
    """The transform as a real matrix (size, parts, results, parts of a result) in float64.

    Args:
        size: of the signal, of which the first `length` elements count.
        parts: 2 if it is complex.
        length: of the transform.
        onesided: whether the second half of a spectrum, which mirrors the first, is left out.
    """
    if length < 1 or size * length * 2 * parts > _MOST:
        raise Refusal(f"a transform of {size} elements and length {length}; matrices of up to {_MOST} elements work")
    half = length // 2 + 1
    results = half if onesided and not inverse else length
    t, w = np.arange(size), np.arange(results)
    steps = t[:, None] * w % length
    turn = steps * (2 * np.pi / length) * (1 if inverse else -1)
    weight = np.where(t < (half if inverse and onesided else length), 1.0, 0.0)
    if inverse:
        weight = weight / length
        if onesided:  # what mirrors an element counts with it; the first, and the middle one, mirror themselves
            weight = np.where((t == 0) | (2 * t == length), weight, 2 * weight)
    # at quarters of a turn they are integers: what cancels in a spectrum is 0, whose phase is no noise
    waves = [np.where(4 * steps % length, wave(turn), np.rint(wave(turn)) + 0.0) for wave in (np.cos, np.sin)]
    real, imaginary = (wave * weight[:, None] for wave in waves)
    whole = np.stack([np.stack([real, imaginary], -1), np.stack([-imaginary, real], -1)], 1)[:, :parts]
    return whole[..., :1] if inverse and onesided else whole


def _window(*terms: float) -> Converter:
    """A window of a known size: the sum of terms[k] cos(2 pi k n / N), N the size, or one less if it is not periodic.

    ONNX's own definition rounds it to float32 on the way.
    """

    def converter(inputs: Any, attributes: Attributes, opset: int) -> Any:
        size = int(known(inputs[0], "size").reshape(()))
        with np.errstate(all="ignore"):  # a window of one that is not periodic
            turns = 2 * np.pi * np.arange(size) / np.float64(size if attributes.get("periodic", 1) else size - 1)
            values = np.asarray(sum(term * np.cos(k * turns) for k, term in enumerate(terms)))
            dtype = tensor_dtype_to_np_dtype(attributes.get("output_datatype", 1))
            return constant((values if dtype == np.float64 else values.astype(np.float32)).astype(dtype))

    return converter


converts("BlackmanWindow")(_window(0.42, -0.5, 0.08))
converts("HammingWindow")(_window(25 / 46, -21 / 46))
converts("HannWindow")(_window(0.5, -0.5))

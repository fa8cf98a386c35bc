"""DFT and STFT against numpy's transforms."""

from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.frontend.graphs import model, node, value

RNG = np.random.default_rng(11)


def run(proto: Any, x: np.ndarray) -> np.ndarray:
    return tvm_ext.compile(proto, cache=False).run({"x": x})["y"]


def close(result: np.ndarray, wanted: np.ndarray) -> None:
    parts = np.stack([wanted.real, wanted.imag], -1) if np.iscomplexobj(wanted) else wanted[..., None]
    assert result.shape == parts.shape and result.dtype == np.float32
    np.testing.assert_allclose(result, parts, rtol=1e-6, atol=1e-6 * np.abs(parts).max())


def test_stft_of_samples_without_a_last_dimension() -> None:
    """As exporters write it, and onnxruntime takes it."""
    x, known = RNG.standard_normal((2, 40)).astype(np.float32), {"step": np.int64(5), "length": np.int64(8)}
    proto = model([node("STFT", ["x", "step", "", "length"], ["y"])], [value("x", x.shape)], [value("y", None)], known)
    frames = np.stack([x[:, at : at + 8] for at in range(0, 33, 5)], 1)
    close(run(proto, x), np.fft.rfft(frames))


@pytest.mark.parametrize(
    ("opset", "axis", "length"),
    [(20, 0, 6), *(pytest.param(*of, marks=pytest.mark.long) for of in ((17, 1, None), (20, 1, 16)))],
)
@pytest.mark.parametrize("kind", ["real", "complex", "one side", "inverse"])
def test_dft(kind: str, opset: int, axis: int, length: int | None) -> None:
    x = np.float32(RNG.normal(0, 1, (9, 11, 1 if kind in ("real", "one side") else 2)))
    weights = {} if length is None else {"n": np.array(length)}
    names, attributes = (
        ["x", *(weights or [""])],
        {"onesided": int(kind == "one side"), "inverse": int(kind == "inverse")},
    )
    if opset < 20:
        attributes["axis"] = axis
    else:
        names, weights = [*names, "a"], {**weights, "a": np.array(axis)}
    proto = model([node("DFT", names, ["y"], **attributes)], [value("x", x.shape)], [value("y", None)], weights, opset)
    signal = x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
    transform = {"one side": np.fft.rfft, "inverse": np.fft.ifft}.get(kind, np.fft.fft)
    close(run(proto, x), transform(signal.real if kind == "one side" else signal, length, axis))


@pytest.mark.parametrize("length", [11, 12])
def test_the_inverse_of_one_side_is_real(length: int) -> None:
    x = np.float32(RNG.normal(0, 1, (3, length // 2 + 1, 2)))
    proto = model([node("DFT", ["x", "n"], ["y"], onesided=1, inverse=1)], [value("x", x.shape)], [value("y", None)],
                  {"n": np.array(length)}, 20)  # fmt: skip
    close(run(proto, x), np.fft.irfft(x[..., 0] + 1j * x[..., 1], length, 1))


def test_what_cancels_in_a_spectrum_is_zero() -> None:
    """Imaginary parts of the mean and of the highest frequency: models take their sign for a phase of 0 or pi."""
    x = np.float32(RNG.normal(0, 1, (2, 20, 1)))
    proto = model([node("DFT", ["x"], ["y"], axis=1, onesided=1)], [value("x", x.shape)], [value("y", None)], {}, 17)
    np.testing.assert_array_equal(run(proto, x)[:, [0, 10], 1], np.zeros((2, 2), np.float32))


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("window", [True, False])
def test_stft(window: bool, onesided: int) -> None:
    x, w = np.float32(RNG.normal(0, 1, (2, 101, 1))), np.hanning(16).astype(np.float32)
    weights = {"s": np.array(7), **({"w": w} if window else {"l": np.array(16)})}
    names = ["x", "s", "w"] if window else ["x", "s", "", "l"]
    proto = model([node("STFT", names, ["y"], onesided=onesided)], [value("x", x.shape)], [value("y", None)], weights)
    frames = np.stack([x[:, i : i + 16, 0] for i in range(0, 101 - 15, 7)], 1) * (w if window else 1)
    close(run(proto, x), (np.fft.rfft if onesided else np.fft.fft)(frames))

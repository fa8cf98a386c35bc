"""What onnxruntime's tools do: ranges of activations by its calibrators, a sample at a time, so that memory holds one;
and a QDQ model of them by its quantizer.
"""

import contextlib
import io
import logging
import pathlib
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx

from ..core.errors import InputError, UnsupportedError
from .calibration import OneSample, Sample
from .selection import FLOAT_RESULTS
from .settings import QuantizeSettings

Tell = Callable[[str, int, int], None]


def calibrate(
    model: onnx.ModelProto, operators: Iterable[str], samples: Sequence[Sample], settings: QuantizeSettings, tell: Tell
) -> Any:
    """The range of each value that nodes of these operators read or make.

    Args:
        model: prepared.
        operators: of the nodes that will be quantized.
        samples: inputs, one batch each.
        settings: method and percentile.
        tell: is told ("calibrating", samples that ran, samples).

    Returns:
        onnxruntime's `TensorsData`.

    Raises:
        InputError: a sample cannot be run, or makes a value infinite or NaN.
        UnsupportedError: onnxruntime cannot run the model.
    """
    with tempfile.TemporaryDirectory(prefix="tvm_ext_quantize_") as folder, _quiet():
        calibrator = _calibrator(model, sorted(set(operators)), pathlib.Path(folder), settings)
        for number, sample in enumerate(samples):
            tell("calibrating", number, len(samples))
            try:
                calibrator.collect_data(OneSample(sample))
            except Exception as error:  # of onnxruntime's, which have no common base but this
                raise InputError(f"calibration sample {number}: onnxruntime cannot run it: {error}") from error
        tell("choosing ranges", len(samples), len(samples))
        ranges = calibrator.compute_data()
    _check_finite(ranges)
    return ranges


def _calibrator(
    model: onnx.ModelProto, operators: list[str], folder: pathlib.Path, settings: QuantizeSettings
) -> Any:  # fmt: skip
    from onnxruntime.quantization import CalibrationMethod, create_calibrator

    methods: dict[str, tuple[Any, dict[str, Any]]] = {
        "minmax": (CalibrationMethod.MinMax, {}),
        "entropy": (CalibrationMethod.Entropy, {}),
        "percentile": (CalibrationMethod.Percentile, {"percentile": settings.percentile}),
    }
    method, options = methods[settings.method]
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    try:
        return create_calibrator(
            path, operators, str(folder / "augmented.onnx"), calibrate_method=method, extra_options=options
        )
    except Exception as error:
        raise UnsupportedError(f"onnxruntime cannot run the model for calibration: {error}") from error


def _check_finite(ranges: Any) -> None:
    for name, data in ranges.items():
        if not all(np.isfinite(np.asarray(bound, np.float64)).all() for bound in data.range_value):
            low, high = (np.asarray(bound).ravel()[0] for bound in data.range_value)
            raise InputError(
                f"calibration: value {name!r} ranges from {low} to {high}, which 8 bits cannot hold",
                fix="look for samples, or weights, that make infinities or NaN (tvm-ext verify shows them)",
            )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Calibrators print what they do, and stdout is the caller's; NaN, of which numpy warns, is an error later."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


# ------------------------------------------------------------ the model
def quantized_model(
    model: onnx.ModelProto, nodes: list[str], ranges: Any, settings: QuantizeSettings
) -> tuple[onnx.ModelProto, list[str]]:
    """A copy of a model with QuantizeLinear and DequantizeLinear around some nodes; weights are stored in 8 bits.

    Args:
        model: prepared.
        nodes: names of the nodes to quantize, one at least.
        ranges: what :func:`calibrate` returned.
        settings: with `reduce_range` decided.

    Returns:
        The model, and onnxruntime's warnings about it.
    """
    from onnxruntime.quantization import QDQQuantizer, QuantType

    copy = type(model)()
    copy.CopyFrom(model)
    chosen = set(nodes)
    operators = sorted({node.op_type for node in copy.graph.node if node.name in chosen})
    activations = QuantType.QUInt8 if settings.activations == "uint8" else QuantType.QInt8
    options = {"OpTypesToExcludeOutputQuantization": list(FLOAT_RESULTS), "ForceQuantizeNoInputCheck": True}
    with _warnings() as warnings:
        quantizer = QDQQuantizer(
            copy, settings.per_channel, bool(settings.reduce_range), QuantType.QInt8, activations, ranges, nodes, [],
            operators, options,
        )  # fmt: skip
        quantizer.quantize_model()
        quantizer.model.topological_sort()  # conversions of inputs come last else
    return quantizer.model.model, list(dict.fromkeys(warnings))


@contextlib.contextmanager
def _warnings() -> Iterator[list[str]]:
    """Warnings go to the root logger, which would make itself a handler that writes to stderr for good."""
    messages: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    root, keeper = logging.getLogger(), Keeper(logging.WARNING)
    root.addHandler(keeper)
    try:
        yield messages
    finally:
        root.removeHandler(keeper)

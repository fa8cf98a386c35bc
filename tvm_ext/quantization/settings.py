"""What a user may ask of `quantize`: one frozen object that checks itself when it is made."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..core.errors import OptionError, did_you_mean, is_number
from ..runtime.table import Plain

METHODS = ("minmax", "entropy", "percentile")
ACTIVATIONS = ("uint8", "int8")
#: Bits of weights alone, with a scale for each block, and lengths of blocks.
WEIGHTS, BLOCKS = {"int4": 4, "int8": 8}, (16, 32, 64, 128, 256)

#: Operators whose weights alone can be quantized.
WEIGHED = ("MatMul", "Gemm")


@dataclass(frozen=True)
class QuantizeSettings(Plain):
    """How a model is quantized.

    Attributes:
        method: how the range of an activation is chosen: "minmax" takes all of what calibration showed; "percentile"
            cuts off the largest magnitudes; "entropy" cuts where the histogram loses the least information (least
            Kullback-Leibler divergence; Migacz, "8-bit inference with TensorRT", GTC 2017), as coarsely as
            onnxruntime does: 128 bins, and cuts beyond the range of the first sample only.
        percentile: with "percentile": part of the elements, in percent, that the range holds.
        per_channel: a scale for each output channel of a weight, rather than one for all of it.
        activations: type of activations; "uint8" is what the dot products of x86 (VNNI) take beside int8 weights.
        exclude: names of nodes that stay in float32.
        operators: operators to quantize, and no others; empty: products with a constant weight, and of what only moves
            elements or is cheap arithmetic between two products what has operands of 8-bit values already.
        reduce_range: weights of 7 bits, so that sums of two products of kernels without VNNI cannot saturate; None is
            True only where this machine has no VNNI.
        weights: "int4" or "int8" quantizes weights of matmuls alone, with a scale for each `block` of a column, and
            of the above only `exclude` and `operators` count; None quantizes weights and activations to 8 bits.
        block: inputs with one scale; with `weights`.

    Raises:
        OptionError: a value does not fit, or nothing reads it; the message says what would.
    """

    method: str = "minmax"
    percentile: float = 99.999
    per_channel: bool = True
    activations: str = "uint8"
    exclude: Sequence[str] = ()
    operators: Sequence[str] = ()
    reduce_range: bool | None = None
    weights: str | None = None
    block: int = 32

    def __post_init__(self) -> None:
        for name in ("exclude", "operators"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        _choice("method", self.method, METHODS)
        _choice("activations", self.activations, ACTIVATIONS)
        _choice("weights", self.weights, (None, *WEIGHTS))
        _choice("block", self.block, BLOCKS)
        for name in self.operators if self.weights else ():
            _choice("operators, with weights=", name, WEIGHED)
        for name in ("per_channel", "reduce_range"):
            if not (isinstance(getattr(self, name), bool) or (name == "reduce_range" and self.reduce_range is None)):
                raise OptionError(f"{name}={getattr(self, name)!r}: True or False is needed")
        number = self.percentile
        if not is_number(number) or not 50 < number <= 100:
            raise OptionError(
                f"percentile={number!r}: a number above 50, up to 100, is needed", fix="99.999 is the default"
            )
        self._check_unread()

    def _check_unread(self) -> None:
        """Raises OptionError for an option that was set and counts for nothing beside the others."""
        calibrated = "method", "percentile", "per_channel", "activations", "reduce_range"
        unread = dict.fromkeys(calibrated, "weights=None") if self.weights else {"block": "weights='int4' or 'int8'"}
        if self.method != "percentile":
            unread.setdefault("percentile", "method='percentile'")
        for field in fields(self):
            if field.name in unread and (value := getattr(self, field.name)) != field.default:
                raise OptionError(f"{field.name}={value!r} counts only with {unread[field.name]}", fix="leave it out")


@functools.cache
def known_operators() -> tuple[str, ...]:
    """Operators that onnxruntime's tools can quantize, sorted."""
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    return tuple(sorted({*QDQRegistry, *QLinearOpsRegistry}))


def check_operators(operators: Sequence[str]) -> None:
    """Raises OptionError for an operator that cannot be quantized."""
    known = known_operators() if operators else ()
    for name in operators:
        if name not in known:
            raise OptionError(
                f"operators: {name!r} is none that can be quantized",
                fix=f"{did_you_mean(name, known)}operators: {', '.join(known)}",
            )


def _names(option: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = (value,)
    try:
        names = tuple(value)
    except TypeError:
        names = (None,)
    if not all(isinstance(name, str) and name for name in names):
        raise OptionError(f"{option}={value!r}: a name or several are needed")
    return names


def _choice(option: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise OptionError(f"{option}={value!r}: choose one of {', '.join(map(repr, choices))}")

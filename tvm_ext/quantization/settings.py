"""What a user may ask of `quantize`: one frozen object that checks itself when it is made."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields

from ..core.errors import OptionError, check_choice, check_switch, did_you_mean, is_number, names_of
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
        block: inputs with one scale.

    Raises:
        OptionError: a value does not fit, or counts for nothing beside the others; the message says what would.
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
            object.__setattr__(self, name, names_of(name, getattr(self, name)))
        check_choice("method", self.method, METHODS)
        check_choice("activations", self.activations, ACTIVATIONS)
        check_choice("weights", self.weights, (None, *WEIGHTS))
        check_choice("block", self.block, BLOCKS)
        for name in self.operators if self.weights else ():
            check_choice("operators, with weights=", name, WEIGHED)
        for name in ("per_channel", "reduce_range"):
            if not (name == "reduce_range" and self.reduce_range is None):
                check_switch(name, getattr(self, name))
        number = self.percentile
        if not is_number(number) or not 50 < number <= 100:
            raise OptionError(
                f"percentile={number!r}: a number above 50, up to 100, is needed", fix="99.999 is the default"
            )
        defaults = {option.name: option.default for option in fields(self)}
        for name, needed in self._without_effect().items():
            if (value := getattr(self, name)) != defaults[name]:
                raise OptionError(f"{name}={value!r} counts for nothing here", fix=f"leave it out, or give {needed}")

    def _without_effect(self) -> dict[str, str]:
        """Options that say nothing beside the others -> what they need."""
        if self.weights is not None:
            return dict.fromkeys(("method", "percentile", "per_channel", "activations", "reduce_range"), "no weights=")
        alone = {} if self.method == "percentile" else {"percentile": "method='percentile'"}
        return {**alone, "block": "weights='int4'"}


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

"""How far outputs of a model are from onnxruntime's."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tests.oracles.float64 import float64_outputs
from tests.oracles.reference import outputs_of, session_of
from tvm_ext.verification.metrics import OutputMetrics, compare

from .models import RealModel

#: Least cosine of an output of a model whose activations are rounded to 8 bits on the way; that of onnxruntime with its
#: optimizations, against onnxruntime without them, goes down to 0.995.
REQUANTIZED = 0.99
#: Where a model magnifies rounding, its outputs may be so many times as far from the truth as onnxruntime's: magika,
#: whose layer norm takes E[x^2] - E[x]^2 of nearly constant channels, is 1 to 12 times as far.
MAGNIFIED = 30.0

Outputs = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Verdict:
    """How outputs compare with others.

    Attributes:
        error: largest error of a floating-point output, of that output's range.
        reason: what is wrong; "" if nothing is.
        note: why a larger error than others is none here.
    """

    error: float
    reason: str
    note: str = ""


def onnxruntime_of(model: bytes, inputs: Outputs, *, optimized: bool = False) -> dict[str, np.ndarray]:
    """Outputs by name, with all graph optimizations, or with none; on all cores, sums of bytes exact."""
    return outputs_of(_session(model, optimized), inputs)


@functools.lru_cache(maxsize=1)
def _session(model: bytes, optimized: bool) -> Any:
    """The session of the last model: its inputs come one after the other."""
    return session_of(onnx.ModelProto.FromString(model), optimized=optimized, threads=0)


def verdict_on(model: RealModel, data: bytes, inputs: Outputs, outputs: Outputs) -> Verdict:
    """How outputs of a model compare with onnxruntime's: roughly, where it rounds activations to 8 bits."""
    outputs, references = _as_computed(outputs), _as_computed(onnxruntime_of(data, inputs))
    if model.requantizes:
        return judge(outputs, references, roughly=True)
    return judge(outputs, references, lambda: float64_outputs(data, inputs))


def _as_computed(outputs: Outputs) -> dict[str, np.ndarray]:
    """Outputs in the precision of what they are made of: a pitch in float64, of audio in float32."""
    return {name: x.astype(np.float32) if x.dtype == np.float64 else x for name, x in outputs.items()}


def judge(
    outputs: Outputs, wanted: Outputs, truth: Callable[[], Outputs] | None = None, *, roughly: bool = False
) -> Verdict:
    """Compare outputs by name; integers must be equal.

    Args:
        found, wanted: to compare.
        roughly: whether only their directions must agree.
        truth: the outputs in double precision. A difference where `wanted` is itself as far from the truth, or a
            thirtieth as far, says that the model magnifies rounding errors, and nothing more.
    """
    if list(outputs) != list(wanted):
        return Verdict(np.inf, f"outputs {list(outputs)}, not {list(wanted)}")
    rows = [compare(name, np.asarray(outputs[name]), wanted[name], np.inf if roughly else None) for name in wanted]
    error, failed = max(row.of_range for row in rows), [row for row in rows if row.reason or row.cosine < REQUANTIZED]
    if not failed:
        return Verdict(error, "")
    notes = _magnified(failed, outputs, wanted, truth()) if truth else {}
    reasons = [f"{row.name}: {row.reason or f'cosine {row.cosine:.3f}'}" for row in failed if not notes.get(row.name)]
    return Verdict(error, "; ".join(reasons), "; ".join(notes.values()))


def _magnified(failed: list[OutputMetrics], results: Outputs, wanted: Outputs, truth: Outputs) -> dict[str, str]:
    """Outputs that are not much farther from the truth than `wanted` is -> how far both are."""
    notes = {}
    for row in failed:
        mine, theirs = (_distance(outputs[row.name], truth[row.name]) for outputs in (results, wanted))
        if mine <= MAGNIFIED * theirs:
            notes[row.name] = f"float64 is {mine:.1e} away, and {theirs:.1e} from onnxruntime"
    return notes


def _distance(outputs: np.ndarray, truth: np.ndarray) -> float:
    """Largest error, of the range; infinite for what is not compared so."""
    same = outputs.shape == truth.shape and outputs.dtype == np.float32
    return compare("", outputs.astype(np.float64), truth, np.inf).of_range if same else np.inf

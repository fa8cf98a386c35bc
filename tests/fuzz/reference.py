"""What onnxruntime makes of a mutant, and whether our outputs agree.

"agrees"   they do
"alone"    onnxruntime refuses the file or the inputs, or does not agree with itself
"wrong"    they do not
"""

import pathlib
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.oracles import compare
from tests.oracles.outcome import Outcome, short
from tests.oracles.reference import onnxruntime_outputs

from .compiling import Answer, in_folder
from .mutants import Mutant

#: Error that float outputs may have, as a part of the output's range. What is wrong is wrong by far more.
_TOLERANCE = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 2e-3, "float64": 2e-3}
#: Beyond this an overflow of float32 is near: which of two ways to compute overflows first is no matter.
_HUGE = 1e30


def judged_outcome(mutant: Mutant, path: str) -> Outcome:
    """Run onnxruntime on the inputs of an :class:`Answer` and compare.

    Args:
        path: of the answer's file.
    """
    answer = pickle.loads(pathlib.Path(path).read_bytes())
    with in_folder(mutant) as source:
        plain = _outputs(source, answer, optimized=False)
        if not isinstance(plain, str) and not (reason := difference(answer.outputs, plain)):
            return Outcome("agrees")
        optimized = _outputs(source, answer, optimized=True)
    if isinstance(plain, str):
        if isinstance(optimized, str):
            return Outcome("alone", plain)
        reason, plain = difference(answer.outputs, optimized), optimized
        if not reason:
            return Outcome("agrees")
    if not isinstance(optimized, str):
        if not difference(answer.outputs, optimized):
            return Outcome("agrees")
        if other := difference(optimized, plain):
            return Outcome("alone", f"onnxruntime with and without optimizations: {other}; here: {reason}")
    third = _by_onnx(mutant, answer)
    if not isinstance(third, str) and not difference(answer.outputs, third):
        return Outcome("alone", f"onnxruntime differs from ONNX's own evaluator, as it does from here: {reason}")
    return Outcome("wrong", reason)


def _outputs(source: str | bytes, answer: Answer, *, optimized: bool) -> list[Any] | str:
    try:
        return list(onnxruntime_outputs(source, answer.feeds, optimized=optimized).values())
    except Exception as error:
        return f"{type(error).__name__}: {short(error)}"


def _by_onnx(mutant: Mutant, answer: Answer) -> list[Any] | str:
    """What ONNX's reference evaluator gives."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    try:
        with in_folder(mutant) as source, np.errstate(all="ignore"):
            model = onnx.load(source) if isinstance(source, str) else onnx.ModelProto.FromString(source)
            return list(ReferenceEvaluator(model).run(None, answer.feeds))
    except Exception as error:
        return f"{type(error).__name__}: {short(error)}"


def difference(outputs: Sequence[np.ndarray], references: Sequence[Any]) -> str:
    """What of the outputs differs first; "" if they agree."""
    if len(outputs) == len(references):
        outputs = [_tamed(mine, theirs) for mine, theirs in zip(outputs, references, strict=True)]
    return compare.difference(outputs, references, _allowed)[0]


def _tamed(mine: np.ndarray, theirs: Any) -> np.ndarray:
    """An output with the reference's values where both are no numbers, or about to be none."""
    if getattr(theirs, "dtype", None) != mine.dtype or theirs.shape != mine.shape or mine.dtype.kind in "iubOUS":
        return mine
    return np.where(_is_tame(mine) | _is_tame(theirs), mine, theirs)


def _is_tame(x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
    return np.isfinite(wide) & (np.abs(wide) < (np.inf if x.dtype.name in ("float64", "float16") else _HUGE))


def _allowed(number: int, reference: np.ndarray) -> float:
    if reference.dtype.kind in "iubOUS":
        return 0.0
    scale = np.abs(reference[_is_tame(reference)].astype(np.float64)).max(initial=0.0)
    return float(_TOLERANCE.get(reference.dtype.name, 0.15) * scale + 1e-6)

"""What onnxruntime makes of a mutant, and whether our outputs agree.

"agrees"      they do
"alone: ..."  onnxruntime refuses the file or the inputs, or does not agree with itself
"wrong: ..."  they do not
"""

from __future__ import annotations

import pathlib
import pickle
from typing import Any

import numpy as np

from .compiling import Answer, in_folder, short
from .mutants import Mutant

#: Error that float outputs may have, as a part of the output's range. What is wrong is wrong by far more.
_TOLERANCE = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 2e-3, "float64": 2e-3}
#: Beyond this an overflow of float32 is near: which of two ways to compute overflows first is no matter.
_HUGE = 1e30


def judged_outcome(mutant: Mutant, path: str) -> str:
    """Run onnxruntime on the inputs of an :class:`Answer` and compare.

    Args:
        path: of the answer's file.
    """
    answer = pickle.loads(pathlib.Path(path).read_bytes())
    with in_folder(mutant) as source:
        plain = _outputs(source, answer, optimized=False)
        if not isinstance(plain, str) and not (reason := difference(answer.outputs, plain)):
            return "agrees"
        optimized = _outputs(source, answer, optimized=True)
    if isinstance(plain, str):
        if isinstance(optimized, str):
            return f"alone: {plain}"
        reason, plain = difference(answer.outputs, optimized), optimized
        if not reason:
            return "agrees"
    if not isinstance(optimized, str):
        if not difference(answer.outputs, optimized):
            return "agrees"
        if other := difference(optimized, plain):
            return f"alone: onnxruntime with and without optimizations: {other}; here: {reason}"
    third = _by_onnx(mutant, answer)
    if not isinstance(third, str) and not difference(answer.outputs, third):
        return f"alone: onnxruntime differs from ONNX's own evaluator, as it does from here: {reason}"
    return f"wrong: {reason}"


def _outputs(source: str | bytes, answer: Answer, *, optimized: bool) -> list[Any] | str:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        wanted = {value.name for value in session.get_inputs()}
        return list(session.run(None, {name: x for name, x in answer.feeds.items() if name in wanted}))
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


def difference(found: list[np.ndarray], wanted: list[Any]) -> str:
    """What of the outputs differs first; "" if they agree."""
    if len(found) != len(wanted):
        return f"{len(found)} outputs, not {len(wanted)}"
    for i, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        if not isinstance(theirs, np.ndarray):
            return f"output {i} is no tensor there"
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            return f"output {i}: {mine.dtype}{mine.shape}, not {theirs.dtype}{theirs.shape}"
        same = _agree(mine, theirs)
        if not same.all():
            at = tuple(int(d) for d in np.argwhere(~same)[0])
            first = f"first {mine[at]!s} for {theirs[at]!s} at {at}"
            return f"output {i}: {int((~same).sum())} of {same.size} differ, {first}"
    return ""


def _agree(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    tolerance = _TOLERANCE.get(wanted.dtype.name)
    if tolerance is None:
        if wanted.dtype.kind in "iub":
            return np.asarray(found == wanted)
        tolerance = 0.15
    with np.errstate(all="ignore"):
        mine, theirs = found.astype(np.float64), wanted.astype(np.float64)
        limit = np.inf if wanted.dtype.name in ("float64", "float16") else _HUGE
        tame = np.isfinite(theirs) & (np.abs(theirs) < limit)
        scale = np.abs(theirs[tame]).max() if tame.any() else 0.0
        near = np.abs(mine - theirs) <= tolerance * scale + 1e-6
        wild = ~tame & ~(np.isfinite(mine) & (np.abs(mine) < limit))
        return near | wild | (mine == theirs)

"""One case through this library, onnxruntime, and where these two differ, through float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .cases import Case
from .reference import float64_outputs

#: The smallest numbers of the dtypes: below them roundings are no part of a value.
_TINY = {"float16": 2.0**-23, "float32": 2.0**-120, "float64": 2.0**-1000}


class Outcome(NamedTuple):
    """What became of a case.

    Attributes:
        kind: "pass", "float64" (onnxruntime's float32 is off, float64 agrees with us), "refused", "failed", "wrong", or
            "invalid": onnxruntime refuses the model, so that it was none for a comparison. A pool adds "crash", "hang".
        reason: in a line.
        share: the largest error, as a part of what it may be.
        unsure: why float64 does not confirm it; "" if it does.
    """

    kind: str
    reason: str = ""
    share: float = 0.0
    unsure: str = ""


def judge(case: Case) -> Outcome:
    """Compile, run twice, compare."""
    try:
        wanted = onnxruntime_outputs(case)
    except Exception as error:
        return Outcome("invalid", _line(error))
    import tvm_ext

    try:
        compiled = tvm_ext.compile(case.model, cache=False, **case.options)
    except (tvm_ext.errors.ModelError, tvm_ext.errors.UnsupportedError) as error:
        return Outcome("refused", _line(error))
    except Exception as error:
        return Outcome("failed", f"{type(error).__name__}: {_line(error)}")
    try:
        found, again = ([r[spec.name] for spec in compiled.outputs] for r in map(compiled.run, [case.feeds] * 2))
    except Exception as error:
        return Outcome("failed", f"run: {type(error).__name__}: {_line(error)}")
    if any(a.tobytes() != b.tobytes() for a, b in zip(found, again, strict=True)):
        return Outcome("wrong", "two runs differ")
    return _compared(case, found, wanted)


def _compared(case: Case, found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> Outcome:
    reason, share = difference(found, wanted, [2 * e for e in case.errors])
    ours, theirs = _against_float64(case, found, wanted)
    if not reason:
        return Outcome("pass", "", share, ours)
    if not ours:
        return Outcome("float64", f"{reason}; onnxruntime against float64: {theirs or 'agrees'}", share)
    return Outcome("wrong", f"{reason}; against float64: we {ours}, onnxruntime {theirs or 'agrees'}", share, ours)


def _against_float64(case: Case, found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> tuple[str, str]:
    """What of ours, and of onnxruntime's outputs, differs from float64 first; or why that cannot be said."""
    try:
        exact = float64_outputs(case.model, case.feeds)
    except Exception as error:  # of some operators ONNX's reference does not do all that ONNX defines
        return (f"float64 cannot tell: {_line(error)}",) * 2
    exact = [e.astype(w.dtype) if w.dtype.kind in "iub" else e for e, w in zip(exact, wanted, strict=True)]
    return (
        difference(found, exact, case.errors, dtypes=False)[0],
        difference(wanted, exact, case.errors, dtypes=False)[0],
    )


def onnxruntime_outputs(case: Case) -> list[np.ndarray]:
    """onnxruntime without graph optimizations, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(case.model, options, providers=["CPUExecutionProvider"])
    known = {node.name for node in session.get_inputs()}
    return [np.asarray(v) for v in session.run(None, {k: v for k, v in case.feeds.items() if k in known})]


def difference(
    found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], errors: Sequence[float], dtypes: bool = True
) -> tuple[str, float]:
    """What differs first, "" if nothing does, and the largest error as a part of what it may be."""
    if len(found) != len(wanted):
        return f"{len(found)} outputs, not {len(wanted)}", np.inf
    worst = 0.0
    for i, (mine, theirs, error) in enumerate(zip(found, wanted, errors, strict=True)):
        reason, share = _differs(mine, theirs, error, dtypes)
        if reason:
            return f"output {i}: {reason}", share
        worst = max(worst, share)
    return "", worst


def _differs(found: np.ndarray, wanted: np.ndarray, error: float, dtypes: bool) -> tuple[str, float]:
    if found.shape != wanted.shape:
        return f"shape {found.shape}, not {wanted.shape}", np.inf
    if dtypes and found.dtype != wanted.dtype:
        return f"{found.dtype}, not {wanted.dtype}", np.inf
    if not found.size:
        return "", 0.0
    if error == 0.0 and found.dtype.kind in "iub":
        wrong = int((found != wanted).sum())
        return (f"{wrong} of {found.size} {found.dtype} values differ", np.inf) if wrong else ("", 0.0)
    allowed = error + _TINY.get(found.dtype.name, 0.0)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(all="ignore"):
        gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    gap = np.where(np.isnan(gap), np.inf, gap)
    at = np.unravel_index(int(gap.argmax()), gap.shape)
    share = float(gap[at] / allowed)
    if gap[at] <= allowed:
        return "", share
    many = int((gap > allowed).sum())
    text = f"{many} of {gap.size} values off, {a[at]!r} for {b[at]!r}, allowed {allowed:.1e}"
    return text.replace("np.float64", ""), share


def _line(error: Exception) -> str:
    """The first line that says something."""
    lines = [" ".join(line.split()) for line in str(error).splitlines()]
    return next((line for line in lines if line), "")[:240]

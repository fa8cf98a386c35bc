"""One case through this library, onnxruntime, and where these two differ, through float64."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tests.oracles.compare import Allowed, difference
from tests.oracles.float64 import float64_outputs
from tests.oracles.outcome import Outcome, attempt, short
from tests.oracles.pool import WORKERS, Service, outcomes
from tests.oracles.reference import compiled, onnxruntime_outputs

from .cases import Case

#: The smallest numbers of the dtypes: below them roundings are no part of a value.
_TINY = {"float16": 2.0**-23, "float32": 2.0**-120, "float64": 2.0**-1000}


def judge(case: Case) -> Outcome:
    """Compile, run twice, compare.

    Beside the kinds of all suites there are "float64" (onnxruntime's float32 is off, float64 agrees with us) and
    "invalid": onnxruntime refuses the model, so that it was none for a comparison. Facts are `share`, the largest
    error as a part of what it may be, and `unsure`, why float64 does not confirm it; "" if it does.
    """
    try:
        references = onnxruntime_of(case)
    except Exception as error:
        return Outcome("invalid", short(error))
    return attempt(lambda: _judged(case, references))


SERVICE = Service(judge)


def judged(cases: Iterator[Case], workers: int = WORKERS) -> Iterator[tuple[Case, Outcome]]:
    """Every case with its outcome, as they finish."""
    return outcomes(SERVICE, cases, workers)


def onnxruntime_of(case: Case) -> list[Any]:
    """onnxruntime without graph optimizations, on one thread."""
    return [np.asarray(value) for value in onnxruntime_outputs(case.model, case.feeds).values()]


def allowed(case: Case, outputs: Sequence[np.ndarray], times: float = 1.0) -> Allowed:
    """What an error of these outputs of the case may be, so many times."""
    most = [times * error + _TINY.get(y.dtype.name, 0.0) for error, y in zip(case.errors, outputs, strict=True)]
    return lambda number, _: most[number]


def _judged(case: Case, references: Sequence[np.ndarray]) -> Outcome:
    program = compiled(case.model, **case.options)
    first, again = ([r[spec.name] for spec in program.outputs] for r in map(program.run, [case.feeds] * 2))
    if any(a.tobytes() != b.tobytes() for a, b in zip(first, again, strict=True)):
        return Outcome("wrong", "two runs differ")
    if unowned := [node for node, row in program.report["nodes"].items() if not row["owners"]]:
        return Outcome("wrong", f"nodes that no kernel, region or pass has: {unowned}")
    reason, share = difference(first, references, allowed(case, references, 2.0))
    ours, theirs = _against_float64(case, first, references)
    if not reason:
        return Outcome("pass", "", {"share": share, "unsure": ours})
    if not ours:
        return Outcome("float64", f"{reason}; onnxruntime against float64: {theirs or 'agrees'}")
    return Outcome("wrong", f"{reason}; against float64: we {ours}, onnxruntime {theirs or 'agrees'}")


def without_doubt(case: Case, outputs: Sequence[np.ndarray], references: Sequence[np.ndarray]) -> bool:
    """Whether float64 agrees with outputs that onnxruntime's differ from."""
    return not _against_float64(case, outputs, references)[0]


def _against_float64(case: Case, *sides: Sequence[np.ndarray]) -> list[str]:
    """What of ours, and of onnxruntime's outputs, differs from float64 first; or why that cannot be said."""
    try:
        exact = float64_outputs(case.model, case.feeds).values()
    except Exception as error:  # of some operators ONNX's reference does not do all that ONNX defines
        return [f"float64 cannot tell: {short(error)}"] * 2
    exact = [e.astype(w.dtype) if w.dtype.kind in "iub" else e for e, w in zip(exact, sides[1], strict=True)]
    return [difference(side, exact, allowed(case, side), dtypes=False)[0] for side in sides]

"""Random graphs as programs of any size: one to three dimensions of the first input are symbolic."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracles.outcome import Outcome, attempt
from tests.oracles.pool import Service
from tests.oracles.symbolic import Run, Variants, judged

from .cases import Case
from .judge import allowed, onnxruntime_of, without_doubt

#: Kinds of cases whose dimensions are numbers, and that only kernels of this library compute.
KINDS = ("plain", "special")


def judge(case: Case) -> Outcome:
    """Compile for sizes up to those of the case, run at some of them, compare.

    Beside the kinds of :func:`.judge.judge` there is "none": it is valid at one size only.
    """
    first = next(iter(case.feeds.values()))
    axes = [axis for axis, size in enumerate(first.shape) if size > 2][:3]

    def wanted(model: bytes, feeds: Mapping[str, Any]) -> Sequence[Any]:
        return onnxruntime_of(dataclasses.replace(case, model=model, feeds=dict(feeds)))

    symbolic = Variants(case.model, case.feeds, wanted).of(axes) if case.kind in KINDS else None
    if symbolic is None:
        return Outcome("none")

    def bound(run: Run) -> Any:
        return allowed(case, run.outputs, 2.0)

    def settled(run: Run, outputs: Sequence[Any]) -> bool:
        return without_doubt(dataclasses.replace(case, feeds=dict(run.feeds)), outputs, run.outputs)

    return attempt(lambda: judged(symbolic, bound, {}, settled, **case.options))


SERVICE = Service(judge)

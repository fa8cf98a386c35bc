"""Random graphs by hypothesis: compiled, they agree with onnxruntime, or with float64 where that is off."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from .cases import Case, make_case
from .judge import Outcome
from .repro import describe, load, save
from .run import Judge
from .table import AGREES

#: Where the case of a failure lies, the smallest one at last.
SAVED = pathlib.Path(tempfile.gettempdir(), "tvm-ext-property")
SETTINGS = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False,
    phases=(Phase.generate, Phase.shrink),
)  # fmt: skip
#: A generator of random numbers each of whose choices hypothesis makes, and makes simpler where a test fails.
CASES = st.randoms(use_true_random=False).map(make_case)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    one = Judge()
    yield one
    one.close()


def check(judge: Judge, case: Case) -> None:
    outcome = judge(case)
    # rows of a batch of any size that meet, in a way that no rule sees through, are refused, with the node
    if outcome.kind in AGREES or (outcome.kind == "refused" and case.kind == "rows"):
        return
    save(case, SAVED)
    hypothesis.note(f"{describe(case, outcome)}\nsaved; again with: python -m tests.property.repro {SAVED}")
    raise AssertionError(f"{outcome.kind}: {outcome.reason}")


@settings(SETTINGS, max_examples=30)
@given(case=CASES)
def test_a_random_graph_agrees(judge: Judge, case: Case) -> None:
    check(judge, case)


@pytest.mark.long
@settings(SETTINGS, max_examples=500)
@given(case=CASES)
def test_another_random_graph_agrees(judge: Judge, case: Case) -> None:
    check(judge, case)


@pytest.mark.long
def test_a_failure_shrinks_to_a_small_graph_that_can_be_run_again() -> None:
    """A judge that dislikes Conv is given a small graph with one."""

    def strict(case: Case) -> Outcome:
        return Outcome("wrong" if case.operators()["Conv"] else "pass", "a fault for a test")

    @settings(SETTINGS, max_examples=100)
    @given(case=CASES)
    def run(case: Case) -> None:
        check(strict, case)

    with pytest.raises(AssertionError, match="a fault for a test") as failure:
        run()
    notes = "\n".join(failure.value.__notes__)
    assert " = Conv" in notes and "python -m tests.property.repro" in notes
    small = load(SAVED).operators()
    assert small.total() - small["Constant"] <= 3, notes

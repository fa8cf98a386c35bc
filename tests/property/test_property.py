"""Random graphs: compiled, they agree with onnxruntime, or with float64 where that is off; hypothesis shrinks them."""

import pathlib
import tempfile
from collections.abc import Callable

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.oracles.outcome import Outcome

from .cases import Case, make_case, seeded
from .judge import judged
from .repro import describe, load, save
from .table import AGREES

#: Where the case of a failure lies, the smallest one at last.
SAVED = pathlib.Path(tempfile.gettempdir(), "tvm-ext-property")
SETTINGS = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False,
    phases=(Phase.generate, Phase.shrink),
)  # fmt: skip
#: A generator of random numbers each of whose choices hypothesis makes, and makes simpler where a test fails.
CASES = st.randoms(use_true_random=False).map(make_case)


def check(judge: Callable[[Case], Outcome], case: Case) -> None:
    outcome = judge(case)
    if not _fine(case, outcome):
        save(case, SAVED)
        hypothesis.note(f"{describe(case, outcome)}\nsaved; again with: python -m tests.property.repro {SAVED}")
        raise AssertionError(f"{outcome.kind}: {outcome.reason}")


def _fine(case: Case, outcome: Outcome) -> bool:
    """Rows of a batch of any size that meet, in a way that no rule sees through, are refused, with the node."""
    return outcome.kind in AGREES or (outcome.kind == "refused" and case.kind == "rows")


# Seeds, and not hypothesis: it mixes constants of all loaded modules into what it draws, and so never draws it again.
# `python -m tests.property.refresh` runs 5000 of them.
@pytest.mark.parametrize(("first", "count"), [(0, 20), pytest.param(20, 20, marks=pytest.mark.long)])
def test_random_graphs_agree(first: int, count: int) -> None:
    wrong = [
        f"{describe(case, outcome)}\nagain with: python -m tests.property.repro {case.name.removeprefix('seed ')}"
        for case, outcome in judged(map(seeded, range(first, first + count)))
        if not _fine(case, outcome)
    ]
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.long
def test_a_failure_shrinks_to_a_small_graph_that_can_be_run_again() -> None:
    """A judge that dislikes Conv is given a small graph with one.

    How small depends on what hypothesis draws, and so on which modules are loaded: one with a convolution or three, of
    graphs that begin with ten operators and more.
    """
    seen: list[int] = []

    def size(case: Case) -> int:
        return case.operators().total() - case.operators()["Constant"]

    def strict(case: Case) -> Outcome:
        seen.extend([size(case)] if case.operators()["Conv"] else [])
        return Outcome("wrong" if case.operators()["Conv"] else "pass", "a fault for a test")

    @settings(SETTINGS, max_examples=1000)
    @given(case=CASES)
    def run(case: Case) -> None:
        check(strict, case)

    with pytest.raises(AssertionError, match="a fault for a test") as failure:
        run()
    notes = "\n".join(failure.value.__notes__)
    assert " = Conv" in notes and "python -m tests.property.repro" in notes
    assert size(load(SAVED)) <= min(8, min(seen) + 3), notes

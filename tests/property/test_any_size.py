"""Random graphs as programs of any size: none is wrong. `python -m tests.property.symbolic` runs 1000 of them."""

import pytest

from tests.oracles.pool import outcomes

from .any_size import SERVICE
from .cases import seeded


@pytest.mark.parametrize(("first", "count"), [(0, 20), pytest.param(20, 20, marks=pytest.mark.long)])
def test_random_graphs_are_right_at_any_size(first: int, count: int) -> None:
    results = [(case.name, outcome) for case, outcome in outcomes(SERVICE, map(seeded, range(first, first + count)))]
    assert not [f"{name}: {outcome}" for name, outcome in results if outcome.kind not in ("pass", "none", "refused")]
    passed, refused = (sum(outcome.kind == kind for _, outcome in results) for kind in ("pass", "refused"))
    assert passed >= 4 * refused

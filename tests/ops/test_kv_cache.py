"""The operators of caches: their types, and that calls survive text and JSON."""

import pytest

from tests.ops.calls import assert_survives
from tests.schedules.caches import CacheCase
from tvm_ext.ops.kv_cache import APPEND, ATTENTION
from tvm_ext.ops.row_rules import Rows, Site
from tvm_ext.ops.table import of


@pytest.mark.parametrize("append", [True, False])
def test_a_call_survives_text_and_json(append: bool) -> None:
    case = CacheCase(2, 3, 6, 2, 16, 20, "total cos sin", interleaved=True, **({} if append else {"softcap": 0.5}))
    group, says = (case.append, case.append_says) if append else (case.attention, case.says)
    assert group.shape == ((2, 2, 20, 16) if append else (2, 3, 6, 16))
    assert_survives(group, says)


def test_rows_are_those_of_the_batch() -> None:
    case = CacheCase(2, 3, 6, 2, 16, 20, "total")
    for name, group in ((APPEND, case.append), (ATTENTION, case.attention)):
        rule = of(name).row_rule
        assert rule is not None
        cuts = [Rows(0, 1, p.shape) if p.shape != (1,) else None for p in group.params]
        assert rule(Site(group.call, tuple(cuts), Rows(0, 1, group.shape))) is None
        assert rule(Site(group.call, (Rows(1, 1, group.params[0].shape), *cuts[1:]), None)) is not None

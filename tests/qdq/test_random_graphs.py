"""Random QDQ graphs of fixed seeds, compared stored value by stored value."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_ext
from tests.oracles.reference import onnxruntime_outputs
from tests.qdq.exactness import Judge, exposed, multiplies_bytes
from tests.qdq.graphs import draw

SHORT = range(2)


@pytest.mark.parametrize("seed", [s if s in SHORT else pytest.param(s, marks=pytest.mark.long) for s in range(12)])
def test_scales_that_are_powers_of_two_give_the_same_bits(seed: int) -> None:
    """Sums of integers are exact; those of float32 are where no kernel transforms them."""
    model, feeds = draw(seed, exact=True)
    options = {} if multiplies_bytes() else {"accuracy": "exact"}
    wanted = onnxruntime_outputs(exposed(model), feeds)
    found = tvm_ext.compile(exposed(model), cache=False, threads=2, **options).run(feeds)
    for name, want in wanted.items():
        assert found[name].dtype == want.dtype
        assert np.array_equal(found[name], want), name
    plain = tvm_ext.compile(model, cache=False, threads=2, **options).run(feeds)
    assert np.array_equal(plain["y"], wanted["y"])


@pytest.mark.parametrize("seed", [s if s in SHORT else pytest.param(s, marks=pytest.mark.long) for s in range(24)])
def test_any_scales_give_the_nearest_or_decide_a_tie(seed: int) -> None:
    model, feeds = draw(seed)
    judge, whole = Judge(model, feeds), exposed(model)
    theirs = judge(onnxruntime_outputs(whole, feeds))
    ours = judge(tvm_ext.compile(whole, cache=False, threads=2).run(feeds))
    assert ours.elements == theirs.elements and ours.off <= ours.ties
    plain = tvm_ext.compile(model, cache=False, threads=2).run(feeds)["y"]
    want = onnxruntime_outputs(model, feeds)["y"]
    assert plain.shape == want.shape and plain.dtype == want.dtype

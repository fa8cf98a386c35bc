"""Random QDQ graphs of fixed seeds, compared stored value by stored value."""

from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.oracles.reference import onnxruntime_outputs
from tests.qdq.exactness import Judge, exposed, multiplies_bytes
from tests.qdq.graphs import draw


def seeds(*of_all: int) -> list[Any]:
    """Two that run each time, and the others."""
    return [*of_all[:2], *(pytest.param(seed, marks=pytest.mark.long) for seed in of_all[2:])]


# Together graphs of these seeds have all operators, strides, groups, dtypes and kinds of scales that are ever drawn.
@pytest.mark.parametrize("seed", seeds(0, 9, 8, 1, 3))
def test_scales_that_are_powers_of_two_give_the_same_bits(seed: int) -> None:
    """Sums of integers are exact; those of float32 are where no kernel transforms them."""
    model, feeds = draw(seed, exact=True)
    options = {} if multiplies_bytes() else {"accuracy": "exact"}
    wanted = onnxruntime_outputs(exposed(model), feeds)
    outputs = tvm_ext.compile(exposed(model), cache=False, threads=2, **options).run(feeds)
    for name, want in wanted.items():
        assert outputs[name].dtype == want.dtype
        assert np.array_equal(outputs[name], want), name
    plain = tvm_ext.compile(model, cache=False, threads=2, **options).run(feeds)
    assert np.array_equal(plain["y"], wanted["y"])


@pytest.mark.parametrize("seed", seeds(7, 8, 19, 9, 15, 10))
def test_any_scales_give_the_nearest_or_decide_a_tie(seed: int) -> None:
    model, feeds = draw(seed)
    judge, whole = Judge(model, feeds), exposed(model)
    theirs = judge(onnxruntime_outputs(whole, feeds))
    ours = judge(tvm_ext.compile(whole, cache=False, threads=2).run(feeds))
    assert ours.elements == theirs.elements and ours.off <= ours.ties
    plain = tvm_ext.compile(model, cache=False, threads=2).run(feeds)["y"]
    want = onnxruntime_outputs(model, feeds)["y"]
    assert plain.shape == want.shape and plain.dtype == want.dtype

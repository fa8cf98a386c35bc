"""ReduceLogSumExp at infinities, against float64."""

import numpy as np
import pytest

from ..graphs import imported, model, node, run_tvm, value

X = np.random.default_rng(2).standard_normal((4, 5, 6)).astype("float32")
X[0] = -np.inf
X[1, 2, 3] = np.inf
X[2, 1, 1] = np.nan
X[3] += 1000


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", [[2], [1, 2], None])
def test_log_sum_exp_of_infinities(axes, keep, opset):
    over = tuple(axes) if axes else (0, 1, 2)
    with np.errstate(all="ignore"):
        exact = np.log(np.exp(X.astype("longdouble")).sum(axis=over, keepdims=bool(keep)))
    given = {"axes": axes} if axes and opset < 18 else {}
    inputs = ["x", "a"] if axes and opset >= 18 else ["x"]
    weights = {"a": np.int64(axes)} if axes and opset >= 18 else {}
    proto = model([node("ReduceLogSumExp", inputs, ["y"], keepdims=keep, **given)], [value("x", X.shape)],
                  [value("y", exact.shape)], weights, opset=opset)  # fmt: skip
    np.testing.assert_allclose(run_tvm(imported(proto), {"x": X})[0], exact.astype("float64"), rtol=1e-6)

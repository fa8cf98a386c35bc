"""The multilayer perceptron."""

import numpy as np
import onnx
import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.frontend import zoo

from ..graphs import check_numbers, run_onnxruntime


def test_layers_have_torchs_names_and_shapes():
    proto = zoo.mlp(batch=2, hidden=(7, 5), inputs=3, classes=4)
    onnx.checker.check_model(proto, full_check=True)
    assert [n.name for n in proto.graph.node] == ["fc1", "relu1", "fc2", "relu2", "fc3"]
    assert {t.name: tuple(t.dims) for t in proto.graph.initializer} == {
        "fc1.weight": (7, 3), "fc1.bias": (7,), "fc2.weight": (5, 7), "fc2.bias": (5,), "fc3.weight": (4, 5),
        "fc3.bias": (4,),
    }  # fmt: skip


def test_it_computes_what_its_weights_say():
    proto = zoo.mlp(batch=3, hidden=(6,), inputs=5, classes=2, seed=4)
    w = {t.name: onnx.numpy_helper.to_array(t).astype(np.float64) for t in proto.graph.initializer}
    x = np.random.default_rng(2).standard_normal((3, 5)).astype(np.float32)
    hidden = np.maximum(x @ w["fc1.weight"].T + w["fc1.bias"], 0)
    expected = hidden @ w["fc2.weight"].T + w["fc2.bias"]
    np.testing.assert_allclose(run_onnxruntime(proto, {"input": x})[0], expected, rtol=1e-5, atol=1e-6)
    check_numbers(proto, {"input": x})


def test_defaults_and_no_hidden_layer():
    x = np.random.default_rng(2).standard_normal((1, 784)).astype(np.float32)
    logits = run_onnxruntime(zoo.mlp(), {"input": x})[0]
    assert logits.shape == (1, 10) and 0.3 < np.abs(logits).max() < 30
    assert [n.name for n in zoo.mlp(hidden=()).graph.node] == ["fc1"]


@pytest.mark.parametrize("bad", [{"hidden": (3, 0)}, {"inputs": 0}, {"classes": -1}])
def test_a_bad_size_is_named(bad):
    with pytest.raises(OptionError, match=next(iter(bad))):
        zoo.mlp(**bad)


@pytest.mark.parametrize("seed", [-1, 1.5, "a", None])
def test_a_bad_seed_is_named(seed):
    with pytest.raises(OptionError, match="seed="):
        zoo.mlp(seed=seed)

"""The BERT encoder has Hugging Face's names and computes what its weights say, in float64 numpy."""

import math

import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file

from tvm_ext.core.errors import OptionError
from tvm_ext.frontend import zoo

from ..graphs import run_onnxruntime
from .zoo_checks import activations, initializer_shapes, shapes_of

SMALL = {"batch": 2, "layers": 2, "sequence": 5, "hidden": 6, "heads": 3, "intermediate": 7}


def hugging_face_shapes(layers, hidden, intermediate):
    """The state dict of BertModel's encoder."""
    shapes = {}
    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= {f"{name}.attention.{part}.weight": (hidden, hidden), f"{name}.attention.{part}.bias": (hidden,)}
        shapes |= {f"{name}.intermediate.dense.weight": (intermediate, hidden)}
        shapes |= {f"{name}.intermediate.dense.bias": (intermediate,)}
        shapes |= {f"{name}.output.dense.weight": (hidden, intermediate), f"{name}.output.dense.bias": (hidden,)}
        for norm in ("attention.output", "output"):
            shapes |= {f"{name}.{norm}.LayerNorm.{key}": (hidden,) for key in ("weight", "bias")}
    return shapes


def state_dict(proto):
    """Weights by the names of the state dict: those that the file holds transposed turned back."""
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    return {n.removesuffix("^T"): np.ascontiguousarray(a.T) if n.endswith("^T") else a for n, a in arrays.items()}


def expected(proto, x, mask=None):
    """Two encoder layers in float64."""
    w = {name: array.astype(np.float64) for name, array in state_dict(proto).items()}

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * w[f"{name}.weight"] + w[f"{name}.bias"]

    for layer in range(SMALL["layers"]):
        name = f"encoder.layer.{layer}"
        heads = []
        for part in ("query", "key", "value"):
            y = linear(x, f"{name}.attention.self.{part}")
            heads.append(y.reshape(*y.shape[:2], SMALL["heads"], -1).swapaxes(1, 2))
        query, key, value = heads
        scores = np.exp(query @ key.swapaxes(2, 3) / math.sqrt(query.shape[-1]))
        if mask is not None:
            scores = scores * mask[:, None, None, :]
        context = (scores / scores.sum(-1, keepdims=True) @ value).swapaxes(1, 2).reshape(x.shape)
        x = norm(x + linear(context, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm")
        y = linear(x, f"{name}.intermediate.dense")
        y = y * (1 + np.vectorize(math.erf)(y / math.sqrt(2))) / 2
        x = norm(x + linear(y, f"{name}.output.dense"), f"{name}.output.LayerNorm")
    return x


@pytest.fixture(scope="module")
def base():
    return zoo.bert()


def embeddings(shape, seed=3):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_it_is_valid_onnx_of_bert_bases_size(base):
    onnx.checker.check_model(base, full_check=True)
    assert shapes_of(base.graph.input) == {"input": (1, 128, 768)}
    assert shapes_of(base.graph.output) == {"output": (1, 128, 768)}
    assert {n: a.shape for n, a in state_dict(base).items()} == hugging_face_shapes(1, 768, 3072)
    assert sum(map(math.prod, initializer_shapes(base).values())) == 7_087_872


def test_linear_weights_stand_in_the_file_as_exporters_fold_them(base):
    shapes = initializer_shapes(base)
    assert shapes["encoder.layer.0.intermediate.dense.weight^T"] == (768, 3072)
    assert shapes["encoder.layer.0.output.dense.weight^T"] == (3072, 768)


def test_operators_are_those_of_exporters(base):
    kinds = [n.op_type for n in base.graph.node if n.op_type != "Constant"]
    attention = ["MatMul", "Add", "Reshape", "Transpose"] * 3 + ["MatMul", "Div", "Softmax", "MatMul", "Transpose"]
    output = ["Reshape", "MatMul", "Add", "Add", "LayerNormalization"]
    feed = ["MatMul", "Add", "Div", "Erf", "Add", "Mul", "Mul", "MatMul", "Add", "Add", "LayerNormalization"]
    assert kinds == attention + output + feed


def test_it_computes_what_its_weights_say():
    proto = zoo.bert(**SMALL, seed=4)
    x = embeddings((2, 5, 6))
    np.testing.assert_allclose(run_onnxruntime(proto, {"input": x})[0], expected(proto, x), rtol=1e-4, atol=1e-5)


def test_masked_tokens_are_not_attended_to():
    proto = zoo.bert(**SMALL, seed=4, mask=True)
    onnx.checker.check_model(proto, full_check=True)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int64)
    x = embeddings((2, 5, 6))
    (output,) = run_onnxruntime(proto, {"input": x, "attention_mask": mask})
    np.testing.assert_allclose(output, expected(proto, x, mask), rtol=1e-4, atol=1e-5)
    x[0, 3:] += 1
    (again,) = run_onnxruntime(proto, {"input": x, "attention_mask": mask})
    np.testing.assert_allclose(again[0, :3], output[0, :3], rtol=1e-5, atol=1e-6)


def test_numbers_stay_sane_through_twelve_layers():
    proto = zoo.bert(layers=12, sequence=16, hidden=64, heads=4, intermediate=256)
    output, inner = activations(proto, {"input": embeddings((1, 16, 64))})
    assert 0.5 < output.std() < 2
    for name, activation in inner.items():
        small = 1e-3 if "Softmax" in name else 0.1  # its values scatter about 1/16
        assert small < activation.std() < 10 and np.abs(activation).max() < 100, name


def test_a_stored_state_dict_is_read(tmp_path):
    proto = zoo.bert(**SMALL, seed=5)
    save_file(state_dict(proto), tmp_path / "bert.safetensors")
    again = zoo.bert(**SMALL, weights=tmp_path / "bert.safetensors")
    assert again.SerializeToString(deterministic=True) == proto.SerializeToString(deterministic=True)


@pytest.mark.parametrize("bad", [{"layers": 0}, {"sequence": -1}, {"hidden": 100}, {"intermediate": 1.5}])
def test_a_bad_size_is_named(bad):
    with pytest.raises(OptionError, match=f"{next(iter(bad))}="):
        zoo.bert(**bad)

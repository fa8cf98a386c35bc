"""Operators of ai.onnx.ml on single features against onnxruntime."""

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.frontend.converters.microsoft.cases import Case, agree, built, case, floats, rng_of
from tests.frontend.graphs import check_numbers, imported
from tvm_ext.core.errors import UnsupportedError

ML = "ai.onnx.ml"


def learned(operator: str, *cases: Case, **options: Any) -> None:
    agree(operator, *cases, domain=ML, **options)


def test_scaler() -> None:
    rng = rng_of(1)
    many = {"offset": floats(rng, 7).tolist(), "scale": floats(rng, 7).tolist()}
    learned("Scaler", case(floats(rng, 5, 7), **many), case(rng.integers(-9, 9, (5, 7)), **many),
            case(rng.normal(0, 1, (5, 7)), offset=[0.5], scale=[2.0]))  # fmt: skip


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    rng = rng_of(2)
    x = floats(rng, 5, 7)
    x[2] = 0
    x[3] = -np.abs(x[3])
    learned(
        "Normalizer", case(x, norm=norm), case(floats(rng, 7), norm=norm), case(rng.integers(1, 9, (5, 7)), norm=norm)
    )


def test_binarizer() -> None:
    learned("Binarizer", case(floats(rng_of(3), 5, 7), threshold=0.25), case(floats(rng_of(3), 5, 7)))


def test_imputer() -> None:
    rng = rng_of(4)
    x = floats(rng, 5, 7)
    x[1, 2] = x[3, 0] = np.nan
    whole, some = rng.integers(0, 3, (5, 7)), floats(rng, 7).tolist()
    learned(
        "Imputer",
        case(x, imputed_value_floats=some, replaced_value_float=float("nan")),
        case(np.float32(whole), imputed_value_floats=[9.5], replaced_value_float=1.0),
        case(whole, imputed_value_int64s=[*range(10, 17)], replaced_value_int64=2),
    )


def test_picked_features() -> None:
    rng = rng_of(5)
    shapes, picks = [(5, 7), (7,), (2, 3, 7)], [[6, 0, 3], [2, 5], [1]]
    learned("ArrayFeatureExtractor", *(case(floats(rng, *s), np.int64(i)) for s, i in zip(shapes, picks, strict=True)))


def test_joined_features() -> None:
    rng = rng_of(6)
    learned("FeatureVectorizer", case(floats(rng, 5, 3), floats(rng, 5, 4), inputdimensions=[3, 4]),
            case(floats(rng, 5, 3), inputdimensions=[5]), case(floats(rng, 5, 3), inputdimensions=[2]))  # fmt: skip


def test_one_hot() -> None:
    rng = rng_of(7)
    x = rng.integers(0, 5, (4, 3))
    learned("OneHotEncoder", case(x, cats_int64s=[3, 0, 1]), case(np.float32(x), cats_int64s=[0, 1, 2, 3, 4], zeros=0))


def test_labels() -> None:
    rng = rng_of(8)
    x = rng.integers(0, 6, (4, 5))
    keys = {"keys_int64s": [3, 0, 1, 3]}
    nan = np.float32([[1.5, np.nan, 2.5], [0.25, 1.5, 7]])
    learned(
        "LabelEncoder",
        case(x, **keys, values_floats=[0.5, 1.5, 2.5, 9.5], default_float=-2.0),
        case(x, **keys, values_int64s=[10, 11, 12, 13], default_int64=7),
        case(nan, keys_floats=[1.5, float("nan"), 0.25], values_int64s=[4, 5, 6]),  # which it is from version 4 on
        case(nan, keys_floats=[1.5, 2.5], values_floats=[4.0, 5.0]),
    )


def test_labels_of_tensors() -> None:
    x = np.int64([[3, 1, 4], [1, 5, 9]])
    parts = {name: numpy_helper.from_array(np.array(values)) for name, values in (
        ("keys_tensor", [1, 4, 9]), ("values_tensor", [0.5, 2.5, 3.5]), ("default_tensor", [7.5]))}  # fmt: skip
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain=ML, **parts)
    proto, _ = built("LabelEncoder", [case(x)], ML)
    node.input[0], node.output[0] = proto.graph.node[0].input[0], proto.graph.node[0].output[0]
    proto.graph.node[0].CopyFrom(node)
    proto.opset_import[1].version = 4
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info(node.output[0], 11, None))
    check_numbers(proto, {node.input[0]: x})


def test_strings_are_refused() -> None:
    node = case(np.int64([1, 2]), keys_int64s=[1, 2], values_strings=["a", "b"])
    with pytest.raises(UnsupportedError, match="values_strings: strings are no tensors"):
        imported(built("LabelEncoder", [node], ML, "object")[0])
    node = case(np.int64([1, 2]), cats_strings=["a", "b"])
    with pytest.raises(UnsupportedError, match="cats_strings: strings are no tensors"):
        imported(built("OneHotEncoder", [node], ML, "float32")[0])

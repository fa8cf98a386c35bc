"""What precision="bf16" came to: tolerance by depth, plain values and back, rounding."""

import json

import ml_dtypes
import numpy as np
import pytest

from tvm_ext.core.numbers.accuracy import largest_error, value_range
from tvm_ext.core.numbers.precision import Layer, PrecisionPlan, rounded

LAYERS = (
    Layer(("conv1", "bn1"), "conv2d", "bf16", "its operands are rounded", 0.01),
    Layer(("fc",), "matmul", "float32", "kept by hand"),
    Layer((), "matmul", "float32", "it sums nothing: an outer product"),
)


def test_layers_in_a_row_add_up_as_the_root_of_their_number() -> None:
    assert PrecisionPlan("bf16", LAYERS, 4).tolerance == 2 * 2.0**-8
    assert PrecisionPlan("fp16", LAYERS, 4).tolerance == 2 * 2.0**-11
    assert PrecisionPlan("bf16", LAYERS, 4, max_error=0.01).tolerance == 0.01
    assert PrecisionPlan("bf16", LAYERS, 0).tolerance is None, "nothing is rounded"


def test_plain_values_and_back() -> None:
    overflows = Layer(("conv2",), "conv2d", "float32", "beyond its range", float("inf"))
    plan = PrecisionPlan("bf16", (*LAYERS, overflows), 4, 0.01, 0.005)
    assert PrecisionPlan.of_dict(json.loads(json.dumps(plan.as_dict()))) == plan
    assert plan.as_dict()["kept"] == {"fc": "kept by hand", "conv2": "beyond its range"}


def test_rounding() -> None:
    assert rounded(np.float32([1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8]), "bfloat16").tolist() == [1.0, 1.0 + 2.0**-6]
    assert rounded(np.float32([1.0]), "bfloat16").dtype == ml_dtypes.bfloat16
    numbers = np.float32([1.0 + 2.0**-11, 1.0 + 3 * 2.0**-11, 65519.0, 65520.0, 2.0**-25, 1.5 * 2.0**-24])
    assert rounded(numbers, "float16").tolist() == [1.0, 1.0 + 2.0**-9, 65504.0, np.inf, 0.0, 2.0**-23]


def test_the_largest_error_is_of_any_output_in_its_range() -> None:
    reference = {"a": np.float32([0, 10]), "b": np.float32([1, 2]), "n": np.int64([1])}
    outputs = {"a": np.float32([0, 9]), "b": np.float32([1, 2.3]), "n": np.int64([7])}
    assert largest_error(outputs, reference) == pytest.approx(0.3)
    assert largest_error({**outputs, "a": np.float32([0, np.nan])}, reference) == np.inf
    assert value_range(np.float32([np.inf, 3, 1])) == 2.0

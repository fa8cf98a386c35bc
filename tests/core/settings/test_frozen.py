"""The option `freeze` checks itself, compares by value, and survives a report."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.settings.frozen import FrozenInput
from tvm_ext.runtime.plain import read


def test_equal_values_are_equal_options() -> None:
    a = CompileOptions.of(freeze={"k": 3, "axes": [0, 2]})
    b = CompileOptions.of(freeze={"axes": np.array([0, 2]), "k": np.int64(3)})
    assert a == b and hash(a) == hash(b) and [weight.name for weight in a.freeze] == ["axes", "k"]
    assert a != CompileOptions.of(freeze={"k": 3, "axes": [0, 1]})
    assert dataclasses.replace(a, threads=2).freeze == a.freeze


@pytest.mark.parametrize("value", [np.float32([[1.5, -0.0], [np.nan, 2]]), np.int64(7), np.zeros((0, 3), bool)])
def test_a_report_keeps_the_value(value: Any) -> None:
    frozen = FrozenInput.of("x", np.asarray(value))
    again = read(FrozenInput, json.loads(json.dumps(dataclasses.asdict(frozen)))).array()
    assert again.dtype == np.asarray(value).dtype
    np.testing.assert_array_equal(again, value)


@pytest.mark.parametrize("value", [[1, 2], {"x": "text"}, {3: 1}, {"x": [[1], [2, 3]]}, {"x": None}, "x=1"])
def test_what_is_no_mapping_to_numbers_is_refused(value: Any) -> None:
    with pytest.raises(OptionError, match="freeze"):
        CompileOptions.of(freeze=value)

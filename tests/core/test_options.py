"""Compile options check themselves and suggest what was meant."""

from __future__ import annotations

from typing import Any

import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.core.options import CompileOptions


def test_shapes_are_kept_in_one_order() -> None:
    a = CompileOptions.of(shapes={"x": (1, 2), "a": [3]})
    b = CompileOptions.of(shapes={"a": (3,), "x": (1, 2)})
    assert a == b and a.shapes == (("a", (3,)), ("x", (1, 2)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"thread": 2}, "did you mean 'threads'"),
        ({"threads": 0}, "threads=0"),
        ({"threads": True}, "threads=True"),
        ({"threads": "2"}, "threads='2'"),
        ({"threads": 5000}, "1024"),
        ({"shapes": {"x": (-1, 2)}}, "whole numbers"),
        ({"shapes": {3: (1,)}}, "input name"),
        ({"shapes": {"x": "abc"}}, "whole numbers"),
        ({"shapes": [1, 2]}, "input name"),
        ({"target": ""}, "CPU name"),
        ({"target": 3}, "CPU name"),
        ({"fusion": "most"}, "'default' or 'none'"),
        ({"cache": 1}, "True or False"),
    ],
)
def test_a_bad_option_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        CompileOptions.of(**given)

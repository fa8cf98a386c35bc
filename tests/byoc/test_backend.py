"""A manifest checks itself: what is missing or wrong is named, with the choices."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.byoc.interpreter import PATTERNS, Settings, driver, lower, make
from tvm_ext.byoc import Backend, Composite, Limits, Lowered, Operation, Pattern, Region, Value, multiply_adds
from tvm_ext.core.errors import OptionError, ProgramError


@dataclass
class Thawed:
    size: int = 1


@dataclass(frozen=True)
class Needy:
    size: int


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "My-NPU"}, "back end name 'My-NPU'"), ({"patterns": ()}, "patterns=()"),
        ({"patterns": PATTERNS * 2}, "one name: dense"), ({"lower": None}, "lower=None"),
        ({"driver": 3}, "driver=3"), ({"cost": "fast"}, "cost='fast'"),
        ({"options": Thawed}, "a frozen dataclass is needed"),
        ({"options": Needy}, "needs a default"),
        ({"options": {}}, "a frozen dataclass is needed"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        make(**fields)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "a b"}, "pattern name 'a b'"),
        ({"anchors": ()}, "has no anchor"),
        ({"anchors": "relax.matmul"}, "a tuple of operator names"),
        ({"epilogue": ("add",)}, "as TVM spells them"),
        ({"check": None}, "no function of (composite, options)"),
    ],
)
def test_a_pattern_checks_itself(values: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"name": "dense", "anchors": ("relax.matmul",), **values}
    with pytest.raises(OptionError) as caught:
        Pattern(**fields)
    assert message in str(caught.value)


def test_options_come_from_settings() -> None:
    assert make().make_options({"seconds": 2.0}) == Settings(seconds=2.0)
    with pytest.raises(OptionError, match="did you mean 'launch'"):
        make().make_options({"lunch": 1})


def dense(dtype: str = "float32") -> Composite:
    x, y = Value("x", (3, 5), dtype), Value("y", (3, 7), dtype)
    return Composite("dense", (), Operation("relax.matmul", (x, np.ones((5, 7), dtype)), y, nodes=("fc",)))


def test_limits_name_the_tensor() -> None:
    assert Limits(("float32",)).refuse(dense()) == ""
    assert Limits(("int8", "float32")).refuse(dense("float64")) == "x is float64; the back end takes int8, float32"
    assert "x has 60 bytes; 40 is the limit" in Limits(tensor_bytes=40).refuse(dense())
    assert "a constant has 140 bytes" in Limits(tensor_bytes=100).refuse(dense())


def test_numbers_are_no_tensors() -> None:
    """TVM writes the bounds of a clip in 64 bits; a constant with axes counts, whatever its size."""
    x = Value("x", (3,), "float32")
    for bounds, reason in ((np.array(0.0), ""), (np.zeros(1), "a constant is float64")):
        clip = Composite("clip", (), Operation("relax.clip", (x, bounds, bounds), x))
        assert Limits(("float32",)).refuse(clip).startswith(reason) and bool(reason) is (bounds.ndim > 0)


def test_a_program_that_is_too_long_is_refused() -> None:
    composite = dense()
    region = Region("r", (composite,), composite.inputs, (composite.result,))
    small = make(limits=Limits(program_bytes=10))
    with pytest.raises(ProgramError, match="10 is the limit"):
        small.lowered(region, Settings())
    with pytest.raises(OptionError, match="lower gave bytes"):
        make(lower=lambda region, options: b"").lowered(region, Settings())
    assert isinstance(make().lowered(region, Settings()), Lowered)


def test_what_a_region_says_of_itself() -> None:
    composite = dense()
    region = Region("r", (composite,), composite.inputs, (composite.result,))
    assert str(region).splitlines() == [
        "region r(x: float32[3, 5])",
        "  dense: y: float32[3, 7] = matmul(x, const[5, 7])",
        "  -> y",
    ]
    assert (region.transfer_bytes, region.nodes, composite.name) == (4 * (15 + 21), ("fc",), "fc")
    assert composite.producer(composite.result) is composite.anchor
    assert composite.producer(composite.inputs[0]) is None


def test_multiply_adds() -> None:
    image, result = Value("x", (2, 6, 9, 9), "float32"), Value("y", (2, 4, 7, 7), "float32")
    conv = Operation("relax.nn.conv2d", (image, np.ones((4, 3, 3, 3), np.float32)), result)
    assert multiply_adds(conv) == 2 * 4 * 7 * 7 * 3 * 3 * 3
    assert multiply_adds(dense().anchor) == 3 * 5 * 7
    assert multiply_adds(Operation("relax.add", (image, image), image)) == 0


def test_names_where_its_driver_is() -> None:
    assert make().module == "tests.byoc.interpreter"
    assert Backend("a", PATTERNS, lower, driver).options().__class__.__name__ == "NoOptions"

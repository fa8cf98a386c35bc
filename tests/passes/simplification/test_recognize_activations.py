"""recognize-activations: the orders that exporters write, and what only looks alike."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm.relax import op as R

from tests.passes.helpers import apply, build, const, ops, rewritten, untouched
from tvm_ext.core.graph.relax_graph import main_bindings
from tvm_ext.passes.simplification.recognize_activations import RecognizeActivations

SQRT_2, SQRT_2_OVER_PI = math.sqrt(2.0), math.sqrt(2.0 / math.pi)


def erf_gate(emit: Any, x: Any, divided: bool = True, dtype: str = "float32", summand: float = 1.0) -> Any:
    """1 + erf(x / sqrt 2)"""
    divisor = const(SQRT_2 if divided else 1 / SQRT_2, dtype)
    scaled = emit(R.divide(x, divisor) if divided else R.multiply(x, divisor))
    return emit(R.add(emit(R.erf(scaled)), const(summand, dtype)))


def tanh_gate(emit: Any, x: Any, cube: Callable[..., Any], coefficient: float = 0.044715) -> Any:
    """1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))"""
    inner = emit(R.add(x, emit(R.multiply(cube(emit, x), const(coefficient)))))
    return emit(R.add(emit(R.tanh(emit(R.multiply(inner, const(SQRT_2_OVER_PI))))), const(1.0)))


def square(emit: Any, x: Any) -> Any:
    return emit(R.multiply(x, x))


def cube_by_power(emit: Any, x: Any) -> Any:
    return emit(R.power(x, const(3.0)))


def cube_by_products(emit: Any, x: Any) -> Any:
    return emit(R.multiply(emit(R.multiply(x, x)), x))


def distributed_tanh_gate(emit: Any, x: Any) -> Any:
    """1 + tanh(x * 0.79788 * (1 + 0.044715 x x))"""
    square = emit(R.add(const(1.0), emit(R.multiply(emit(R.multiply(x, const(0.044715))), x))))
    inner = emit(R.multiply(emit(R.multiply(x, const(SQRT_2_OVER_PI))), square))
    return emit(R.add(const(1.0), emit(R.tanh(inner))))


def mul(emit: Any, *operands: Any) -> Any:
    product = operands[0]
    for operand in operands[1:]:
        product = emit(R.multiply(product, operand))
    return product


RECOGNIZED = {
    "x, gate, 0.5": (lambda emit, x: mul(emit, x, erf_gate(emit, x), const(0.5)), "gelu"),
    "x, 0.5, gate": (lambda emit, x: mul(emit, x, const(0.5), erf_gate(emit, x, divided=False)), "gelu"),
    "0.5, (x, gate)": (lambda emit, x: mul(emit, const(0.5), mul(emit, x, erf_gate(emit, x))), "gelu"),
    "gate, (x, 0.5)": (lambda emit, x: mul(emit, erf_gate(emit, x), mul(emit, x, const(0.5))), "gelu"),
    "tanh, power": (lambda emit, x: mul(emit, x, const(0.5), tanh_gate(emit, x, cube_by_power)), "gelu_tanh"),
    "tanh, products": (lambda emit, x: mul(emit, tanh_gate(emit, x, cube_by_products), x, const(0.5)), "gelu_tanh"),
    "tanh, distributed": (lambda emit, x: mul(emit, x, const(0.5), distributed_tanh_gate(emit, x)), "gelu_tanh"),
    "x, sigmoid": (lambda emit, x: mul(emit, x, emit(R.sigmoid(x))), "silu"),
    "sigmoid, x": (lambda emit, x: mul(emit, emit(R.sigmoid(x)), x), "silu"),
}


@pytest.mark.parametrize(("body", "operator"), RECOGNIZED.values(), ids=RECOGNIZED)
def test_one_operator_again(body: Any, operator: str) -> None:
    result = rewritten(RecognizeActivations(), build(body, (3, 7)), scale=3.0)
    assert ops(result.mod) == [operator] and any(operator in e.detail for e in result.fired)
    assert apply(RecognizeActivations(), result.mod).fired == ()


def test_double_precision_needs_its_own_constants() -> None:
    def body(emit: Any, x: Any) -> Any:
        return mul(emit, x, const(0.5, "float64"), erf_gate(emit, x, dtype="float64"))

    assert ops(apply(RecognizeActivations(), build(body, (4,), dtype="float64")).mod) == ["gelu"]

    def rounded(emit: Any, x: Any) -> Any:
        scaled = emit(R.multiply(x, const(np.float32(1 / SQRT_2), "float64")))
        return mul(emit, x, const(0.5, "float64"), emit(R.add(emit(R.erf(scaled)), const(1.0, "float64"))))

    assert apply(RecognizeActivations(), build(rounded, (4,), dtype="float64")).fired == ()


@pytest.mark.parametrize("factor", [0.25, 3.0])
def test_another_factor_stays(factor: float) -> None:
    mod = build(lambda emit, x: mul(emit, x, const(factor), erf_gate(emit, x)), (5,))
    assert ops(rewritten(RecognizeActivations(), mod).mod) == ["gelu", "multiply"]


def test_a_factor_for_each_channel_stays() -> None:
    mod = build(lambda emit, x: mul(emit, mul(emit, x, emit(R.sigmoid(x))), const([1.0, 2.0, 3.0])), (4, 3))
    assert ops(apply(RecognizeActivations(), mod).mod) == ["silu", "multiply"]


def test_refuses_a_gate_that_others_read_and_says_so() -> None:
    mod = build(lambda emit, x: emit(R.add(mul(emit, x, gate := emit(R.sigmoid(x))), gate)), (4,))
    gate = main_bindings(mod)[0].var.name
    assert untouched(RecognizeActivations(), mod) == [f"looks like silu, but {gate} is read elsewhere too"]


OTHERS = {
    "sigmoid of another value": lambda emit, x: mul(emit, x, emit(R.sigmoid(emit(R.exp(x))))),
    "sigmoid of 1.702 x": lambda emit, x: mul(emit, x, emit(R.sigmoid(emit(R.multiply(x, const(1.702)))))),
    "erf of x": lambda emit, x: mul(emit, x, const(0.5), emit(R.add(emit(R.erf(x)), const(1.0)))),
    "1.001 + erf": lambda emit, x: mul(emit, x, const(0.5), erf_gate(emit, x, summand=1.001)),
    "another cubic": lambda emit, x: mul(emit, x, const(0.5), tanh_gate(emit, x, cube_by_power, 0.05)),
    "a square for the cube": lambda emit, x: mul(emit, x, const(0.5), tanh_gate(emit, x, square)),
    "x * x": lambda emit, x: mul(emit, x, x),
    "gate of another x": lambda emit, x: mul(emit, emit(R.exp(x)), const(0.5), erf_gate(emit, x)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_leaves_what_only_looks_alike(name: str) -> None:
    untouched(RecognizeActivations(), build(OTHERS[name], (3, 4)))


def test_a_gate_that_broadcasts_is_no_activation() -> None:
    mod = build(lambda emit, x, y: mul(emit, y, emit(R.sigmoid(x))), (1, 4), (3, 4))
    untouched(RecognizeActivations(), mod)

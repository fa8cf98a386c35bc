"""reduce-strength: each rule fires where it is exact, and only there."""

from typing import Any

import numpy as np
import pytest
from tvm.relax import op as R

from tests.passes.helpers import apply, build, const, execute, new_context, ops, random, rewritten, untouched
from tvm_ext.core.graph.relax_graph import main_bindings, shape_of
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.passes import CompileContext
from tvm_ext.passes.simplification.reduce_strength import ReduceStrength

PARAMETERS = [const(1 + 0.3 * random(3, seed=1)), const(random(3, seed=2)), const(random(3, seed=3))]


def batch_norm(emit: Any, x: Any, variance: Any = (0.5, 0.0, 2.0)) -> Any:
    """Item 0 of a batch norm in inference mode over 3 channels."""
    return emit(emit(R.nn.batch_norm(x, *PARAMETERS, const(variance), axis=1, training=False))[0])


RULES = {
    "divide by a power of two": (lambda emit, x: emit(R.divide(x, const([8.0, -0.25, 1, 2, 4]))), ["multiply"]),
    "divide by 6": (lambda emit, x: emit(R.divide(x, const(6.0))), ["multiply"]),
    "power 2": (lambda emit, x: emit(R.power(x, const(2.0))), ["multiply"]),
    "power 3": (lambda emit, x: emit(R.power(x, const([3.0]))), ["multiply", "multiply"]),
    "power 0.5": (lambda emit, x: emit(R.power(emit(R.abs(x)), const(0.5))), ["abs", "sqrt"]),
    "power 1": (lambda emit, x: emit(R.exp(emit(R.power(x, const(1.0))))), ["exp"]),
    "batch norm": (batch_norm, ["multiply", "add"]),
    "average over the map": (lambda emit, x: emit(R.nn.avg_pool2d(x, (7, 5))), ["mean"]),
    "adaptive average": (lambda emit, x: emit(R.nn.adaptive_avg_pool2d(x, (1, 1))), ["mean"]),
    "dropout": (lambda emit, x: emit(R.exp(emit(emit(R.nn.dropout(x, 0.5))[0]))), ["exp"]),
}


@pytest.mark.parametrize(("body", "want"), RULES.values(), ids=RULES)
def test_rule(body: Any, want: list[str]) -> None:
    result = rewritten(ReduceStrength(), build(body, (2, 3, 7, 5)))
    assert ops(result.mod) == want and len(result.fired) == 1
    assert apply(ReduceStrength(), result.mod).fired == ()


def test_division_by_powers_of_two_is_exact() -> None:
    mod = build(lambda emit, x: emit(R.divide(x, const([2.0**100, 2.0**-100, -4.0]))), (7, 3))
    after, x = apply(ReduceStrength(), mod).mod, random(7, 3)
    for old, new in zip(execute(mod, x), execute(after, x), strict=True):
        np.testing.assert_array_equal(old, new)


def test_division_is_kept_for_exact_results() -> None:
    mod = build(lambda emit, x: emit(R.divide(x, const([2.0, 3.0]))), (4, 2))
    ctx = CompileContext(new_context().machine, CompileOptions(accuracy="exact"))
    result = ReduceStrength()(mod, ctx)
    assert result.fired == () and "round twice" in result.skipped[0].detail
    power = build(lambda emit, x: emit(R.divide(x, const([2.0, 4.0]))), (4, 2))
    assert ops(ReduceStrength()(power, ctx).mod) == ["multiply"]


def test_a_quotient_that_becomes_a_whole_number_stays() -> None:
    def body(emit: Any, x: Any) -> Any:
        shifted = emit(R.add(emit(R.divide(x, const(0.3))), const(7.0)))
        return emit(R.quantize(shifted, const(1.0), const(0, "uint8"), axis=0, out_dtype="uint8"))

    assert "ties" in untouched(ReduceStrength(), build(body, (3, 5)))[0]


def test_constants_of_a_batch_norm_have_the_rank_of_its_operand() -> None:
    multiply, add = (b.value for b in main_bindings(apply(ReduceStrength(), build(batch_norm, (2, 3, 7, 5))).mod))
    assert shape_of(multiply.args[1]) == shape_of(add.args[1]) == (1, 3, 1, 1)


def test_pooling_in_nhwc_takes_its_own_dimensions() -> None:
    mod = build(lambda emit, x: emit(R.nn.avg_pool2d(x, (7, 5), layout="NHWC")), (2, 7, 5, 3))
    assert [int(a) for a in main_bindings(apply(ReduceStrength(), mod).mod)[0].value.attrs.axis] == [1, 2]


LEFT = {
    "divide by what is computed": lambda emit, x: emit(R.divide(x, emit(R.exp(x)))),
    "divide by infinity": lambda emit, x: emit(R.divide(x, const(np.inf))),
    "divide by zero": lambda emit, x: emit(R.divide(x, const(0.0))),
    "reciprocal is subnormal": lambda emit, x: emit(R.divide(x, const(2.0**127))),
    "one of many is zero": lambda emit, x: emit(R.divide(x, const([2.0, 4, 8, 0, 5]))),
    "power 2.5": lambda emit, x: emit(R.power(x, const(2.5))),
    "power that broadcasts": lambda emit, x: emit(R.power(x, const(np.full((3, 1, 1, 1, 1), 2.0)))),
    "pool smaller than the map": lambda emit, x: emit(R.nn.avg_pool2d(x, (7, 4))),
    "padded pool": lambda emit, x: emit(R.nn.avg_pool2d(x, (7, 5), padding=1, strides=3, count_include_pad=True)),
    "adaptive to 2x1": lambda emit, x: emit(R.nn.adaptive_avg_pool2d(x, (2, 1))),
    "dropout's mask": lambda emit, x: emit(emit(R.nn.dropout(x, 0.5))[1]),
}


@pytest.mark.parametrize("name", LEFT)
def test_refuses_silently_what_is_no_candidate(name: str) -> None:
    assert untouched(ReduceStrength(), build(LEFT[name], (1, 3, 7, 5))) == []


def test_refuses_a_batch_norm_in_training_and_says_so() -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(emit(R.nn.batch_norm(x, *PARAMETERS, const([1.0] * 3), axis=1, training=True))[0])

    assert untouched(ReduceStrength(), build(body, (1, 3, 7, 5))) == ["batch norm in training mode"]

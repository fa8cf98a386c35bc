"""reduce-strength: each rule fires where it is exact, and only there."""

from typing import Any

import numpy as np
import pytest
from tvm.relax import op as R

import tvm_ext
from tests.onnx_graphs import model as make_model
from tests.onnx_graphs import node, value
from tests.oracles.reference import assert_agrees, session_of
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


STEPS = {
    "quantize": lambda emit, y: emit(
        R.quantize(emit(R.add(y, const(7.0))), const(1.0), const(0, "uint8"), axis=0, out_dtype="uint8")
    ),
    "floor behind relu": lambda emit, y: emit(R.floor(emit(R.nn.relu(y)))),
    "cast behind a product and a transpose": lambda emit, y: emit(
        R.astype(emit(R.permute_dims(emit(R.multiply(y, const(16.0))))), "int64")
    ),
    "comparison": lambda emit, y: emit(R.greater_equal(y, const(1.0))),
    "place in a joined tensor": lambda emit, y: emit(R.argmax(emit(R.concat([y, y], 0)), 0)),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_quotient_of_which_a_step_is_made_stays(step: str) -> None:
    """41 times the float next to 1 / 41 is less than 1."""
    mod = build(lambda emit, x: STEPS[step](emit, emit(R.divide(x, const(41.0)))), (3, 5))
    result = apply(ReduceStrength(), mod)
    assert "divide" in ops(result.mod) and "ties" in result.skipped[0].detail


def test_a_quotient_that_is_summed_or_stays_a_float_is_a_product() -> None:
    bodies = (
        lambda emit, y: emit(R.floor(emit(R.sum(y, 0)))), lambda emit, y: emit(R.floor(emit(R.matmul(y, y)))),
        lambda emit, y: emit(R.astype(y, "float64")),
    )  # fmt: skip
    for body in bodies:
        mod = build(lambda emit, x, body=body: body(emit, emit(R.divide(x, const(41.0)))), (4, 4))
        assert "divide" not in ops(apply(ReduceStrength(), mod).mod)


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


def test_floors_of_whole_quotients_are_onnxruntimes() -> None:
    nodes = [node("Div", "x c", "q"), node("Relu", "q", "r"), node("Floor", "r", "y"), node("Less", "q y", "z")]
    outputs = [value("y", (200,)), value("z", (200,), 9)]
    proto = make_model(nodes, [value("x", (200,))], outputs, {"c": np.float32(41)})
    x = 41 * np.arange(200, dtype=np.float32)
    compiled = tvm_ext.compile(proto, cache=False, threads=1)
    assert_agrees(compiled, session_of(proto, optimized=False), {"x": x}, atol=0.0)

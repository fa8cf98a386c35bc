"""eliminate-common-subexpressions: what is merged, and what only looks alike."""

from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op as R

from tests.passes.helpers import apply, build, const, ops, random, rewritten, untouched
from tvm_ext.passes.simplification.eliminate_common_subexpressions import EliminateCommonSubexpressions

W = random(7, 3, 1, 3)


def test_equal_calls_on_equal_weights_are_one() -> None:
    def body(emit: Any, x: Any) -> Any:
        ends = [emit(R.nn.relu(emit(R.nn.conv2d(x, const(weight))))) for weight in (W, W.copy())]
        return emit(R.add(*ends))

    result = rewritten(EliminateCommonSubexpressions(), build(body, (1, 3, 5, 5)))
    assert ops(result.mod) == ["conv2d", "relu", "add"]
    assert [(e.value, e.detail) for e in result.fired] == [("lv2", "the same as lv"), ("lv3", "the same as lv1")]
    assert apply(EliminateCommonSubexpressions(), result.mod).fired == ()


def test_items_of_equal_tuples_are_one() -> None:
    def body(emit: Any, x: Any) -> Any:
        first, second = emit(R.split(x, 2, 1)), emit(R.split(x, 2, 1))
        return emit(R.subtract(emit(first[0]), emit(second[0])))

    result = apply(EliminateCommonSubexpressions(), build(body, (3, 4)))
    assert ops(result.mod) == ["split", "", "subtract"]


def test_equal_outputs_are_computed_once_and_both_stay() -> None:
    mod = build(lambda emit, x: (emit(R.exp(x)), emit(R.exp(x))), (3, 5))
    assert ops(rewritten(EliminateCommonSubexpressions(), mod).mod) == ["exp"]


OTHER_LAST = W.copy()
OTHER_LAST.reshape(-1)[-1] += 1
DIFFERENT = {
    "weights differ in one element": lambda x: (R.nn.conv2d(x, const(W)), R.nn.conv2d(x, const(OTHER_LAST))),
    "attributes differ": lambda x: (R.nn.conv2d(x, const(W)), R.nn.conv2d(x, const(W), dilation=2)),
    "zeros differ in sign": lambda x: (R.multiply(x, const(0.0)), R.multiply(x, const(-0.0))),
    "shapes of constants differ": lambda x: (R.add(x, const([1.0])), R.add(x, const([[1.0]]))),
    "dtypes of results differ": lambda x: (R.astype(x, "float16"), R.astype(x, "float64")),
    "operands change places": lambda x: (R.subtract(x, const(1.0)), R.subtract(const(1.0), x)),
    "shape operands differ": lambda x: (R.reshape(x, (75,)), R.reshape(x, (3, 25))),
    "packed functions": lambda x: 2 * (R.call_dps_packed("fill", (x,), out_ty=x.ty),),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_refuses(name: str) -> None:
    mod = build(lambda emit, x: tuple(emit(e) for e in DIFFERENT[name](x)), (1, 3, 5, 5))
    untouched(EliminateCommonSubexpressions(), mod)


def test_not_a_number_in_equal_weights_is_merged_by_its_bytes() -> None:
    weights = np.array([np.nan, 1.0])
    mod = build(lambda emit, x: (emit(R.add(x, const(weights))), emit(R.add(x, const(weights)))), (2,))
    assert ops(apply(EliminateCommonSubexpressions(), mod).mod) == ["add"]


def test_dataflow_variable_is_not_read_outside_its_block() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            inside = builder.emit_output(R.nn.relu(builder.emit(R.exp(x))))
        builder.emit_func_output(builder.emit(R.add(inside, builder.emit(R.exp(x)))))
    result = apply(EliminateCommonSubexpressions(), builder.get())
    assert result.fired == () and ops(result.mod) == ["exp", "relu", "exp", "add"]

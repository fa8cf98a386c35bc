"""Matching: the longest epilogue that pattern and check allow, and a reason for every operation that stays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm.relax import op as R

from tests.byoc.interpreter import Settings, make
from tests.passes.helpers import build, const, random
from tvm_ext.byoc import Backend, Composite, Pattern
from tvm_ext.byoc.match import Matcher
from tvm_ext.byoc.relax_view import RelaxView
from tvm_ext.core.graph.provenance import Provenance


def match(
    body: Callable[..., Any], *shapes: Sequence[Any], backend: Backend | None = None, dtype: str = "float32"
) -> tuple[list[Composite], dict[str, str]]:
    """Composites, and reasons of the rest, of `main(x0, x1, ...)`."""
    view = RelaxView(build(body, *shapes, dtype=dtype), Provenance())
    matcher = Matcher(view, backend or make(), Settings())
    return matcher.composites(), matcher.refusals


def ops(composite: Composite) -> list[str]:
    return [part.op.removeprefix("relax.").removeprefix("nn.") for part in composite.operations]


def test_bias_and_relu_come_along() -> None:
    weight, bias = random(5, 7), random(7)

    def body(emit: Any, x: Any) -> Any:
        return emit(R.nn.relu(emit(R.add(emit(R.matmul(x, const(weight))), const(bias)))))

    (composite,), refusals = match(body, (3, 5))
    assert (ops(composite), refusals) == (["matmul", "add", "relu"], {})
    (product, add, relu) = composite.operations
    assert [v.name for v in composite.inputs] == ["x0"]
    np.testing.assert_array_equal(product.operands[1], weight)
    np.testing.assert_array_equal(add.operands[1], bias)
    assert (relu.result.shape, relu.result.dtype) == ((3, 7), "float32")


def test_a_residual_is_no_bias() -> None:
    def body(emit: Any, x: Any, r: Any) -> Any:
        return emit(R.nn.relu(emit(R.add(emit(R.matmul(x, const(random(5, 7)))), r))))

    (composite,), refusals = match(body, (3, 5), (3, 7))
    assert ops(composite) == ["matmul"]
    assert [why for why in refusals.values() if "no row" in why]
    assert any("no pattern for nn.relu" in why for why in refusals.values())


def test_what_leaks_is_not_taken_in() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(R.matmul(x, const(random(5, 7))))
        return emit(R.nn.relu(emit(R.add(y, const(random(7)))))), emit(R.tanh(y))

    (composite,), refusals = match(body, (3, 5))
    assert ops(composite) == ["matmul"]
    assert any("is read elsewhere too" in why for why in refusals.values())


def test_a_result_of_the_model_leaks_too() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(R.matmul(x, const(random(5, 7))))
        return y, emit(R.nn.relu(y))

    (composite,), _ = match(body, (3, 5))
    assert ops(composite) == ["matmul"]


def test_the_square_of_a_result_is_read_by_one_operation() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(R.matmul(x, x))
        return emit(R.add(y, y))

    (composite,), _ = match(
        body, (5, 5), backend=make(patterns=(Pattern("any", ("relax.matmul",), (), ("relax.add",)),))
    )
    assert ops(composite) == ["matmul", "add"]
    assert [v.name for v in composite.inputs] == ["x0"]


def test_a_shared_prologue_comes_along_with_each() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(R.negative(x))
        return emit(R.matmul(y, const(random(5, 7)))), emit(R.matmul(y, const(random(5, 2)))), emit(R.tanh(y))

    composites, _ = match(body, (3, 5))
    assert [ops(part) for part in composites] == [["negative", "matmul"]] * 2
    assert {v.name for part in composites for v in part.inputs} == {"x0"}


def test_two_anchors_and_one_sum_go_to_the_first() -> None:
    def body(emit: Any, x: Any) -> Any:
        one, two = emit(R.matmul(x, const(random(5, 7)))), emit(R.matmul(x, const(random(5, 7, seed=1))))
        return emit(R.add(one, two))

    anything = make(patterns=(Pattern("any", ("relax.matmul",), (), ("relax.add",)),))
    composites, _ = match(body, (3, 5), backend=anything)
    assert [ops(part) for part in composites] == [["matmul", "add"], ["matmul"]]
    assert composites[1].result.name in [v.name for v in composites[0].inputs]


def test_the_first_pattern_that_takes_it_wins_and_a_refusal_says_why() -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(R.nn.relu(emit(R.matmul(x, const(random(5, 7))))))

    refusing = Pattern("wide", ("relax.matmul",), check=lambda c, options: f"{c.result.name} is too narrow")
    (composite,), _ = match(body, (3, 5), backend=make(patterns=(refusing, Pattern("any", ("relax.matmul",)))))
    assert composite.pattern == "any"
    found_none, refusals = match(body, (3, 5), backend=make(patterns=(refusing,)))
    assert found_none == []
    assert any("is too narrow" in why for why in refusals.values())


def test_a_prologue_that_the_check_refuses_is_left_outside() -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(R.matmul(emit(R.negative(x)), const(random(5, 7))))

    plain = Pattern(
        "plain", ("relax.matmul",), ("relax.negative",), check=lambda c, options: "no prologue" if c.prologue else ""
    )
    (composite,), _ = match(body, (3, 5), backend=make(patterns=(plain,)))
    assert ops(composite) == ["matmul"]


def test_types_beyond_the_limits_stay_outside() -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(R.matmul(x, const(random(5, 7), "float64")))

    composites, refusals = match(body, (3, 5), dtype="float64")
    assert composites == []
    assert any("x0 is float64" in why for why in refusals.values())


def test_a_tuple_is_no_operand() -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(emit(R.split(x, 2, axis=1))[0])

    odd = make(patterns=(Pattern("split", ("relax.split",)),))
    composites, refusals = match(body, (3, 4), backend=odd)
    assert composites == []
    assert "its result is no tensor" in refusals.values()


def test_a_prologue_of_the_epilogue_may_stay_outside_alone() -> None:
    def body(emit: Any, x: Any, r: Any) -> Any:
        return emit(R.add(emit(R.matmul(emit(R.negative(x)), const(random(5, 7)))), emit(R.negative(r))))

    def check(composite: Composite, options: Any) -> str:
        return "only one is negated" if len(composite.prologue) > 1 else ""

    some = Pattern("some", ("relax.matmul",), ("relax.negative",), ("relax.add",), check)
    (taken,), _ = match(body, (3, 5), (3, 7), backend=make(patterns=(some,)))
    assert ops(taken) == ["negative", "matmul", "add"]
    assert next(v.name for v in taken.inputs) == "x0"


def test_the_reason_of_the_try_with_most_is_kept() -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(R.matmul(emit(R.negative(x)), const(random(5, 7))))

    picky = Pattern(
        "picky", ("relax.matmul",), ("relax.negative",), check=lambda c, options: f"{len(c.prologue)} in its prologue"
    )
    _, refusals = match(body, (3, 5), backend=make(patterns=(picky,)))
    assert "1 in its prologue" in refusals.values()

"""simplify-algebra: each rule, its numbers, and what only looks like it."""

import functools
from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op as R

from tests.passes.helpers import apply, build, const, execute, ops, random, rewritten, untouched
from tvm_ext.core.graph.provenance import Provenance
from tvm_ext.core.graph.relax_graph import main_bindings, numpy_of, shape_of
from tvm_ext.core.passes import CompileContext
from tvm_ext.passes.simplification.simplify_algebra import SimplifyAlgebra

SHAPE = (1, 3, 7, 5)
C1, C2 = np.abs(random(3, 1, 1)), np.abs(random(1, 3, 1, 1, seed=1))


def chain(*steps: Any) -> Any:
    """A body that applies steps one after the other, with an `exp` at the end."""

    def body(emit: Any, x: Any) -> Any:
        for step in steps:
            x = emit(step(x))
        return emit(R.exp(x))

    return body


def permuted(*orders: list[int]) -> Any:
    return chain(*(functools.partial(R.permute_dims, axes=order) for order in orders))


def _scattered(*back: int, rows: Any = ((5,), (0,)), reduction: str = "update") -> Any:
    """Rows of axis 2, which goes to the front and back."""
    new = random(len(rows), *([1, 3, 5] if np.shape(rows)[1] == 1 else [3, 5]))
    return chain(
        lambda x: R.permute_dims(x, [2, 0, 1, 3]),
        lambda x: R.scatter_nd(x, const(rows, "int64"), const(new), reduction),
        lambda x: R.permute_dims(x, back),
    )


SCATTERED = ["permute_dims", "reshape", "broadcast_to", "scatter_elements"]
RULES = {
    "add zero": (chain(lambda x: R.add(x, const(0.0))), []),
    "zero plus": (chain(lambda x: R.add(const(np.zeros((7, 1))), x)), []),
    "subtract zero": (chain(lambda x: R.subtract(x, const([0.0]))), []),
    "multiply by one": (chain(lambda x: R.multiply(x, const(np.ones(SHAPE)))), []),
    "divide by one": (chain(lambda x: R.divide(x, const(1.0))), []),
    "constant first": (chain(lambda x: R.multiply(const(C1), x)), ["multiply"]),
    "subtract constant": (chain(lambda x: R.subtract(x, const(C1))), ["add"]),
    "two additions": (chain(lambda x: R.add(x, const(C1)), lambda x: R.add(const(C2), x)), ["add"]),
    "two products": (chain(lambda x: R.multiply(x, const(C1)), lambda x: R.multiply(x, const(-C2))), ["multiply"]),
    "double negative": (chain(R.negative, R.negative), []),
    "relu twice": (chain(R.nn.relu, R.nn.relu), ["relu"]),
    "relu of clip": (chain(lambda x: R.clip(x, -1, 1), R.nn.relu), ["clip"]),
    "clip of clip": (chain(lambda x: R.clip(x, -0.3, 2), lambda x: R.clip(x, -1, 0.4)), ["clip"]),
    "clip above a clip": (chain(lambda x: R.clip(x, -1, 0), lambda x: R.clip(x, 0.5, 2)), ["clip"]),
    "maximum with zero": (chain(lambda x: R.maximum(x, const(0.0))), ["relu"]),
    "minimum of maximum": (chain(lambda x: R.maximum(x, const(-0.1)), lambda x: R.minimum(x, const([0.7]))), ["clip"]),
    "cast to same": (chain(lambda x: R.astype(x, "float32")), []),
    "squeeze": (chain(lambda x: R.squeeze(x, [0])), ["reshape"]),
    "expand and squeeze": (chain(lambda x: R.expand_dims(x, [2]), lambda x: R.squeeze(x, [2])), []),
    "reshape twice": (chain(lambda x: R.reshape(x, (15, 7)), lambda x: R.reshape(x, (5, 21))), ["reshape"]),
    "reshape there and back": (chain(R.flatten, lambda x: R.reshape(x, SHAPE)), []),
    "broadcast to same": (chain(lambda x: R.broadcast_to(x, SHAPE)), []),
    "permute twice": (permuted([0, 2, 3, 1], [0, 2, 1, 3]), ["permute_dims"]),
    "permute and back": (permuted([0, 2, 3, 1], [0, -1, 1, 2]), []),
    "permute of ones": (permuted([1, 0, 2, 3]), ["reshape"]),
    "scatter between permutes": (_scattered(1, 2, 0, 3), SCATTERED),
    "sums scattered": (_scattered(1, 2, 0, 3, rows=[[2], [2]], reduction="add"), SCATTERED),
    "concat of one": (chain(lambda x: R.concat([x], 1)), []),
    "slice of all": (chain(lambda x: R.strided_slice(x, [1, 3], [0, 0], [99, 5])), []),
    "take of all": (chain(lambda x: R.take(x, const([0, 1, 2, 3, 4], "int64"), 3)), []),
    "take of the last of one": (chain(lambda x: R.take(x, const([-1], "int64"), 0, mode="wrap")), []),
    "take by a number of one": (chain(lambda x: R.take(x, const(0, "int64"), 0)), ["reshape"]),
    "pad by nothing": (chain(lambda x: R.nn.pad(x, [0] * 8)), []),
    "tile by one": (chain(lambda x: R.tile(x, [1, 1, 1, 1])), []),
}


@pytest.mark.parametrize(("body", "want"), RULES.values(), ids=RULES)
def test_rule(body: Any, want: list[str]) -> None:
    result = apply(SimplifyAlgebra(), build(body, SHAPE))
    assert ops(result.mod) == [*want, "exp"] and result.fired
    assert apply(SimplifyAlgebra(), result.mod).fired == ()


def test_outputs_stay_the_same() -> None:
    """All rules in one module, compiled once before and once after."""
    rewritten(SimplifyAlgebra(), build(lambda emit, x: tuple(steps(emit, x) for steps, _ in RULES.values()), SHAPE))


def test_joined_constants_are_float64_rounded_once() -> None:
    mod = build(chain(lambda x: R.multiply(x, const(C1)), lambda x: R.multiply(x, const(C2))), SHAPE)
    joined = main_bindings(apply(SimplifyAlgebra(), mod).mod)[0].value.args[1]
    np.testing.assert_array_equal(numpy_of(joined), (C1.astype("f8") * C2.astype("f8")).astype("f4"))


def test_model_that_does_nothing_returns_its_input() -> None:
    mod = build(lambda emit, x: emit(R.add(x, const(0.0))), (3, 5))
    result = apply(SimplifyAlgebra(), mod)
    assert ops(result.mod) == []
    np.testing.assert_array_equal(execute(result.mod, random(3, 5))[0], random(3, 5))


def _inner_read_twice(emit: Any, x: Any) -> Any:
    inner = emit(R.add(x, const(C1)))
    return emit(R.multiply(emit(R.add(inner, const(C2))), inner))


REFUSED = {
    "signs differ": (chain(lambda x: R.add(x, const(1e8)), lambda x: R.add(x, const(-1e8))), "differ in sign"),
    "product too small": (chain(*[lambda x: R.multiply(x, const(1e-30))] * 2), "too small"),
    "product too large": (chain(*[lambda x: R.multiply(x, const(1e30))] * 2), "not finite"),
    "joined would be larger": (
        chain(lambda x: R.add(x, const(C1)), lambda x: R.add(x, const(np.abs(random(7, 5))))), "larger than either"),
    "inner read twice": (_inner_read_twice, "read elsewhere"),
    "a step behind": (
        chain(lambda x: R.multiply(x, const(0.1)), lambda x: R.multiply(x, const(10.0)), R.floor), "ties",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "reason"), REFUSED.values(), ids=REFUSED)
def test_refuses_with_a_reason(body: Any, reason: str) -> None:
    (detail,) = untouched(SimplifyAlgebra(), build(body, SHAPE))
    assert reason in detail


LEFT = {
    "zero that broadcasts": lambda x: R.add(x, const(np.zeros((2, 1, 1, 1)))),
    "multiply by zero": lambda x: R.multiply(x, const(0.0)),
    "almost one": lambda x: R.multiply(x, const([1.0, 1.0, 1.0, 1.0, np.nextafter(1.0, 2.0, dtype="f4")])),
    "cast to another": lambda x: R.astype(x, "float16"),
    "slice with a step": lambda x: R.strided_slice(x, [3], [4], [-9], [-1]),
    "slice of a part": lambda x: R.strided_slice(x, [3], [1], [5]),
    "take of a part": lambda x: R.take(x, const([0, 1], "int64"), 2),
    "take in another order": lambda x: R.take(x, const([1, 0, 2, 3, 4], "int64"), 3),
    "take out of bounds": lambda x: R.take(x, const([1], "int64"), 0, mode="clip"),
    "permute": lambda x: R.permute_dims(x, [0, 1, 3, 2]),
    "minimum alone": lambda x: R.minimum(x, const(6.0)),
    "maximum of NaN": lambda x: R.maximum(x, const(np.nan)),
    "maximum by channel": lambda x: R.maximum(x, const(np.zeros((3, 1, 1)))),
    "concat of two": lambda x: R.concat([x, x], 1),
}


@pytest.mark.parametrize("name", LEFT)
def test_refuses_silently_what_is_no_candidate(name: str) -> None:
    assert untouched(SimplifyAlgebra(), build(chain(LEFT[name]), SHAPE)) == []


@pytest.mark.parametrize("body", [_scattered(1, 0, 2, 3), _scattered(1, 2, 0, 3, rows=[[5, 0], [1, 0]])])
def test_a_scatter_that_is_not_along_one_axis_stays(body: Any) -> None:
    result = apply(SimplifyAlgebra(), build(body, SHAPE))
    assert not any("scatter" in event.detail for event in result.fired) and "scatter_nd" in ops(result.mod)


def test_match_cast_keeps_binding_its_dimensions() -> None:
    n, builder = tirx.Var("n", "int64"), relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(None, "float32", ndim=1))
    with builder.function("main", [x]):
        with builder.dataflow():
            cast = builder.match_cast(x, relax.TensorType((n,), "float32"))
            zero = builder.emit(R.add(cast, const(0.0)))
            output = builder.emit_output(R.exp(zero))
        builder.emit_func_output(output)
    result = apply(SimplifyAlgebra(), builder.get())
    assert ops(result.mod) == ["", "exp"] and len(result.fired) == 1
    assert isinstance(main_bindings(result.mod)[0], relax.MatchCast)


def test_value_that_takes_another_name_keeps_both_origins(context: CompileContext) -> None:
    """The output variable is an addition of zero: it goes, and one name stands for both nodes."""
    mod = build(lambda emit, x: emit(R.add(emit(R.exp(x)), const(0.0))), (3, 5))
    inner, outer = (b.var.name for b in main_bindings(mod))
    context.provenance = Provenance({inner: ["exp"], outer: ["add"]})
    (left,) = main_bindings(SimplifyAlgebra()(mod, context).mod)
    assert set(context.provenance.of(left.var.name)) == {"exp", "add"}


def test_symbolic_shapes_are_respected() -> None:
    n = tirx.Var("n", "int64")
    body = chain(lambda x: R.add(x, const(0.0)), lambda x: R.squeeze(x, [1]))
    result = apply(SimplifyAlgebra(), build(body, (n, 1, 5)))
    assert ops(result.mod) == ["squeeze", "exp"]
    assert shape_of(main_bindings(result.mod)[0].var) is None
    assert isinstance(result.mod["main"].body, relax.SeqExpr)

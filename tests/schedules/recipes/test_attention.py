"""Attention with online softmax against float64."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx

from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.machine_files import descriptions
from tvm_ext.core.recipe import Miss
from tvm_ext.schedules.recipes.attention import Attention

from ..any_size import AnySize, each_size, symbols, with_extents
from ..kernels import ROUNDOFF, make_group, matched, random, run_kernel

RECIPE = Attention()
Shape = tuple[int, ...]


def attention(q: Shape, k: Shape, v: Shape, bias: Shape | None = None, scale: float | None = None) -> Any:
    number = None if scale is None else tirx.FloatImm("float32", scale)
    anchor = "relax.nn.attention" if bias is None else "relax.nn.attention_bias"

    def body(*operands: Any) -> Any:
        yield relax.op.nn.attention(*operands, scale=number)

    return make_group(anchor, [q, k, v, *([bias] if bias else [])], body)


def reference(q: Any, k: Any, v: Any, bias: Any = 0.0, scale: float | None = None) -> Any:
    """(result, sum of magnitudes) in float64."""
    q, k, v, bias = (np.asarray(a, "float64") for a in (q, k, v, bias))
    scores = np.einsum("bsnd,btnd->bnst", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale) + bias
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
    return np.einsum("bnst,btne->bsne", weights, v), np.einsum("bnst,btne->bsne", weights, abs(v))


def check(group: Any, arrays: Any, machine: Machine, scale: float | None = None, **run: Any) -> None:
    got = run_kernel(RECIPE, group, arrays, machine, **run)
    exact, size = reference(*arrays, scale=scale)
    q, k = (a.astype("float64") for a in arrays[:2])
    # An error of a score is one of its exponential; the sums add one rounding for each key.
    score = (
        ROUNDOFF * (q.shape[-1] + 4) * np.abs(q).max() * np.abs(k).max() * q.shape[-1] * (scale or q.shape[-1] ** -0.5)
    )
    assert np.all(np.abs(got - exact) <= (2 * score + (2 * k.shape[1] + 12) * ROUNDOFF) * size)


@pytest.mark.parametrize(
    ("batch", "rows", "keys", "heads", "depth", "width"),
    [
        (1, 1, 1, 1, 1, 1), (2, 1, 37, 2, 8, 8), (1, 17, 17, 3, 32, 32), (2, 33, 70, 2, 16, 24),
        (1, 5, 300, 1, 20, 5), (1, 131, 64, 2, 64, 80), (1, 40, 40, 3, 15, 15), (1, 18, 130, 2, 20, 23),
    ],
)  # fmt: skip
def test_agrees_with_float64(
    batch: int, rows: int, keys: int, heads: int, depth: int, width: int, case_machine: Machine, rng: Any
) -> None:
    shapes = (batch, rows, heads, depth), (batch, keys, heads, depth), (batch, keys, heads, width)
    check(attention(*shapes), [random(rng, *s) for s in shapes], case_machine)


@pytest.mark.parametrize("bias", [(1, 1, 1, 40), (2, 1, 1, 40), (1, 3, 19, 40), (2, 3, 1, 40), (2, 1, 19, 40)])
def test_bias_broadcasts(bias: Shape, case_machine: Machine, rng: np.random.Generator) -> None:
    shapes = (2, 19, 3, 16), (2, 40, 3, 16), (2, 40, 3, 16), bias
    check(attention(*shapes, scale=0.3), [random(rng, *s) for s in shapes], case_machine, scale=0.3)


@pytest.mark.parametrize("masked", [-np.inf, -3.4028234e38, -10000.0])
def test_masks(masked: float, rng: np.random.Generator) -> None:
    """Whole first blocks masked, single keys, and a row that sees one key; online softmax starts from nothing."""
    shapes = (1, 20, 2, 16), (1, 200, 2, 16), (1, 200, 2, 16), (1, 1, 20, 200)
    bias = np.zeros(shapes[3], "float32")
    bias[..., :3, :150], bias[..., 5, 1:], bias[..., 7, ::2] = masked, masked, masked
    arrays = [*(random(rng, *s) for s in shapes[:3]), bias]
    machine, group = Machine.detect(None, 2), attention(*shapes)
    config = {**RECIPE.default(matched(RECIPE, group, machine), machine), "keys": 64}
    check(group, arrays, machine, config=config)


def test_a_row_that_sees_nothing(rng: np.random.Generator) -> None:
    """-inf everywhere is no distribution: NaN, as from the operators one by one; the least number is a uniform one."""
    shapes = (1, 4, 1, 8), (1, 70, 1, 8), (1, 70, 1, 8), (1, 1, 4, 70)
    bias = np.zeros(shapes[3], "float32")
    bias[..., 1, :], bias[..., 2, :] = -np.inf, np.finfo("float32").min
    q, k, v = (random(rng, *s) for s in shapes[:3])
    got = run_kernel(RECIPE, attention(*shapes), [q, k, v, bias], Machine.detect(None, 1))
    assert np.isnan(got[0, 1]).all() and not np.isnan(got[0, [0, 2, 3]]).any()
    assert np.allclose(got[0, 2, 0], v.mean(1)[0, 0], atol=1e-6)


def test_operands_lie_transposed(rng: np.random.Generator) -> None:
    machine, shapes = Machine.detect(None, 2), ((2, 18, 3, 16), (2, 21, 3, 16), (2, 21, 3, 16))
    group, arrays = attention(*shapes), [random(rng, *s) for s in shapes]
    offered = [Layout((0, 2, 1, 3)), Layout((0, 2, 3, 1)), Layout((0, 2, 1, 3))]
    match = matched(RECIPE, group, machine)
    config = RECIPE.default(match, machine)
    assert RECIPE.layouts(match, config, offered).params == tuple(offered)
    assert RECIPE.layouts(match, config, [*offered[:2], offered[1]]).params[2].is_plain
    check(group, arrays, machine, offered=offered)


def test_points_of_the_space_agree(machine: Machine, rng: np.random.Generator) -> None:
    shapes = (1, 50, 3, 32), (1, 150, 3, 32), (1, 150, 3, 32)
    group, arrays = attention(*shapes), [random(rng, *s) for s in shapes]
    points = list(RECIPE.points(matched(RECIPE, group, machine), machine))
    assert len(points) > 3
    for i in rng.choice(len(points), size=3, replace=False):
        check(group, arrays, machine, config={**points[i], "threads": 2})


def test_epilogue(rng: np.random.Generator) -> None:
    def body(q: Any, k: Any, v: Any, r: Any) -> Any:
        y = yield relax.op.nn.attention(q, k, v)
        yield relax.op.add(y, r)

    shape = (1, 9, 2, 8)
    arrays = [random(rng, *shape) for _ in range(4)]
    got = run_kernel(RECIPE, make_group("relax.nn.attention", [shape] * 4, body), arrays, Machine.detect())
    assert np.allclose(got, reference(*arrays[:3])[0] + arrays[3], atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "options", "reason"), [((1, 3, 2, 4), {"causal_mask": "TopLeft"}, "bias"), ((1, 0, 2, 4), {}, "empty")]
)
def test_refuses(shape: Shape, options: Any, reason: str) -> None:
    group = make_group("relax.nn.attention", [shape] * 3, lambda *o: (yield relax.op.nn.attention(*o, **options)))
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and reason in miss.reason


#: bounds of batch, queries and keys; which are known at run time; shape of the bias by symbols; causal
ANY_SIZE = {
    "all": ((3, 40, 150), "NST", None, False),
    "batch": ((3, 40, 77), "N", None, False),
    "queries": ((1, 131, 48), "S", None, False),
    "keys of one query": ((1, 1, 300), "T", "11T", False),
    "a mask of keys": ((3, 40, 40), "NT", "N1T", False),
    "causal": ((2, 70, 70), "NST", "1ST", True),
}


def any_size_shapes(case: str, d: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    bias = ANY_SIZE[case][2]
    mask = [(d[bias[0]], 1, d[bias[1]], d[bias[2]])] if bias else []
    return [(d["N"], d["S"], 3, 16), (d["N"], d["T"], 3, 16), (d["N"], d["T"], 3, 20), *mask]


def any_size(case: str, machine: Machine, threads: int) -> tuple[AnySize, dict[str, int]]:
    """A kernel in blocks of 64 keys, of which the last is cut, and the bounds of all symbols."""
    (batch, rows, keys), names, *_ = ANY_SIZE[case]
    bound = {"N": batch, "S": rows, "T": keys, "1": 1}
    used = {**bound, **dict(zip(names, symbols(names), strict=True))}
    group = attention(*any_size_shapes(case, bound))
    group = with_extents(group, *any_size_shapes(case, used), (used["N"], used["S"], 3, 20))
    config = {**RECIPE.default(matched(RECIPE, group, machine), machine), "keys": 64, "threads": threads}
    return AnySize(RECIPE, group, machine, config), bound


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", ANY_SIZE)
def test_any_size(case: str, threads: int, case_machine: Machine, rng: np.random.Generator) -> None:
    """NaN behind the extents."""
    _, names, bias, causal = ANY_SIZE[case]
    kernel, bound = any_size(case, case_machine, threads)
    for size in each_size(**{n: {1, (bound[n] + 1) // 2, bound[n] - 1, bound[n]} - {0} for n in names}):
        arrays = [random(rng, *s) for s in any_size_shapes(case, {**bound, **size})]
        if causal:
            arrays[3][:] = np.where(np.tri(*arrays[3].shape[2:]) > 0, 0, -np.inf)
        elif bias:
            arrays[3][..., 1::3] = -np.inf
        exact, magnitude = reference(*arrays)
        got = kernel(size, exact.shape, *arrays)
        assert np.all(np.abs(got - exact) <= 2.0**-16 * np.maximum(magnitude, np.abs(exact))), size


@pytest.mark.parametrize("name", descriptions())
def test_any_size_compiles_for_every_described_machine(name: str) -> None:
    """TVM computes with what quotients of sizes and blocks may be; it raises where that is beyond an index."""
    for case in ANY_SIZE:
        any_size(case, Machine.described(name), 2)


def test_refuses_a_query_of_any_length() -> None:
    (depth,), shape = symbols("D"), (1, 4, 2, 8)
    group = with_extents(attention(shape, shape, shape), *[(1, 4, 2, depth)] * 2, shape, shape)
    miss = RECIPE.match(group, Machine.detect())
    assert isinstance(miss, Miss) and "run time" in miss.reason

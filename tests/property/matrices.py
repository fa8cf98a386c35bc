"""Matrix products: Gemm, MatMul, Einsum, and the attention pattern."""

import math

import numpy as np

from .graph import F32, FLOATS, LAMBDA, Graph, Operand, Value, maker, squared, weighted


def product(g: Graph, op: str, x: Value, weight: np.ndarray, shape, depth: int, more=(), **attributes) -> Value:
    """A sum of `depth` products with a constant weight, and perhaps a bias."""
    gain = max(weighted(weight, depth), 1e-3)
    extra = 3.5 if more else 0.0
    return g.node(
        op, [x, weight, *more], shape, bound=gain * x.bound + extra, gain=gain, terms=squared(depth), **attributes
    )


@maker(*F32, rank=(2, 2), weight=4, rows=True)
def gemm(g: Graph, x: Value) -> Value:
    turned = g.chance(0.2) and not g.rows
    rows, depth = reversed(x.shape) if turned else x.shape
    columns, by_rows = g.size(1, 24), g.chance(0.5)
    weight = g.array(*((columns, depth) if by_rows else (depth, columns)), scale=depth**-0.5)
    biases = [[], [g.array(columns)], [g.array(1, columns)], [g.array(1)]]
    bias = g.any(biases if g.rows else [*biases, [g.array(rows, 1)], [g.array(rows, columns)]])
    attrs = {"alpha": 0.5, "beta": 2.0} if g.chance(0.2) else {}
    result = product(
        g, "Gemm", x, weight, (rows, columns), depth, bias, transA=int(turned), transB=int(by_rows), **attrs
    )
    return result._replace(bound=result.bound + 3.5)


@maker(*FLOATS, rank=(1, 4), weight=4, rows=True)
def matmul(g: Graph, x: Value) -> Value | None:
    if g.rows and x.rank < 2:
        return None
    columns, depth = g.size(1, 24), x.shape[-1]
    if x.rank == 3 and not g.rows and g.chance(0.2):  # a weight for each matrix
        weight = g.array(x.shape[0], depth, columns, scale=depth**-0.5, dtype=x.dtype)
    elif g.chance(0.1):
        weight = g.array(depth, scale=depth**-0.5, dtype=x.dtype)
        return product(g, "MatMul", x, weight, x.shape[:-1], depth)
    else:
        weight = g.array(depth, columns, scale=depth**-0.5, dtype=x.dtype)
    return product(g, "MatMul", x, weight, (*x.shape[:-1], columns), depth)


@maker(*F32, rank=(2, 4), weight=3, rows=True)
def linear(g: Graph, x: Value) -> Value:
    """MatMul, Add, activation; with a residual where the shape allows it."""
    depth = x.shape[-1]
    columns = depth if g.chance(0.4) else g.size(1, 40)
    y = product(g, "MatMul", x, g.array(depth, columns, scale=depth**-0.5), (*x.shape[:-1], columns), depth)
    y = g.node("Add", [y, g.array(columns)], y.shape, bound=y.bound + 3.5)
    if g.chance(0.6):
        y = g.node(g.any(["Relu", "Sigmoid", "Tanh"]), [y], y.shape, bound=max(y.bound, 1), terms=12)
    return g.node("Add", [y, x], x.shape, bound=x.bound + y.bound) if y.shape == x.shape else y


def computed(g: Graph, op: str, a: Value, b: Value, shape, depth: int, **attributes) -> Value:
    """A product of two computed values, divided by the root of their depth."""
    bound = a.bound * b.bound * depth
    error = depth * (a.bound * b.error + b.bound * a.error) + squared(depth) * 2.0**-24 * a.bound * b.bound * depth
    error = min(error, bound)
    result = g.node(op, [a, b], shape, bound=bound, error=error, **attributes)
    scale = 2.0 ** -round(math.log2(depth))
    return g.node("Mul", [result, np.asarray(scale, np.float32)], shape, bound=bound * scale, gain=scale, terms=0)


@maker(*F32, rank=(2, 4), weight=2, rows=True)
def gram(g: Graph, x: Value) -> Value | None:
    """x times its own transpose."""
    if g.rows and x.rank < 3:
        return None
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turned = g.node("Transpose", [x], [x.shape[a] for a in order], terms=0, perm=order)
    return computed(g, "MatMul", x, turned, (*x.shape[:-1], x.shape[-2]), x.shape[-1])


@maker(*F32, rank=(2, 3), weight=2)
def two_values(g: Graph, x: Value) -> Value | None:
    """Another value with a fitting depth, batch dimensions broadcast."""
    fitting = [v for v in g.values if v.dtype == x.dtype and v.rank == 2 and v.shape[0] == x.shape[-1] and v.size]
    if not fitting:
        return None
    other = g.any(fitting)
    return computed(g, "MatMul", x, other, (*x.shape[:-1], other.shape[1]), x.shape[-1])


@maker(*F32, rank=(2, 4), weight=2)
def einsum(g: Graph, x: Value) -> Value:
    letters = "abcd"[: x.rank]
    order = g.order(x.rank)
    summed, kept = order[0], sorted(order[1:])
    columns, depth = g.size(1, 9), x.shape[summed]
    out = "".join(letters[a] for a in g.any([kept, kept[::-1]]))
    weight = g.array(depth, columns, scale=depth**-0.5)
    shape = (*(x.shape[letters.index(c)] for c in out), columns)
    return product(g, "Einsum", x, weight, shape, depth, equation=f"{letters},{letters[summed]}z->{out}z")


@maker(*F32, rank=(3, 3), weight=4, rows=True)
def attention(g: Graph, x: Value) -> Value:
    """Q, K, V of one value, in heads; scaled, masked or not; softmax; back to one row a token."""
    n, tokens, _ = x.shape
    heads, size = g.size(1, 3), g.size(1, 8)
    q, k, v = (_heads(g, x, heads, size, turned) for turned in (False, True, False))
    scores = computed(g, "MatMul", q, k, (n, heads, tokens, tokens), size)
    scores = g.node("Mul", [scores, np.asarray(0.125, np.float32)], scores.shape, bound=scores.bound / 8, gain=0.125)
    if g.chance(0.4):
        mask: Operand = np.triu(np.full((tokens, tokens), g.any([-np.inf, -1e4]), np.float32), 1)
        scores = g.node("Add", [scores, mask], scores.shape, bound=scores.bound)
    weights = g.node("Softmax", [scores], scores.shape, bound=1, gain=2, terms=8 + squared(tokens), axis=-1)
    error = v.error + weights.error * v.bound * LAMBDA * math.sqrt(tokens) + squared(tokens) * 2.0**-24 * v.bound
    mixed = g.node("MatMul", [weights, v], (n, heads, tokens, size), bound=v.bound, error=error)
    back = g.node("Transpose", [mixed], (n, tokens, heads, size), terms=0, perm=[0, 2, 1, 3])
    return g.node("Reshape", [back, np.asarray([0, 0, -1], np.int64)], (n, tokens, heads * size), terms=0)


def _heads(g: Graph, x: Value, heads: int, size: int, turned: bool) -> Value:
    n, tokens, depth = x.shape
    width = heads * size
    y = product(g, "MatMul", x, g.array(depth, width, scale=depth**-0.5), (n, tokens, width), depth)
    split = g.node("Reshape", [y, np.asarray([0, 0, heads, size], np.int64)], (n, tokens, heads, size), terms=0)
    order = [0, 2, 3, 1] if turned else [0, 2, 1, 3]
    return g.node("Transpose", [split], [split.shape[a] for a in order], terms=0, perm=order)

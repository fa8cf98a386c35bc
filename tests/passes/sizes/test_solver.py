"""Expressions of integers at probes: chains of dimensions, products, quotients that probes tell apart or do not."""

from collections.abc import Callable, Mapping, Sequence

import pytest
import tvm_ffi
from tvm import tirx

from tvm_ext.core.sizes import Sizes, Symbol, evaluate
from tvm_ext.passes.sizes.solver import Solver

SIZES = Sizes.of([Symbol("N", 1, 8), Symbol("S", 1, 512), Symbol("P", 0, 256)])
IMAGE = Sizes.of([Symbol("H", 32, 640), Symbol("W", 32, 640)])


def sizes_of(rows: list[tuple[int, ...]], sizes: Sizes) -> list[Mapping[str, int]]:
    return [sizes.bound, *({s.name: v for s, v in zip(sizes.symbols, row, strict=True)} for row in rows)]


PROBES = sizes_of([(3, 37, 11), (2, 201, 53), (5, 118, 97), (3, 83, 200)], SIZES)
IMAGES = sizes_of([(97, 158), (211, 303), (350, 101), (128, 254)], IMAGE)
#: Sizes at which no solver looked.
OTHERS = [{"N": 1, "S": 1, "P": 0}, {"N": 7, "S": 499, "P": 3}, {"N": 4, "S": 64, "P": 64}]

Formula = Callable[..., int]


def values_of(formula: Formula, probes: list[Mapping[str, int]]) -> list[int]:
    return [formula(**probe) for probe in probes]


@pytest.mark.parametrize("formula", [
    lambda N, S, P: S, lambda N, S, P: N * S, lambda N, S, P: S + 1, lambda N, S, P: 12 * N, lambda N, S, P: 2 * S - 1,
    lambda N, S, P: -S, lambda N, S, P: S + P, lambda N, S, P: N * (S + P), lambda N, S, P: 12 * S * S,
    lambda N, S, P: N * S * P + 7, lambda N, S, P: 64 * (N * S - 1), lambda N, S, P: 3 * S - 2 * P + 5,
    lambda N, S, P: min(S, 128), lambda N, S, P: max(P, 64), lambda N, S, P: (S + 1) // 2, lambda N, S, P: S % 7,
    lambda N, S, P: -(-S // 7) * 7, lambda N, S, P: -S % 8 + 1, lambda N, S, P: 2 * (P // 8 * 8),
])  # fmt: skip
def test_an_expression_holds_at_other_sizes(formula: Formula) -> None:
    expr = Solver(SIZES, PROBES).solve(values_of(formula, PROBES))
    assert [evaluate(expr, at) for at in OTHERS] == values_of(formula, OTHERS)


def test_what_is_simplest_comes_first() -> None:
    solver = Solver(SIZES, PROBES)
    n, s, p = SIZES.vars
    assert solver.solve([7] * 5) == 7
    for expr in (s, n * s, s + tirx.IntImm("int64", 1), s + p):
        assert tvm_ffi.structural_equal(solver.solve([evaluate(expr, probe) for probe in PROBES]), expr)
    assert solver.solve([5, 100, 3, 77, 2]) is None


def is_ambiguous(solver: Solver, values: Sequence[int]) -> bool:
    """Whether expressions of these values are told apart by one more probe."""
    solver.solve(values)
    return tuple(values) in solver.doubts


def test_a_chain_of_convolutions_halves_what_was_learned() -> None:
    solver, size = Solver(IMAGE, IMAGES), values_of(lambda H, W: H, IMAGES)
    for _ in range(5):  # 640 .. 20; an even probe and an odd one are there at each step
        size = [(v + 1) // 2 for v in size]
        assert not is_ambiguous(solver, size)
        solver.learn(solver.solve(size), size)
    for height in range(32, 640):
        wanted = -(-height // 32)
        assert evaluate(solver.solve(size), {"H": height, "W": 1}) == wanted


def test_what_was_learned_twice_is_told_apart() -> None:
    """Counts of two windows that are the same at 7, 6, 4 and 3 rows, and are others at 5."""
    sizes = Sizes.of([Symbol("H", 1, 7)])
    solver = Solver(sizes, [{"H": size} for size in (7, 6, 4, 3)])
    for shift in (3, 4):
        extent = tirx.floordiv(sizes.vars[0] + shift, tirx.IntImm("int64", 3))
        solver.learn(extent, solver.at_probes(extent))
    assert list(solver.doubts.values()) == [{"H": 5}]


def test_products_of_what_was_learned() -> None:
    solver = Solver(IMAGE, IMAGES)
    halves = [values_of(lambda H, W: (H + 1) // 2, IMAGES), values_of(lambda H, W: (W + 1) // 2, IMAGES)]
    for half in halves:
        solver.learn(solver.solve(half), half)
    pixels = solver.solve([3 * a * b for a, b in zip(*halves, strict=True)])
    assert evaluate(pixels, {"H": 33, "W": 45}) == 3 * 17 * 23


def test_quotients_that_no_probe_tells_apart_are_ambiguous() -> None:
    odd = sizes_of([(97, 158), (211, 303)], Sizes.of([Symbol("H", 33, 641), Symbol("W", 32, 640)]))
    odd[0] = {"H": 641, "W": 640}
    halves = [probe["H"] // 2 for probe in odd]
    ambiguous = Solver(IMAGE, odd)
    assert is_ambiguous(ambiguous, halves)  # H // 2 and (H - 1) // 2 ...
    assert evaluate(ambiguous.solve(halves), {"H": 100, "W": 1}) == 50  # ... of which the first is simpler
    more = Solver(IMAGE, [*odd, {"H": 100, "W": 41}])
    assert not is_ambiguous(more, [*halves, 50]) and not is_ambiguous(more, [*halves, 49])
    assert evaluate(more.solve([*halves, 49]), {"H": 100, "W": 1}) == 49


@pytest.mark.parametrize("formula", [lambda H, W: H // 16, lambda H, W: (W - 7) // 32 + 1, lambda H, W: -(-H // 8)])
def test_doubts_name_the_probe_that_ends_them(formula: Formula) -> None:
    probes = list(IMAGES)
    for _ in range(6):
        solver = Solver(IMAGE, probes)
        expr = solver.solve(values_of(formula, probes))
        if not solver.doubts:
            break
        probes.append(solver.doubts[tuple(values_of(formula, probes))])
    assert not solver.doubts
    everywhere: list[Mapping[str, int]] = [{"H": k, "W": k} for k in range(32, 641)]
    assert [evaluate(expr, at) for at in everywhere] == values_of(formula, everywhere)


def test_a_quotient_is_of_what_is_near() -> None:
    probes = sizes_of([(96, 97), (160, 161), (64, 65)], IMAGE)
    probes[0] = {"H": 640, "W": 641}
    h, w = IMAGE.vars
    solver, eighths = Solver(IMAGE, probes), [probe["H"] // 8 for probe in probes]
    assert evaluate(solver.solve(eighths, near=[h]), {"H": 80, "W": 0}) == 10
    assert evaluate(solver.solve(eighths, near=[w]), {"H": 0, "W": 81}) == 10
    assert is_ambiguous(Solver(IMAGE, probes), eighths)


def test_what_is_learned_is_checked() -> None:
    solver = Solver(SIZES, PROBES)
    with pytest.raises(ValueError, match="at the probes"):
        solver.learn(SIZES.vars[0] * 2, [1, 2, 3, 4, 5])
    with pytest.raises(ValueError, match="the symbols are"):
        Solver(SIZES, [{"N": 1, "S": 2}])
    with pytest.raises(ValueError, match="equal at all probes"):
        Solver(IMAGE, [{"H": 640, "W": 640}, {"H": 33, "W": 33}])


@pytest.mark.parametrize(
    "formula",
    [lambda n, s: min(s, 20), lambda n, s: min(s - 2, 20), lambda n, s: max(s - 9, 4)],
    ids=["least", "least of a difference", "most of a difference"],
)
def test_a_clamp_holds_at_other_sizes(formula: Callable[[int, int], int]) -> None:
    sizes = Sizes.of((Symbol("N", 1, 8), Symbol("S", 1, 64)))
    probes = sizes_of([(8, 64), (3, 37), (5, 53), (7, 6), (2, 4)], sizes)
    expr = Solver(sizes, probes).solve([formula(*probe.values()) for probe in probes])
    for size in sizes_of([(1, 1), (2, 9), (4, 21), (6, 22), (8, 23)], sizes):
        assert evaluate(expr, size) == formula(*size.values())


def test_only_operations_on_sizes_have_a_value() -> None:
    n, s, _ = SIZES.vars
    expr = tirx.Cast("int32", tirx.max(tirx.min(n - 5, s % 7), tirx.floordiv(s, 4)))
    assert [evaluate(expr, at) for at in OTHERS] == [0, 124, 16]
    with pytest.raises(TypeError, match="Div is no operation on sizes"):
        evaluate(tirx.Div(n, s), OTHERS[0])
    with pytest.raises(KeyError):
        evaluate(tirx.Var("i", "int64") + n, OTHERS[0])

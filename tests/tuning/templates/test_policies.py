"""Policies of knobs against AutoTVM's rules, written down again here as plain products."""

import itertools
import math

import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.tuning.templates.space import ConfigSpace


def choices(define: str, *args, **options) -> list:
    space = ConfigSpace()
    getattr(space, define)("knob", *args, **options)
    return list(space.knobs["knob"])


def expected_splits(extent: int, outputs: int, factors: list[int], tails: bool) -> list[list[int]]:
    """The innermost factor is the slowest; a product may fall short of the axis where tails are allowed."""
    splits = []
    for inner in itertools.product(factors, repeat=outputs - 1):
        product = math.prod(inner)
        if product <= extent and (tails or extent % product == 0):
            splits.append([-(-extent // product), *inner[::-1]])
    return splits


def divisors(extent: int) -> list[int]:
    return [f for f in range(1, extent + 1) if extent % f == 0]


def powers(extent: int) -> list[int]:
    return [2**bits for bits in range(20) if 2**bits <= extent]


@pytest.mark.parametrize("outputs", [1, 2, 3, 4])
@pytest.mark.parametrize("extent", [1, 7, 12, 64, 90, 97])
def test_splits(extent: int, outputs: int) -> None:
    both = sorted({*divisors(extent), *powers(extent)})
    of = {"factors": (divisors(extent), False), "power2": (powers(extent), True), "verbose": (both, True)}
    for policy, (factors, tails) in of.items():
        chosen = choices("define_split", extent, policy=policy, num_outputs=outputs)
        assert chosen == expected_splits(extent, outputs, factors, tails), policy


def test_splits_of_large_axes_are_counted_right() -> None:
    """Ways to write 720720 as a product of four: (e + 3 choose 3) for the exponent e of each prime."""
    want = math.prod(math.comb(e + 3, 3) for e in (4, 2, 1, 1, 1, 1))
    assert len(choices("define_split", 720720, num_outputs=4)) == want


def test_max_factor_and_filter_and_no_tail() -> None:
    assert choices("define_split", 24, max_factor=4) == [[24, 1], [12, 2], [8, 3], [6, 4]]
    assert choices("define_split", 24, filter=lambda entity: entity.size[-1] % 8 == 0) == [[3, 8], [1, 24]]
    assert choices("define_split", 12, "power2", no_tail=True) == [[12, 1], [6, 2], [3, 4]]


def test_candidates_of_a_split_may_leave_the_outermost_open() -> None:
    chosen = choices("define_split", 100, "candidate", candidate=[[-1, 8], (13, 8), [100, 1]], num_outputs=2)
    assert chosen == [[13, 8], [100, 1]]


def test_orders() -> None:
    axes = ["x", "y", "k", "r"]
    every = [list(order) for order in itertools.permutations(range(4))]
    assert choices("define_reorder", axes) == every
    assert choices("define_reorder", axes, "identity") == [[0, 1, 2, 3]]
    assert choices("define_reorder", axes, "interval_all", interval=(1, 3)) == [[0, 1, 2, 3], [0, 2, 1, 3]]
    assert choices("define_reorder", axes, "candidate", candidate=[["k", "x", "y", "r"]]) == [[2, 0, 1, 3]]
    assert choices("define_reorder", axes, filter=lambda entity: entity.perm[0] == 3) == [o for o in every if o[0] == 3]


def test_interleave_takes_from_the_longest_chain() -> None:
    axes = ["y0", "y1", "x0", "x1", "k0", "k1"]
    chosen = choices("define_reorder", axes, "interleave", spatial=[["y0", "y1"], ["x0", "x1"]], reduce=[["k0", "k1"]])
    assert [[axes[i] for i in order] for order in chosen] == [["y0", "x0", "k0", "y1", "x1", "k1"]]


def test_axes_that_other_definitions_returned() -> None:
    space = ConfigSpace()
    yo, yi = space.define_split("tile_y", 64)
    k = space.reduce_axis(32)
    space.define_reorder("order", [yo, yi, k], "candidate", candidate=[[yo, k, yi], [k, yo, yi]])
    assert list(space.knobs["order"]) == [[0, 2, 1], [2, 0, 1]]


def test_annotations() -> None:
    chosen = choices("define_annotate", ["a", "b"], "try_unroll_vec")
    words = ["none", "unroll", "vec"]
    assert chosen == [[a, b] for a in words for b in words if [a, b] != ["vec", "vec"]]
    assert choices("define_annotate", ["a", "b"], "none") == [["none", "none"]]
    assert choices("define_annotate", ["a"], "try_vec") == [["none"], ["vec"]]
    assert choices("define_annotate", ["a"], "try_parallel") == [["none"], ["parallel"]]
    assert choices("define_annotate", ["a"], "candidate", candidate=[["vec"], ["vec"]]) == [["vec"]]


BAD = [
    ("define_split", (64, "all"), {}, "policy='all': choose of 'factors', 'power2', 'verbose', 'candidate'"),
    ("define_split", (64, "candidate"), {}, "do not go together"),
    ("define_split", (64,), {"candidate": [[8, 8]]}, "do not go together"),
    ("define_split", (64, "candidate"), {"candidate": [[8, 4]]}, r"\[8, 4\] makes 32 of an axis of 64"),
    ("define_split", (64, "candidate"), {"candidate": [[8, 2, 4]]}, r"no list of 2 sizes \(num_outputs=2\)"),
    ("define_split", (64, "candidate"), {"candidate": [[-1, 0]]}, "no list of 2 sizes"),
    ("define_split", (64,), {"filter": lambda entity: entity.size[-1] == 3}, "its filter takes none of the choices"),
    ("define_split", (0,), {}, "an axis of 0 cannot be split"),
    ("define_reorder", (["x", "y"], "candidate"), {"candidate": [["x", "z"]]}, "z is none of its axes: x, y"),
    ("define_reorder", (["x", "y"], "candidate"), {"candidate": [["x"]]}, "no order of all its 2 axes"),
    ("define_reorder", (["x", "y"], "bind_gpu"), {}, "policy='bind_gpu': choose of"),
    ("define_annotate", (["x"], "bind_gpu"), {}, "'bind': choose of 'none', 'vec', 'unroll', 'parallel'"),
    ("define_annotate", (["x"], "candidate"), {"candidate": [["vec", "vec"]]}, "one annotation for each of its 1 axes"),
]


@pytest.mark.parametrize(("define", "args", "options", "message"), BAD)
def test_bad_definitions_say_what_is_wrong(define: str, args, options, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        choices(define, *args, **options)
    assert "'knob'" in str(caught.value)


def test_no_choice_is_listed_before_it_is_looked_at() -> None:
    seen = []
    definitions = ConfigSpace()
    definitions.define_split("tile", 720720, num_outputs=4, filter=lambda entity: seen.append(entity) or True)
    assert len(seen) == 1

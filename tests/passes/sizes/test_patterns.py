"""Rules that masks and positions follow."""

from typing import Any

import numpy as np
import pytest
import tvm

from tvm_ext.passes.sizes.patterns import pattern_of, patterns_of


def causal(past: int, steps: int, window: int = 0) -> np.ndarray:
    """The mask of so many new rows behind a past: -inf where a key is later, or further back than a window."""
    behind = np.arange(past, past + steps)[:, None] - np.arange(past + steps)
    return np.where((behind < 0) | (behind >= (window or past + steps)), -np.inf, 0).astype("float32")


@pytest.mark.parametrize(
    ("array", "kind", "numbers"),
    [
        (causal(5, 3), ("diagonals", (0.0, -np.inf)), (5,)),
        (causal(0, 4), ("diagonals", (0.0, -np.inf)), (0,)),
        (causal(9, 4, 3), ("diagonals", (-np.inf, 0.0, -np.inf)), (6, 9)),
        (np.broadcast_to(causal(5, 3), (2, 1, 3, 8)), ("diagonals", (0.0, -np.inf)), (5,)),
        (np.arange(6) < 2, ("diagonals", (True, False)), (1,)),
        (np.arange(7, 12), ("steps", (1,), 0.0), (7,)),
        (np.arange(3.0, 9.0, dtype="float32")[:, None], ("steps", (1, 0), 0.0), (3,)),
        (np.arange(-2.5, 9.0, dtype="float32"), ("steps", (1,), 0.5), (-3,)),
        (4 + np.arange(3)[:, None] * 5 - np.arange(4, dtype="int32"), ("steps", (5, -1), 0.0), (4,)),
    ],
)
def test_a_rule_gives_the_array_again(array: np.ndarray, kind: Any, numbers: tuple[int, ...]) -> None:
    rule = pattern_of(array)
    assert rule is not None and (rule.kind, rule.numbers) == (kind, numbers)
    assert np.array_equal(rule.array(array.shape, str(array.dtype)), array)
    function = rule.kernel(array.shape, str(array.dtype)).with_attr("global_symbol", "main")
    kernel = tvm.compile(tvm.IRModule({"main": function}), target="llvm")
    out = tvm.runtime.empty(array.shape, str(array.dtype))
    kernel["main"](out)
    assert np.array_equal(out.numpy(), array)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(8)[:, None] % 3 == np.arange(8) % 3,  # too many diagonals
        np.eye(4, dtype=bool)[::-1],  # the other diagonal
        np.arange(6) * np.float32(0.5), np.array([0.0, 1.0, 2.0, 3.0, np.nan]), np.array([1, 2, 4, 8]),
        np.stack([causal(2, 3), causal(1, 4)[:3]]),  # matrices that differ
        np.zeros((0, 4)), np.array(3),
    ],
)  # fmt: skip
def test_no_rule(array: np.ndarray) -> None:
    assert pattern_of(array) is None


def test_rules_of_one_kind() -> None:
    rules = patterns_of([causal(5, 3), causal(7, 4)])
    assert rules is not None and [rule.numbers for rule in rules] == [(5,), (7,)]
    assert patterns_of([causal(5, 3), causal(9, 4, 3)]) is None
    assert patterns_of([causal(5, 3), 2 * causal(5, 3) + 1]) is None

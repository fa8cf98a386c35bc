"""Sizes known at run time: dimensions as text, what inputs say of symbols, and what artifacts may say."""

import pytest

from tvm_ext.core.errors import InputError, OptionError
from tvm_ext.runtime.sizes.symbols import Symbol, checked_sizes, dimension, dimensions_of, named_sizes, shape_at
from tvm_ext.runtime.spec import TensorSpec

SYMBOLS = (Symbol("N", 1, 8), Symbol("S", 2, 512, multiple=2))
INPUTS = (TensorSpec("ids", ("N", "S"), "int64"), TensorSpec("mask", ("N", "S", 3), "float32"))


@pytest.mark.parametrize(
    ("text", "value"),
    [("N", 3), ("12*N", 36), ("((S + 7) // 8)", 5), ("S - N % 2", 33), ("min(S, 16) + max(N, 5)", 21), ("7", 7)],
)
def test_a_dimension_is_a_function_of_sizes(text: str, value: int) -> None:
    assert dimension(text)({"N": 3, "S": 34}) == value
    assert shape_at((2, text), {"N": 3, "S": 34}) == (2, value)


@pytest.mark.parametrize(
    "text", ["", "N.x", "f(N)", "__import__('os')", "N if S else 1", "'N'", "N = 1", "N ** N", "1.5"]
)
def test_other_text_is_no_dimension(text: str) -> None:
    with pytest.raises(ValueError):
        dimension(text)


def test_a_batch_without_bounds_is_a_dimension_too() -> None:
    batch = (TensorSpec("x", ("N", 4), "float32"),)
    assert dimensions_of(INPUTS, SYMBOLS) == SYMBOLS and dimensions_of(INPUTS[:0], ()) == ()
    assert [symbol.bounds for symbol in (*dimensions_of(batch, ()), *SYMBOLS)] == [
        "0 or more", "1 to 8", "2 to 512 in steps of 2",
    ]  # fmt: skip
    assert named_sizes(batch, [(1000, 4)], dimensions_of(batch, ())) == {"N": 1000}


@pytest.mark.parametrize(
    "sizes", [{"N": 3}, {"N": 3, "S": 4, "T": 1}, {"N": 0, "S": 4}, {"N": 3, "S": 5}, {"N": 3.0, "S": 4}, 3]
)
def test_stated_sizes_are_checked(sizes: dict[str, int]) -> None:
    assert list(checked_sizes(SYMBOLS, {"S": 4, "N": 3}).items()) == [("N", 3), ("S", 4)]
    with pytest.raises(OptionError):
        checked_sizes(SYMBOLS, sizes)


def test_sizes_come_from_the_shapes_of_inputs() -> None:
    assert named_sizes(INPUTS, [(3, 34), (3, 34, 3)], SYMBOLS) == {"N": 3, "S": 34}


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ([(3, 34), (3, 34)], ("mask", "float32[N, S, 3]")),
        ([(9, 34), (9, 34, 3)], ("ids", "dimension 0", "N is 9", "1 to 8", "dims={'N': (1, 9)}")),
        ([(0, 34), (0, 34, 3)], ("ids", "dimension 0", "N is 0", "1 to 8", "dims={'N': (0, 8)}")),
        ([(-1, 34), (-1, 34, 3)], ("ids", "N is -1", "1 to 8")),
        ([(3, 33), (3, 33, 3)], ("ids", "dimension 1", "S is 33", "multiple of 2", "shapes=")),
        ([(3, 34), (3, 36, 3)], ("mask", "dimension 1", "S is 36", "34 in dimension 1 of input 'ids'")),
        ([(3, 34), (3, 34, 4)], ("mask", "dimension 2 is 4", "3 is needed")),
    ],
)
def test_an_error_names_input_dimension_and_bound(shapes: list[tuple[int, ...]], said: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as error:
        named_sizes(INPUTS, shapes, SYMBOLS)
    assert all(part in str(error.value) for part in said), str(error.value)


def test_a_symbol_is_planned_at_its_largest_size_or_beyond() -> None:
    assert Symbol("S", 1, 500).bound == 500 and Symbol("S", 1, 500, 4, 512).bound == 512

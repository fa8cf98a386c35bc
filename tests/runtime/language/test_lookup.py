"""What followed the last tokens before."""

import pytest

from tvm_ext.runtime.language.lookup import draft_of


@pytest.mark.parametrize(
    ("text", "count", "wanted"),
    [
        ([1, 2, 3, 9, 4, 1, 2, 3], 2, [9, 4]), ([5, 1, 7, 6, 1, 8, 5, 1], 3, [7, 6, 1]), ([1, 5, 1, 6, 1], 1, [6]),
        ([1, 2, 3], 4, []), ([4, 4], 3, [4, 4, 4]), ([4], 2, []), ([], 2, []), ([4, 4, 4], 0, []),
        ([3, 1, 3], 5, [1, 3, 1, 3, 1]),
    ],
)  # fmt: skip
def test_the_longest_and_latest_place_counts(text: list[int], count: int, wanted: list[int]) -> None:
    assert draft_of(text, count) == wanted

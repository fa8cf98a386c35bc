"""Delta debugging: one culprit, several, and how many trials it takes."""

import itertools

import pytest

from tvm_ext.verification.bisect.search import minimal_set


def search(culprits: set[int], count: int) -> tuple[tuple[int, ...], int]:
    """What is found where all of some items have to be off, and in how many trials."""
    tried = []

    def helps(off: tuple[int, ...]) -> bool:
        assert off and len(off) < count
        tried.append(off)
        return culprits <= set(off)

    return minimal_set(range(count), helps), len(set(tried))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 18])
def test_each_single_culprit_is_found_by_halving(count: int) -> None:
    for culprit in range(count):
        culprits, trials = search({culprit}, count)
        assert culprits == (culprit,) and trials <= 2 * count.bit_length()


def test_pairs_and_triples_are_found() -> None:
    for size in (2, 3):
        for culprits in itertools.combinations(range(7), size):
            assert search(set(culprits), 7)[0] == culprits
    assert search({0, 17}, 18)[1] < 40


def test_any_of_two_is_one() -> None:
    assert minimal_set(range(8), lambda off: 2 in off or 5 in off) in ((2,), (5,))


def test_nothing_can_be_left_out_where_the_answer_is_not_monotone() -> None:
    def helps(off: tuple[int, ...]) -> bool:
        return set(off) in ({0, 1, 2, 3, 4, 5}, {1, 2, 4}, {1, 4, 5})

    culprits = minimal_set(range(6), helps)
    assert len(culprits) in (3, 6)

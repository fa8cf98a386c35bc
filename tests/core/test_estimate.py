"""Numbers of threads that an estimate chooses of."""

from __future__ import annotations

import pytest

from tvm_ext.core.estimate import launch_seconds, thread_counts, threads_of
from tvm_ext.core.machine import Machine
from tvm_ext.core.sharing import Sharing

MANY = Machine.described("cluster64-xeon")


def test_counts_divide_the_sides_of_images_and_the_widths_of_layers() -> None:
    counts = thread_counts(1.0, MANY)
    assert {1, 2, 7, 12, 20, 28, 48, 56, 64} <= set(counts)
    assert counts == sorted(set(counts))
    assert thread_counts(1.0, MANY.with_threads(2)) == [1, 2]
    assert thread_counts(1.0, MANY.with_threads(1)) == [1]


@pytest.mark.parametrize("fewer", [1, 2, 4, 16, 32])
def test_more_threads_have_all_choices_of_fewer(fewer: int) -> None:
    assert set(thread_counts(1.0, MANY.with_threads(fewer))) <= set(thread_counts(1.0, MANY))


def test_few_threads_are_no_choice_for_long_work() -> None:
    clock = MANY.rates.clock * 1e9
    long = 100 * 64 * launch_seconds(MANY, 64) * clock
    assert 1 not in thread_counts(long, MANY) and 64 in thread_counts(long, MANY)
    assert threads_of(long, MANY) == 64


def test_threads_finish_rows_that_divide() -> None:
    cycles = 1000 * 64 * launch_seconds(MANY, 64) * MANY.rates.clock * 1e9
    assert threads_of(cycles, MANY, lambda t: Sharing.of_rows(56, t)) == 56
    assert threads_of(1.0, MANY) == 1

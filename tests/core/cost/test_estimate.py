"""Estimates: streams behind or between instructions, levels of the hierarchy, launches, numbers of threads."""

import dataclasses

import numpy as np
import pytest

from tvm_ext.core.cost.estimate import (
    LEVELS,
    Stream,
    bandwidth,
    launch_seconds,
    level_of,
    seconds,
    thread_counts,
    threads_of,
    vector_seconds,
)
from tvm_ext.core.cost.sharing import Sharing
from tvm_ext.core.machine import Machine

ZEN4, CLUSTER = Machine.described("zen4"), Machine.described("cluster16-zen4")
WIDE = Machine.described("cluster64-xeon")
MACHINES = [ZEN4, CLUSTER, Machine.described("xeon-amx"), WIDE]


def cycles_of(cycles: float, *streams: Stream, threads: int = 1, machine: Machine = ZEN4) -> float:
    """Estimated cycles, without the launch."""
    return (seconds(cycles, streams, machine, threads) - launch_seconds(machine, threads)) * machine.rates.hertz


def test_instructions_alone() -> None:
    assert seconds(3.7e9, [], ZEN4, 1) == pytest.approx(1.0)
    assert seconds(3.7e9, [], dataclasses.replace(ZEN4, rates=dataclasses.replace(ZEN4.rates, clock=7.4)), 1) == 0.5


@pytest.mark.parametrize(("nbytes", "expected"), [(700, 1000), (7000, 1000), (14000, 2000)])
def test_a_prefetched_stream_hides_behind_instructions(nbytes: float, expected: float) -> None:
    """The longer of both."""
    assert cycles_of(1000, Stream(nbytes, "memory")) == pytest.approx(expected)


@pytest.mark.parametrize("nbytes", [700, 7000, 14000])
def test_an_exposed_stream_is_waited_for(nbytes: float) -> None:
    """The sum of both."""
    assert cycles_of(1000, Stream(nbytes, "memory", 1.0)) == pytest.approx(1000 + nbytes / 7)


def test_part_of_a_stream_is_exposed() -> None:
    assert cycles_of(1000, Stream(7000, "memory", 0.25)) == pytest.approx(1250)
    assert cycles_of(100, Stream(7000, "memory", 0.25)) == pytest.approx(1000)


def test_streams_share_the_way() -> None:
    streams = Stream(7000, "memory"), Stream(26000, "l3"), Stream(3100, "l2", 1.0)
    assert cycles_of(0, *streams) == pytest.approx(2100)
    assert cycles_of(5000, *streams) == pytest.approx(5100)


@pytest.mark.parametrize("level", LEVELS)
def test_a_stream_costs_no_less_with_more_threads(level: str) -> None:
    costs = [cycles_of(0, Stream(10_000, level), threads=t, machine=CLUSTER) for t in (1, 2, 4, 8, 16)]
    assert costs == pytest.approx(sorted(costs)) and costs[0] == pytest.approx(10_000 / bandwidth(level, CLUSTER))
    if level in ("l1", "l2", "foreign"):
        assert costs[-1] == pytest.approx(costs[0])


def test_bandwidths() -> None:
    assert [bandwidth(level, ZEN4) for level in LEVELS] == [64, 31, 26, 7, 2.4]
    assert [bandwidth("memory", ZEN4, t) for t in (1, 2)] == [7, 5]


def test_vector_operations() -> None:
    assert vector_seconds(8 * 3.7e9, ZEN4, Sharing(1, 1, 1)) == pytest.approx(1.0)
    assert vector_seconds(8 * 3.7e9, ZEN4, Sharing(2, 2, 1)) == pytest.approx(0.5 + launch_seconds(ZEN4, 2))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: str(machine.threads))
def test_launches(machine: Machine) -> None:
    assert launch_seconds(machine, 1) == launch_seconds(machine, 0) == 0
    assert launch_seconds(machine, machine.rates.cores) == pytest.approx(machine.rates.launch * 1e-6)
    costs = [launch_seconds(machine, t) for t in range(2, 65)]
    assert costs == sorted(costs) and costs[0] > machine.rates.launch * 0.5e-6


@pytest.mark.parametrize(
    ("nbytes", "sharing", "level"),
    [
        (0, 1, "l1"), (19_660, 1, "l1"), (19_661, 1, "l2"), (629_145, 1, "l2"), (629_146, 1, "l3"),
        (16 << 20, 1, "l3"), ((16 << 20) + 1, 1, "memory"), (8 << 20, 2, "l3"), ((8 << 20) + 1, 2, "memory"),
        (629_145, 64, "l2"), (10_000, 1 << 20, "l1"),
    ],
)  # fmt: skip
def test_levels(nbytes: int, sharing: int, level: str) -> None:
    """Own caches are not shared."""
    assert level_of(nbytes, ZEN4, sharing) == level


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: str(machine.threads))
def test_numbers_of_threads(machine: Machine) -> None:
    """Small numbers by powers of two, and all; never none."""
    powers = {factor << n for factor in (1, 3, 5, 7) for n in range(machine.threads.bit_length())}
    for cycles in 10.0 ** np.arange(0, 12, 0.5):
        counts = thread_counts(cycles, machine)
        assert counts and counts == sorted(set(counts)) and set(counts) <= powers | {machine.threads}
        assert threads_of(cycles, machine) in counts and counts[-1] == machine.threads
    assert thread_counts(1.0, machine)[0] == 1 and 2 * thread_counts(1e12, machine)[0] > machine.threads


def test_numbers_that_are_no_powers() -> None:
    assert thread_counts(1.0, ZEN4.with_threads(6)) == [1, 2, 3, 4, 5, 6]
    assert thread_counts(1.0, ZEN4.with_threads(3)) == [1, 2, 3]
    assert thread_counts(1.0, ZEN4.with_threads(1)) == thread_counts(1e12, ZEN4.with_threads(1)) == [1]


@pytest.mark.parametrize("machine", [*MACHINES, ZEN4.with_threads(6)], ids=lambda machine: str(machine.threads))
def test_more_work_never_takes_fewer_threads(machine: Machine) -> None:
    numbers = [threads_of(cycles, machine) for cycles in 10.0 ** np.arange(0, 12, 0.05)]
    assert numbers == sorted(numbers) and numbers[0] == 1 and numbers[-1] == machine.threads


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: str(machine.threads))
def test_work_shorter_than_a_launch_takes_one_thread(machine: Machine) -> None:
    assert threads_of(launch_seconds(machine, 2) * machine.rates.hertz, machine) == 1


def test_a_dearer_launch_takes_no_more_threads() -> None:
    dear = dataclasses.replace(CLUSTER, rates=dataclasses.replace(CLUSTER.rates, launch=60.0))
    work = 10.0 ** np.arange(2, 9, 0.1)
    assert all(threads_of(cycles, dear) <= threads_of(cycles, CLUSTER) for cycles in work)
    assert any(threads_of(cycles, dear) < threads_of(cycles, CLUSTER) for cycles in work)


def test_counts_divide_the_sides_of_images_and_the_widths_of_layers() -> None:
    counts = thread_counts(1.0, WIDE)
    assert {1, 2, 7, 12, 20, 28, 48, 56, 64} <= set(counts)
    assert counts == sorted(set(counts))
    assert thread_counts(1.0, WIDE.with_threads(2)) == [1, 2]
    assert thread_counts(1.0, WIDE.with_threads(1)) == [1]


@pytest.mark.parametrize("fewer", [1, 2, 4, 16, 32])
def test_more_threads_have_all_choices_of_fewer(fewer: int) -> None:
    assert set(thread_counts(1.0, WIDE.with_threads(fewer))) <= set(thread_counts(1.0, WIDE))


def test_few_threads_are_no_choice_for_long_work() -> None:
    clock = WIDE.rates.hertz
    long = 100 * 64 * launch_seconds(WIDE, 64) * clock
    assert 1 not in thread_counts(long, WIDE) and 64 in thread_counts(long, WIDE)
    assert threads_of(long, WIDE) == 64


def test_threads_finish_rows_that_divide() -> None:
    cycles = 1000 * 64 * launch_seconds(WIDE, 64) * WIDE.rates.hertz
    assert threads_of(cycles, WIDE, lambda t: Sharing.of_rows(56, t)) == 56
    assert threads_of(1.0, WIDE) == 1

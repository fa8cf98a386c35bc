"""What the VM called, from looks before and after; and what looking costs."""

import itertools
import math

import pytest

from tvm_ext.core.errors import UnsupportedError
from tvm_ext.inspection.profile.clock import Clock, Overhead, measured_overhead, overhead_text


def observed(*looks):
    """A clock after looks such as "+a", before a call, and "-a", after it."""
    clock = Clock()
    for look in looks:
        clock.observe(look[1:], look[0] == "+")
    return clock


def test_looks_in_pairs_are_calls_in_order():
    spans = observed("+a", "-a", "+b", "-b", "+a", "-a").spans()
    assert [span.name for span in spans] == ["a", "b", "a"]
    assert all(span.start <= span.end for span in spans)
    assert all(before.end <= other.start for before, other in itertools.pairwise(spans))


def test_a_call_within_another_one_stands_behind_it():
    spans = observed("+main", "+a", "-a", "+main", "-main", "-main").spans()
    assert [span.name for span in spans] == ["main", "a", "main"]
    assert spans[0].start <= spans[1].start and spans[2].end <= spans[0].end


def test_a_call_without_an_end_or_a_beginning_is_an_error():
    with pytest.raises(UnsupportedError, match="'b' was seen to begin"):
        observed("+a", "-a", "+b").spans()
    with pytest.raises(UnsupportedError, match="'b' was seen to end"):
        observed("+a", "-b").spans()


def test_overhead_grows_by_the_argument():
    overhead = Overhead(1e-6, 2e-7, 3e-6)
    assert overhead.within(5) == pytest.approx(2e-6)
    text = overhead_text(overhead, [2, 5, 3])
    assert "1.4 to 2.0 us within" in text and "3.0 us a call" in text


def test_the_overhead_of_this_machine_is_a_small_positive_time():
    overhead = measured_overhead()
    assert all(math.isfinite(value) and value >= 0 for value in vars(overhead).values())
    assert overhead.within(4) > 0

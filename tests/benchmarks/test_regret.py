"""The fit of the estimate's constants: a difference within its error over the kernels is none."""

from benchmarks.regret import is_lower


def test_a_constant_changes_for_more_than_the_standard_error_over_the_kernels() -> None:
    before = [1.10, 1.12, 1.08, 1.11, 1.09, 1.10]
    assert is_lower([ratio / 1.05 for ratio in before], before)
    assert not is_lower([1.02, *before[1:]], before)  # of one kernel alone
    assert not is_lower(before, before)
    assert not is_lower([ratio * 1.01 for ratio in before], before)

"""Which differences of two profiles count, and how their kernels are matched."""

from dataclasses import replace

import pytest

from tests.inspection.profile.fakes import ROOFS, around, launch, profile, sample
from tvm_ext.core.errors import OptionError
from tvm_ext.inspection.profile.compare import Interval


def pair(before, after, **changes):
    """Profiles of one kernel with these seconds, compared."""
    one, other = (profile([launch(1, "dense", ["fc"], seconds)]) for seconds in (before, after))
    return one.compare(replace(other, **changes))


def test_a_profile_does_not_differ_from_itself():
    comparison = sample().compare(sample())
    assert {change.verdict for change in (comparison.whole, *comparison.changes)} == {"same"}
    assert comparison.regressions() == () and comparison.notes == ()


def test_a_difference_inside_the_noise_is_none():
    noisy = (1.0e-3, 1.3e-3, 1.1e-3, 1.2e-3, 1.05e-3, 1.25e-3, 1.15e-3)
    (change,) = pair(noisy, [1.2 * s for s in noisy]).changes
    assert change.ratio == pytest.approx(1.2) and change.verdict == "same" and not change.regressed(5)


def test_a_difference_outside_the_noise_counts_from_the_percentage_on():
    comparison = pair(around(1e-3), around(1.1e-3))
    (change,) = comparison.changes
    assert change.verdict == "slower" and change.ratio == pytest.approx(1.1)
    assert [change.label for change in comparison.regressions(5)] == ["whole run", "dense"]
    assert comparison.regressions(15) == ()
    assert pair(around(1.1e-3), around(1e-3)).changes[0].verdict == "faster"


def test_what_is_shorter_than_a_look_or_a_part_of_the_run_is_no_regression():
    (change,) = pair(around(2e-6), around(3e-6)).changes  # looking costs 1.4 us
    assert change.verdict == "same"
    one, other = (
        profile([launch(1, "dense", ["fc"], around(1e-2)), launch(2, "mean", ["avg"], around(seconds))])
        for seconds in (5e-5, 6e-5)
    )
    comparison = one.compare(other)
    assert {c.label: c.verdict for c in comparison.changes} == {"dense": "same", "mean": "slower"}
    assert comparison.regressions(5) == ()  # a thousandth of the run


def test_what_the_machine_explains_does_not_count():
    slow = replace(ROOFS, flops=ROOFS.flops / 1.2)  # the kernel is bound by compute
    comparison = pair(around(1e-3), around(1.15e-3), roofs=slow)
    assert comparison.changes[0].verdict == "same" and comparison.changes[0].machine == pytest.approx(1.2)
    assert any("the machine itself changed" in note for note in comparison.notes)
    assert pair(around(1e-3), around(1.3e-3), roofs=slow).changes[0].verdict == "slower"
    # a memory that is slower explains nothing of a kernel that multiplies, nor of one that caches serve
    assert pair(around(1e-3), around(1.15e-3), roofs=replace(ROOFS, bandwidth=8e9)).changes[0].verdict == "slower"
    for seconds, machine in ((4e-3, 2.0), (1e-3, 1.0)):  # 20 MB take 2 ms from memory, 0.4 ms from L2
        copy = profile([launch(1, "copy", ["c"], around(seconds), executed=0.0, bytes=20_000_000)])
        (change,) = copy.compare(replace(copy, roofs=replace(ROOFS, bandwidth=5e9))).changes
        assert change.machine == pytest.approx(machine)


def test_kernels_are_matched_by_their_nodes_through_another_fusion():
    before = [launch(1, "conv_add", ["conv", "add"], around(3e-3)), launch(2, "relu", ["relu"], around(1e-3))]
    after = [
        launch(1, "transform", ["conv"], around(0.5e-3)), launch(2, "conv", ["conv"], around(2e-3)),
        launch(3, "add_relu", ["add", "relu"], around(2e-3)), launch(4, "fc", ["fc"], around(1e-3)),
    ]  # fmt: skip
    comparison = profile(before).compare(profile(after))
    joined, new = comparison.changes if comparison.changes[0].verdict != "new" else comparison.changes[::-1]
    assert joined.label == "conv_add, relu -> transform, conv, add_relu"
    assert set(joined.nodes) == {"conv", "add", "relu"} and joined.verdict == "slower"
    assert joined.before.median == pytest.approx(4e-3) and joined.after.median == pytest.approx(4.5e-3)
    assert new.verdict == "new" and new.before is None and new.ratio is None and not new.regressed(0)


def test_kernels_without_nodes_are_matched_by_name_and_what_is_gone_is_said():
    before = profile([launch(1, "odd", [], around(1e-3)), launch(2, "old", ["n"], around(1e-3))])
    after = profile([launch(1, "odd", [], around(1e-3)), launch(2, "odd2", [], around(2e-3))])
    verdicts = {change.label: change.verdict for change in before.compare(after).changes}
    assert verdicts == {"odd": "same", "old": "gone", "odd2": "new"}


def test_different_models_and_batches_are_refused():
    other = replace(profile([launch(1, "dense", ["other"], around(1e-3))]), model="big", sha256="b" * 64)
    with pytest.raises(OptionError, match="different models: 'small' and 'big' share 0 ONNX nodes"):
        sample().compare(other)
    with pytest.raises(OptionError, match="different batches: 0 and 4"):
        sample().compare(replace(sample(), batch=4))
    with pytest.raises(OptionError, match="None is no profile"):
        sample().compare(None)


def test_the_same_model_from_another_file_is_compared_with_a_note():
    changed = replace(sample(), sha256="b" * 64, threads=1, machine={"cpu": "other"})
    notes = sample().compare(changed).notes
    assert any("the model file changed" in note for note in notes)
    assert "2 threads before, 1 after" in notes and "different machines: test and other" in notes


def test_few_rounds_are_noted():
    few = profile([launch(1, "dense", ["fc"], [1e-3, 1.1e-3])])
    assert any("fewer than 6 rounds" in note for note in few.compare(few).notes)


def test_an_interval_of_seven_is_their_range():
    assert Interval.of(around(1.0)) == Interval(1.0, min(around(1.0)), max(around(1.0)))


def test_it_prints_and_goes_to_json():
    comparison = pair(around(1e-3), around(1.1e-3))
    assert "slower" in str(comparison) and "1.100" in str(comparison)
    plain = comparison.as_dict()
    assert plain["whole"]["verdict"] == "slower" and plain["changes"][0]["before"]["median"] == pytest.approx(1e-3)
    assert "<table" in comparison._repr_html_()

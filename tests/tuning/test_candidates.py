"""Candidates of a group: which, in which order, and when one is faster than another."""

from tests.tuning.choosing import CONV, MACHINE, groups, recorded
from tvm_ext.core.recipe import config_text
from tvm_ext.core.records.record_book import RecordBook, machine_fields
from tvm_ext.tuning.candidates import candidate, is_faster


def test_candidates_are_the_best_by_estimate_each_once_and_legal() -> None:
    large, small = groups()
    for group in (large, small):
        (task,) = group.work.tasks
        texts = [config_text(task) for task in group.queue]
        assert group.best == group.default == candidate(task.recipe, task.default)
        assert len(set(texts)) == len(texts) >= 2 and config_text(group.default) not in texts
        costs = [task.prior(point["config"]) for point in group.queue]
        assert costs == sorted(costs) and costs[-1] <= 1.6 * task.prior(task.default)
        assert all(task.space.legal(point["config"]) for point in group.queue)
    assert large.expected_gain > small.expected_gain > 0


def test_every_recipe_has_its_best_among_them() -> None:
    (group,) = groups(CONV)
    assert {point["recipe"] for point in [group.default, *group.queue]} == {"conv2d_winograd", "conv2d_nchwc"}


def test_records_of_other_machines_are_measured_first_and_illegal_ones_never() -> None:
    elsewhere = {**machine_fields(MACHINE), "cpu": "another"}
    one = recorded(elsewhere)
    others = [
        recorded(elsewhere, config={**one.config, "tile_p": 12345}), recorded(elsewhere, config={"knob": 1}),
        recorded({**elsewhere, "threads": 64}), recorded(elsewhere, costs=(), error="wrong"),
    ]  # fmt: skip
    large, small = groups(records=RecordBook([*others, one]))
    assert large.queue[0] == candidate(one.recipe, one.config) and len(large.queue) == len(groups()[0].queue) + 1
    assert small.queue == groups()[1].queue


def test_samples_are_compared_beyond_their_noise() -> None:
    calm = [1.0 + 0.002 * (i % 5) for i in range(30)]
    assert is_faster([0.95 * c for c in calm], calm) and not is_faster(calm, [0.95 * c for c in calm])
    assert not is_faster([0.99 * c for c in calm], calm), "within what timers scatter"
    noisy = [1.0 + 0.3 * (i % 10) / 10 for i in range(30)]
    assert not is_faster([0.97 * c for c in noisy], noisy), "faster, but not beyond the noise"
    disturbed = [*calm[:10], *(2 * c for c in calm[10:])]
    assert is_faster([0.95 * c for c in calm], disturbed) and not is_faster([1.2 * c for c in calm], disturbed)
    assert is_faster(calm, ()) and not is_faster((), calm)

"""The loop: defaults first, every record logged, the budget kept, failures never chosen, interruption loses nothing."""

import pytest

from tests.tuning.fakes import FakeMeasurer, FakeTask, ListLog
from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine import Machine
from tvm_ext.core.records.record import Record
from tvm_ext.tuning.measure import MeasureError, TaskError
from tvm_ext.tuning.session import Budget, Session

MACHINE = Machine.detect(threads=2)


def session(tasks, measurer=None, log=None, **changes):
    budget = changes.pop("budget", Budget(trials=40))
    changes.setdefault("tuner", "random")
    pairs = [t if isinstance(t, tuple) else (t, 1) for t in tasks]
    log = ListLog() if log is None else log
    return Session(pairs, MACHINE, measurer or FakeMeasurer(), log, "s1", budget=budget, **changes), log


def test_defaults_come_first_and_every_record_is_logged():
    measurer = FakeMeasurer()
    outcome, log = session([FakeTask("one"), FakeTask("two")], measurer)
    assert outcome.run() == "40 trials are done"
    assert measurer.seen[:2] == [("onefake", (0, 0)), ("twofake", (0, 0))]
    assert len(log.records) == outcome.trials == 40 == sum(s.trials for s in outcome.states)
    assert len(set(measurer.seen)) == 40
    record = log.records[0]
    assert record.session == "s1" and record.machine["isa"] == MACHINE.isa and record.check == 1e-7
    assert Record.from_row(record.to_row()) == record


def test_the_best_is_found_and_the_untuned_is_the_default():
    task = FakeTask("one", size=4)
    result, _ = session([task], budget=Budget(trials=100))
    assert result.run() == "all measured" and result.trials == 16
    (state,) = result.states
    assert state.config == {"a": 2, "b": 2} and state.cost == pytest.approx(1e-3)
    assert state.default_cost == pytest.approx(1.3e-3)
    assert result.estimate == pytest.approx(1 / 1.3)
    assert [trials for trials, _ in state.curve] == sorted({trials for trials, _ in state.curve})


def test_a_wrong_or_failed_candidate_is_never_the_best():
    def fault(task, config):
        return "wrong" if config["a"] == 2 else "crash" if config["b"] == 2 else ""

    result, log = session([FakeTask("one", size=4)], FakeMeasurer(fault), budget=Budget(trials=100))
    result.run()
    (state,) = result.states
    assert state.config == {"a": 3, "b": 3} or state.config["a"] in (1, 3)
    assert state.config["a"] != 2 and state.config["b"] != 2
    assert state.wrong == 4 and state.failed == 4 + 3
    assert {r.error for r in log.records} == {"", "wrong", "crash"}


def test_the_budget_goes_to_the_task_that_takes_the_time():
    small, large = FakeTask("small", scale=1e-5, size=12), FakeTask("large", scale=1e-3, size=12)
    result, _ = session([(small, 1), (large, 4)], budget=Budget(trials=66))
    result.run()
    trials = {s.task.key.op: s.trials for s in result.states}
    assert trials["large"] > 2 * trials["small"] > 0


def test_of_two_recipes_for_one_work_the_slow_one_gets_little():
    slow, fast = FakeTask("same", "slow", 12, scale=3e-3), FakeTask("same", "fast", 12)
    result, _ = session([slow, fast], budget=Budget(trials=80))
    result.run()
    trials = {s.task.recipe: s.trials for s in result.states}
    assert trials["fast"] > 2 * trials["slow"]
    assert result.best()[slow.key].task.recipe == "fast"
    assert result.untuned(slow.key).task.recipe == "slow"  # the first of its key is what a compile would choose
    assert result.estimate < 1 / 3


def test_patience_and_goal_stop_it():
    result, _ = session([FakeTask("one", size=20)], budget=Budget(trials=400, patience=10))
    assert result.run() == "no task has made progress lately" and result.trials < 200
    result, _ = session([FakeTask("one", size=20)], budget=Budget(trials=400, goal=0.9))
    assert result.run() == "the goal of 0.9 is reached" and result.estimate <= 0.9


def test_no_time_measures_nothing():
    result, log = session([FakeTask("one")], budget=Budget(minutes=0))
    assert result.run() == "0 minutes are over" and log.records == []


def test_an_interruption_loses_no_record_and_resuming_repeats_none():
    log, first = ListLog(), FakeMeasurer(stop_after=13)
    result, _ = session([FakeTask("one", size=5), FakeTask("two", size=5)], first, log)
    with pytest.raises(KeyboardInterrupt):
        result.run()
    assert len(log.records) == 13
    second = FakeMeasurer()
    more, _ = session([FakeTask("one", size=5), FakeTask("two", size=5)], second, log, known=list(log.records),
                      budget=Budget(trials=200))  # fmt: skip
    assert more.run() == "all measured"
    assert len(log.records) == 50 == len(set(first.seen) | set(second.seen))
    assert not set(first.seen) & set(second.seen)
    assert sum(s.trials for s in more.states) == 50


class Refusing(FakeMeasurer):
    """Measures `good` candidates of a task in `broken`, then none; raises `error` for it."""

    def __init__(self, *broken, error=TaskError, good=0):
        super().__init__()
        self.asked, self._broken, self._error, self._good = [], broken, error, good

    def measure(self, task, configs, best=float("inf")):
        self.asked.append(task.recipe)
        done = sum(1 for name, _ in self.seen if name == task.key.op + task.recipe)
        if task.key.op in self._broken:
            yield from super().measure(task, configs[: max(0, self._good - done)], best)
            if done + len(configs) > self._good:
                raise self._error(f"task {task.name}: no finite number")
        else:
            yield from super().measure(task, configs, best)


def test_a_task_that_cannot_be_measured_is_left_out_and_the_others_go_on():
    events, measurer = [], Refusing("bad")
    result, log = session([FakeTask("bad", "r1"), FakeTask("bad", "r2"), FakeTask("good", "r3")], measurer,
                        tell=events.append)  # fmt: skip
    assert result.run() == "all measured" and len(log.records) == 36 == result.trials
    assert {r.task.op for r in log.records} == {"good"}
    bad, same, good = result.states
    assert bad.unusable == same.unusable == "task bad [r1]: no finite number" and not good.unusable
    told = [e for e in events if e["event"] == "unusable"]
    assert told == [{"event": "unusable", "task": "bad [r1]", "reason": bad.unusable}]
    assert "r2" not in measurer.asked  # the unscheduled function is the same
    assert 0 < result.estimate < 1


def test_what_was_measured_of_a_task_before_it_became_unusable_counts():
    result, log = session([FakeTask("bad"), FakeTask("good")], Refusing("bad", good=5))
    assert result.run() == "40 trials are done" and len(log.records) == 40
    bad, _ = result.states
    assert bad.unusable and bad.trials == 5 == len(bad.tuner.results)


def test_a_session_whose_tasks_are_all_unusable_ends():
    result, log = session([FakeTask("bad"), FakeTask("worse")], Refusing("bad", "worse"))
    assert result.run() == "no task can be measured" and log.records == [] and result.estimate == 1.0


def test_workers_that_do_not_start_end_the_session_and_nothing_else():
    result, log = session([FakeTask("one"), FakeTask("two")], Refusing("one", error=MeasureError, good=3))
    assert result.run().startswith("nothing can be measured any more: task one") and len(log.records) >= 3
    result, log = session([FakeTask("one")], Refusing("one", error=MeasureError))
    with pytest.raises(MeasureError):
        result.run()


def test_known_records_are_told_from_new_ones():
    first, log = session([FakeTask("one")], budget=Budget(trials=10))
    first.run()
    more, _ = session([FakeTask("one")], log=log, known=list(log.records), budget=Budget(trials=5))
    more.run()
    (state,) = more.states
    assert (more.trials, state.known, state.trials) == (5, 10, 15)


@pytest.mark.parametrize("budget", [{"trials": 0}, {"trials": 1.5}, {"minutes": -1}, {"patience": True}, {"goal": "x"}])
def test_a_bad_budget_is_refused(budget):
    with pytest.raises(OptionError, match=next(iter(budget))):
        Budget(**budget)

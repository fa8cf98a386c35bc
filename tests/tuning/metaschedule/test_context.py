"""The mutator of categorical decisions."""

from typing import Any

from tvm.s_tir import Schedule

from tvm_ext.core.records.schedule_database import normalized
from tvm_ext.tuning.metaschedule.context import MutateCategorical

from .kernels_to_tune import matmul


def traced(candidates: list[int], probabilities: list[float], decision: int) -> Any:
    sch = Schedule(normalized(matmul(4, 8, 4)))
    (_, _, k) = sch.get_loops(sch.get_sblock("c"))
    if candidates:
        sch.split(k, [None, sch.sample_categorical(candidates, probabilities, decision)])
    return sch.trace


def decision_of(trace: Any) -> int:
    (inst,) = (i for i in trace.insts if i.kind.name == "SampleCategorical")
    return int(trace.get_decision(inst))


def test_the_decision_becomes_another_one() -> None:
    trace, mutator = traced([1, 2, 4], [0.4, 0.3, 0.3], 1), MutateCategorical(3)
    decisions = {decision_of(mutator.apply(trace)) for _ in range(30)}
    assert decisions == {0, 2}
    assert decision_of(trace) == 1


def test_the_mutated_trace_can_be_replayed() -> None:
    new = MutateCategorical(3).apply(traced([1, 4], [0.5, 0.5], 0))
    sch = Schedule(normalized(matmul(4, 8, 4)))
    new.apply_to_schedule(sch, remove_postproc=False)
    assert [int(sch.get(loop).extent) for loop in sch.get_loops(sch.get_sblock("c"))] == [4, 4, 2, 4]


def test_without_a_choice_there_is_no_mutation() -> None:
    assert MutateCategorical(3).apply(traced([], [], 0)) is None
    assert MutateCategorical(3).apply(traced([2], [1.0], 0)) is None


def test_a_clone_draws_the_same() -> None:
    trace, mutator = traced([1, 2, 4, 8], [0.25] * 4, 0), MutateCategorical(9)
    other = mutator.clone()
    assert [decision_of(mutator.apply(trace)) for _ in range(9)] == [decision_of(other.apply(trace)) for _ in range(9)]

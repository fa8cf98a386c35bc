"""MetaSchedule's evolutionary search; it says whose candidates it picked, and picks none that was measured before."""

import json
from collections.abc import Sequence
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.database import Workload as StoredWorkload
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch, MeasureCandidate, PySearchStrategy
from tvm.s_tir.schedule import Trace

from .measuring import ModuleTask, Recorder

#: Batches in which nothing is new after which a space counts as used up.
_MOST_KNOWN = 3


def evolutionary_search(batch: int) -> EvolutionarySearch:
    """TVM's search, bounded. Its defaults (512 traces, 4 generations) replay 2,500 traces a batch, which take 50
    seconds; a good candidate shows in a few batches more instead.

    Args:
        batch: candidates that are picked at a time.
    """
    return EvolutionarySearch(
        population_size=min(64, max(32, 4 * batch)), init_measured_ratio=0.25, init_min_unmeasured=8,
        genetic_num_iters=2, genetic_max_fail_count=4, eps_greedy=0.1,
    )  # fmt: skip


def trace_text(trace: Trace) -> str:
    """A trace with its decisions, as one line."""
    return json.dumps(trace.as_json(), sort_keys=True, default=str)


@derived_object
class NewCandidates(PySearchStrategy):
    """:func:`evolutionary_search` for one kernel.

    Args:
        task: the kernel.
        stored: the same in the database.
        known: traces that were measured in earlier sessions.
        recorder: of the session; takes what is picked.
        size: of a batch.
    """

    def __init__(
        self, task: ModuleTask, stored: StoredWorkload, known: set[str], recorder: Recorder, size: int
    ) -> None:
        super().__init__()
        self._task, self._stored, self._known, self._recorder, self._size = task, stored, known, recorder, size
        self._inner = evolutionary_search(size)
        self._empty = 0

    def _initialize_with_tune_context(self, context: Any) -> None:
        self._inner._initialize_with_tune_context(context)

    def pre_tuning(self, *args: Any) -> None:
        """Start the evolutionary search on the design spaces of a task."""
        self._inner.pre_tuning(*args)

    def post_tuning(self) -> None:
        """Free what the evolutionary search holds of the task."""
        self._inner.post_tuning()

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """The next batch; None at the end."""
        if not self._recorder.left or self._recorder.stopped:
            return None
        picked = self._inner.generate_measure_candidates()
        if picked is None:
            return None
        new = [c for c in picked if not self._known or trace_text(c.sch.trace) not in self._known]
        self._empty = 0 if new else self._empty + 1
        if self._empty >= _MOST_KNOWN:
            return None
        return self._recorder.pick(self._task, self._stored, new)

    def notify_runner_results(self, candidates: Sequence[MeasureCandidate], results: Sequence[Any]) -> None:
        """Tell the evolutionary search of measured candidates, which its next batch descends from."""
        self._inner.notify_runner_results(candidates, results)

    def clone(self) -> Any:
        """A search of the same kernel from its beginning."""
        return NewCandidates(self._task, self._stored, self._known, self._recorder, self._size)

"""The node cases as programs of any size: one to three dimensions of the first input are symbolic."""

import dataclasses
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tests.oracles.compare import close
from tests.oracles.outcome import Outcome, attempt
from tests.oracles.pool import Service
from tests.oracles.symbolic import Variants, judged

from .cases import Case
from .contenders import feeds_of, onnxruntime
from .table import read_table

Task = tuple[Case, tuple[int, ...]]
#: Least bound of a symbol.
_LARGEST = 7


def tasks_of(cases: Iterable[Case]) -> Iterator[Task]:
    """Cases that pass with numbers, here and in onnxruntime, with up to three axes of the first input, and with one."""
    rows = read_table()
    for case in cases:
        row = rows.get(case.name, {})
        if "_expanded" in case.name or {row.get("ours"), row.get("onnxruntime")} != {"pass"}:
            continue
        axes = _axes(case)
        if axes:
            yield case, tuple(axes[:3])
        if len(axes) > 1:
            yield case, (axes[zlib.crc32(case.name.encode()) % len(axes)],)


def some_of(tasks: Iterable[Task]) -> list[Task]:
    """Two tasks of each operator, by a hash that never changes: of its most symbolic dimensions and of its fewest."""
    chosen: dict[str, dict[int, Task]] = {}
    for case, axes in sorted(tasks, key=lambda task: zlib.crc32(repr((task[0].name, task[1])).encode())):
        chosen.setdefault(case.operator, {}).setdefault(len(axes), (case, axes))
    return [task for counts in chosen.values() for n, task in counts.items() if n in (min(counts), max(counts))]


def _axes(case: Case) -> list[int]:
    free = [x for name, x in feeds_of(case).items() if name not in case.frozen and isinstance(x, np.ndarray) and x.ndim]
    return [axis for axis, size in enumerate(free[0].shape) if size > 1] if free else []


def answer(task: Task) -> Outcome:
    """The outcome of a case; "none" if it is valid at one size only."""
    case, axes = task
    feeds = feeds_of(case)

    def wanted(model: bytes, feeds: Mapping[str, Any]) -> Sequence[Any]:
        return onnxruntime(dataclasses.replace(case, model=model, inputs=tuple(feeds.values())))

    symbolic = Variants(case.model, feeds, wanted, case.frozen, _LARGEST).of(axes)
    if symbolic is None:
        return Outcome("none")
    freeze = {name: feeds[name] for name in case.frozen}
    return attempt(lambda: judged(symbolic, lambda _: close(case.rtol, case.atol), freeze, threads=1))


SERVICE = Service(answer)

"""Schedules of kernels out of a MetaSchedule database, whose files are those that TVM writes.

    database_workload.json        [structural hash, base64 of the module's JSON]                    one kernel a line
    database_tuning_record.json   [line of the kernel, [trace, [seconds, ...], target, arguments]]  one candidate a line

TVM's own reader replays the trace of every record when it opens a database, which takes seconds. This one reads the
times, and replays the one trace that is asked for. Modules and traces are still TVM's to decode, in code that trusts
them: a database that was made to, can end the process. Read only your own.
"""

import functools
import json
import math
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.s_tir.meta_schedule.database import Workload as StoredWorkload
from tvm.s_tir.schedule import Trace

from ..errors import OptionError, essence
from ..machine import Machine

#: The two files, as TVM names them.
WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
#: What MetaSchedule writes as the time of a candidate that failed; it never takes such a record for a schedule.
FAILED_SECONDS = 1e10


@dataclass(frozen=True)
class Found:
    """What a database has for a kernel.

    Attributes:
        schedule: replayed; None if there is none.
        seconds: its time when it was measured.
        reason: why there is none.
    """

    schedule: Schedule | None = None
    seconds: float = math.inf
    reason: str = ""


@dataclass(frozen=True)
class _Stored:
    """One record: the line of its kernel, the trace as JSON, its time, and the target."""

    kernel: int
    trace: Any
    seconds: float
    target: Mapping[str, Any]


class MetaScheduleDatabase:
    """The standard database files in a folder.

    Args:
        folder: which holds `database_workload.json` and `database_tuning_record.json`.

    Attributes:
        problems: lines that were left out, and why.

    Raises:
        OptionError: they are not there.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._paths = tuple(Path(folder).expanduser() / name for name in (WORKLOADS, RECORDS))
        if not all(path.is_file() for path in self._paths):
            wrong = f"{str(folder)!r} holds no MetaSchedule database: {WORKLOADS} and {RECORDS} are expected"
            raise OptionError(wrong, fix="name the folder that a session of MetaSchedule was given")
        self.problems: list[str] = []

    @property
    def fingerprint(self) -> str:
        """Changes when the files do."""
        states = (os.stat(path) for path in self._paths)
        return " ".join(f"{state.st_size}:{state.st_mtime_ns}" for state in states)

    def find(self, function: tirx.PrimFunc, machine: Machine, result: Sequence[int] | None = None) -> Found:
        """The fastest right schedule of an unscheduled kernel that was measured on such a machine, and its time.

        The module of the schedule has the kernel as "main", without the attributes a compile gave it. Without one,
        there is the reason.

        Args:
            function: unscheduled.
            machine: whose CPU and number of threads a record must have.
            result: shape that the last parameter must have once the kernel is scheduled. A recipe's schedule may give
                it another shape and order in memory than the unscheduled kernel has; MetaSchedule's own rules do not.
        """
        mod = normalized(function)
        kernels = {number for number, stored in self._kernels.items() if tvm_ffi.structural_equal(stored, mod)}
        records = sorted((r for r in self._records if r.kernel in kernels), key=lambda r: r.seconds)
        if not records:
            return Found(reason="no record of this kernel")
        fitting = [r for r in records if not _misfit(r.target, machine)]
        if not fitting:
            return Found(reason=f"record refused: {_misfit(records[0].target, machine)}")
        best = fitting[0]
        if best.seconds >= FAILED_SECONDS:
            return Found(reason="every candidate of this kernel failed")
        sch = Schedule(self._kernels[best.kernel])  # shares nothing with `function`
        try:
            Trace.apply_json_to_schedule(best.trace, sch)
        except Exception as error:  # TVM raises several
            return Found(reason=f"its trace cannot be replayed: {essence(error)}")
        shape = tuple(int(d) for d in sch.mod["main"].params[-1].ty.shape)
        if result is not None and shape != tuple(result):
            return Found(reason=f"record refused: its result has shape {shape}, not {tuple(result)}")
        return Found(sch, best.seconds)

    @functools.cached_property
    def _kernels(self) -> dict[int, IRModule]:
        """Line, from 0 -> the module."""
        return dict(self._read(self._paths[0], lambda value: StoredWorkload.from_json(value).mod))

    @functools.cached_property
    def _records(self) -> list[_Stored]:
        return [record for _, record in self._read(self._paths[1], _stored)]

    def _read(self, path: Path, parse: Callable[[Any], Any]) -> Iterator[tuple[int, Any]]:
        """(line, value) of a file; a line that holds none is a problem."""
        with open(path, encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file):
                try:
                    yield number, parse(json.loads(line))
                except Exception as error:  # TVM raises several, of what its JSON describes
                    self.problems.append(f"{path.name}:{number + 1}: left out: {essence(error)}")


def normalized(function: tirx.PrimFunc) -> IRModule:
    """The module that stands for a kernel in a database: named "main", and without what a compile notes of it.

    Its body is the function's own. Keep the module while a schedule of it is made: TVM changes a module that nothing
    else refers to in its place, and the function with it.

    TVM cannot count the operations of a kernel in which an expression binds a variable; there the count is an
    attribute, which TVM takes instead.
    """
    plain = tirx.PrimFunc(function.params, function.body, function.ret_type)
    plain = plain.with_attr({"global_symbol": "main", "tirx.noalias": True})
    if binds := _without_binding(plain):
        plain = plain.with_attr("estimated_flops", int(estimate_tir_flops(IRModule({"main": binds}))))
    return IRModule({"main": plain})


def _without_binding(function: tirx.PrimFunc) -> tirx.PrimFunc | None:
    """The function with the body of each `let` in its place: the same operations but those of bound values, which are
    few, in epilogues; None if it has no `let`."""
    binds = False

    def body(let: tirx.Let) -> Any:
        nonlocal binds
        binds = True
        return let.body

    new = tvm_ffi.structural_map(function.body, (tirx.Let, body))
    return function.with_body(new) if binds else None


def _stored(line: Sequence[Any]) -> _Stored:
    kernel, (trace, seconds, target, _) = line
    if not isinstance(target or {}, dict):
        raise TypeError(f"a target is an object, not {type(target).__name__}")
    times = [float(s) for s in seconds or ()]
    return _Stored(int(kernel), trace, statistics.median(times) if times else math.inf, target or {})


def _misfit(target: Mapping[str, Any], machine: Machine) -> str:
    """Why a record of a target is not for this machine; empty if it is."""
    own = {str(k): v for k, v in machine.target().export().items()}
    for key, what in (("mcpu", "CPU"), ("num-cores", "number of threads")):
        if target.get(key) != own.get(key):
            return f"it is for another {what}: {target.get(key)}, not {own.get(key)}"
    return ""

"""Tuning kernels by MetaSchedule: its task scheduler, evolutionary search, cost model and database, over our pool."""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from tvm import tirx

from ...core.errors import OptionError, check_choice, check_whole
from ...core.machine import Machine
from ...core.records.schedule_database import RECORDS, WORKLOADS
from ...runtime.files import make_folder
from ..measure import LocalMeasurer, Measurer, measuring
from .context import logged_to
from .designs import Workload
from .session import Session, Trial, TuneSummary


def tune_kernels(
    kernels: Mapping[str, tirx.PrimFunc | Workload],
    machine: Machine,
    folder: str | os.PathLike[str],
    trials: int,
    *,
    space: Literal["recipes", "rules"] = "recipes",
    seed: int = 0,
    progress: Callable[[Trial], None] | None = None,
    measurer: Measurer | None = None,
) -> TuneSummary:
    """Tune kernels and write what is found to the database in a folder, which an earlier session may have begun.

    Args:
        kernels: name -> unscheduled kernel. A :class:`Workload` brings the designs of its recipe and a weight.
        machine: to tune for.
        folder: of the database and of MetaSchedule's log; is made.
        trials: candidates to measure, over all kernels.
        space: "recipes" takes the designs of a workload where it has some; "rules" MetaSchedule's rules for all.
        seed: of the search.
        progress: called after each trial; the session ends if it raises, with all finished trials in the database.
        measurer: measures; None makes a :class:`tvm_ext.tuning.measure.LocalMeasurer`.

    Raises:
        OptionError: there are no kernels, or an option is out of range.
        ToolError: the folder cannot be made.
    """
    _check(kernels, trials, space)
    folder = make_folder(folder)
    repaired = repair(folder)
    start = time.perf_counter()
    with logged_to(folder / "metaschedule.log"), measuring(measurer, lambda: LocalMeasurer(machine)) as pool:
        session = Session(folder, machine, space == "recipes", seed, pool, progress)
        workloads = {name: k if isinstance(k, Workload) else Workload(k) for name, k in kernels.items()}
        session.tune(workloads, trials)
    return TuneSummary(session.kernels, time.perf_counter() - start, session.measuring, repaired)


def _check(kernels: Mapping[str, Any], trials: int, space: str) -> None:
    if not kernels:
        raise OptionError("kernels={}: there is nothing to tune")
    check_whole("trials", trials, 1)
    check_choice("space", space, ("recipes", "rules"))


def repair(folder: Path) -> int:
    """Cut off a last line that was not written whole: TVM reads all lines or nothing.

    Returns:
        How many lines were cut off.
    """
    return sum(_cut_off(folder / name) for name in (WORKLOADS, RECORDS) if (folder / name).is_file())


def _cut_off(path: Path) -> int:
    text = path.read_bytes()
    whole, _, last = text.rpartition(b"\n")
    if not last:
        return 0
    try:
        json.loads(last)
    except ValueError:
        path.write_bytes(whole + b"\n" if whole else b"")
        return 1
    path.write_bytes(text + b"\n")
    return 0

"""The end of a session: the whole model, tuned against untuned, and for each task whether its record is kept.

best records of all tasks -> tuned program -> its kernels timed beside those of the untuned one
-> records of tasks that became faster inside the model -> final program -> timed against the untuned, and verified
"""

import functools
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.machine import Machine, available_cores
from ..core.options import CompileOptions
from ..core.plan import Plan
from ..core.recipe import config_text
from ..core.records.record import Record
from ..core.records.record_book import Verdict, machine_fields
from ..core.records.task_key import TaskKey
from ..core.sample_inputs import seeded_inputs
from ..driver.compile import compile_model
from ..runtime.cpu import why_not_here
from ..runtime.model import CompiledModel
from ..verification.verify import VerifyReport, verify
from .extract import Workload
from .in_model import Ratio, paired, task_seconds

#: A task inside the model has to be so much faster for its record to be kept: timers scatter by a percent.
WORTH = 0.985


@dataclass(frozen=True)
class Judgement:
    """What the whole model says.

    Attributes:
        ratio: of the final program over the untuned one; None if it was not timed.
        checked: the final program against onnxruntime.
        in_model: task -> its seconds in the tuned program and in the untuned.
        verdicts: for the log.
        reason: why records are not kept.
    """

    ratio: Ratio | None
    checked: VerifyReport | None
    in_model: Mapping[TaskKey, tuple[float, float]]
    verdicts: tuple[Verdict, ...]
    reason: str = ""

    @property
    def kept(self) -> set[TaskKey]:
        return {v.task for v in self.verdicts if v.config is not None}


def why_elsewhere(machine: Machine) -> str:
    """Why this machine's times of the whole model say nothing of one that servers have; "" if both are alike."""
    if why := why_not_here(machine.as_dict()):
        return why
    host = Machine.detect(None, machine.threads)
    if host.mcpu != machine.mcpu:
        return f"this machine is a {host.mcpu}, not a {machine.mcpu}"
    cores = available_cores()
    return f"this machine has {cores} cores for {machine.threads} threads" if cores < machine.threads else ""


def judge(
    model: Any, options: CompileOptions, machine: Machine, workloads: Sequence[Workload],
    best: Mapping[TaskKey, Record], session: str, *, seed: int = 0, tell: Callable[[str], None] = lambda text: None,
) -> Judgement:  # fmt: skip
    """Time the model with and without the best records, and decide which are kept.

    Args:
        model: path, bytes or ModelProto.
        best: the fastest record of each task, of one recipe or another.
    """
    changed = {w.key: best[w.key] for w in workloads if w.key in best and not _same(best[w.key], w.plan)}
    if not changed:
        return Judgement(None, None, {}, ())
    with tempfile.TemporaryDirectory(prefix="tvm-ext-") as folder:
        program_with = functools.partial(_compiled_with, model, options, Path(folder, "records.json"))
        tell("compiling the untuned and the tuned model")
        untuned, tuned = program_with(()), program_with(changed.values())
        inputs = seeded_inputs(untuned.inputs, seed, batch=max(untuned.batches, default=1))
        tell("timing kernels inside the model")
        every = seconds_inside(tuned, untuned, workloads, inputs)
        in_model = {key: every[key] for key in changed if key in every}
        kept = {key: changed[key] for key, (new, old) in in_model.items() if new < WORTH * old}
        ratio, checked, wrong = None, None, ""
        if kept:
            tell("timing the whole model, tuned and untuned in turn")
            final = tuned if len(kept) == len(changed) else program_with(kept.values())
            ratio, checked, wrong = _final(model, final, untuned, inputs, seed)
            kept = {} if wrong else kept
    reason = wrong or "no faster inside the model"
    stamp = {
        "machine": machine_fields(machine), "session": session, "timestamp": time.time(),
        "model": str(untuned.metadata.model["name"]),
    }  # fmt: skip
    verdicts = tuple(_verdict(record, key in kept, reason, stamp) for key, record in changed.items())
    return Judgement(ratio, checked, in_model, verdicts, reason)


def seconds_inside(
    tuned: CompiledModel, untuned: CompiledModel, workloads: Sequence[Workload], inputs: Mapping[str, np.ndarray]
) -> dict[TaskKey, tuple[float, float]]:
    """Of each task: seconds of all its kernels in a call of the tuned program, and of the untuned one."""
    owners = {node: w.key for w in workloads for site in w.calls for node in site}
    after, before = task_seconds([tuned, untuned], inputs, owners)
    return {key: (after[key], before[key]) for key in after if key in before}


def _final(
    model: Any, final: CompiledModel, untuned: CompiledModel, inputs: Mapping[str, np.ndarray], seed: int
) -> tuple[Ratio | None, VerifyReport, str]:
    """The final program's ratio and check, and the reason to keep nothing; a wrong program has no time."""
    checked = verify(final, model, seed=seed)
    if not checked.ok:
        return None, checked, "the whole model disagrees with onnxruntime"
    ratio = paired(final, untuned, inputs)
    return ratio, checked, f"the whole model is no faster: {ratio}" if ratio.median >= 1 else ""


def _compiled_with(model: Any, options: CompileOptions, path: Path, records: Collection[Record]) -> CompiledModel:
    """The model, compiled with some records, which are written to a file."""
    path.write_text("".join(record.to_row() + "\n" for record in records), encoding="utf-8")
    return compile_model(model, replace(options, records=(str(path),) if records else None, cache=False))


def _same(record: Record, plan: Plan) -> bool:
    return record.recipe == plan.recipe.name and config_text(record.config) == config_text(plan.config)


def _verdict(record: Record, kept: bool, reason: str, stamp: Mapping[str, Any]) -> Verdict:
    if kept:
        return Verdict(record.task, record.recipe, record.config, reason="faster inside the model", **stamp)
    return Verdict(record.task, None, None, reason=reason, **stamp)

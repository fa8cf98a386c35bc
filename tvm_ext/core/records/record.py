"""A tuning record: what one candidate took on one machine. One row a line, in AutoTVM's log format 0.2.

    {"input": [target, recipe, args, {}], "config": {"index": 7, "code_hash": null, "entity": [["tile_o", "ot", 2]]},
     "result": [[seconds, ...], error number, seconds of the trial, time], "version": 0.2, "tvm_version": "0.27.0",
     "tvm_ext": {what AutoTVM has no place for}}

AutoTVM's own reader takes such rows, and those of AutoTVM are readable here: `recipe` is the name of their template.
The format is that of `tvm.autotvm.record.encode` (TVM 0.6 to 0.19). Rows of its other protocol (pickled, tabs between)
are refused: to read them is to run them. Every value of a row is checked for its type: a log may come from anywhere.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .log_line import RecordError, parse, typed
from .task_key import TaskKey

if TYPE_CHECKING:
    from ..recipe import Config

#: What can be wrong with a candidate -> AutoTVM's number of it.
ERRORS: Mapping[str, int] = {
    "": 0, "schedule": 1, "build": 2, "run": 4, "crash": 4, "wrong": 5, "build-timeout": 6, "run-timeout": 7,
    "unknown": 8,
}  # fmt: skip
_NAMES = {number: name for name, number in reversed(list(ERRORS.items()))} | {3: "build"}
#: Fields of a machine that a record keeps, beside "cpu": which CPU it ran on (:func:`..runtime.cpu.host_identity`).
MACHINE_FIELDS = ("isa", "mcpu", "lanes", "threads", "l1d", "l2", "l3")
#: AutoTVM writes this in place of the times of a candidate that failed.
_NO_TIME = 1e9


@dataclass(frozen=True)
class Record:
    """One measured candidate.

    Attributes:
        task: what was computed.
        recipe, version: by which recipe (or template), and what its configurations meant then.
        config: knob -> value.
        costs: seconds, one a repeat; empty if there is no time.
        error: "" or one of `ERRORS`; detail: its message.
        check: largest error of the output against the unscheduled function, as a part of its range; None: not checked.
        discarded: run once and found to be a clear loser.
        machine: what it ran on (`MACHINE_FIELDS` and "cpu").
        session: the run of the tuner that made it.
        timestamp: seconds since the epoch; seconds: that the whole trial took.
        kinds: knob -> AutoTVM's kind of it ("sp" split, "re" reorder, "an" annotate); all others are "ot".
        index: of the configuration in the space it was drawn from.
    """

    task: TaskKey
    recipe: str
    version: int
    config: Config
    costs: tuple[float, ...] = ()
    error: str = ""
    detail: str = ""
    check: float | None = None
    discarded: bool = False
    machine: Mapping[str, Any] = field(default_factory=dict)
    session: str = ""
    timestamp: float = 0.0
    seconds: float = 0.0
    kinds: Mapping[str, str] = field(default_factory=dict)
    index: int = 0

    def __post_init__(self) -> None:
        if self.error not in ERRORS:
            raise RecordError(f"error={self.error!r}: choose one of {', '.join(map(repr, ERRORS))}")
        if self.error and self.costs:
            raise RecordError(f"a candidate that failed ({self.error}) has no time")
        if any(not (math.isfinite(c) and c > 0) for c in self.costs):
            raise RecordError(f"costs={self.costs}: seconds are finite and positive")

    @property
    def cost(self) -> float:
        """Seconds: the median repeat; infinite if there is no time."""
        return statistics.median(self.costs) if self.costs else math.inf

    @property
    def usable(self) -> bool:
        """Whether a compile may take it: timed in full, and right."""
        return bool(self.costs) and not self.discarded

    def to_row(self, target: str = "llvm", tvm_version: str = "") -> str:
        """One line of JSON, without the line break."""
        entity = [[name, self.kinds.get(name, "ot"), value] for name, value in self.config.items()]
        ours = {
            "op": self.task.op, "recipe_version": self.version, "machine": dict(self.machine), "session": self.session,
            **({"check": self.check} if self.check is not None else {}),
            **({"error": self.error, "detail": self.detail[:500]} if self.error else {}),
            **({"discarded": True} if self.discarded else {}),
        }  # fmt: skip
        row = {
            "input": [target, self.recipe, self.task.args, {}],
            "config": {"index": self.index, "code_hash": None, "entity": entity},
            "result": [
                list(self.costs) or [_NO_TIME], ERRORS[self.error], round(self.seconds, 6), round(self.timestamp, 6)
            ],
            "version": 0.2, "tvm_version": tvm_version, "tvm_ext": ours,
        }  # fmt: skip
        return json.dumps(row, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_row(cls, line: str) -> Record:
        """Read one line.

        Raises:
            RecordError: it is no record; says why.
        """
        try:
            return cls._from(_parsed(line))
        except RecordError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            what = f"{type(error).__name__}: {error}"
            raise RecordError(f"not a row of AutoTVM's format 0.2 ({what[:120]})") from error

    @classmethod
    def _from(cls, row: Mapping[str, Any]) -> Record:
        _, recipe, args, keywords = row["input"]
        costs, number, seconds, timestamp = row["result"]
        ours = typed(row.get("tvm_ext", {}), "tvm_ext", dict)
        config, kinds = _config(row["config"]["entity"])
        error = _error(typed(number, "error number", int), ours.get("error"))
        args = [*typed(args, "args", list), *([keywords] if typed(keywords, "keywords", dict) else [])]
        check = ours.get("check")
        return cls(
            task=TaskKey.of(typed(ours.get("op", f"template:{recipe}"), "op", str), args),
            recipe=typed(recipe, "recipe", str), version=typed(ours.get("recipe_version", 0), "recipe_version", int),
            config=config,
            costs=() if error else tuple(float(typed(c, "cost", int, float)) for c in typed(costs, "costs", list)),
            error=error, detail=typed(ours.get("detail", ""), "detail", str),
            check=None if check is None else float(typed(check, "check", int, float)),
            discarded=typed(ours.get("discarded", False), "discarded", bool),
            machine=typed(ours.get("machine", {}), "machine", dict),
            session=typed(ours.get("session", ""), "session", str),
            timestamp=float(typed(timestamp, "time", int, float)), seconds=float(typed(seconds, "seconds", int, float)),
            kinds=kinds, index=typed(row["config"].get("index") or 0, "index", int),
        )  # fmt: skip


def _config(entity: Any) -> tuple[Config, dict[str, str]]:
    """Knob -> value, and knob -> kind where that is not "ot".

    Raises:
        RecordError: a knob stands there twice.
    """
    triples = [typed(knob, "knob", list) for knob in typed(entity, "entity", list)]
    rows = [(typed(name, "knob", str), typed(kind, "kind", str), value) for name, kind, value in triples]
    config = {name: value for name, _, value in rows}
    if len(config) < len(rows):
        raise RecordError(f"a knob stands twice in {[name for name, _, _ in rows]}")
    return config, {name: kind for name, kind, _ in rows if kind != "ot"}


def _error(number: int, name: Any) -> str:
    """The name of what went wrong.

    Raises:
        RecordError: number and name contradict each other.
    """
    if name is None:
        return _NAMES.get(number, "unknown")
    if ERRORS.get(typed(name, "error", str)) != number:
        raise RecordError(f"error={name!r} is not number {number}: choose one of {', '.join(map(repr, ERRORS))}")
    return str(name)


def _parsed(line: str) -> Mapping[str, Any]:
    """The JSON object of a line.

    Raises:
        RecordError: it is none, or of another protocol.
    """
    if "\t" in line and not line.lstrip().startswith("{"):
        raise RecordError("a row of AutoTVM's pickled protocol: it is refused, since to read it is to run it")
    row = typed(parse(line), "line", dict)
    version = row.get("version", row.get("v"))
    if version != 0.2:
        raise RecordError(f"version {version!r:.60}: only AutoTVM's format 0.2 is read")
    return row

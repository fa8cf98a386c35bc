"""Templates: a function of the user's own, with a schedule that has knobs.

    import tvm_ext
    from tvm import te

    def matmul(n, m, k):                       # what is computed: TE tensors, inputs first, or a TIR PrimFunc
        a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
        r = te.reduce_axis((0, k), name="r")
        return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]

    @tvm_ext.template(matmul)
    def tiled(sch, cfg):                       # how: loops of a tvm.s_tir.Schedule, knobs of AutoTVM
        y, x, r = sch.get_loops(sch.get_sblock("C"))
        cfg.define_split("tile_y", y, num_outputs=2)
        cfg.define_split("tile_x", x, num_outputs=2, filter=lambda entity: entity.size[-1] <= 64)
        yo, yi = cfg["tile_y"].apply(sch, y)
        xo, xi = cfg["tile_x"].apply(sch, x)
        sch.reorder(yo, xo, r, yi, xi)
        sch.vectorize(xi)

    task = tiled.task(64, 48, 32)
    function = tiled.build({"tile_y": [16, 4], "tile_x": [3, 16]}, 64, 48, 32)    # a scheduled PrimFunc

A template runs once with the first choice of every knob, which collects its space, and once for each configuration. So
it defines all its knobs whatever their values are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import te, tirx
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.analysis import estimate_tir_flops

from ...core.errors import OptionError
from ...core.recipe import Config
from ...core.records.record import Record
from ...core.records.task_key import TaskKey
from ..features import LOOP_FEATURES, config_features, loop_features
from .entities import InstantiationError
from .space import ConfigEntity, ConfigSpace

ScheduleFunction = Callable[[Any, Any], object]
"""(Schedule, ConfigSpace or ConfigEntity): schedules the function in place."""

#: Name of the one function in a template's modules.
FUNCTION = "main"


def template(
    compute: Callable[..., Any], *, name: str = "", version: int = 1
) -> Callable[[ScheduleFunction], Template]:
    """Decorator: makes a :class:`Template` of a schedule function for `compute`.

    Args:
        compute: arguments of a task -> a TIR PrimFunc, or TE tensors, inputs first.
        name: in logs; by default that of the schedule function.
        version: raised when a configuration means something else than before: records of another one are refused.
    """
    return lambda schedule: Template(compute, schedule, name, version)


class Template:
    """A computation with a schedule that has knobs.

    Attributes:
        name: in logs.
        version: of what its configurations mean.
    """

    def __init__(
        self, compute: Callable[..., Any], schedule: ScheduleFunction, name: str = "", version: int = 1
    ) -> None:
        self._compute, self._schedule = compute, schedule
        self.name, self.version = name or schedule.__name__, version
        functools.update_wrapper(self, schedule)

    def __call__(self, sch: Any, cfg: Any) -> None:
        """Schedule a function, as the decorated function does: templates may call each other."""
        self._schedule(sch, cfg)

    def task(self, *args: Any) -> TemplateTask:
        """What can be tuned: the template for some arguments.

        Args:
            *args: of `compute`; JSON values, since logs name the task by them.

        Raises:
            OptionError: an argument is no JSON value, `compute` returns no function, or the template fails.
        """
        return TemplateTask(self, args)

    def build(self, config: Mapping[str, Any] | Record, *args: Any) -> tirx.PrimFunc:
        """The function for some arguments, scheduled by a configuration.

        Args:
            config: knob -> value, or a record of this template.
            *args: of `compute`; with a record, those of its task if left out.

        Raises:
            OptionError: a value is not among the choices, or the record is of another template, version or task.
            InstantiationError: the template refuses the configuration.
        """
        if isinstance(config, Record):
            args = args or tuple(config.task.args)
            self._check(config, TaskKey.of(f"template:{self.name}", args))
            config = config.config
        return self.task(*args).scheduled(config)

    def _check(self, record: Record, key: TaskKey) -> None:
        have, want = (record.recipe, record.version, record.task), (self.name, self.version, key)
        if have != want:
            what = next(n for n, a, b in zip(("template", "version", "task"), have, want, strict=True) if a != b)
            raise OptionError(f"the record's {what} is not that of template {self.name!r}: {record.task.short}")

    def reference(self, *args: Any) -> IRModule:
        """The unscheduled function of some arguments, named "main", in a module.

        Raises:
            OptionError: `compute` returns neither a PrimFunc nor TE tensors.
        """
        function = self._compute(*args)
        if isinstance(function, Sequence) and function and all(isinstance(t, te.Tensor) for t in function):
            function = te.create_prim_func(list(function))
        if not isinstance(function, tirx.PrimFunc):
            raise OptionError(
                f"template {self.name!r}: {self._compute.__name__} returned a {type(function).__name__}",
                fix="return a TIR PrimFunc, or a list of TE tensors, inputs first",
            )
        return IRModule({FUNCTION: function.with_attr("global_symbol", FUNCTION)})


class TemplateTask:
    """A template for some arguments, as tuners and measurers see it (:class:`~tvm_ext.tuning.task.Task`).

    Attributes:
        name, key, recipe, version: of the template and its arguments.
        space: what the template defined.
        flops: what it added by `add_flop`, else what the function computes.
        default: None: a template has no configuration that is known to be good.
    """

    default: Config | None = None

    def __init__(self, template: Template, args: Sequence[Any]) -> None:
        self._template = template
        self.recipe, self.version = template.name, template.version
        self.name = f"{template.name}({', '.join(map(str, args))})"
        try:
            self.key = TaskKey.of(f"template:{template.name}", args)
        except (TypeError, ValueError) as error:
            raise OptionError(f"{self.name}: arguments of a task are JSON values ({error})") from error
        self._reference = template.reference(*args)
        self.space = self._collected()
        self.flops = self.space.flop or float(estimate_tir_flops(self._reference))
        self._features: dict[int, np.ndarray] = {}

    def _collected(self) -> ConfigSpace:
        sch = Schedule(self._reference)
        space = ConfigSpace(sch)
        try:
            self._template(sch, space)
        except InstantiationError as error:
            raise OptionError(
                f"{self.name}: the first choice of every knob is refused: {error.message}",
                fix="put a choice first that works, or exclude it by a filter",
            ) from error
        return space

    def scheduled(self, config: Mapping[str, Any]) -> tirx.PrimFunc:
        """The function, scheduled by a configuration.

        Raises:
            OptionError: a value is not among the choices.
            InstantiationError: the template refuses it.
            tvm.s_tir.ScheduleError: a step of the schedule is not possible.
        """
        point = self.space.at(self.space.index(config))
        sch = Schedule(self._reference)
        self._template(sch, ConfigEntity(self.space, point))
        return sch.mod[FUNCTION].with_attr("global_symbol", FUNCTION)

    def prior(self, config: Config) -> float:
        """Nan: nothing is estimated."""
        return math.nan

    def features(self, config: Config) -> np.ndarray:
        """Features of the configuration, then of its loops (nan where the schedule fails); computed once each.

        Returns:
            float32, of the same length for every configuration of this task.
        """
        index = self.space.index(config)
        if index not in self._features:
            self._features[index] = np.concatenate([config_features(self.space, config), self._of_loops(config)])
        return self._features[index]

    def _of_loops(self, config: Config) -> np.ndarray:
        try:
            return loop_features(self.scheduled(config))
        except Exception:  # whatever a user's template raises is an error of this candidate: the measurer reports it
            return np.full(len(LOOP_FEATURES), np.nan, dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        """The unscheduled module as TVM's JSON: the reference of every candidate."""
        return {"kind": "module", "reference": self._json(self._reference)}

    def candidate(self, config: Config) -> dict[str, Any]:
        """The scheduled module as TVM's JSON.

        Raises:
            InstantiationError: the template refuses the configuration.
        """
        return {"module": self._json(IRModule({FUNCTION: self.scheduled(config)}))}

    def _json(self, module: IRModule) -> str:
        return str(tvm.ir.save_json(module))

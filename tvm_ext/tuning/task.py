"""What is tuned: a task is one kernel with a space of configurations.

Tuners see a task's space and its features, measurers what to send to a worker. A :class:`RecipeTask` is a group of a
model with one recipe that takes it; a template task (:mod:`.templates.template`) a function of the user's own.
"""

import functools
import json
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import tvm
from tvm.ir import GlobalVar, IRModule

from ..core.cost.work import flops_of
from ..core.group import Group
from ..core.machine import Machine
from ..core.recipe import Config, Match, Recipe, config_text
from ..core.records.task_key import TaskKey
from .templates.space import ConfigSpace


class Task(Protocol):
    """What tuners and measurers see of a task.

    Attributes:
        name: for people, unique in a session.
        key: identity in logs.
        recipe, version: whose configurations these are.
        space: of configurations.
        flops: floating-point operations of one run.
        default: the configuration of a compile without tuning; None if there is none.
    """

    name: str
    key: TaskKey
    recipe: str
    version: int
    space: ConfigSpace
    flops: float
    default: Config | None

    def prior(self, config: Config) -> float:
        """Estimated seconds; nan if there is no estimate."""
        ...

    def features(self, config: Config) -> np.ndarray:
        """Numbers a cost model learns from: of the configuration and of the loops it makes; of fixed length."""
        ...

    def describe(self) -> dict[str, Any]:
        """What a worker needs once: plain values."""
        ...

    def candidate(self, config: Config) -> dict[str, Any]:
        """What a worker needs for one configuration: plain values."""
        ...


class RecipeTask:
    """A group of a model with a recipe that takes it.

    Args:
        group, recipe, match: as `choose-recipes` found them.
        machine: to tune for.
        name: for people.
    """

    def __init__(self, group: Group, recipe: Recipe, match: Match, machine: Machine, name: str = "") -> None:
        self._group, self._recipe, self._match, self._machine = group, recipe, match, machine
        self.key = TaskKey.of_group(group)
        self.recipe, self.version = recipe.name, recipe.version
        self.name = name or f"{self.key.short} [{recipe.name}]"
        self.flops = flops_of(group)
        self.default: Config | None = recipe.default(match, machine)
        choices = {
            knob: [*values, *(v for v in [self.default[knob]] if v not in values)]
            for knob, values in recipe.space(match, machine).items()
        }
        self.space = ConfigSpace.of(choices, lambda config: math.isfinite(self.prior(config)))

    def prior(self, config: Config) -> float:
        """The recipe's estimate in seconds."""
        return self._recipe.cost(self._match, config, self._machine)

    def leading(self) -> list[Config]:
        """Points to be measured first: for each choice of each knob that of least estimate; the least estimate first.

        Of a recipe whose space is too large to be listed, those of its own candidates.
        """
        listed = getattr(self._recipe, "candidates", self._recipe.points)(self._match, self._machine)
        priced = sorted((self.prior(config), config_text(config), config) for config in listed)
        chosen: dict[tuple[str, str], tuple[float, str, Config]] = {}
        for point in priced:
            for knob, value in point[2].items():
                if math.isfinite(point[0]):
                    chosen.setdefault((knob, json.dumps(value)), point)
        return [config for _, _, config in sorted(chosen.values())]

    def neighbours(self, config: Config) -> list[Config]:
        """Legal points that differ in one knob; the least estimate first."""
        others = [{**config, knob: value} for knob, choices in self.space.knobs.items() for value in choices]
        priced = sorted((self.prior(other), config_text(other)) for other in others if other != config)
        return [json.loads(text) for cost, text in priced if math.isfinite(cost)]

    def features(self, config: Config) -> np.ndarray:
        """log2 of every number among the knobs, choice numbers of the others, and products of pairs of knobs, which are
        sizes of tiles; the estimate, which sees how often loops run and what they stream, is the tuner's to add."""
        values = [_number(config[knob], choices) for knob, choices in self.space.knobs.items()]
        pairs = [a + b for i, a in enumerate(values) for b in values[i + 1 :]]
        return np.array([*values, *pairs], dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        """The group's Relax function as TVM's JSON, the recipe's name, and the machine."""
        return {
            "kind": "group", "module": self._module, "group": self._group.name, "recipe": self.recipe,
            "machine": self._machine.as_dict(),
        }  # fmt: skip

    @functools.cached_property
    def _module(self) -> str:
        return str(tvm.ir.save_json(IRModule({GlobalVar(self._group.name): self._group.function})))

    def candidate(self, config: Config) -> dict[str, Any]:
        """The configuration; the worker's recipe makes the kernel."""
        return {"config": config}


class GroupTask:
    """A group of a model with all recipes that may be worth it; a configuration is {"recipe": NAME, "config": {...}}.

    Only what measurers see of a task.

    Args:
        tasks: of one group, one a recipe.
    """

    def __init__(self, tasks: Sequence[RecipeTask]) -> None:
        self.name, self.key = tasks[0].key.short, tasks[0].key
        self._first = tasks[0]

    def describe(self) -> dict[str, Any]:
        """That of the first recipe's task."""
        return self._first.describe()

    def candidate(self, config: Config) -> dict[str, Any]:
        """The configuration, and whose it is."""
        return config


def _number(value: Any, choices: Sequence[Any]) -> float:
    if isinstance(value, int | float) and value >= 0:
        return math.log2(1 + value)
    return float(list(choices).index(value)) if value in choices else -1.0

"""The tuners by name."""

import inspect
from collections.abc import Mapping
from typing import Any

from ...core.errors import OptionError, check_choice
from ..task import Task
from .base import GridTuner, RandomTuner, Tuner
from .beam import BeamTuner
from .ga import GATuner
from .xgb import XGBTuner

TUNERS: Mapping[str, type[Tuner]] = {
    tuner.name: tuner for tuner in (GridTuner, RandomTuner, GATuner, XGBTuner, BeamTuner)
}


def make_tuner(name: str, task: Task, seed: int = 0, **options: Any) -> Tuner:
    """A tuner of a task.

    Args:
        name: one of `TUNERS`.
        seed: of all that is random.
        options: of this tuner, such as `width` of "beam".

    Raises:
        OptionError: an unknown name or option, or a value that the tuner refuses.
        ToolError: xgboost is needed and not installed.
    """
    check_choice("tuner", name, TUNERS)
    kind = TUNERS[name]
    known = [p.name for p in inspect.signature(kind).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            choices = f"its options are {', '.join(known)}" if known else "it has no options"
            raise OptionError(f"tuner {name!r} has no option {option!r}: {choices}")
    return kind(task, seed, **options)

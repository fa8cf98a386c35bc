"""Beam search over the knobs, in order; the idea of tinygrad's BEAM, which extends kernels one optimization a step.

start (the default)
  -> each choice of knob 1, the others as in the start          all are measured, the best `width` stay
  -> each choice of knob 2 on each of these                     ...
  -> after the last knob again from the first, until a round brings nothing better; then from another start
"""

import math
from collections.abc import Iterator

from ...core.errors import OptionError
from ...core.recipe import Config
from ..task import Task
from .base import Tuner


class BeamTuner(Tuner):
    """Keeps the `width` best configurations and varies one knob of each at a time.

    Args:
        width: configurations that are kept.
        choices: of one knob that are tried at most; of a knob with more, so many are drawn by chance.

    While the last extensions of a step are being measured, a further proposal is random points: they may be the
    next start.
    """

    name = "beam"

    def __init__(self, task: Task, seed: int = 0, *, width: int = 3, choices: int = 64) -> None:
        super().__init__(task, seed)
        for option, value in (("width", width), ("choices", choices)):
            if value < 1:
                raise OptionError(f"{option}={value}: 1 or more is needed")
        self.width, self.choices = width, choices
        self._beam: list[int] = []
        self._step: set[int] = set()  # what is compared at the end of this step
        self._queue: list[int] = []  # what of it was not proposed yet
        self._knob, self._before = 0, math.inf  # the next knob to vary; the best figure of the round before
        self._started = False

    def _choose(self, count: int) -> Iterator[Config]:
        while not self._queue and self._step <= self.results.keys():
            if not self._advance():
                break
        batch, self._queue = self._queue[:count], self._queue[count:]
        return map(self.space.at, batch)

    def _advance(self) -> bool:
        """End the step: its best are the beam, which the next knob extends. False if there is no start any more."""
        ranked = sorted((self.results[index], index) for index in self._step)
        self._beam = [index for seconds, index in ranked[: self.width] if seconds < math.inf]
        knobs = list(self.space.knobs)
        if self._beam and self._knob == len(knobs):
            least = self.results[self._beam[0]]
            self._beam = self._beam if least < self._before else []
            self._knob, self._before = 0, least
        if not self._beam:
            return self._start()
        self._extend(knobs[self._knob])
        self._knob += 1
        return True

    def _start(self) -> bool:
        """At the default, later at a random point: a beam that is stuck, or began with a failure, is given up."""
        default = None if self._started else self.task.default
        start = default if default is not None else next(iter(self.sample(1)), None)
        self._started = True
        self._knob, self._before = 0, math.inf
        self._step = set() if start is None else {self.space.index(start)}
        self._queue = [index for index in self._step if index not in self.seen]
        return start is not None

    def _extend(self, knob: str) -> None:
        """The beam, and each of it with every choice of a knob."""
        choices = self.space.knobs[knob]
        numbers: Iterator[int] = iter(range(len(choices)))
        if len(choices) > self.choices:
            numbers = iter(sorted(self.rng.choice(len(choices), self.choices, replace=False).tolist()))
        tried = [choices[number] for number in numbers]
        extended = [{**self.space.at(index), knob: value} for index in self._beam for value in tried]
        legal = {self.space.index(config): None for config in extended if self.space.legal(config)}
        self._step = {*self._beam, *legal}
        self._queue = [index for index in legal if index not in self.seen]

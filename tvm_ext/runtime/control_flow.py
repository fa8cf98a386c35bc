"""Control flow while a program runs: loops whose steps are calls of one function, and branches that cannot be taken.

    kernel of a loop:   (limit, going, states ..., scanned ..., captured ...) -> (last states ..., collected ...)
    kernel of a guard:  (condition, values ...) -> (the values ...)

Both are regions, called as those of back ends are (see `drivers`); the body of a loop is a function of the same
library, with its own arena, over the same weights.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..core.errors import ArtifactError, RunError
from .memory.arrays import Arrays

NAME = "control_flow"
Function = Callable[[Arrays], list[np.ndarray]]
"""The body of a loop: (number of the step, whether it goes on, states, slices, captured values) -> its outputs."""


@dataclass(frozen=True)
class Loop:
    """A Loop or a Scan.

    Attributes:
        body: name of its function.
        states: how many values a step hands to the next one.
        scanned: (axis, whether backwards) of each input that a step gets a slice of.
        collected: the same of each output that a step adds a slice to.
        counted: whether the function takes the number of the step and a condition, and gives the next condition: that
            of a Loop, not of a Scan.
    """

    body: str
    states: int
    scanned: tuple[tuple[int, bool], ...] = ()
    collected: tuple[tuple[int, bool], ...] = ()
    counted: bool = True

    def runner(self, functions: Mapping[str, Function]) -> Callable[[Arrays, Arrays], None]:
        """What runs it.

        Raises:
            ArtifactError: there is no function of its body.
        """
        if self.body not in functions:
            raise ArtifactError(f"there is no function {self.body!r} for the body of a loop")
        function, first, last = functions[self.body], 2 + self.states, 2 + self.states + len(self.scanned)

        def run(inputs: Arrays, outputs: Arrays) -> None:
            limit, going = int(inputs[0].reshape(-1)[0]), bool(inputs[1].all())
            states, captured = list(inputs[2:first]), inputs[last:]
            sources = _slices(inputs[first:last], self.scanned, limit)
            targets = _slices(outputs[self.states :], self.collected, limit)
            step = 0
            while going and step < limit:
                head = [np.array(step), np.array(going)] if self.counted else []
                results = function([*head, *states, *(source(step) for source in sources), *captured])
                if self.counted:
                    going = bool(results.pop(0).all())
                states = results[: self.states]
                for target, value in zip(targets, results[self.states :], strict=True):
                    np.copyto(target(step), value)
                step += 1
            for output, state in zip(outputs, states, strict=False):
                np.copyto(output, state)

        return run


@dataclass(frozen=True)
class Guard:
    """Values that are computed as if a condition had one value, the only one that they can be computed for.

    Attributes:
        holds: that value.
        message: why a run stops where it has the other one.
    """

    holds: bool
    message: str

    def runner(self, functions: Mapping[str, Function]) -> Callable[[Arrays, Arrays], None]:
        """A function that copies the values if the condition holds, else raises a RunError."""

        def run(inputs: Arrays, outputs: Arrays) -> None:
            if bool(inputs[0].all()) is not self.holds:
                raise RunError(self.message)
            for output, value in zip(outputs, inputs[1:], strict=True):
                np.copyto(output, value)

        return run


_KINDS: dict[str, type[Loop] | type[Guard]] = {"loop": Loop, "guard": Guard}


def program_of(flow: Loop | Guard) -> bytes:
    """The program of a region, JSON."""
    return json.dumps({type(flow).__name__.lower(): asdict(flow)}).encode()


def flow_of(program: bytes) -> Loop | Guard:
    """What :func:`program_of` wrote.

    Raises:
        ValueError, TypeError, KeyError: it is no such program.
    """
    ((kind, fields),) = json.loads(program).items()
    return _KINDS[kind](**fields)


def driver(program: bytes, functions: Mapping[str, Function]) -> Callable[[Arrays, Arrays], None]:
    """What runs the program of a region; several threads may call it at once.

    Args:
        program: what :func:`program_of` gives.
        functions: bodies of loops by name.

    Raises:
        ArtifactError: there is no function of a body. ValueError, TypeError, KeyError: it is no such program.
    """
    return flow_of(program).runner(functions)


def _slices(arrays: Arrays, along: Sequence[tuple[int, bool]], steps: int) -> list[Callable[[int], np.ndarray]]:
    """For each array a function: number of a step -> its slice. Arrays may hold more slices than there are steps."""

    def slice_of(array: np.ndarray, axis: int, back: bool) -> Callable[[int], np.ndarray]:
        rows = np.moveaxis(array, axis, 0)
        return lambda step: rows[steps - 1 - step if back else step, ...]

    return [slice_of(array, axis, back) for array, (axis, back) in zip(arrays, along, strict=True)]

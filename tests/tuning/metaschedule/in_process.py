"""A measurer for tests: builds, checks and times candidates in this process, one after the other."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from tvm_ext.core.machine import Machine


@dataclass(frozen=True)
class Result:
    """What MetaSchedule's runner reads of a measurement."""

    config: dict[str, Any]
    costs: tuple[float, ...] = ()
    error: str = ""
    detail: str = ""
    discarded: bool = False


class InProcess:
    """Compares each candidate's output with that of the unscheduled module.

    Args:
        machine: to build for.
        seconds: of a candidate, by number; None times it.
        spoil: changes the module of a candidate, by number, before it is built.
    """

    def __init__(
        self, machine: Machine, seconds: Callable[[int], float] | None = None,
        spoil: Callable[[int, Any], Any] = lambda number, mod: mod,
    ) -> None:  # fmt: skip
        self._target, self._seconds, self._spoil = machine.target(), seconds, spoil
        self.measured = 0
        self.wrong: list[str] = []

    def measure(self, task: Any, configs: Sequence[dict[str, Any]], best: float = float("inf")) -> Iterator[Result]:
        reference = tvm.ir.load_json(task.describe()["reference"])
        arguments = operands(reference["main"])
        expected = run(reference, arguments, self._target)
        for config in configs:
            self.measured += 1
            mod = self._spoil(self.measured, tvm.ir.load_json(task.candidate(config)["module"]))
            start = time.perf_counter()
            got = run(mod, arguments, self._target)
            if not np.allclose(got, expected, rtol=1e-4, atol=1e-4):
                self.wrong.append(str(mod))
                yield Result(config, error="wrong", detail=f"off by {abs(got - expected).max()}")
                continue
            seconds = self._seconds(self.measured) if self._seconds else time.perf_counter() - start
            yield Result(config, (seconds,))


def operands(function: Any) -> list[np.ndarray]:
    """Random inputs of a kernel; its result, the last parameter, is left out."""
    rng = np.random.default_rng(5)
    return [rng.standard_normal(shape_of(p)).astype("float32") for p in function.params[:-1]]


def shape_of(param: Any) -> tuple[int, ...]:
    """Of a buffer parameter."""
    return tuple(int(d) for d in param.ty.shape)


def run(mod: Any, arguments: Sequence[np.ndarray], target: Any) -> np.ndarray:
    """The kernel's output, flat, on memory that starts as NaN."""
    function = tvm.compile(mod, target=target).jit()["main"]
    result = tvm.runtime.tensor(np.full(shape_of(mod["main"].params[-1]), np.nan, "float32"))
    function(*(tvm.runtime.tensor(a) for a in arguments), result)
    return result.numpy().ravel()

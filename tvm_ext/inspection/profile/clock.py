"""The clock of a profile: what the VM calls, when, and what looking at it costs.

    run_observed(x, clock.observe)   ->   Span("conv2d_add", start, end), Span("vm.builtin.alloc_tensor", ...), ...

Between the two looks at a kernel lie the kernel, the VM's call of it, the end of one callback and the beginning of the
other. What that takes without a kernel is measured on kernels that do nothing, with several numbers of arguments, since
each callback is given all of them; it grows by the argument. It is subtracted from every kernel.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from tvm import relax, tirx

from ...core.errors import UnsupportedError
from ...core.machine import Machine
from ...core.passes import CompileContext
from ...driver.build import build
from ...runtime.model import CompiledModel
from ...runtime.spec import Metadata, Program, TensorSpec, installed_versions

_EMPTY, _CALLS, _RUNS = "empty", 32, 60
#: Numbers of arguments of the kernels that do nothing: input and output, up to what an epilogue reads.
_ARGUMENTS = (2, 4, 8)


class Span(NamedTuple):
    """One call that the VM made, in seconds: of `time.perf_counter`, or from the start of a run."""

    name: str
    start: float
    end: float


class Clock:
    """Notes each call of a run; as little as can be is done while the model runs."""

    def __init__(self) -> None:
        self._events: list[tuple[str, bool, float]] = []

    def observe(self, name: str, before: bool) -> None:
        """Note one look, before or after a call."""
        self._events.append((name, before, time.perf_counter()))

    def spans(self) -> tuple[Span, ...]:
        """All calls in the order they began.

        Raises:
            UnsupportedError: a call was not seen to begin, or to end.
        """
        opened: list[tuple[str, float, int]] = []
        spans: dict[int, Span] = {}
        for number, (name, before, when) in enumerate(self._events):
            if before:
                opened.append((name, when, number))
                continue
            if not opened or opened[-1][0] != name:
                raise UnsupportedError(f"a call of {name!r} was seen to end, and not to begin")
            _, start, place = opened.pop()
            spans[place] = Span(name, start, when)
        if opened:
            raise UnsupportedError(f"a call of {opened[-1][0]!r} was seen to begin, and not to end")
        return tuple(spans[place] for place in sorted(spans))


@dataclass(frozen=True)
class Overhead:
    """What looking costs, in seconds.

    Attributes:
        base: within a kernel's time, for a kernel without arguments.
        per_argument: more for each argument.
        per_call: that a look before and after adds to a run, of a kernel with four arguments.
    """

    base: float
    per_argument: float
    per_call: float

    def within(self, arguments: int) -> float:
        """What is subtracted from the time of a kernel with so many arguments."""
        return self.base + self.per_argument * arguments


def measured_overhead() -> Overhead:
    """Run models of kernels that do nothing, with and without a look at them; the least of short runs."""
    spans, added = zip(*(_looks(count) for count in _ARGUMENTS), strict=True)
    slope, base = np.polyfit(_ARGUMENTS, spans, 1)
    return Overhead(float(max(base, 0.0)), float(max(slope, 0.0)), float(np.interp(4, _ARGUMENTS, added)))


def _looks(arguments: int) -> tuple[float, float]:
    """Seconds seen for a kernel that does nothing, and those that looking adds to each call."""
    model, inputs = _model_of_empty_kernels(arguments), {"x": np.zeros(16, np.float32)}
    seen: list[float] = []
    plain, watched = [], []
    for _ in range(_RUNS):
        clock = Clock()
        start = time.perf_counter()
        model.run(inputs)
        between = time.perf_counter()
        model.run_observed(inputs, clock.observe)
        plain.append(between - start)
        watched.append(time.perf_counter() - between)
        spans = clock.spans()
        seen.append(statistics.median(s.end - s.start for s in spans if s.name.startswith(_EMPTY)))
    return min(seen), (min(watched) - min(plain)) / len(spans)


def _model_of_empty_kernels(arguments: int) -> CompiledModel:
    """A model whose `main` calls a kernel that does nothing, over and over."""
    buffers = [tirx.decl_buffer([16], "float32", f"x{i}") for i in range(arguments)]
    nothing = tirx.PrimFunc(buffers, tirx.Evaluate(0)).with_attr({"tirx.noalias": True})
    ty = relax.TensorType((16,), "float32")
    builder, x = relax.BlockBuilder(), relax.Var("x", ty)
    with builder.function("main", [x]):
        kernel, value = builder.add_func(nothing, _EMPTY), x
        with builder.dataflow():
            for _ in range(_CALLS):
                value = builder.emit(relax.call_tir(kernel, [*[x] * (arguments - 2), value], ty))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return _loaded(builder.get())


def _loaded(mod: Any) -> CompiledModel:
    machine, spec = Machine.detect(None, 1), TensorSpec("x", (16,), "float32")
    metadata = Metadata(
        (spec,), (spec,), (), (Program("main", ()),), 1, False, machine.as_dict(), installed_versions(),
        {"name": "kernels that do nothing", "sha256": ""},
    )  # fmt: skip
    executable = build(mod, CompileContext(machine))
    return CompiledModel(executable.jit(), (), metadata, executable.export_library)


def overhead_text(overhead: Overhead, arguments: Sequence[int]) -> str:
    """What was subtracted, in words."""
    least, most = (overhead.within(f(arguments)) * 1e6 for f in (min, max))
    return (
        f"looking costs {least:.1f} to {most:.1f} us within each kernel's time (measured on kernels that do nothing; "
        f"subtracted), {overhead.per_call * 1e6:.1f} us a call in all"
    )

"""One launch of a kernel in a run: which kernel, for which ONNX nodes, what it has to do, how long it took."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...runtime.table import Plain
from .code_facts import CodeFacts

_OFFLOAD = "offload:"


@dataclass(frozen=True)
class Launch(Plain):
    """A call site of a kernel.

    Attributes:
        number: from 1, in the order of a run.
        kernel: name of the function in the program.
        nodes: ONNX nodes it computes.
        recipe: its recipe's name, "layout_transform", "generic", or "offload:BACKEND".
        config: its configuration; record: the tuning session whose record it follows, "" for the default.
        reason: why no recipe took it; "" if one did.
        region: the offloaded region; "" for a kernel on the CPU.
        batch: size of the batch that its program is for; 0 if no dimension is symbolic.
        arguments: tensors it takes and writes.
        flops, bytes: of this launch, as the model states them; None if they are not known.
        executed: operations that the kernel does; None if they are not known.
        seconds: one a round, without what looking costs.
        code: facts of its machine code; None if they are not known.
        instruction: that adds its products; "" for multiply-adds of floats.
    """

    number: int
    kernel: str
    nodes: tuple[str, ...]
    recipe: str
    config: Mapping[str, Any] = field(default_factory=dict)
    record: str = ""
    reason: str = ""
    region: str = ""
    batch: int = 0
    arguments: int = 4
    flops: float | None = None
    executed: float | None = None
    bytes: int | None = None
    seconds: tuple[float, ...] = ()
    code: CodeFacts | None = None
    instruction: str = ""

    @property
    def backend(self) -> str:
        """The back end that runs it; "" for a kernel on the CPU."""
        return self.recipe.removeprefix(_OFFLOAD) if self.recipe.startswith(_OFFLOAD) else ""

    @property
    def median(self) -> float:
        """Seconds, median of the rounds."""
        return statistics.median(self.seconds)


def launches_of(order: Sequence[str], report: Mapping[str, Any], code: Mapping[str, CodeFacts]) -> tuple[Launch, ...]:
    """The launches of a run, without times.

    Args:
        order: names of the kernels, in the order they ran.
        report: of the compiled model.
        code: kernel -> facts of its machine code.
    """
    kernels = {kernel["name"]: kernel for kernel in report.get("kernels", ())}
    offloaded = (report.get("offload") or {}).get("regions", ())
    regions = {frozenset(region["nodes"]): region["name"] for region in offloaded}
    seen: dict[str, int] = {}
    launches = []
    for number, name in enumerate(order, start=1):
        kernel, sites = kernels[name], kernels[name].get("call_sites") or [[]]
        nodes = tuple(sites[seen.get(name, 0) % len(sites)])
        seen[name] = seen.get(name, 0) + 1
        launches.append(
            Launch(
                number, name, nodes, kernel["recipe"], kernel.get("config") or {}, kernel.get("record", ""),
                kernel.get("reason", ""), regions.get(frozenset(nodes), name) if _offloaded(kernel) else "",
                kernel.get("batch", 0), kernel.get("arguments", 4), kernel.get("flops"),
                kernel.get("executed", kernel.get("flops")), kernel.get("bytes"), (),
                None if _offloaded(kernel) else code.get(name), kernel.get("instruction", ""),
            )
        )  # fmt: skip
    return tuple(launches)


def _offloaded(kernel: Mapping[str, Any]) -> bool:
    return str(kernel["recipe"]).startswith(_OFFLOAD)


def with_seconds(launches: Iterable[Launch], rounds: Sequence[Sequence[float]]) -> tuple[Launch, ...]:
    """The launches with their times.

    Args:
        rounds: for each round, the seconds of each launch.
    """
    columns = zip(*rounds, strict=True)
    return tuple(replace(launch, seconds=column) for launch, column in zip(launches, columns, strict=True))

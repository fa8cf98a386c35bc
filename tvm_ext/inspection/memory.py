"""The memory plan of a compiled model: what lives when, where it lies in the arena, and how good that is.

The facts are those of the compile (`passes/memory/arena.py`): activations, and workspace of kernels, in one arena; what
threads take from pools of their own beside it. Inputs, weights and outputs are not counted: they are the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import OptionError
from ..core.pages.charts import Box, boxes_chart
from ..core.pages.page import Facts, Figure, Note, Part, Shown
from ..driver.compile import compile_model
from ..runtime.model import CompiledModel
from ..runtime.plain import read, reading
from ..runtime.sizes.symbols import Symbol, sizes_text
from ..runtime.table import Cell, Markup, Table, plain_fields, size_text


@dataclass(frozen=True)
class Buffer:
    """A place in the arena.

    Attributes:
        name: of the value in it.
        nbytes: its size; offset: bytes from the start of the arena.
        first, last: launches in which it is read or written, both included.
        workspace: whether it is of one kernel, and no activation.
    """

    name: str
    nbytes: int
    offset: int
    first: int
    last: int
    workspace: bool

    @property
    def kind(self) -> str:
        """What it is, in a word."""
        return "workspace" if self.workspace else "activation"


@dataclass(frozen=True)
class MemoryPlan(Shown):
    """Memory that a program works in.

    Attributes:
        model: its name; batch: size of a symbolic batch, 0 if there is none.
        nbytes: bytes of the arena and of the threads' pools.
        lower_bound: most bytes in use in one launch: no plan can do with less.
        no_reuse: bytes with a place of its own for everything.
        arena_bytes: of the arena alone.
        buffers: what lies in the arena.
        launches: kernels in the order they run.
        pooled: bytes that threads take from their pools in each launch.
        sizes: bounds of symbolic dimensions, which the plan is of: calls of smaller sizes take the same memory.
    """

    model: str
    batch: int
    nbytes: int
    lower_bound: int
    no_reuse: int
    arena_bytes: int
    buffers: tuple[Buffer, ...]
    launches: tuple[str, ...]
    pooled: tuple[int, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, report: Mapping[str, Any], model: str, batch: int = 0, symbols: Sequence[Symbol] = ()) -> MemoryPlan:
        """From the report of a compiled model, and its symbols.

        Raises:
            OptionError: it has no program for such a batch, or no plan.
            ArtifactError: the report is damaged.
        """
        with reading("programs"):
            programs = report.get("programs") or [report]
            largest = [program for program in programs if not program.get("sizes")][-1:]
            chosen = [program for program in programs if program.get("batch") == batch] if batch else largest
        if not chosen:
            sizes = ", ".join(str(program.get("batch")) for program in programs)
            raise OptionError(f"{model} has no program for a batch of {batch}", fix=f"choose one of {sizes}")
        if (plan := chosen[0].get("memory")) is None:
            raise OptionError(f"the report of {model} has no memory plan", fix="compile it again")
        bounds = {symbol.name: symbol.bound for symbol in symbols}
        with reading("memory"):
            named = {"model": model, "batch": batch, "nbytes": plan["bytes"], "launches": plan["steps"]}
            return read(cls, {**plan, **named, "sizes": bounds})

    @property
    def ratio(self) -> float:
        """Bytes over the lower bound: 1 is as good as can be."""
        return self.nbytes / self.lower_bound if self.lower_bound else 1.0

    def live(self, launch: int) -> int:
        """Bytes in use in a launch, pools included."""
        held = sum(buffer.nbytes for buffer in self.buffers if buffer.first <= launch <= buffer.last)
        return held + self.pooled[launch]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        fields = plain_fields(self)
        return {"bytes": fields.pop("nbytes"), **fields, "ratio": round(self.ratio, 4)}

    def summary(self) -> list[tuple[str, str]]:
        """The plan in a few lines."""
        whole, arena, pool, bound, alone = map(
            size_text, (self.nbytes, self.arena_bytes, max(self.pooled, default=0), self.lower_bound, self.no_reuse)
        )
        return [
            ("in all", f"{whole}: {arena} of arena, {pool} of threads' pools"),
            ("lower bound", f"{bound} live in launch {self.fullest}: {self.ratio:.3f} of it"),
            ("without reuse", f"{alone}: {self.no_reuse / max(self.nbytes, 1):.1f} times as much"),
        ]

    @property
    def fullest(self) -> str:
        """The launch with most bytes in use."""
        if not self.launches:
            return "-"
        at = max(range(len(self.launches)), key=self.live)
        return f"{at} ({self.launches[at]})"

    def parts(self) -> list[Part]:
        """The plan in a few lines, its picture, and a row a buffer."""
        rows = [(b.name, b.nbytes, b.offset, Cell(f"{b.first} to {b.last}", b.first), b.kind) for b in self.buffers]
        bounds = f", planned at {sizes_text(self.sizes)}: smaller sizes take as much" if self.sizes else ""
        head = Note(f"memory of {self.model}" + (f", batch {self.batch}" if self.batch else bounds))
        table = Table(("buffer", "bytes", "offset", "launches", "kind"), rows)
        caption = "the arena: launches from left to right, addresses from bottom to top"
        return [head, Facts(self.summary()), *([Figure(self.svg, caption)] if self.buffers else []), table]

    def svg(self) -> Markup:
        """A picture of the arena, as SVG: launches from left to right, addresses from bottom to top.

        Raises:
            ToolError: matplotlib is not installed.
        """
        boxes = [Box(buffer.kind, self._title(buffer), buffer.first, buffer.last, buffer.offset, buffer.nbytes)
                 for buffer in sorted(self.buffers, key=lambda b: (b.workspace, b.first))]  # fmt: skip
        return boxes_chart(boxes, len(self.launches), ("launch", "address, MB")).svg()

    def _title(self, buffer: Buffer) -> str:
        first, last = buffer.first, buffer.last
        ran = ", ".join(dict.fromkeys((self.launches[first], self.launches[last])))
        return f"{buffer.name}: {buffer.nbytes:,} bytes at {buffer.offset:,}, launches {first} to {last} ({ran})"


def memory_plan(model: Any, *, batch: int = 0, **options: Any) -> MemoryPlan:
    """What a compiled model works in: what lives when, where it lies in the arena, and the least that any plan needs.

    Args:
        model: a path, the bytes of an ONNX file, an `onnx.ModelProto`, or a compiled model.
        batch: size of a symbolic batch that has a program; 0 takes the largest.
        **options: compile options, as for :func:`tvm_ext.compile`; not for a compiled model.

    Returns:
        A plan, of the program of any size at its bounds: `str()` prints it, `svg()` draws the arena, `ratio` is its
        size over the lower bound.

    Raises:
        OptionError: options for a compiled model, or no program for this batch.
        ModelError, UnsupportedError: as for :func:`tvm_ext.compile`.
    """
    if isinstance(model, CompiledModel):
        if options:
            raise OptionError(f"the model is compiled already; no use for {sorted(options)}", fix="leave them out")
        compiled = model
    else:
        compiled = compile_model(model, **options)
    return MemoryPlan.of(compiled.report, str(compiled.metadata.model["name"]), batch, compiled.symbols)

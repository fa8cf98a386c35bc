"""The memory plan of a compiled model: what lives when, where it lies in the arena, and how good that is.

The facts are those of the compile (`driver/arena.py`): activations, and workspace of kernels, in one arena; what
threads take from pools of their own beside it. Inputs, weights and outputs are not counted: they are the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.errors import OptionError
from ..runtime.model import CompiledModel
from .markup import Cell, Markup, Value, facts, figure, table
from .memory_picture import picture
from .page import fragment

_TITLES = ("buffer", "bytes", "offset", "launches", "kind")


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


@dataclass(frozen=True)
class MemoryPlan:
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

    @classmethod
    def of(cls, report: Mapping[str, Any], model: str, batch: int = 0) -> MemoryPlan:
        """From the report of a compiled model.

        Raises:
            OptionError: it has no program for such a batch, or no plan.
        """
        programs = report.get("programs") or [report]
        chosen = [one for one in programs if one.get("batch") == batch] if batch else programs[-1:]
        if not chosen:
            sizes = ", ".join(str(one.get("batch")) for one in programs)
            raise OptionError(f"{model} has no program for a batch of {batch}", fix=f"choose one of {sizes}")
        if (plan := chosen[0].get("memory")) is None:
            raise OptionError(f"the report of {model} has no memory plan", fix="compile it again")
        buffers = tuple(Buffer(b["name"], b["nbytes"], b["offset"], b["first"], b["last"], b["workspace"])
                        for b in plan["buffers"])  # fmt: skip
        return cls(
            model, batch, plan["bytes"], plan["lower_bound"], plan["no_reuse"], plan["arena_bytes"], buffers,
            tuple(plan["steps"]), tuple(plan["pooled"]),
        )  # fmt: skip

    @property
    def ratio(self) -> float:
        """Bytes over the lower bound: 1 is as good as can be."""
        return self.nbytes / self.lower_bound if self.lower_bound else 1.0

    def live(self, launch: int) -> int:
        """Bytes in use in a launch, pools included."""
        held = sum(one.nbytes for one in self.buffers if one.first <= launch <= one.last)
        return held + self.pooled[launch]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        rows = [{**vars(one)} for one in self.buffers]
        return {
            "model": self.model, "batch": self.batch, "bytes": self.nbytes, "lower_bound": self.lower_bound,
            "no_reuse": self.no_reuse, "arena_bytes": self.arena_bytes, "ratio": round(self.ratio, 4),
            "buffers": rows, "launches": list(self.launches), "pooled": list(self.pooled),
        }  # fmt: skip

    def summary(self) -> list[tuple[str, str]]:
        """The plan in a few lines."""
        pool = max(self.pooled, default=0)
        return [
            ("in all", f"{_size(self.nbytes)}: {_size(self.arena_bytes)} of arena, {_size(pool)} of threads' pools"),
            (
                "lower bound",
                f"{_size(self.lower_bound)} live in launch {self.fullest}: {self.ratio:.3f} of it",
            ),
            ("without reuse", f"{_size(self.no_reuse)}: {self.no_reuse / max(self.nbytes, 1):.1f} times as much"),
        ]

    @property
    def fullest(self) -> str:
        """The launch with most bytes in use."""
        if not self.launches:
            return "-"
        at = max(range(len(self.launches)), key=self.live)
        return f"{at} ({self.launches[at]})"

    def __str__(self) -> str:
        lines = [f"memory of {self.model}" + (f", batch {self.batch}" if self.batch else "")]
        lines += [f"  {title:14} {text}" for title, text in self.summary()]
        rows = [_TITLES, *(tuple(map(str, row)) for row in self._rows())]
        widths = [max(len(row[at]) for row in rows) for at in range(len(_TITLES))]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join(lines)

    def parts(self) -> list[Markup]:
        """The plan as parts of a page: figures, picture, table."""
        rows: list[list[Value]] = [
            [name, nbytes, offset, Cell(span, value=one.first), kind]
            for one, (name, nbytes, offset, span, kind) in zip(self.buffers, self._rows(), strict=True)
        ]
        shown = [facts(self.summary())]
        if self.buffers:
            shown.append(figure(self.svg(), "the arena: launches from left to right, addresses from bottom to top"))
        return [*shown, table(_TITLES, rows, ("bytes", "offset"), "what lies in the arena")]

    def svg(self) -> str:
        """A picture of the arena, as SVG: launches from left to right, addresses from bottom to top."""
        return picture(self.buffers, self.launches, self.arena_bytes)

    def _repr_html_(self) -> str:
        return fragment(*self.parts())

    def _rows(self) -> list[tuple[str, int, int, str, str]]:
        kinds = {True: "workspace", False: "activation"}
        return [(one.name, one.nbytes, one.offset, f"{one.first} to {one.last}", kinds[one.workspace])
                for one in self.buffers]  # fmt: skip


def memory_plan(model: Any, *, batch: int = 0, **options: Any) -> MemoryPlan:
    """What a compiled model works in: what lives when, where it lies in the arena, and the least that any plan needs.

    Args:
        model: a path, the bytes of an ONNX file, an `onnx.ModelProto`, or a compiled model.
        batch: size of a symbolic batch that has a program; 0 takes the largest.
        **options: compile options, as for :func:`tvm_ext.compile`; not for a compiled model.

    Returns:
        A plan: `str()` prints it, `svg()` draws the arena, `ratio` is its size over the lower bound.

    Raises:
        OptionError: options for a compiled model, or no program for this batch.
        ModelError, UnsupportedError: as for :func:`tvm_ext.compile`.
    """
    from ..driver.compile import compile_model

    if isinstance(model, CompiledModel):
        if options:
            raise OptionError(f"the model is compiled already; no use for {sorted(options)}", fix="leave them out")
        compiled = model
    else:
        compiled = compile_model(model, **options)
    return MemoryPlan.of(compiled.report, str(compiled.metadata.model["name"]), batch)


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e6:.2f} MB" if nbytes >= 100_000 else f"{nbytes:,} bytes"

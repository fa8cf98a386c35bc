"""Looks into a compile: each stage as text, each pass as a diff, files that a compile can go on from.

inspection = tvm_ext.inspect("resnet18.onnx")
print(inspection.stage("grouped"))
inspection.dump("stages")
"""

import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..core.errors import OptionError, UnsupportedError
from ..core.graph.ownership import IMPORT
from ..core.instruments import Instruments
from ..core.machine import Machine, machine_for
from ..core.options import CompileOptions
from ..core.pages.page import Code, Facts, Fold, Note, Page, Part, Shown
from ..core.settings.states import Axes, growing_axes
from ..driver.lower import Clock, Lowered, run_pipeline, start
from ..driver.programs import with_symbols
from ..driver.stages.catalog import NAMES, STAGES, Stage, stage_named
from ..frontend.importer import Imported
from ..frontend.reading.freezing import frozen_source
from ..frontend.reading.reader import Source
from ..frontend.reading.shapes import input_specs
from ..frontend.reading.signature import read_with
from ..runtime.files import make_folder
from ..runtime.table import Column, Table
from ..runtime.values import described, plain_values
from .constants import Tensors
from .diffs import PassChange, pass_changes
from .dump import file_name, write_stages
from .snapshots import Snapshots
from .stage_texts import kernels_module, other_text, python_text

#: The file of tensors in a folder of stages.
TENSORS = "tensors.npz"
#: Letters of one stage or diff on a page; a browser is slow with more.
LIMIT = 400_000
_COLUMNS = ("pass", "name", "fired", "skipped", "functions changed", "lines changed", "seconds")


@dataclass(frozen=True, eq=False)
class Inspection(Shown):
    """A compile that was looked at: nothing is built, and what passes did is kept.

    Attributes:
        lowered: the model after the last pass that ran.
        snapshots: of each step.
        ended: the stage at which the compile was stopped; "" if all passes ran.
    """

    lowered: Lowered
    snapshots: Snapshots
    ended: str = ""
    _texts: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.source.name

    @property
    def source(self) -> Source:
        """The model that was read."""
        return self.lowered.source

    @property
    def imported(self) -> Imported:
        """The model in Relax."""
        return self.lowered.imported

    @property
    def options(self) -> CompileOptions:
        """Options of the compile."""
        return self.lowered.ctx.options

    @property
    def machine(self) -> Machine:
        """The machine compiled for."""
        return self.lowered.ctx.machine

    @functools.cached_property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages that can be read, in order."""
        offloads = self.lowered.ctx.offload is not None and bool(self.lowered.ctx.offload.regions)
        last = NAMES.index(self.ended) if self.ended else len(NAMES)
        return tuple(s.name for at, s in enumerate(STAGES) if at <= last and (s.name != "program" or offloads))

    def stage(self, name: str) -> str:
        """A stage as text.

        Raises:
            OptionError: there is no such stage, the compile ended before, or nothing is offloaded.
        """
        stage = stage_named(name)
        if self.ended and NAMES.index(name) > NAMES.index(self.ended):
            raise OptionError(f"stage {name!r}: the compile ended at {self.ended!r}", fix=f'to="{name}"')
        if name not in self._texts:
            self._texts[name] = self._text(stage)
        return self._texts[name]

    def _text(self, stage: Stage) -> str:
        snapshot = self.snapshots.of(stage.after) if stage.after else None
        if snapshot is None:
            return other_text(stage, self.lowered)
        mod = snapshot.mod if stage.resumes else kernels_module(self.snapshots)
        return python_text(stage, self.model, mod, Tensors(), snapshot.groups).text

    @functools.cached_property
    def passes(self) -> tuple[PassChange, ...]:
        """What each pass changed, in order."""
        return self.changes_of()

    def changes_of(self, only: Iterable[str] = ()) -> tuple[PassChange, ...]:
        """What some passes changed.

        Args:
            only: names of passes; none for all.

        Raises:
            OptionError: no pass has this name.
        """
        reports, only = self.lowered.ctx.reports, tuple(only)
        known = list(dict.fromkeys(report.name for report in reports))
        for name in only:
            if name not in known:
                raise OptionError(f"no pass {name!r} ran", fix=f"passes: {', '.join(known)}")
        return tuple(pass_changes(self.snapshots.steps, reports, only))

    def dump(self, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Write all stages to a folder, numbered; :func:`tvm_ext.resume` goes on from most of them.

        Files are written over, and none is removed. Weights are in the clear, and the Python files are run when they
        are read: keep the folder to yourself as you would the model and your own code.

        Returns:
            The files with the texts, in order.

        Raises:
            ToolError: the folder or a file cannot be written.
        """
        target = make_folder(folder)
        files = [(stage, target / file_name(stage)) for stage in map(stage_named, self.stages)]
        write_stages(self, files, TENSORS)
        return tuple(path for _, path in files)

    def write(self, name: str, path: str | os.PathLike[str]) -> Path:
        """Write one stage, with its tensors and its manifest beside it.

        Args:
            name: of the stage.
            path: of the text; .py for a stage that is a module.

        Raises:
            OptionError: there is no such stage, or another suffix.
            ToolError: a file cannot be written.
        """
        stage, target = stage_named(name), Path(path)
        if stage.suffix == ".py" and target.suffix != ".py":
            raise OptionError(f"stage {name!r} to {str(path)!r}: it is a Python file", fix="let it end in .py")
        self.stage(name)  # says if there is none
        files = [(stage, target)]
        if name == "program":
            scheduled = stage_named("scheduled")
            files.insert(0, (scheduled, target.with_name(f"{target.stem}_scheduled.py")))
        write_stages(self, files, f"{target.stem}.npz")
        return target

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the model, the stages' names, and what passes changed."""
        return {
            "model": self.model, "machine": self.machine.as_dict(), "stages": list(self.stages),
            "passes": [change.as_dict() for change in self.passes],
        }  # fmt: skip

    def html(self) -> str:
        """A self-contained page: stages and diffs that fold, with search.

        Raises:
            ToolError: Jinja2 is not installed.
        """
        page = Page(f"{self.model}: every step of its compile")
        facts = [
            ("model", self.model), ("SHA-256", self.source.sha256),
            *((title, ", ".join(map(": ".join, described(values or plain_values(specs), specs))))
              for title, values, specs in (("inputs", self.source.arguments, self.imported.inputs),
                                           ("outputs", self.imported.results, self.imported.outputs))),
            ("compiled for", f"{self.machine.mcpu} ({self.machine.isa}), {self.machine.threads} threads"),
        ]  # fmt: skip
        page.section("Model", Facts(facts), *(Note(warning, "warn") for warning in self.imported.warnings))
        page.section("Passes", Table(_COLUMNS, map(_row, self.passes)))
        for change in self.passes:
            if change.changes or change.fired or change.skipped:
                page.section(f"{change.number}. {change.name}", *_pass_parts(change), folded=True)
        for name in self.stages:
            text = _block(self.stage(name), "text")
            page.section(f"Stage {name}", Note(stage_named(name).summary), *text, folded=True)
        return page.html()

    def parts(self) -> list[Part]:
        """What can be read, and a row a pass; what changed is on the page alone."""
        head = f"{self.model} for {self.machine.mcpu}: stages {', '.join(self.stages)}"
        rows = [(r.name, len(r.fired), len(r.skipped), r.seconds) for r in self.lowered.ctx.reports]
        return [Note(head), Table(("pass", "fired", "skipped", Column("seconds", form=".3f")), rows)]


def inspect(model: Any, *, to: str = "", **options: Any) -> Inspection:
    """Compile a model with a look at each step, and build nothing.

    Args:
        model: a path, the bytes of an ONNX file, or an `onnx.ModelProto`.
        to: the stage to stop at; "" runs all passes.
        **options: compile options, as for :func:`tvm_ext.compile`. Of a model with symbolic dimensions the program is
            shown in which each is the last size that `specialize` names, else its largest.

    Returns:
        An inspection: `stage("grouped")` is one form of the model as text (of "onnx", "relax", "grouped", "layout",
        "tir", "scheduled", "llvm", "asm", "program"), `passes` what each pass changed, as diffs; `dump(folder)` writes
        all stages as files that :func:`tvm_ext.resume` goes on from, `html()` is a page of all.

    Raises:
        ModelError, OptionError: as for :func:`tvm_ext.compile`; or there is no such stage.
        UnsupportedError: as for :func:`tvm_ext.compile`; or a batch without bounds is symbolic: name one size.
    """
    last = None if to is None or (isinstance(to, str) and not to) else stage_named(to)
    source, chosen = read_with(model, CompileOptions.of(**options))
    machine, snapshots = machine_for(chosen), Snapshots()
    instruments, clock = Instruments(watch=snapshots.watch), Clock()
    clock.lap("start")
    frozen = frozen_source(source, chosen.freeze)
    bound = with_symbols(frozen, chosen)
    grows: Axes = frozenset()
    if bound.symbols:
        grows = growing_axes(input_specs(frozen.proto.graph, dict(bound.shapes), source.name))
        if bound.symbol is not None and not chosen.specialize:
            wrong = f"a model of any batch {bound.symbol} becomes one program a size, and stages are of one program"
            raise UnsupportedError(wrong, fix=f"name a size: specialize={{{bound.symbol!r}: ({bound.sizes[-1]},)}}")
        chosen = bound.at({symbol.name: symbol.high for symbol in bound.symbols} | bound.stated_sizes)
    begun = start(source, chosen, machine, clock, instruments, grows=grows)
    if grows:  # a program of numbers by itself, which others go on from, has no state of several sizes
        _keep_states_of_one_size(begun)
    return Inspection(run_pipeline(begun, last=_last_step(last)), snapshots, to)


def _keep_states_of_one_size(begun: Lowered) -> None:
    outputs, inputs = begun.imported.outputs, begun.imported.inputs
    pairs = begun.ctx.states
    begun.ctx.states = tuple(pair for pair in pairs if outputs[pair[0]].shape == inputs[pair[1]].shape)
    kept = tuple((outputs[output].name, inputs[other].name) for output, other in begun.ctx.states)
    begun.ctx.options = replace(begun.ctx.options, state=kept)


def _last_step(stage: Stage | None) -> str:
    """The step after which no more is needed for a stage; "" for all steps."""
    if stage is None or stage.name in ("llvm", "asm", "program"):
        return ""
    return IMPORT if stage.name == "onnx" else stage.after


# ------------------------------------------------------------ the page
def _row(change: PassChange) -> tuple[int | str | float, ...]:
    """A pass; of each diff two lines name the function, and others were added or removed."""
    lines = sum(line.startswith(("+", "-")) for function in change.changes for line in function.diff[2:])
    counts = (len(change.fired), len(change.skipped), len(change.changes), lines)
    return change.number, change.name, *counts, round(change.seconds, 4)


def _pass_parts(change: PassChange) -> list[Part]:
    kinds = (("fired", "what", change.fired), ("skipped", "why not", change.skipped))
    parts: list[Part] = [
        Fold(f"{kind}: {len(events)}", [Table(("value", title), [(event.value, event.detail) for event in events])])
        for kind, title, events in kinds
        if events
    ]
    opened = len(change.changes) == 1
    return [*parts, *(Fold(part.function, _block(str(part), "diff"), opened) for part in change.changes)]


def _block(text: str, language: str) -> list[Part]:
    """A block of code, cut where it is too long to show, with words that say so."""
    if len(text) <= LIMIT:
        return [Code(text, language)]
    shown = text[: text.rindex("\n", 0, LIMIT)]
    left = text.count("\n") - shown.count("\n")
    return [Code(shown, language), Note(f"{left} further lines: dump the stages for all of them", "warn")]

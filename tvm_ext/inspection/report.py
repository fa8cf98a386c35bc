"""A report of a model: what it holds, what became of it, how right and how fast it is; made of the other parts."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import InputError, OptionError, TvmExtError, check_switch, check_whole, listener
from ..core.options import CompileOptions
from ..core.pages.page import Facts, Fold, Note, Page, Part, Shown
from ..driver.compile import compile_model
from ..passes.lowering.choose_recipes import ChooseRecipes
from ..runtime.files import path_of, write_text
from ..runtime.model import CompiledModel
from ..runtime.offloading.report import OffloadReport
from ..runtime.table import Cell, Column, Table, knobs_text, plain_fields
from ..runtime.values import described, named
from ..verification.environment import describe_machine
from ..verification.layer_check import check_layers
from ..verification.layers import LayerReport
from .analysis import Analysis, analyze
from .analysis.result import scaled
from .memory import MemoryPlan
from .ownership import Owners, owners_of
from .profile import Profile, profile_model

Step = Callable[[str], None]
"""Told what is going on, such as "compiling"."""


@dataclass(frozen=True)
class Report(Shown):
    """What is known of a model and its program; `str()` is its summary, `html()` the page.

    Attributes:
        analysis: of the ONNX model.
        facts: the report of the compile, as `CompiledModel.report` has it.
        isa, threads: compiled for.
        inputs, outputs: of the program, as text.
        owners: of the ONNX nodes.
        environment: machine and versions.
        profile, layers: times and accuracy; None where they were not asked for, or failed.
        failed: part -> why it is missing.
        path: where the page was written; None if it was not.
    """

    analysis: Analysis
    facts: Mapping[str, Any]
    isa: str
    threads: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    owners: Owners
    environment: Mapping[str, Any]
    profile: Profile | None = None
    layers: LayerReport | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    path: Path | None = None

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.analysis.model

    @property
    def ok(self) -> bool:
        """Whether nothing failed, every node is owned, and every value that was compared agrees."""
        return not self.failed and not self.owners.unowned and (self.layers is None or self.layers.ok)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        fields = plain_fields(self, "ok", "model")
        owners, facts, path = fields.pop("owners"), fields.pop("facts"), str(self.path) if self.path else None
        return {**fields, "compile": facts, "nodes": owners, "path": path}

    def html(self) -> str:
        """The page: self-contained, without network.

        Raises:
            ToolError: Jinja2 or matplotlib is not installed.
        """
        page = Page(f"{self.model}, compiled for {self.isa}")
        for title, parts, folded in _sections(self):
            page.section(title, *parts, folded=folded)
        return page.html()

    def parts(self) -> list[Part]:
        """The report in a few lines; the page has all of it."""
        return [Facts(self.summary() + ([("page", str(self.path))] if self.path else []))]

    def summary(self) -> list[tuple[str, str]]:
        """(name, value), without the path of the page."""
        pairs = [("model", self.model)]
        pairs += [("input", text) for text in self.inputs] + [("output", text) for text in self.outputs]
        work, facts = self.analysis, self.facts
        pairs += [
            ("work", f"{len(work.nodes)} nodes, {scaled(work.flops)}FLOP, {work.parameters:,} parameters"),
            ("program", f"{facts['launches']} launches of {len(facts['kernels'])} kernels, {self.isa}, "
                        f"{self.threads} threads"),
            ("memory", f"{scaled(facts['weight_bytes'])}B of weights, {scaled(facts['activation_bytes'])}B of values"),
            ("owned by", self.owners.verdict),
        ]  # fmt: skip
        if self.profile is not None:
            pairs.append(("time", f"{self.profile.seconds * 1e3:.3f} ms"))
        if self.layers is not None:
            pairs.append(("accuracy", self.layers.verdict))
        return pairs + [(f"no {part}", why) for part, why in self.failed.items()]


def report(
    model: Any, path: str | os.PathLike[str] | None = None, inputs: Mapping[str, np.ndarray] | None = None, *,
    check: bool = True, profile: bool = True, rounds: int = 7, seed: int = 0,
    on_step: Step | None = None, **options: Any,
) -> Report:  # fmt: skip
    """Gather all that is known of a model and its program, and write it as one self-contained page.

    Args:
        model: a path, the bytes of an ONNX file, or an `onnx.ModelProto`.
        path: page to write; None writes none: the report has it as `html()`.
        inputs: name -> array, for times and accuracy; None draws them.
        check: compare every kernel's value and every output with onnxruntime.
        profile: time every kernel.
        rounds: of the profile.
        seed: of the drawn inputs.
        on_step: told what is going on.
        **options: compile options, as for `tvm_ext.compile`.

    Returns:
        A report: `ok`, `analysis`, `owners` (of every ONNX node), `profile`, `layers`, `failed` (parts that could not
        be made, with the reason); `str()` is its summary.

    Raises:
        ModelError, OptionError, UnsupportedError: as for `tvm_ext.compile`.
        InputError: `inputs` do not fit the model.
        ToolError: the page cannot be written.
    """
    say, failed = listener(on_step, "on_step"), dict[str, str]()
    _check(check, profile, rounds, seed)
    page = None if path is None else Path(path_of(path, OptionError, "the path of the page"))
    inputs = None if inputs is None else named(inputs, "inputs")

    def optional(name: str, make: Callable[[], Any]) -> Any:
        """A part that a report can do without: one that fails leaves its reason."""
        say(name)
        try:
            return make()
        except TvmExtError as error:
            if isinstance(error, InputError) and inputs is not None:
                raise
            failed[name] = str(error)
            return None

    compile_options = CompileOptions.of(**options)
    say("analyzing")
    analysis = analyze(model, **options)
    say("compiling")
    compiled, times, layers = compile_model(model, compile_options), None, None
    if profile:  # times first: onnxruntime's threads, once they are there, take turns with those of the kernels
        measure = functools.partial(profile_model, model, inputs, rounds=rounds, seed=seed, **options)
        times = optional("profile", measure)
    if check:
        layers = optional("accuracy", functools.partial(check_layers, compiled, model, inputs, seed=seed))
    say("writing")
    result = _report(analysis, compiled, times, layers, failed, page)
    if result.path is not None:
        write_text(result.path, result.html())
    return result


def _check(check: Any, profile: Any, rounds: Any, seed: Any) -> None:
    """Raises OptionError for an argument of :func:`report` that does not fit, before anything takes time."""
    for switch, value in (("check", check), ("profile", profile)):
        check_switch(switch, value)
    for number, value in (("rounds", rounds), ("seed", seed)):
        check_whole(number, value, int(number == "rounds"))


def _report(
    analysis: Analysis, compiled: CompiledModel, profile: Profile | None, layers: LayerReport | None,
    failed: Mapping[str, str], path: Path | None,
) -> Report:  # fmt: skip
    sides = (compiled.arguments, compiled.inputs), (compiled.results, compiled.outputs)
    inputs, outputs = (tuple(map(" ".join, described(*side))) for side in sides)
    return Report(
        analysis, compiled.report, str(compiled.metadata.machine["isa"]), compiled.threads, inputs, outputs,
        owners_of(compiled), describe_machine(), profile, layers, failed, path,
    )  # fmt: skip


# ------------------------------------------------------------ the page
def _sections(report: Report) -> list[tuple[str, Sequence[Part], bool]]:
    """Title, parts, and whether only the title shows at first."""
    facts = report.facts
    warnings = dict.fromkeys([*facts.get("warnings", ()), *report.analysis.warnings])
    sections: list[tuple[str, Sequence[Part], bool]] = [
        ("Summary", [Facts(report.summary()), *(Note(text, "warn") for text in warnings)], False)
    ]
    if report.profile is not None:
        sections.append(("Profile", report.profile.parts(), False))
    if report.layers is not None:
        sections.append(("Accuracy", _accuracy(report.layers), False))
    sections.append(("Kernels", [_kernels(facts["kernels"])], False))
    sections.append(("Memory", MemoryPlan.of(facts, report.model).parts(), False))
    sections.append(("ONNX nodes", report.owners.parts(), False))
    sections += [(title, parts, "node" in title) for title, parts in report.analysis.sections(passes=False)[1:]]
    sections.append(("Passes", _passes(facts["passes"]), False))
    sections.append(("Tuning records", _records(facts), False))
    if "offload" in facts:
        sections.append(("Offload", _offload(OffloadReport.of(facts, report.model), report.profile), False))
    sections.append(("Compile time and environment", [_environment(report)], False))
    return sections


def _accuracy(layers: LayerReport) -> list[Part]:
    problems = [Note(problem, "bad") for problem in (*layers.outputs.problems, *layers.outputs.warnings)]
    return [*problems, layers.outputs.table(), *layers.parts()]


def _kernels(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("kernel", "recipe", "calls", "FLOPs a call", "bytes a call", Column("estimate", "us"), "layouts",
               "configuration", "why no recipe", "ONNX nodes")  # fmt: skip
    return Table(columns, [
        (
            row["name"], Cell(row["recipe"], tone="warn" if row["reason"] else ""), row["calls"], row.get("flops"),
            row.get("bytes"), row["estimated_us"], row["layouts"], knobs_text(row["config"]), row["reason"],
            ", ".join(row["nodes"]),
        )
        for row in rows
    ]).filled()  # fmt: skip


def _passes(rows: Sequence[Mapping[str, Any]]) -> list[Part]:
    listed = [
        (at, row["name"], len(row["fired"]), len(row["skipped"]), 1e3 * row["seconds"])
        for at, row in enumerate(rows, start=1)
    ]
    parts: list[Part] = [Table(("#", "pass", "fired", "skipped", Column("time", "ms")), listed)]
    for at, row in enumerate(rows, start=1):
        events = [(Cell(kind, tone="dim" if kind == "skipped" else ""), value, detail)
                  for kind in ("fired", "skipped") for value, detail in row[kind]]  # fmt: skip
        if events:
            title = f"{at} {row['name']}: {len(row['fired'])} fired, {len(row['skipped'])} skipped"
            parts.append(Fold(title, [Table(("", "value", "what, or why not"), events)]))
    return parts


def _records(report: Mapping[str, Any]) -> list[Part]:
    used = [(row["name"], row["recipe"], row["record"], knobs_text(row["config"])) for row in report["kernels"]
            if row["record"]]  # fmt: skip
    chosen = [row for row in report["passes"] if row["name"] == ChooseRecipes.name]
    unplanned = {row["name"] for row in report["kernels"] if row["reason"]}
    refused = [(value, why) for row in chosen for value, why in row["skipped"] if value not in unplanned]
    tables = (Table(("kernel", "recipe", "session", "configuration"), used, "followed"),
              Table(("group", "why"), refused, "not followed"))  # fmt: skip
    count = Note(f"{len(used)} of {len(report['kernels'])} kernels follow a tuning record.")
    return [count, *(table for table in tables if table.rows)]


def _offload(offloaded: OffloadReport, profile: Profile | None) -> list[Part]:
    """Times of what the CPU keeps are those of the profile, if there is one."""
    if profile is not None:
        offloaded = offloaded.measured({row.label: row.median for row in profile.rows("kernel")})
    return [*map(Note, offloaded.heads()), *offloaded.tables()]


def _environment(report: Report) -> Facts:
    environment = dict(report.environment)
    packages = environment.pop("packages", {})
    timing = [(f"{stage}, seconds", seconds) for stage, seconds in report.facts.get("timing", {}).items()]
    pairs = [(name.replace("_", " "), str(value)) for name, value in environment.items()]
    return Facts([*timing, *pairs, *((name, str(version)) for name, version in packages.items())])

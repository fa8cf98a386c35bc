"""A report of a model: what it holds, what became of it, how right and how fast it is; made of the other parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import TvmExtError
from ..core.options import CompileOptions
from ..core.pages.page import Facts, Part, Shown
from ..runtime.files import write_text
from .analysis import Analysis, analyze
from .analysis.result import scaled
from .ownership import Owners, owners_of

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.model import CompiledModel
    from ..verification.layers import LayerReport
    from .profile import Profile

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
        return {
            "ok": self.ok, "model": self.model, "analysis": self.analysis.as_dict(), "compile": dict(self.facts),
            "isa": self.isa, "threads": self.threads, "inputs": list(self.inputs), "outputs": list(self.outputs),
            "nodes": self.owners.as_dict(), "environment": dict(self.environment),
            "profile": self.profile.as_dict() if self.profile else None,
            "layers": self.layers.as_dict() if self.layers else None, "failed": dict(self.failed),
            "path": str(self.path) if self.path else None,
        }  # fmt: skip

    def html(self) -> str:
        """The page: self-contained, without network.

        Raises:
            ToolError: Jinja2 or matplotlib is not installed.
        """
        from .report_page import report_page

        return report_page(self).html()

    def parts(self) -> list[Part]:
        """The report in a few lines; the page has all of it."""
        return [Facts(self.summary() + ([("page", str(self.path))] if self.path else []))]

    def summary(self) -> list[tuple[str, str]]:
        """(name, value), without the path of the page."""
        made = [("model", self.model)]
        made += [("input", text) for text in self.inputs] + [("output", text) for text in self.outputs]
        work, facts = self.analysis, self.facts
        made += [
            ("work", f"{len(work.nodes)} nodes, {scaled(work.flops)}FLOP, {work.parameters:,} parameters"),
            ("program", f"{facts['launches']} launches of {len(facts['kernels'])} kernels, {self.isa}, "
                        f"{self.threads} threads"),
            ("memory", f"{scaled(facts['weight_bytes'])}B of weights, {scaled(facts['activation_bytes'])}B of values"),
            ("owned by", self.owners.verdict),
        ]  # fmt: skip
        if self.profile is not None:
            made.append(("time", f"{self.profile.seconds * 1e3:.3f} ms"))
        if self.layers is not None:
            made.append(("accuracy", self.layers.verdict))
        return made + [(f"no {part}", why) for part, why in self.failed.items()]


def report(
    model: Any,
    path: str | os.PathLike[str] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    *,
    check: bool = True,
    profile: bool = True,
    rounds: int = 7,
    seed: int = 0,
    on_step: Step | None = None,
    **options: Any,
) -> Report:
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
        ToolError: the page cannot be written.
    """
    say = on_step or (lambda _: None)
    given = CompileOptions.of(**options)
    say("analyzing")
    analysis = analyze(model, **options)
    say("compiling")
    compiled = _compiled(model, given)
    parts = _Parts()
    # Times first: onnxruntime's threads, once they are there, take turns with those of the kernels.
    times = parts.get("profile", lambda: _profile(model, inputs, rounds, seed, options), say) if profile else None
    layers = parts.get("accuracy", lambda: _layers(compiled, model, inputs, seed), say) if check else None
    say("writing")
    made = _report(analysis, compiled, times, layers, parts.failed, Path(path) if path is not None else None)
    if made.path is not None:
        write_text(made.path, made.html())
    return made


class _Parts:
    """Parts that a report can do without: one that fails leaves its reason."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}

    def get(self, name: str, make: Callable[[], Any], say: Step) -> Any:
        say(name)
        try:
            return make()
        except TvmExtError as error:
            self.failed[name] = str(error)
            return None


def _report(
    analysis: Analysis, compiled: CompiledModel, profile: Any, layers: Any, failed: Mapping[str, str], path: Path | None
) -> Report:
    from ..verification.environment import describe_machine

    machine = compiled.metadata.machine
    inputs, outputs = (tuple(f"{t.name} {t}" for t in side) for side in (compiled.inputs, compiled.outputs))
    return Report(
        analysis, compiled.report, str(machine["isa"]), compiled.threads, inputs, outputs, owners_of(compiled),
        describe_machine(), profile, layers, failed, path,
    )  # fmt: skip


def _compiled(model: Any, options: CompileOptions) -> CompiledModel:
    from ..driver.compile import compile_model

    return compile_model(model, options)


def _profile(
    model: Any, inputs: Mapping[str, np.ndarray] | None, rounds: int, seed: int, options: Mapping[str, Any]
) -> Profile:
    from .profile import profile_model

    return profile_model(model, inputs, rounds=rounds, seed=seed, **options)


def _layers(compiled: CompiledModel, model: Any, inputs: Mapping[str, np.ndarray] | None, seed: int) -> LayerReport:
    from ..verification.layer_check import check_layers

    return check_layers(compiled, model, inputs, seed=seed)

"""Writes stages to a folder: texts, one file of tensors, and a manifest beside each that a compile can go on from.

Each text is read back at once: what TVM's printer or parser loses is found here and said, not when somebody goes on.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm_ffi
from tvm import relax
from tvm.ir import IRModule

from ..core.errors import StageError, ToolError
from ..core.graph.relax_graph import bindings_of
from ..driver.stages.catalog import STAGES, Stage, stage_named
from ..driver.stages.constants import file_form
from ..driver.stages.file import read_stage, text_digest
from ..driver.stages.manifest import Manifest
from ..driver.stages.state import options_state
from ..runtime.files import whole_file
from ..runtime.spec import installed_versions
from .constants import Tensors
from .snapshots import Snapshot
from .stage_texts import StageText, kernels_module, python_text

if TYPE_CHECKING:
    from .inspection import Inspection


class StageWarning(UserWarning):
    """A stage was written, and a compile cannot go on from it, or would make another program."""


def file_name(stage: Stage) -> str:
    """The name of a stage's file in a folder of all stages."""
    return f"{STAGES.index(stage) + 1:02d}_{stage.name}{stage.suffix}"


def write_stages(inspection: Inspection, files: Sequence[tuple[Stage, Path]], tensors_file: str) -> None:
    """Write stages, each to its path; all paths are in one folder.

    Args:
        inspection: whose.
        files: stages and the paths of their texts. A program's goes on from the scheduled stage, which must be there.
        tensors_file: name of the file of tensors.

    Raises:
        ToolError: a file cannot be written.
    """
    writer = _Writer(inspection, dict(files), tensors_file)
    try:
        writer.write()
    except OSError as error:
        raise ToolError(f"stages cannot be written to {str(files[0][1].parent)!r}: {error}") from error


class _Writer:
    def __init__(self, inspection: Inspection, paths: Mapping[Stage, Path], tensors_file: str) -> None:
        self._inspection, self._paths, self._tensors_file = inspection, paths, tensors_file
        self._tensors = Tensors()

    def write(self) -> None:
        texts = {stage: self._text(stage) for stage in self._paths}
        if self._tensors.arrays:
            path = next(iter(self._paths.values())).with_name(self._tensors_file)
            with whole_file(path, sync=False) as file:
                np.savez(file, **{name: file_form(a) for name, a in self._tensors.arrays.items()})  # type: ignore[arg-type]
        for stage, path in self._paths.items():
            text = texts[stage]
            content = text if isinstance(text, str) else text.text
            with whole_file(path, sync=False) as out:
                out.write(content.encode())
            if path.suffix == ".py" or stage.resumes:
                self._write_manifest(stage, path, text, content)

    def _text(self, stage: Stage) -> StageText | str:
        snapshots = self._inspection.snapshots
        if stage.name == "tir":
            return python_text(stage, self._inspection.model, kernels_module(snapshots), self._tensors)
        snapshot = snapshots.of(stage.after) if stage.after else None
        if snapshot is None:
            return self._inspection.stage(stage.name)
        return python_text(stage, self._inspection.model, snapshot.mod, self._tensors, snapshot.groups)

    def _write_manifest(self, stage: Stage, path: Path, text: StageText | str, content: str) -> None:
        """The manifest, once more after reading the stage back if something was lost."""
        manifest = self._manifest(stage, text, content)
        manifest.write(path.with_suffix(".json"))
        if isinstance(text, str) or not stage.resumes:
            return
        back = read_back(path, text.mod)
        if back.renamed:
            _rename(manifest.context["provenance"], back.renamed)
        if back.gaps or back.renamed:
            replace(manifest, gaps=back.gaps, closed=manifest.closed or back.broken).write(path.with_suffix(".json"))
        if back.gaps:
            shown = "; ".join(f"{name}: {why}" for name, why in list(back.gaps.items())[:3])
            warnings.warn(f"stage {stage.name!r} in {path.name} does not read back exactly: {shown}", StageWarning, 2)

    def _manifest(self, stage: Stage, text: StageText | str, content: str) -> Manifest:
        run = self._inspection
        snapshot = run.snapshots.of(stage.after) if stage.resumes else None
        arrays = {} if isinstance(text, str) else {name: self._tensors.arrays[name] for name in text.tensors}
        base = self._paths[stage_named("scheduled")].name if stage.name == "program" else ""
        return Manifest(
            stage.name, {"name": run.source.name, "sha256": run.source.sha256}, options_state(run.options),
            run.machine.as_dict(), installed_versions(), run.imported.inputs, run.imported.outputs,
            run.imported.warnings, self._state(snapshot), self._tensors_file if arrays else "",
            {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in arrays.items()},
            text_digest(content), {}, base, _why_closed(stage, run), run.source.arguments, run.imported.results,
        )  # fmt: skip

    def _state(self, snapshot: Snapshot | None) -> dict[str, Any]:
        """What was decided by then, with the names of programs among the tensors."""
        if snapshot is None or snapshot.state is None:
            return {}
        state = dict(snapshot.state)
        if "offload" in state:
            rows = zip(state["offload"]["regions"], snapshot.programs, strict=True)
            named = [{**row, "program": self._tensors.name_of(program, row["name"])} for row, program in rows]
            state["offload"] = {**state["offload"], "regions": named}
        return state


def _why_closed(stage: Stage, run: Inspection) -> str:
    """Why no compile can go on from a stage that is written."""
    if not stage.resumes:
        return f"it shows what {stage.name!r} is; go on from 'layout' or 'scheduled'"
    if stage.name == "relax" and not isinstance(run.options.fusion, str):
        return "fusion is a function, which no file keeps; go on from 'grouped'"
    if run.imported.bodies:
        return "the bodies of its loops are programs of their own, which are in no file"
    return ""


def _rename(provenance: dict[str, Any], renamed: Mapping[str, str]) -> None:
    """Variables have other names in the text: what is known of them goes with them."""
    for table in provenance.values():
        moved = {new: table[old] for old, new in renamed.items() if old in table}
        for old in renamed:
            table.pop(old, None)
        table.update(moved)


# ------------------------------------------------------------ what reading a file back shows
@dataclass(frozen=True)
class ReadBack:
    """What reading a stage file back showed.

    Attributes:
        gaps: function -> what is another; empty if all is as it was.
        renamed: variable of `main` -> its name in the text, where that is another.
        broken: why the file cannot be read at all; "" if it can.
    """

    gaps: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    broken: str = ""


def read_back(path: Path, mod: IRModule) -> ReadBack:
    """Compare what a file makes with the module it was written from, function by function.

    Args:
        path: of the text; its manifest and its tensors are beside it.
        mod: in the form of :func:`.script.canonical`.
    """
    try:
        module = read_stage(path).mod
    except StageError as error:
        if error.message.startswith(f"{path.with_suffix('.json')}: no compile"):
            return ReadBack()  # said already
        return ReadBack({"Module": error.message}, broken=f"its text does not read back: {error.message}")
    assert module is not None
    read = {gvar.name_hint: function for gvar, function in module.functions_items()}
    gaps = {}
    for gvar, function in mod.functions_items():
        if why := _difference(function, read.get(gvar.name_hint)):
            gaps[gvar.name_hint] = why
    main = {gvar.name_hint: function for gvar, function in mod.functions_items()}.get("main")
    return ReadBack(gaps, _renamed(main, read["main"]) if main is not None and "main" in read else {})


def _difference(function: Any, other: Any) -> str:
    """Where two functions differ; "" if they are equal but for names."""
    if other is None:
        return "it is missing"
    mismatch = tvm_ffi.get_first_structural_mismatch(function, other, map_free_vars=True)
    return "" if mismatch is None else f"another value at {mismatch[0]}"


def _renamed(function: relax.Function, other: relax.Function) -> dict[str, str]:
    """Variable -> its name in the other function, which is equal but for names."""
    before = [*function.params, *(binding.var for binding in bindings_of(function))]
    after = [*other.params, *(binding.var for binding in bindings_of(other))]
    return {a.name: b.name for a, b in zip(before, after, strict=False) if a.name != b.name}

"""The manifest of a stage file: NAME.json beside it, with all that a compile needs to go on and is not in the text."""

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import StageError
from ...runtime.cpu import OTHER_MACHINE_FIX, why_not_here
from ...runtime.files import whole_file
from ...runtime.plain import read
from ...runtime.spec import TensorSpec, Value, installed_versions

FORMAT = 2
_AGAIN = "dump the stages again"


@dataclass(frozen=True)
class Manifest:
    """What is known of a stage besides its text and its tensors. Plain JSON values but for inputs and outputs.

    Attributes:
        stage: its name.
        model: "name", and "sha256" of the ONNX model.
        options: of the compile; see :func:`.state.options_state`.
        machine: :meth:`..Machine.as_dict` of the machine compiled for.
        versions: of TVM and of this library.
        inputs, outputs: of the model.
        warnings: of the import.
        context: what passes decided so far; see :func:`.state.context_state`.
        tensors: file of the stage's tensors, in the same folder.
        constants: tensor -> "dtype" and "shape".
        text_sha256: of the stage file when it was written.
        gaps: function -> how its text differs from what the compiler had; empty if the text is exact.
        base: stage file that a program's goes on from, in the same folder; "" for other stages.
        closed: why no compile can go on from here; "" if one can.
        arguments, results: inputs and outputs as callers have them, where some are sequences or optionals.
    """

    stage: str
    model: dict[str, str]
    options: dict[str, Any]
    machine: dict[str, Any]
    versions: dict[str, str]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    warnings: tuple[str, ...] = ()
    context: dict[str, Any] = field(default_factory=dict)
    tensors: str = ""
    constants: dict[str, dict[str, Any]] = field(default_factory=dict)
    text_sha256: str = ""
    gaps: dict[str, str] = field(default_factory=dict)
    base: str = ""
    closed: str = ""
    arguments: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()

    def write(self, path: Path) -> None:
        """Write the file; it appears whole or not at all."""
        values = {"format": FORMAT, **dataclasses.asdict(self)}
        with whole_file(path, sync=False) as file:
            file.write(f"{json.dumps(values, indent=1)}\n".encode())

    def check(self, path: Path) -> None:
        """Whether a compile can go on here.

        Raises:
            StageError: other versions, a machine that this one cannot stand for and no option named, or `closed`.
        """
        if self.closed:
            raise StageError(f"{path}: no compile can go on from here: {self.closed}")
        here = installed_versions()
        if differ := [f"{name} {self.versions.get(name)}, here {v}" for name, v in here.items()
                      if self.versions.get(name) != v]:  # fmt: skip
            raise StageError(f"{path}:1: written by other versions: {'; '.join(differ)}", fix=_AGAIN)
        if not self.options.get("target") and (reason := why_not_here(self.machine)):
            raise StageError(f"{path}:1: {reason}", fix=f"{OTHER_MACHINE_FIX}, and dump the stages again")


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Read one.

    Raises:
        StageError: it is missing, no JSON, of another format, or a field is missing or of another type.
    """
    path = Path(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        fix = f"keep the files of a stage in one folder: {path.stem}.py, its .json and the .npz"
        raise StageError(f"the manifest of this stage is missing: there is no {str(path)!r}", fix=fix) from None
    except (OSError, UnicodeDecodeError) as error:
        raise StageError(f"{str(path)!r} cannot be read: {error}", fix=_AGAIN) from error
    except json.JSONDecodeError as error:
        raise StageError(f"{path}:{error.lineno}: no JSON: {error.msg}", fix=_AGAIN) from error
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise StageError(f"{path}:1: no manifest of format {FORMAT}", fix=_AGAIN)
    try:
        return read(Manifest, {**dict.fromkeys(field.name for field in dataclasses.fields(Manifest)), **values})
    except (TypeError, ValueError) as error:
        raise StageError(f"{path}: a field is missing, or of another type: {error}", fix=_AGAIN) from error

"""Reads a stage file: TVMScript in a Python file, with its tensors and its manifest beside it.

Reading one runs it, as Python does with a file that is imported: go on only from files of your own.
"""

import hashlib
import itertools
import linecache
import os
import re
import sys
import traceback
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm.ir import IRModule

from ...core.errors import StageError
from ...runtime.files import path_of
from .constants import Constants
from .manifest import Manifest, read_manifest

#: Names of the classes in a stage file: the module, and the groups that its kernels were made of.
MODULE, GROUPS = "Module", "Groups"

#: How TVM's parser says what is wrong, and where.
_DIAGNOSTIC = re.compile(r"error: (?P<what>.*?)\n *--> (?P<file>.*?):(?P<line>\d+):(?P<column>\d+)", re.DOTALL)
_SYNTAX_FIX = "the file is Python with TVMScript in it; compare it with what was dumped"
_numbers = itertools.count()


@dataclass(frozen=True)
class StageFile:
    """A stage file that was read.

    Attributes:
        path: of the text.
        text: of the file.
        manifest: beside it.
        mod: its module; None if the stage has none.
        groups: functions that its kernels were made of; None if there are none.
        weights: its tensors; None if it has none.
    """

    path: Path
    text: str
    manifest: Manifest
    mod: IRModule | None = None
    groups: IRModule | None = None
    weights: Constants | None = None

    @property
    def edited(self) -> bool:
        """Whether the text is another than was written."""
        return text_digest(self.text) != self.manifest.text_sha256

    def line_of(self, function: str) -> int:
        """The line at which a function begins; 1 if it is nowhere."""
        match = re.search(rf"^ *def {re.escape(function)}\(", self.text, re.MULTILINE)
        return self.text.count("\n", 0, match.start()) + 1 if match else 1

    def error(self, function: str, wrong: str, fix: str = "") -> StageError:
        """What is wrong with a function of it."""
        return StageError(f"{self.path}:{self.line_of(function)}: {wrong}", fix=fix)


def text_digest(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_stage(path: str | os.PathLike[str]) -> StageFile:
    """Read a stage file; this runs it.

    Raises:
        StageError: it, its tensors or its manifest is missing or damaged; it is of other versions or of a machine that
            this one cannot stand for; or no compile can go on from its stage. Names file and line.
    """
    path = Path(path_of(path, StageError, "the path of the stage file"))
    text = _text(path)
    manifest = read_manifest(path.with_suffix(".json"))
    manifest.check(path.with_suffix(".json"))
    if path.suffix != ".py":
        return StageFile(path, text, manifest)
    names = _run(path, text)
    mod, groups = names.get(MODULE), names.get(GROUPS)
    if type(mod).__name__ != "IRModule":
        raise StageError(f"{path}:1: it makes no module", fix=f"keep the class {MODULE} with its @I.ir_module")
    weights = next((value for value in names.values() if isinstance(value, Constants)), None)
    return StageFile(path, text, manifest, mod, groups, weights)


def _text(path: Path) -> str:
    if path.is_dir():
        inside = ", ".join(sorted(p.name for p in path.glob("*.py"))[:9])
        raise StageError(f"{str(path)!r} is a folder", fix=f"give one of its files: {inside or 'there is none'}")
    if path.suffix in (".json", ".npz"):
        raise StageError(f"{str(path)!r} only belongs to a stage", fix=f"give the text: {path.with_suffix('.py')}")
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        fix = "`tvm-ext compile MODEL --dump-dir FOLDER` writes some"
        raise StageError(f"there is no file {str(path)!r}", fix=fix) from None
    except (OSError, UnicodeDecodeError) as error:
        raise StageError(f"{str(path)!r} cannot be read: {error}") from error


def _run(path: Path, text: str) -> dict[str, Any]:
    """The names that a file defines; TVM's parser finds its text as that of a module.

    The parser looks up the source of every frame below it, once a function: in a thread of its own these are few.
    """
    module = types.ModuleType(f"_tvm_ext_stage_{next(_numbers)}")
    module.__file__ = str(path.absolute())
    sys.modules[module.__name__] = module
    linecache.checkcache(module.__file__)
    try:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(exec, compile(text, module.__file__, "exec"), module.__dict__).result()
    except StageError as error:
        raise StageError(f"{path}:{_line(error, module.__file__)}: {error.message}", fix=error.fix) from error
    except Exception as error:
        raise _readable(error, path, module.__file__) from error
    finally:
        del sys.modules[module.__name__]
    return module.__dict__


def _readable(error: Exception, path: Path, file: str) -> StageError:
    """What went wrong, with file and line."""
    if isinstance(error, SyntaxError):
        return StageError(f"{path}:{error.lineno or 1}: {error.msg}", fix=_SYNTAX_FIX)
    match = _DIAGNOSTIC.search(str(error))
    if match is None:
        line = _line(error, file)
        return StageError(f"{path}:{line}: {type(error).__name__}: {str(error).strip()[:400]}", fix=_SYNTAX_FIX)
    what = " ".join(match["what"].split())[:400]
    if "not well-formed" in what:
        _, _, why = what.partition("Traceback: ")
        what = f"what it says does not fit together{': ' + why if why else ''}"
        fix = "shapes and dtypes beside names must be those of the values; every variable is bound once"
        return StageError(f"{path}:{match['line']}: {what}", fix=fix)
    return StageError(f"{path}:{match['line']}: {what}", fix=_SYNTAX_FIX)


def _line(error: BaseException, file: str) -> int:
    """The last line of the file that was running when the error was raised."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return (lines or [1])[-1] or 1

"""`tvm-ext new`: write a back end for an accelerator of your own, with tests that pass."""

import argparse
import importlib.metadata
import importlib.util
import keyword
from pathlib import Path

from ..core.errors import OptionError, ToolError
from .shared.common import print_result

EXAMPLE = """\
  tvm-ext new backend my_chip
  cd my_chip && pytest && tvm-ext compile zoo:mlp --import my_chip --offload my_chip --offload-report"""

_TEMPLATES = Path(__file__).parent / "templates"
_FILES = ("backend.py", "test_backend.py", "README.md")
_PLACEHOLDER = "my_chip"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("kind", choices=("backend",), help="what to write")
    parser.add_argument("name", metavar="NAME", help="its name, in lower case: a folder, and a module in it")
    parser.add_argument("--directory", metavar="DIR", default=".", help="where to make the folder (default: here)")


def run(args: argparse.Namespace) -> int:
    """Write the files, and say what to do with them."""
    _check_name(args.name)
    paths = _write(args.name, Path(args.directory))
    values = {"ok": True, "name": args.name, "files": [str(path) for path in paths]}
    wrote = [f"wrote {path}" for path in paths]
    return print_result(args, values, *wrote, f"next: cd {paths[0].parent} && pytest")


def _check_name(name: str) -> None:
    """Whether a back end and its module may have this name.

    Raises:
        OptionError: it is no name, or another module or back end has it.
    """
    fix = "give another name, such as my_chip"
    if not (name.isidentifier() and name.isascii() and name.islower()) or keyword.iskeyword(name):
        raise OptionError(f"NAME {name!r}: lower case letters, digits and underscores are needed", fix=fix)
    from ..byoc.registry import GROUP

    if importlib.metadata.entry_points(group=GROUP, name=name):
        raise OptionError(f"NAME {name!r}: there is a back end of that name", fix=fix)
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin is not None:  # a folder of that name has no origin
        raise OptionError(f"NAME {name!r}: there is a module of that name, which `import {name}` would find", fix=fix)


def _write(name: str, directory: Path) -> list[Path]:
    """The paths of the new files.

    Raises:
        OptionError: the folder exists already.
        ToolError: it cannot be written.
    """
    folder = directory / name
    if folder.exists():
        raise OptionError(f"{folder} exists already", fix="give another name, or another --directory")
    written = []
    try:
        folder.mkdir(parents=True)
        for template in _FILES:
            text = (_TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
            written.append(folder / template.replace("backend", name))
            written[-1].write_text(text.replace(_PLACEHOLDER, name), encoding="utf-8")
    except OSError as error:
        raise ToolError(f"{folder}: cannot be written ({error.strerror})", fix="give another --directory") from error
    return written

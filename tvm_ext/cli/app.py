"""`tvm-ext`: parses the arguments, runs a verb, turns errors into one message and an exit code.

Exit codes: 0 good, 1 a check failed or something broke, 2 usage (arguments, options, a bad file), 3 the model cannot
be compiled; 130 after Ctrl-C, 141 when the reader of stdout went away.
"""

import argparse
import contextlib
import importlib
import json
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from ..core import errors
from ..core.collector import rare_collections
from ..core.errors import TvmExtError
from .shared.options import import_modules

GOOD, FAILED, USAGE, UNSUPPORTED, INTERRUPTED, NO_READER = 0, 1, 2, 3, 130, 141

#: Verbs, in the order in which --help lists them, and their modules.
VERBS: dict[str, ModuleType] = {
    module.rpartition(".")[2]: importlib.import_module(f"{__package__}.{module}")
    for module in ("compile", "run", "verify", "bisect", "bench", "tune", "log", "quantize", "zoo", "chat", "analyze",
                   "report", "profile", "memory", "new", "accelerator.rtl", "accelerator.scalesim", "machine", "doctor",
                   "cache")
}  # fmt: skip

_EPILOG = """\
example:
  tvm-ext zoo resnet18 -o resnet18.onnx
  tvm-ext compile resnet18.onnx -o resnet18.so
  tvm-ext verify resnet18.onnx --artifact resnet18.so

MODEL is a path, or zoo:NAME for a model of the zoo. stdout is the result, stderr the progress.
exit codes: 0 good, 1 a check failed, 2 usage, 3 unsupported
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        argv: arguments without the program's name; None takes those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        args = make_parser().parse_args(arguments)
        with warnings.catch_warnings(), rare_collections:
            warnings.showwarning = _warn
            code = _run(args)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse: 0 after --help, 2 after a usage error
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError):  # stdout is flushed again at exit: give it somewhere to go
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER


def make_parser() -> argparse.ArgumentParser:
    """The parser of all verbs."""
    parser = argparse.ArgumentParser(
        prog="tvm-ext",
        description="Compile ONNX models for a CPU with the stock apache-tvm: checked, fast, deployable.",
        epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, module in VERBS.items():
        summary = (module.__doc__ or "").partition(": ")[2].rstrip(".")  # behind the name of the verb
        verb = verbs.add_parser(
            name, help=summary, description=summary, epilog="example:\n" + module.EXAMPLE,
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        )  # fmt: skip
        module.add_arguments(verb)
        verb.add_argument("--json", action="store_true", help="print the result as JSON")
        verb.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


class _Version(argparse.Action):
    """Prints the version; reads the package's metadata, which takes time, only when asked."""

    def __call__(self, *_: Any) -> NoReturn:
        from .. import __version__

        print(f"tvm-ext {__version__}")
        raise SystemExit(0)


def _run(args: argparse.Namespace) -> int:
    try:
        import_modules(getattr(args, "imports", ()))
        return int(VERBS[args.verb].run(args))
    except BrokenPipeError:
        raise
    except Exception as error:
        if args.debug:
            traceback.print_exc()
        _report(args, error)
        return _code_of(error)


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _report(args: argparse.Namespace, error: Exception) -> None:
    if isinstance(error, TvmExtError):
        message, fix = error.message, error.fix
    else:
        message = f"{type(error).__name__}: {error}"
        fix = "" if args.debug else "this is a defect of tvm-ext; --debug shows where it happened"
    print(f"error: {message}" + (f"\n  fix: {fix}" if fix else ""), file=sys.stderr)
    if args.json:
        print(json.dumps({"ok": False, "error": {"type": type(error).__name__, "message": message, "fix": fix}}))


_OF_THE_USER = (errors.OptionError, errors.ModelError, errors.InputError, errors.ArtifactError, errors.StageError)


def _code_of(error: Exception) -> int:
    if isinstance(error, errors.UnsupportedError):
        return UNSUPPORTED
    return USAGE if isinstance(error, _OF_THE_USER) else FAILED

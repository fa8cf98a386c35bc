"""Options of `compile` on the command line, as `core/options.py` declares them, and modules that bring back ends."""

import argparse
import importlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...core.errors import OptionError
from ...core.options import FLAGS, CompileOptions


def add_compile_arguments(parser: argparse.ArgumentParser) -> None:
    """Every option of `compile`, and `--import`."""
    group = parser.add_argument_group("compile options")
    add_options(group, FLAGS)
    group.add_argument(
        "--import", metavar="MODULE", dest="imports", action="append", default=[],
        help="import this module first, from here or where Python looks: it registers back ends and their drivers",
    )  # fmt: skip


def add_options(group: argparse._ArgumentGroup, names: Iterable[str]) -> None:
    """Some options of `compile`."""
    for name in names:
        flag, dest = FLAGS[name], f"option_{name}"  # a verb may have an argument of the option's name
        if flag.form:
            group.add_argument(flag.name, dest=dest, metavar=flag.form, action="append", help=flag.help)
        for switch, value in flag.switches.items():
            text = f"short for {flag.name} {value}" if flag.form else flag.help
            group.add_argument(switch, dest=dest, action="append_const", const=value, help=text)


def compile_options(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `tvm_ext.compile` that were given, checked.

    Raises:
        OptionError: a value does not fit.
        InputError: a file of `--freeze` cannot be read.
    """
    options = {name: FLAGS[name].value(entries) for name, entries in _entries(args).items()}
    if "freeze" in options:
        from ...verification.arrays import load_npy

        read = {name: load_npy(value) for name, value in options["freeze"].items() if isinstance(value, Path)}
        options["freeze"] = {**options["freeze"], **read}
    CompileOptions.of(**options)
    return options


def refuse_compile_options(args: argparse.Namespace, subject: str) -> None:
    """Check that no option of `compile` was given for a subject that is compiled already, but how its threads wait.

    Raises:
        OptionError: names the options.
    """
    if names := [FLAGS[name].name for name in _entries(args) if name != "threads_wait"]:
        wrong = f"{subject} is compiled already: {', '.join(names)} cannot be changed"
        raise OptionError(wrong, fix="leave them out, or give the ONNX model")


def _entries(args: argparse.Namespace) -> dict[str, list[Any]]:
    return {name: entries for name in FLAGS if (entries := getattr(args, f"option_{name}", None))}


def import_modules(names: Iterable[str]) -> None:
    """Import modules for what they register; the current folder is looked into too, as by `python -m`.

    Raises:
        OptionError: there is no such module, or importing it fails.
    """
    if names and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            fix = "give the name of a module, not a path, and run in its folder or install it"
            raise OptionError(f"--import {name}: {error}", fix=fix) from error
        except Exception as error:
            raise OptionError(f"--import {name}: importing it fails: {type(error).__name__}: {error}") from error

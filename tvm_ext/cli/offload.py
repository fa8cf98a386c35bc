"""Offloading on the command line: its arguments, and the modules that bring back ends."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from ..core.errors import OptionError


def add_offload_arguments(parser: argparse.ArgumentParser) -> None:
    """Which back end gets part of the model, and where it comes from."""
    parser.add_argument("--offload", metavar="NAME", help="back end that gets part of the model")
    parser.add_argument(
        "--offload-option", metavar="KEY=VALUE", type=option_argument, action="append", default=[],
        help="a setting of the back end, or when=always (default: pays), skip=NODE,OP, minimum_work=N; once per key, "
        "skip any number of times; values are JSON, or text",
    )  # fmt: skip
    parser.add_argument(
        "--import", metavar="MODULE", dest="imports", action="append", default=[],
        help="import this module first, from here or where Python looks: it registers back ends and their drivers",
    )  # fmt: skip


def option_argument(text: str) -> tuple[str, Any]:
    """Parse KEY=VALUE; a value that is no JSON is text."""
    key, found, value = text.partition("=")
    if not (found and key.isidentifier()):
        raise argparse.ArgumentTypeError(f"{text!r}: KEY=VALUE is needed")
    if key == "skip":
        return key, tuple(name for name in value.split(",") if name)
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def offload_options(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords `offload` and `offload_options` of `tvm_ext.compile`.

    Raises:
        OptionError: a key is there twice.
    """
    return {"offload": args.offload, "offload_options": _joined(args.offload_option)}


def _joined(given: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, value in given:
        if key in options and key != "skip":
            raise OptionError(f"--offload-option {key} is there twice: {options[key]!r} and {value!r}")
        options[key] = (*options.get(key, ()), *value) if key == "skip" else value
    return options


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

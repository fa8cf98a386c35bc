"""Profiles as files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ...core.errors import OptionError
from ...runtime.files import write_text


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write a value as JSON, the whole file or none."""
    write_text(path, json.dumps(value) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file.

    Raises:
        OptionError: it is missing, or no JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"cannot read {os.fspath(path)!r}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        fix = "make one: tvm-ext profile MODEL -o profile.json"
        raise OptionError(f"{os.fspath(path)!r} is no profile: it is no JSON ({error})", fix=fix) from error

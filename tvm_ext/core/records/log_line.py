"""A line of a log, which may come from anywhere: finite numbers, bounded depth, expected types, or a reason."""

import json
import sys
from typing import Any

from ..errors import OptionError

#: Lists and objects within each other; rows have about six.
MAX_DEPTH = 40


class RecordError(OptionError):
    """A line of a log that is no record; the message says why."""


def parse(text: str) -> Any:
    """The value of a line of JSON.

    Raises:
        RecordError: it is cut off, no JSON, nested too deeply, or has a number that float64 has not.
    """
    text = text.strip()
    try:
        value = json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise RecordError("nested too deeply") from None
    except ValueError as error:
        why = "cut off" if text.startswith("{") and not text.endswith("}") else "not JSON"
        raise RecordError(f"{why}: {str(error)[:100]}") from error
    _check(value, MAX_DEPTH)
    return value


def typed(value: Any, what: str, *kinds: type) -> Any:
    """A value of one of these types; a bool is no number.

    Raises:
        RecordError: it is of another; `what` names it.
    """
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise RecordError(f"{what}={value!r:.60}: {' or '.join(_WORDS[kind] for kind in kinds)} is needed")
    return value


_WORDS = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list", dict: "an object",
}  # fmt: skip


def _check(value: Any, depth: int) -> None:
    if isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
        raise RecordError("a number that float64 has not")
    if isinstance(value, list | dict):
        if not depth:
            raise RecordError("nested too deeply")
        for inner in value.values() if isinstance(value, dict) else value:
            _check(inner, depth - 1)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")

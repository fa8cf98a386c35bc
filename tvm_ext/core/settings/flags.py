"""How an option of `compile` is written on a command line: from text to its value, and back."""

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import OptionError
from .frozen import FrozenInput


@dataclass(frozen=True)
class Flag:
    """An option on the command line.

    Attributes:
        name: of the flag, such as "--shape".
        metavar: form of the text behind it; "" if that is one of `choices`, or there are but `switches`.
        help: what the option says, in a line, with its default.
        example: arguments that set it, with those that it takes beside it.
        choices: values that have names; none if any text may fit.
        parse: text -> value, or one part of the value if the flag is repeated; ValueError if it has another form. What
            it leaves a text, the check of the options names.
        join: name of the flag, parts -> value; OptionError if they do not go together. None: the flag counts once,
            the last time.
        write: the inverse of both, value -> texts; none for a value that has no text, such as a function.
        switches: flags without a text -> the value that each stands for.
    """

    name: str
    metavar: str
    help: str
    example: str
    choices: tuple[str, ...] = ()
    parse: Callable[[str], Any] = str
    join: Callable[[str, Sequence[Any]], Any] | None = None
    write: Callable[[Any], Iterable[str]] = lambda value: (str(value),)
    switches: Mapping[str, Any] = field(default_factory=dict)

    @property
    def form(self) -> str:
        """Form of the text behind the flag; "" if it takes none."""
        return self.metavar or (f"{{{','.join(self.choices)}}}" if self.choices else "")

    def value(self, entries: Sequence[Any]) -> Any:
        """The option's value from all texts, and values of switches, in their order.

        Raises:
            OptionError: a text has another form, or they do not go together.
        """
        parts = []
        for entry in entries:
            try:
                parts.append(self.parse(entry) if isinstance(entry, str) else entry)
            except ValueError:
                wrong = f"{self.name} {entry}: {self.form} is needed"
                raise OptionError(wrong, fix=f"for example {self.example}") from None
        return self.join(self.name, parts) if self.join else parts[-1]

    def arguments(self, value: Any) -> list[str]:
        """What to write for a value as `CompileOptions` keeps it."""
        switches = [switch for switch, stands_for in self.switches.items() if stands_for == value]
        if switches:
            return switches[:1]
        texts = self.write(value)
        return [word for t in texts for word in ((f"{self.name}={t}",) if t.startswith("-") else (self.name, t))]


def number(text: str) -> int | float | str:
    """A number if the text is one, else the text."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def dims(text: str) -> tuple[str, tuple[int | str, ...]]:
    """NAME=1,3,224,224, or NAME=N,3,224,224; a scalar is NAME= with nothing behind it."""
    name, numbers = _pair(text)
    words = [word.strip() for word in numbers.split(",")] if numbers else []
    return name, tuple(word if word.isidentifier() else int(word) for word in words)


def write_dims(pairs: Iterable[tuple[str, Iterable[int | str]]]) -> list[str]:
    """The inverse of :func:`dims`."""
    return [f"{name}={','.join(map(str, numbers))}" for name, numbers in pairs]


def frozen(text: str) -> tuple[str, Any]:
    """NAME=FILE.npy, NAME=1,2,3 or NAME=4; one number is a scalar, or the one element of a vector."""
    name, value = _pair(text)
    if value.endswith(".npy"):
        return name, Path(value)
    numbers = [number(word) for word in value.split(",")]
    if any(isinstance(word, str) for word in numbers):
        raise ValueError
    return name, numbers if len(numbers) > 1 else numbers[0]


def write_frozen(values: Iterable[FrozenInput]) -> Iterable[str]:
    """The inverse of :func:`frozen`; what has more than one axis stands in a file of the input's name."""
    for frozen in values:
        array = frozen.array()
        plain = array.ndim <= 1 and array.size > 0 and array.dtype.kind in "iuf"
        yield f"{frozen.name}={','.join(map(repr, array.ravel().tolist())) if plain else frozen.name + '.npy'}"


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not (name and equals):
        raise ValueError
    return name, value


def pair(text: str) -> str | tuple[str, str]:
    """OUT=IN; or a word by itself, as it is."""
    names = _pair(text) if "=" in text else (text, text)
    if not names[1]:
        raise ValueError
    return names if "=" in text else text


def join_pairs(flag: str, parts: Sequence[str | tuple[str, str]]) -> str | tuple[tuple[str, str], ...]:
    """Pairs; or "auto", alone.

    Raises:
        OptionError: a word other than "auto", or one beside others.
    """
    if words := [part for part in parts if isinstance(part, str)]:
        if len(parts) > 1 or words != ["auto"]:
            raise OptionError(f"{flag} {words[0]}: OUT=IN is needed, any number of times, or auto alone")
        return words[0]
    return tuple(part for part in parts if isinstance(part, tuple))


def write_pairs(pairs: str | Iterable[tuple[str, str]]) -> Iterable[str]:
    """The inverse of :func:`join_pairs`."""
    return (pairs,) if isinstance(pairs, str) else (f"{output}={taken}" for output, taken in pairs)


def join_records(flag: str, paths: Sequence[str]) -> str | tuple[str, ...] | None:
    """Paths of logs; or "auto", or "none" for None, alone.

    Raises:
        OptionError: a word among paths.
    """
    words = {"auto": "auto", "none": None}
    named = [path for path in paths if path in words]
    if named and len(paths) > 1:
        raise OptionError(f"{flag} {f' {flag} '.join(paths)}: {named[0]} is no log among others")
    return words[named[0]] if named else tuple(paths)


def write_records(records: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """The inverse of :func:`join_records`."""
    return ("none",) if records is None else (records,) if isinstance(records, str) else records


def setting(text: str) -> tuple[str, Any]:
    """KEY=VALUE; a value that is no JSON is text, that of `skip` is names."""
    key, equals, value = text.partition("=")
    if not (equals and key.isidentifier()):
        raise ValueError
    return key, tuple(name for name in value.split(",") if name) if key == "skip" else _json_or_text(value)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def join_words(flag: str, words: Sequence[str]) -> tuple[str, ...]:
    """Words in their order."""
    return tuple(words)


def join_named(flag: str, pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Values by name, of a flag that counts once for each.

    Raises:
        OptionError: a name is there twice.
    """
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise OptionError(f"{flag} {name} is there twice: {values[name]!r} and {value!r}", fix="give it once")
        values[name] = value
    return values


def join_settings(flag: str, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Settings by key.

    Raises:
        OptionError: a key other than `skip`, whose names are joined, is there twice.
    """
    skipped = [names for key, names in pairs if key == "skip"]
    settings = join_named(flag, (pair for pair in pairs if pair[0] != "skip"))
    return settings | ({"skip": tuple(name for names in skipped for name in names)} if skipped else {})


def write_settings(pairs: Iterable[tuple[str, Any]]) -> Iterable[str]:
    """The inverse of :func:`setting`."""
    for key, value in pairs:
        if key == "skip":
            yield f"skip={value if isinstance(value, str) else ','.join(value)}"
        else:
            as_text = isinstance(value, str) and _json_or_text(value) == value
            yield f"{key}={value if as_text else json.dumps(value, default=str)}"

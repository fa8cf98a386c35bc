"""Every error this library raises on purpose: what is wrong, with which object, and what to do about it.

All derive from :class:`TvmExtError`, and from the built-in class that a caller would expect
(`ValueError`, `TypeError`, `OSError`), so both `except TvmExtError` and plain Python habits work.

What others raise (TVM, ONNX, numpy, or a defect of ours) never reaches a caller as it is: :func:`failure` says what it
happened to, in one of these classes, with the first line that says something, and chains the original.
"""

import contextlib
import difflib
import math
import numbers
import re
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any


class TvmExtError(Exception):
    """Base of all errors of this library.

    Args:
        message: what is wrong; names the object and what was expected.
        fix: what the user can do; printed on a line of its own.
    """

    def __init__(self, message: str, *, fix: str = "") -> None:
        self.message = message
        self.fix = fix
        super().__init__(f"{message}\n  fix: {fix}" if fix else message)


class OptionError(TvmExtError, ValueError):
    """A compile option is unknown, has the wrong type, or contradicts another one."""


class ModelError(TvmExtError, ValueError):
    """The model is not readable, not valid ONNX, or incomplete (missing external data, free dimensions)."""


class UnsupportedError(TvmExtError, NotImplementedError):
    """The model is valid, but this library or the pinned TVM cannot compile it; the message names the node."""


class InputError(TvmExtError, ValueError):
    """A run-time input does not fit the model: name, shape or dtype."""


class ArtifactError(TvmExtError, ValueError):
    """A file is not an artifact of this library, is damaged, or needs another version or instruction set."""


class StageError(TvmExtError, ValueError):
    """A stage file is damaged, of other versions or another machine, or holds what cannot be; names file and line."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """ "did you mean 'x'? " for the name nearest to one that is not known; "" if none is near."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def choose_of(name: object, what: str, known: Iterable[str]) -> str:
    """The same, and all that are known: "did you mean 'x'? options: x, y"."""
    known = list(known)
    return f"{did_you_mean(name, known)}{what}: {', '.join(known) or 'none'}"


class ToolError(TvmExtError, OSError):
    """Something outside Python is missing or failed: a linker, a directory that cannot be written."""


class PassError(TvmExtError, RuntimeError):
    """A pass broke one of its own conditions, or raised: names the pass and the one before it."""


class BuildError(TvmExtError, RuntimeError):
    """After all passes a program cannot be built or loaded: names the step, or the kernel and its ONNX nodes."""


class RunError(TvmExtError, RuntimeError):
    """A compiled program stopped while it ran; names the model."""


class ProgramError(TvmExtError, ValueError):
    """A program of an accelerator is damaged, malformed, or waits for ever; names the instruction."""


class DriverError(TvmExtError, RuntimeError):
    """The driver of a back end failed while a model ran; names the back end and the region."""


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, of Python or numpy."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a value is a finite real number, of Python or numpy, that a float64 holds."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_whole(name: str, value: Any, least: int = 0, most: int | None = None, *, fix: str = "") -> int:
    """The value of an option that is a whole number, of Python or numpy, as one of Python.

    Raises:
        OptionError: it is none, below `least` or above `most`.
    """
    if not is_whole(value) or value < least or (most is not None and value > most):
        bounds = f"of {least} or more" if most is None else f"from {least} to {most}"
        raise OptionError(f"{name}={value!r}: a whole number {bounds} is needed", fix=fix)
    return int(value)


def check_choice(name: str, value: Any, choices: Iterable[Any], *, fix: str = "") -> None:
    """Check the value of an option that is one of several.

    Raises:
        OptionError: it is none of them; what has no hash, such as an array, is none either, nor is 64.0 the number 64.
    """
    known = tuple(choices)
    is_whole = isinstance(value, numbers.Integral)
    if not (isinstance(value, Hashable) and any(value == c and isinstance(c, int) <= is_whole for c in known)):
        near = did_you_mean(value, map(str, known)).strip() if isinstance(value, str) else ""
        listed = " or ".join(map(repr, known)) if len(known) < 3 else f"one of {', '.join(map(repr, known))}"
        raise OptionError(f"{name}={value!r:.200}: choose {listed}", fix=fix or near)


def names_of(option: str, value: Any) -> tuple[str, ...]:
    """The value of an option that is a name, or several.

    Raises:
        OptionError: it is neither, or a name is empty.
    """
    try:
        several = (value,) if isinstance(value, str) else tuple(value)
    except TypeError:  # no iterable, or one of no dimensions
        several = (value,)
    if not all(isinstance(name, str) and name for name in several):
        raise OptionError(f"{option}={value!r:.200}: a name or several are needed")
    return tuple(map(str, several))


def check_switch(name: str, value: Any) -> None:
    """Check the value of an option that is True or False.

    Raises:
        OptionError: it is none, as a number is none.
    """
    if not isinstance(value, bool):
        raise OptionError(f"{name}={value!r:.200}: choose True or False")


def listener(function: Any, name: str = "on_event") -> Callable[[Any], None]:
    """The value of an option that is a function which is told of progress; of None one that does nothing.

    Raises:
        OptionError: it cannot be called.
    """
    if function is not None and not callable(function):
        raise OptionError(f"{name}={function!r:.200}: a function is needed, or None", fix=f"{name}=print shows all")
    return function or (lambda event: None)


# ------------------------------------------------------------ what others raise
#: Letters of a message that are kept.
_LENGTH = 300
_DEFECT = "this is a defect of tvm-ext: report it with the model and this message; the traceback shows the cause"
#: How TVM prints an operator (its whole registration), a shape and a number.
_OPERATOR = re.compile(r'(?:In )?ir\.Op\((?:.*?)name="([\w.]+)".*?num_inputs=-?\d+(?:, support_level=\d+)?\),?')
_PRINTED = (
    (_OPERATOR, r"\1:"),
    (re.compile(r"R\.shape\((\[[^\]]*\])\)"), r"\1"),
    (re.compile(r"T\.u?int\d+\((-?\d+)\)"), r"\1"),
    (re.compile(r"\b[TR]\.(?=\w)"), ""),
)
#: Lines that say nothing by themselves: of TVM's stack, and of modules that it prints.
_NOISE = re.compile(r"Traceback|Stack trace|File \"|\d+: |\[\d\d:\d\d:\d\d\]|#|@|from tvm|[\W_]*$|\w+: *$")


def essence(error: BaseException) -> str:
    """The class of an exception and the first line that says what is wrong.

    Without the module, stack or registration that TVM prints around it. What says nothing is told by its place.
    """
    text = str(error)
    before, _, after = text.rpartition("Error message: ")
    lines = [line.strip() for part in (after, before) for line in part.splitlines()]
    kept = [line for line in lines if line and not _NOISE.match(line)]
    line = " ".join(kept[: 2 if kept and kept[0].endswith(":") else 1])
    for pattern, plain in _PRINTED:
        line = pattern.sub(plain, line)
    if not line and (frames := traceback.extract_tb(error.__traceback__)):
        line = f"in {frames[-1].name}: {frames[-1].line}"
    return f"{type(error).__name__}: {' '.join(line.split())[:_LENGTH]}"


def at_nodes(nodes: Sequence[str], types: Mapping[str, str]) -> str:
    """ " at node ..." for a message; "" if there is none.

    Args:
        nodes: labels of ONNX nodes.
        types: label -> operator.
    """
    shown = ", ".join(f"{node!r} ({types[node]})" if node in types else repr(node) for node in nodes[:3])
    more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    return f" at node{'s' * (len(nodes) > 1)} {shown}{more}" if nodes else ""


def failure(kind: type[TvmExtError], what: str, error: BaseException, fix: str = _DEFECT) -> TvmExtError:
    """An error of this library for an exception of others; to be raised `from` it.

    Args:
        kind: its class.
        what: failed: a step, and the node, pass or kernel that it was about.
        fix: what the user can do.
    """
    return kind(f"{what}: {essence(error)}", fix=fix)


@contextlib.contextmanager
def naming(kind: type[TvmExtError], what: Callable[[], str], fix: str = _DEFECT) -> Iterator[None]:
    """What is raised inside becomes a :func:`failure`; errors of this library stay as they are.

    Args:
        what: see :func:`failure`; asked when something was raised.
    """
    try:
        yield
    except TvmExtError:
        raise
    except Exception as error:
        raise failure(kind, what(), error, fix) from error

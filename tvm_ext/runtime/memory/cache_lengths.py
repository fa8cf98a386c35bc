"""What compiled code calls where rows of a cache would stand outside of it, or have no cosines: it has written none."""

import functools
from collections.abc import Mapping
from contextvars import ContextVar

from ...core.errors import InputError

#: Names of the functions.
REFUSALS = (
    "tvm_ext.refuse_length", "tvm_ext.refuse_position", "tvm_ext.refuse_page", "tvm_ext.refuse_starts",
)  # fmt: skip
REFUSE_LENGTH, REFUSE_POSITION, REFUSE_PAGE, REFUSE_STARTS = REFUSALS
#: Input -> how many of its rows stand in front of the piece of a batch that is being run; of one call, none.
IN_FRONT: ContextVar[Mapping[str, int]] = ContextVar("IN_FRONT", default={})  # noqa: B039 - nobody changes it


@functools.cache
def register_refusal() -> None:
    """Make all known to compiled code, whose caller gets an InputError."""
    from ..tvm_runtime import load_runtime

    load_runtime()
    import tvm_ffi

    tvm_ffi.register_error("InputError", InputError)
    refusing = (_refuse_length, _refuse_position, _refuse_page, _refuse_starts)
    for name, function in zip(REFUSALS, refusing, strict=True):
        tvm_ffi.register_global_func(name, function, override=True)


def _of_call(source: str, sequence: int) -> int:
    """The number that a sequence of a piece has among those of the caller's batch."""
    return sequence + IN_FRONT.get().get(source, 0)


def _refuse_length(source: str, sequence: int, start: int, steps: int, capacity: int) -> None:
    """Raises InputError: `steps` new rows of a sequence from row `start` on are not within `capacity`.

    That is the number of rows of the cache, or of cosines where these are fewer.
    """
    rows = f"rows {start} to {start + steps - 1} of sequence {_of_call(source, sequence)}"
    raise InputError(f"{source!r}: {rows} would be written; there is room for rows 0 to {capacity - 1}")


def _refuse_position(source: str, sequence: int, position: int, rows: int) -> None:
    """Raises InputError: there are `rows` rows of cosines, and none for a position of a sequence."""
    place = f"{position} in sequence {_of_call(source, sequence)}"
    raise InputError(f"{source!r}: {place}; there are cosines of 0 to {rows - 1}")


def _refuse_page(source: str, sequence: int, number: int, page: int, pages: int) -> None:
    """Raises InputError: a sequence needs its page of a number, and names one that is none of a cache of `pages`."""
    raise InputError(f"{source!r}: {page} is page {number} of sequence {sequence}; there are pages 0 to {pages - 1}")


def _refuse_starts(source: str) -> None:
    """Raises InputError: a token is in no sequence, or a sequence starts before the one before it."""
    wanted = "0, then none less than the one before, last the number of all tokens"
    raise InputError(f"{source!r}: tokens at which sequences start, which have to be {wanted}")

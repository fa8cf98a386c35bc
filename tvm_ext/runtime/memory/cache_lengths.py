"""What compiled code calls where rows of a cache would stand outside of it, or have no cosines: it has written none."""

import functools

from ...core.errors import InputError

#: Names of the functions.
REFUSE_LENGTH, REFUSE_POSITION = "tvm_ext.refuse_length", "tvm_ext.refuse_position"
REFUSE_PAGE = "tvm_ext.refuse_page"


@functools.cache
def register_refusal() -> None:
    """Make all known to compiled code, whose caller gets an InputError."""
    from ..tvm_runtime import load_runtime

    load_runtime()
    import tvm_ffi

    tvm_ffi.register_error("InputError", InputError)
    tvm_ffi.register_global_func(REFUSE_LENGTH, _refuse_length, override=True)
    tvm_ffi.register_global_func(REFUSE_POSITION, _refuse_position, override=True)
    tvm_ffi.register_global_func(REFUSE_PAGE, _refuse_page, override=True)


def _refuse_length(source: str, sequence: int, start: int, steps: int, capacity: int) -> None:
    """Raises InputError: `steps` new rows of a sequence from row `start` on are not within `capacity`.

    That is the number of rows of the cache, or of cosines where these are fewer.
    """
    rows = f"rows {start} to {start + steps - 1} of sequence {sequence}"
    raise InputError(f"{source!r}: {rows} would be written; there is room for rows 0 to {capacity - 1}")


def _refuse_position(source: str, sequence: int, position: int, rows: int) -> None:
    """Raises InputError: there are `rows` rows of cosines, and none for a position of a sequence."""
    raise InputError(f"{source!r}: {position} in sequence {sequence}; there are cosines of 0 to {rows - 1}")


def _refuse_page(source: str, sequence: int, number: int, page: int, pages: int) -> None:
    """Raises InputError: a sequence needs its page of a number, and names one that is none of a cache of `pages`."""
    raise InputError(f"{source!r}: {page} is page {number} of sequence {sequence}; there are pages 0 to {pages - 1}")

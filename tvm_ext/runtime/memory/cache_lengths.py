"""What compiled code calls where rows of a cache would stand outside of it; it has written none of them then."""

from __future__ import annotations

import functools

from ...core.errors import InputError

#: Name of the function.
REFUSE = "tvm_ext.refuse_length"


@functools.cache
def register_refusal() -> None:
    """Make :data:`REFUSE` known to compiled code, whose caller gets an InputError."""
    from ..tvm_runtime import load_runtime

    load_runtime()
    import tvm_ffi

    tvm_ffi.register_error("InputError", InputError)
    tvm_ffi.register_global_func(REFUSE, _refuse, override=True)


def _refuse(source: str, sequence: int, start: int, steps: int, capacity: int) -> None:
    """Raises InputError: `steps` new rows of a sequence from row `start` on are not within `capacity`.

    That is the number of rows of the cache, or of cosines where these are fewer.
    """
    rows = f"rows {start} to {start + steps - 1} of sequence {sequence}"
    raise InputError(f"{source!r}: {rows} would be written; there is room for rows 0 to {capacity - 1}")

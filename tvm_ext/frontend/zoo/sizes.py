"""The check of sizes that all zoo models share."""

from __future__ import annotations

from ...core.errors import OptionError


def check_sizes(**sizes: int) -> None:
    """See that all sizes are whole numbers of 1 or more.

    Raises:
        OptionError: names the one that is not.
    """
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise OptionError(f"{name}={size!r}: a whole number of 1 or more is needed")

"""What is renewed in a forked process: of all threads, it has only the one that forked."""

import os
import weakref
from collections.abc import Callable
from typing import Any

_renewals: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def renew_after_fork(owner: Any, renew: Callable[[Any], None]) -> None:
    """Call a function of an object in each process that is forked while the object lives."""
    _renewals[owner] = renew


def _renew_in_child() -> None:
    for owner, renew in list(_renewals.items()):
        renew(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_in_child)

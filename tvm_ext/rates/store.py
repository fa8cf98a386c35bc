"""Rates that were measured once are kept: by processor, cores and version of this library, in the cache folder."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..core.errors import OptionError, TvmExtError
from ..runtime.cpu import host_identity
from ..runtime.files import default_folder, whole_file
from ..runtime.spec import installed_versions
from .rates import Rates

#: Raised when a rate means something else than before, or is measured in another way.
_VERSION = 4


def kept(
    threads: int, caches: Mapping[str, int], measure: Callable[[], Rates], again: bool = False,
    features: Iterable[str] = (),
) -> Rates:  # fmt: skip
    """The rates of this machine: those kept from before, else measured now and kept.

    Args:
        threads: that rates of several threads are of.
        caches: bytes of "l1d", "l2" and "l3".
        measure: measures them.
        again: measure whatever was kept.
        features: instructions that are measured: Linux may give one process tile registers, and another one none.
    """
    path = default_folder() / f"rates-{key_of(threads, caches, features)}.json"
    return (None if again else read(path)) or write(path, measure())


def key_of(threads: int, caches: Mapping[str, int], features: Iterable[str] = ()) -> str:
    """What rates depend on, as 16 hexadecimal digits."""
    plain = (sorted(items) for items in (caches.items(), installed_versions().items(), features))
    parts = [_VERSION, host_identity(), threads, *plain]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def read(path: Path) -> Rates | None:
    """The rates of a file; None if there is none, or it holds none."""
    try:
        return Rates.of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError, OptionError):
        return None


def write(path: Path, rates: Rates) -> Rates:
    """Keep rates, and return them; a folder that cannot be written is a warning."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with whole_file(path, sync=False) as file:
            file.write(json.dumps(rates.as_dict(), indent=1).encode())
    except (OSError, TvmExtError) as error:
        warnings.warn(f"the machine is measured by every process: {path.parent} cannot be used: {error}", stacklevel=2)
    return rates

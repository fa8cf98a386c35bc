"""What was measured or asked once of this processor is kept: by processor, cores and version of this library, in the
cache folder. To start LLVM in order to ask it takes longer than loading a program that was compiled before."""

import contextlib
import hashlib
import json
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from ..core.errors import OptionError, TvmExtError
from ..runtime.cpu import host_identity
from ..runtime.files import default_folder, whole_file
from ..runtime.spec import installed_versions
from .rates import Rates

#: Raised when a rate means something else than before, or is measured in another way.
_VERSION = 5


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


def name_of_cpu(ask: Callable[[], tuple[str, Collection[str]]]) -> tuple[str, Collection[str]]:
    """LLVM's name of this CPU, and features that it takes a CPU of this name to have: those kept from before, else
    what `ask` returns, which is kept."""
    path = default_folder() / f"cpu-{_digest(sorted(installed_versions().items()))}.json"
    try:
        name, features = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(name, str) and isinstance(features, list) and all(isinstance(f, str) for f in features):
            return name, features
    except (OSError, ValueError, TypeError, RecursionError):
        pass
    name, features = ask()
    with contextlib.suppress(OSError, TvmExtError):  # then LLVM is asked by every process
        _write(path, json.dumps([name, sorted(features)]))
    return name, features


def key_of(threads: int, caches: Mapping[str, int], features: Iterable[str] = ()) -> str:
    """What rates depend on, as 16 hexadecimal digits."""
    return _digest(threads, *(sorted(items) for items in (caches.items(), installed_versions().items(), features)))


def _digest(*parts: object) -> str:
    """Of plain values and of this processor."""
    return hashlib.sha256(json.dumps([_VERSION, host_identity(), *parts]).encode()).hexdigest()[:16]


def read(path: Path) -> Rates | None:
    """The rates of a file; None if there is none, or it holds none."""
    try:
        return Rates.of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError, OptionError):
        return None


def write(path: Path, rates: Rates) -> Rates:
    """Keep rates, and return them; a folder that cannot be written is a warning."""
    try:
        _write(path, json.dumps(rates.as_dict(), indent=1))
    except (OSError, TvmExtError) as error:
        warnings.warn(f"the machine is measured by every process: {path.parent} cannot be used: {error}", stacklevel=2)
    return rates


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with whole_file(path, sync=False) as file:
        file.write(text.encode())

"""What all that is measured in a run shares."""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """How a run measures.

    Attributes:
        folder: for models, artifacts and the compile cache of this run.
        threads: of every contender.
        rounds: interleaved rounds.
        seconds: of a contender in a round.
        repeats: fresh processes of a probe.
        peers: other contenders.
        python: where they are installed; see `tvm_ext.benchmark`.
    """

    folder: pathlib.Path
    threads: int = 2
    rounds: int = 9
    seconds: float = 0.5
    repeats: int = 3
    peers: tuple[str, ...] = ()
    python: str | Mapping[str, str] | None = None


@contextlib.contextmanager
def run_folder(name: str) -> Iterator[pathlib.Path]:
    """A folder for what a run makes. The compile cache of this process, and of those that it
    starts, lies there too: programs are compiled in this run, by this code."""
    with tempfile.TemporaryDirectory(prefix=f"tvm-ext-{name}-") as folder:
        os.environ["TVM_EXT_CACHE"] = str(pathlib.Path(folder, "cache"))
        yield pathlib.Path(folder)

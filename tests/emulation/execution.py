"""Tile instructions, executed by the CPU where it has them and by the emulator elsewhere: one test for both.

    with tile_instructions() as amx:
        kernel(x, w, out)              # machine code with tdpbf16ps and its kin
    amx.assert_entered("tdpbf16ps")

On a CPU without AMX the emulator counts what it executes, so a kernel that took another way is found. A CPU with AMX
counts nothing: there results alone speak, compared with those of the plain twin.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tvm_ext.core.machine import Machine
from tvm_ext.runtime.cpu import missing_features, why_not_here
from tvm_ext.runtime.tiles import TILE_FEATURES, why_no_tiles

from .amx import Emulator, emulated

#: Whether this CPU executes all tile instructions, and Linux lets this process; asked before a test changes the answer.
ON_HARDWARE = not missing_features(TILE_FEATURES) and not why_no_tiles()
#: Intel's CPUs, the latest first: LLVM's models of AMD's rename tile registers after it has allocated registers, to
#: some that no kernel configures.
_INTEL = ("cooperlake", "cascadelake", "skylake-avx512", "haswell", "x86-64-v2")


def _without_tiles() -> Machine:
    """The latest of Intel's CPUs without AMX whose instructions this CPU has."""
    machines = (Machine.detect(name, 1) for name in _INTEL)
    return next(machine for machine in machines if not why_not_here(machine.as_dict()))


#: What tests compile for: a CPU whose instructions this one has, and the same with AMX, which may be emulated.
HOST = _without_tiles()
MACHINE = replace(HOST, features=tuple(sorted({*HOST.features, *TILE_FEATURES})))


@dataclass(frozen=True)
class Execution:
    """What executed tile instructions, and which.

    Attributes:
        emulator: None where the CPU did.
    """

    emulator: Emulator | None

    def assert_counts(self, **counts: int) -> None:
        """So many instructions of each name were emulated, unless the CPU has them."""
        if self.emulator is not None:
            assert {name: self.emulator.executed[name] for name in counts} == counts

    def assert_entered(self, name: str, least: int = 1) -> None:
        """At least so many instructions of a name were emulated, unless the CPU has them."""
        if self.emulator is not None:
            assert self.emulator.executed[name] >= least, dict(self.emulator.executed)

    def assert_configured(self, most: int) -> None:
        """Once to `most` times a thread configured tiles, and gave them back, unless the CPU has them."""
        if self.emulator is not None:
            executed = self.emulator.executed
            assert 1 <= executed["ldtilecfg"] == executed["tilerelease"] <= most, dict(executed)


@contextmanager
def tile_instructions() -> Iterator[Execution]:
    """While this is open, all threads may execute tile instructions."""
    if ON_HARDWARE:
        yield Execution(None)
        return
    with emulated() as emulator:
        yield Execution(emulator)

"""The machine a program is compiled for: instruction set, lanes, registers, caches, cores.

Recipes read this object; none of them knows a vector width of its own.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ..runtime.cpu import cpu_flags, missing_features
from ..runtime.threads import available_cores as available_cores
from ..runtime.tiles import TILE_FEATURES, needs_tiles, why_no_tiles
from .errors import OptionError

if TYPE_CHECKING:
    import tvm

#: Host features an artifact may need, by LLVM's name; what is not listed changes no instruction we emit.
RELEVANT_FEATURES = (
    "sse4.2", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "popcnt", "avx512f", "avx512bw",
    "avx512cd", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16", "avx512fp16", "avx512vbmi", "avx512ifma",
    "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq", "vpclmulqdq", "vaes", "gfni", "sha", "avxvnni",
    "amx-tile", "amx-bf16", "amx-int8", "neon", "dotprod", "fullfp16", "sve", "sve2", "bf16", "i8mm",
)  # fmt: skip

# name, feature that shows it, f32 lanes, vector registers, f32 fused multiply-adds a cycle, broadcast in the operand
_INSTRUCTION_SETS = (
    ("avx512", "avx512f", 16, 32, 2, True),
    ("avx2", "avx2", 8, 16, 2, False),
    ("avx", "avx", 8, 16, 1, False),
    ("sse4.2", "sse4.2", 4, 16, 1, False),
    ("sve", "sve", 4, 32, 2, True),
    ("neon", "neon", 4, 32, 2, True),
)

#: CPUs whose 512-bit instructions take two passes, of one of 256 bits or through two units of them.
_TWO_PASSES = frozenset({"znver4", "icelake-client", "tigerlake", "rocketlake", "cannonlake"})


@dataclass(frozen=True)
class Machine:
    """What recipes may read of the machine.

    Attributes:
        isa: "avx512", "avx2", "avx", "sse4.2", "neon", "sve" or "scalar".
        mcpu: LLVM's name of the CPU.
        triple: LLVM's target triple; empty for the host's own.
        features: the LLVM features generated code may use, of :data:`RELEVANT_FEATURES`, sorted.
        lanes: f32 lanes of one vector register.
        registers: vector registers.
        fma_per_cycle: f32 vector multiply-adds a core starts in a cycle.
        operand_broadcast: whether a multiply-add takes a scalar of memory (or of a lane) as an operand.
        l1d, l2, l3: bytes of the data caches: a core's own L1 and L2, the L3 that cores share.
        threads: threads a parallel kernel uses; 1 makes every kernel serial.
    """

    isa: str
    mcpu: str
    triple: str
    features: tuple[str, ...]
    lanes: int
    registers: int
    fma_per_cycle: int
    operand_broadcast: bool
    l1d: int
    l2: int
    l3: int
    threads: int

    @staticmethod
    def detect(target: str | None = None, threads: int | None = None) -> Machine:
        """The host, or the CPU that `target` names, with the caches of the host.

        Args:
            target: None for the host; an LLVM CPU name ("haswell", "x86-64-v2", "skylake-avx512"); or
                "TRIPLE:CPU" for another architecture ("aarch64-linux-gnu:cortex-a72").
            threads: threads to plan for; None takes every core this process may use.

        Raises:
            OptionError: an unknown CPU name, or a number of threads below one.
        """
        threads = available_cores() if threads is None else threads
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise OptionError(f"threads={threads!r}: a whole number of 1 or more is needed")
        return _detect(target, threads)

    def fma_at(self, lanes: int) -> int:
        """f32 vector multiply-adds a cycle of vectors of so many lanes: twice as many of half the width, where the
        whole width takes two passes."""
        double = self.isa == "avx512" and self.mcpu in _TWO_PASSES and lanes <= self.lanes // 2
        return self.fma_per_cycle * (2 if double else 1)

    def with_threads(self, threads: int) -> Machine:
        """The same machine, with another number of threads."""
        return replace(self, threads=threads)

    def target(self, *, scheduled: bool = True) -> tvm.target.Target:
        """The TVM target: LLVM for this CPU.

        Args:
            scheduled: whether a recipe schedules the code. Then optimization level 2: loops are unrolled and vectorized
                already, so level 3 (TVM's default) makes none of them faster, and takes a quarter longer. Else level 1,
                which leaves out LLVM's loop vectorizer: LLVM 22 makes wrong code of loops whose indices have a modulo
                (of 60 random `topi.tile`, 7 gave wrong values at level 2 and 3).
        """
        import tvm

        level = 2 if scheduled else 1
        description: dict[str, Any] = {"kind": "llvm", "mcpu": self.mcpu, "num-cores": self.threads, "opt-level": level}
        if self.triple:
            description["mtriple"] = self.triple
        if tiles := [f"+{feature}" for feature in self.features if feature.startswith("amx")]:
            description["mattr"] = tiles  # what recipes may use; LLVM itself makes no use of it
        return tvm.target.Target(description)

    def peak_gflops(self, gigahertz: float = 3.0) -> float:
        """f32 GFLOP/s of one core at a clock; an estimate for cost models, never a measured figure."""
        return 2.0 * self.lanes * self.fma_per_cycle * gigahertz

    def why_no_tiles(self) -> str:
        """Why recipes may use no AMX tile registers; "" if they may."""
        if "amx-tile" in self.features:
            return ""
        same = not self.triple and "amx_tile" in cpu_flags() and self.mcpu == _detect(None, self.threads).mcpu
        return (why_no_tiles() if same else "") or f"{self.mcpu or self.isa} has no amx-tile"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "features": list(self.features)}


@functools.lru_cache(maxsize=64)
def _detect(target: str | None, threads: int) -> Machine:
    import tvm
    from tvm.target import codegen

    triple, _, mcpu = (target or codegen.llvm_get_system_cpu()).rpartition(":")
    description = {"kind": "llvm", "mcpu": mcpu, **({"mtriple": triple} if triple else {})}
    try:
        known = codegen.llvm_is_valid_cpu(mcpu, triple or codegen.llvm_get_system_triple())
        found = {str(f) for f in codegen.llvm_get_cpu_features(tvm.target.Target(description))} if known else set()
    except Exception as error:
        raise OptionError(f"target={target!r}: LLVM does not know it ({error})", fix=_TARGET_FIX) from error
    if not known:
        raise OptionError(f"target={target!r}: LLVM knows no CPU {mcpu!r}", fix=_TARGET_FIX)
    if target is None:
        found -= _tiles_left_out(found)
    isa = next((row for row in _INSTRUCTION_SETS if row[1] in found), ("scalar", "", 4, 16, 1, False))
    fma = 1 if (isa[0] == "avx2" and "fma" not in found) or (isa[0] == "avx512" and mcpu in _TWO_PASSES) else isa[4]
    return Machine(
        isa=isa[0], mcpu=mcpu, triple=triple, features=tuple(f for f in sorted(RELEVANT_FEATURES) if f in found),
        lanes=isa[2], registers=isa[3], fma_per_cycle=fma,
        operand_broadcast=isa[5], threads=threads, **_caches(),
    )  # fmt: skip


def _tiles_left_out(found: Collection[str]) -> set[str]:
    """Features of AMX that LLVM knows of this CPU by its name, but Linux hides, or gives this process no room for."""
    if not needs_tiles(found):
        return set()
    return set(TILE_FEATURES) if why_no_tiles() else set(missing_features(TILE_FEATURES))


_TARGET_FIX = (
    'leave target out for this machine, or give an LLVM CPU name such as "haswell", "skylake-avx512", '
    '"x86-64-v2", or a triple and a CPU: "aarch64-linux-gnu:cortex-a72"'
)


def _caches() -> dict[str, int]:
    """Cache sizes in bytes from Linux's sysfs; common sizes where it does not tell."""
    sizes = {"l1d": 32 << 10, "l2": 512 << 10, "l3": 8 << 20}
    for index in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        key = {"1": "l1d", "2": "l2", "3": "l3"}.get(level)
        if key and kind in ("Data", "Unified") and size.endswith("K"):
            sizes[key] = int(size[:-1]) << 10
    return sizes

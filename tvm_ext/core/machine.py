"""The machine a program is compiled for: instruction set, lanes, registers, caches, cores.

Recipes read this object; none of them knows a vector width of its own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..rates import Rates
from ..runtime.cpu import FLAGS_OF_FEATURE, MOST_THREADS, cpu_flags, missing_features
from ..runtime.pool.threads import available_cores as available_cores
from ..runtime.tiles import TILE_FEATURES, needs_tiles, why_no_tiles
from .errors import OptionError, check_choice, check_whole
from .machine_files import description_of, nearest_rates, similar_rates

if TYPE_CHECKING:
    import tvm

    from .options import CompileOptions

#: Host features an artifact may need, by LLVM's name; what is not listed changes no instruction we emit.
RELEVANT_FEATURES = (
    "sse4.2", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "popcnt", "avx512f", "avx512bw",
    "avx512cd", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16", "avx512fp16", "avx512vbmi", "avx512ifma",
    "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq", "vpclmulqdq", "vaes", "gfni", "sha", "avxvnni",
    "amx-tile", "amx-bf16", "amx-int8", "neon", "dotprod", "fullfp16", "sve", "sve2", "bf16", "i8mm",
)  # fmt: skip

# name, features that show it, f32 lanes, vector registers, broadcast in the operand
_INSTRUCTION_SETS = (
    ("avx512", ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"), 16, 32, True),
    ("avx2", ("avx2",), 8, 16, False),
    ("avx", ("avx",), 8, 16, False),
    ("sse4.2", ("sse4.2",), 4, 16, False),
    ("sve", ("sve",), 4, 32, True),
    ("neon", ("neon",), 4, 32, True),
    ("scalar", (), 4, 16, False),
)
#: The CPU that LLVM schedules for where it does not know the host's, by the instruction set.
_STAND_INS = {"avx512": "x86-64-v4", "avx2": "x86-64-v3", "avx": "sandybridge", "sse4.2": "x86-64-v2"}


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
        operand_broadcast: whether a multiply-add takes a scalar of memory (or of a lane) as an operand.
        l1d, l2, l3: bytes of the data caches: a core's own L1 and L2, the L3 that cores share.
        threads: threads a parallel kernel uses; 1 makes every kernel serial.
        rates: what its cores do in a cycle.
    """

    isa: str
    mcpu: str
    triple: str
    features: tuple[str, ...]
    lanes: int
    registers: int
    operand_broadcast: bool
    l1d: int
    l2: int
    l3: int
    threads: int
    rates: Rates

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
        return _detect(target, available_cores() if threads is None else check_whole("threads", threads, 1))

    @property
    def fma_per_cycle(self) -> float:
        """f32 multiply-adds of whole vectors that a core starts in a cycle."""
        return self.rates.fma

    def fma_at(self, lanes: int) -> float:
        """f32 vector multiply-adds a cycle of vectors of so many lanes."""
        return self.rates.fma_half if lanes <= self.lanes // 2 else self.rates.fma

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
        if attributes := _attributes(self.mcpu, self.triple, self.features):
            description["mattr"] = list(attributes)
        return tvm.target.Target(description)

    def measured(self, again: bool = False) -> Machine:
        """The same machine with the rates of the cores this process runs on: measured now, or kept from before.

        Args:
            again: measure now, whatever was kept.

        Raises:
            OptionError: this process cannot run the machine's instructions.
        """
        return replace(self, rates=_rates_here(self, again))

    def why_no_tiles(self) -> str:
        """Why recipes may use no AMX tile registers; "" if they may."""
        if "amx-tile" in self.features:
            return ""
        here = not self.triple and "amx_tile" in cpu_flags() and self.mcpu == _host().mcpu
        return (why_no_tiles() if here else "") or f"{self.mcpu or self.isa} has no amx-tile"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "features": list(self.features), "rates": self.rates.as_dict()}

    @staticmethod
    def of(values: Mapping[str, Any]) -> Machine:
        """From plain values, as :meth:`as_dict` gives them.

        Raises:
            OptionError: a field is missing, unknown or of another type.
        """
        if differ := {field.name for field in fields(Machine)} ^ set(values):
            raise OptionError(f"a machine: {', '.join(sorted(differ))} missing or unknown", fix=_MACHINE_FIX)
        if wrong := [f"{name}={value!r}" for name, value in values.items() if not _is_of_kind(name, value)]:
            raise OptionError(f"a machine: {', '.join(wrong)}: of another kind", fix=_MACHINE_FIX)
        features = tuple(sorted(values["features"]))
        return Machine(**{**values, "features": features, "rates": Rates.of(values["rates"])})

    @staticmethod
    def described(name: str | Path, threads: int | None = None) -> Machine:
        """A machine by the name of a description that comes with this library, or by the path of one.

        Args:
            threads: to plan for; None takes those of the description.

        Raises:
            OptionError: there is no such description, it describes no machine, or one of a CPU that LLVM does not know.
        """
        machine = Machine.of(description_of(name).machine)
        _check_facts(machine, f"machine={str(name)!r}")
        _check_cpu(machine.mcpu, machine.triple, f"machine={str(name)!r}", _MACHINE_FIX)
        return machine if threads is None else machine.with_threads(check_whole("threads", threads, 1))


def _is_of_kind(name: str, value: Any) -> bool:
    """Whether a plain value can be that of a field of a machine."""
    if name == "isa":
        return value in [row[0] for row in _INSTRUCTION_SETS]
    if name in ("mcpu", "triple"):
        return isinstance(value, str)
    if name == "features":
        return isinstance(value, list | tuple) and all(feature in RELEVANT_FEATURES for feature in value)
    if name == "rates":
        return isinstance(value, Mapping)
    return isinstance(value, bool) if name == "operand_broadcast" else type(value) is int and value >= 1


def _check_facts(machine: Machine, asked: str) -> None:
    """A described machine must have what its instruction set has: kernels are planned by one and built by the other."""
    _, features, *facts = next(row for row in _INSTRUCTION_SETS if row[0] == machine.isa)
    names = zip(("lanes", "registers", "operand_broadcast"), facts, strict=True)
    wrong = [f"{name} is {fact}" for name, fact in names if getattr(machine, name) != fact]
    wrong += [f"{feature!r} is a feature" for feature in features if feature not in machine.features]
    if wrong:
        raise OptionError(f"{asked}: of {machine.isa!r} {', '.join(wrong)}, and not here", fix=_MACHINE_FIX)
    check_whole(f"{asked}: threads", machine.threads, 1, MOST_THREADS)


def _check_cpu(mcpu: str, triple: str, asked: str, fix: str) -> None:
    """LLVM must know a CPU: of an unknown triple, TVM's targets end the process."""
    from tvm.target import codegen

    try:
        known = codegen.llvm_is_valid_cpu(mcpu, triple or codegen.llvm_get_system_triple())
    except Exception as error:
        raise OptionError(f"{asked}: LLVM does not know it ({error})", fix=fix) from error
    if not known:
        raise OptionError(f"{asked}: LLVM knows no CPU {mcpu!r}", fix=fix)


@functools.lru_cache(maxsize=64)
def _detect(target: str | None, threads: int) -> Machine:
    if target is None:
        return replace(_host(), threads=threads)
    triple, _, mcpu = target.rpartition(":")
    _check_cpu(mcpu, triple, f"target={target!r}", _TARGET_FIX)
    return machine_of_features(_implied(mcpu, triple), mcpu, triple, threads, caches())


@functools.cache
def _host() -> Machine:
    """The machine this process runs on, with all cores that it may use."""
    from ..rates import store

    flags = cpu_flags()
    features = frozenset(f for f in RELEVANT_FEATURES if f in FLAGS_OF_FEATURE and not missing_features([f], flags))
    if needs_tiles(features) and why_no_tiles():
        features -= set(TILE_FEATURES)
    mcpu, implied = store.name_of_cpu(_asked_of_llvm)
    return machine_of_features(features, mcpu, "", available_cores(), caches(), implied)


def _asked_of_llvm() -> tuple[str, Collection[str]]:
    """LLVM's name of this CPU, and the features that it takes a CPU of this name to have."""
    from tvm.target import codegen

    mcpu = str(codegen.llvm_get_system_cpu())
    return mcpu, _implied(mcpu, "")


def machine_for(options: CompileOptions) -> Machine:
    """The machine that options compile for: the described one, the CPU they name, or this one with measured rates.

    Raises:
        OptionError: no such machine or CPU.
    """
    if options.machine is not None:
        return Machine.described(options.machine, options.threads)
    machine = Machine.detect(options.target, options.threads)
    return machine.measured() if options.target is None else machine


def source_of_rates() -> str:
    """What $TVM_EXT_RATES takes the rates of this machine from: "measured", or "typical": those of a similar one.

    Raises:
        OptionError: it is something else.
    """
    source = os.environ.get("TVM_EXT_RATES") or "measured"
    check_choice("TVM_EXT_RATES", source, ("measured", "typical"))
    return source


def _rates_here(machine: Machine, again: bool) -> Rates:
    """The rates of the cores this process runs on; $TVM_EXT_RATES=typical takes those of a similar machine instead."""
    from ..rates import store

    if source_of_rates() == "typical":
        return machine.rates
    vectors = machine.with_threads(min(machine.threads, available_cores()))
    sizes = {"l1d": machine.l1d, "l2": machine.l2, "l3": machine.l3}

    def now() -> Rates:
        from ..rates.measure import Caches, measure
        from ..runtime.pool.threads import dispatcher

        rates = dispatcher.call(measure, vectors, Caches(**sizes), machine.rates)
        return rates.on_grid(nearest_rates(rates, machine.isa))

    return store.kept(vectors.threads, sizes, now, again, machine.features)


def machine_of_features(
    features: Collection[str], mcpu: str, triple: str, threads: int, sizes: Mapping[str, int],
    implied: Collection[str] | None = None,
) -> Machine:  # fmt: skip
    """The machine that has these features, whatever its name stands for; its rates are those of a similar one.

    Args:
        features: LLVM's names of what the CPU has.
        mcpu: LLVM's name of the CPU, by which it schedules instructions. "generic" and a name that is more than half a
            lie (of the features that decide on vectors) are replaced by the general name of the instruction set.
        sizes: bytes of "l1d", "l2" and "l3".
        implied: features that LLVM takes a CPU of this name to have; None asks LLVM.
    """
    row = next(row for row in _INSTRUCTION_SETS if set(row[1]) <= set(features))
    isa, shown, lanes, registers, broadcast = row
    if isa in _STAND_INS and not {*shown} <= {*(_implied(mcpu, triple) if implied is None else implied)}:
        mcpu = _STAND_INS[isa]
    ordered = tuple(f for f in sorted(RELEVANT_FEATURES) if f in features)
    rates = similar_rates(isa, ordered, mcpu)
    return Machine(isa, mcpu, triple, ordered, lanes, registers, broadcast, **sizes, threads=threads, rates=rates)


@functools.lru_cache(maxsize=64)
def _implied(mcpu: str, triple: str) -> frozenset[str]:
    """Features that LLVM takes a CPU to have by its name."""
    import tvm
    from tvm.target import codegen

    description = {"kind": "llvm", "mcpu": mcpu, **({"mtriple": triple} if triple else {})}
    return frozenset(str(f) for f in codegen.llvm_get_cpu_features(tvm.target.Target(description)))


@functools.lru_cache(maxsize=64)
def _attributes(mcpu: str, triple: str, features: tuple[str, ...]) -> tuple[str, ...]:
    """LLVM's attributes that make the features of a name those of the machine: "+f" adds, "-f" takes away."""
    implied = _implied(mcpu, triple)
    more = [f"+{f}" for f in features if f not in implied]
    return (*more, *(f"-{f}" for f in sorted(RELEVANT_FEATURES) if f in implied and f not in features))


_MACHINE_FIX = "give the fields that `tvm-ext machine --json` prints"
_TARGET_FIX = (
    'leave target out for this machine, or give an LLVM CPU name such as "haswell", "skylake-avx512", '
    '"x86-64-v2", or a triple and a CPU: "aarch64-linux-gnu:cortex-a72"'
)


@functools.cache
def caches() -> dict[str, int]:
    """Cache sizes in bytes from Linux's sysfs; common sizes where it does not tell."""
    sizes = {"l1d": 32 << 10, "l2": 512 << 10, "l3": 8 << 20}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        key = {"1": "l1d", "2": "l2", "3": "l3"}.get(level)
        if key and kind in ("Data", "Unified") and size.endswith("K"):
            sizes[key] = int(size[:-1]) << 10
    return sizes
